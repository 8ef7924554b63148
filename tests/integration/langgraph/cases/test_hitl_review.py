"""HITL: what LangChain's own review gets wrong, over every front end."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic import BaseModel
from tests.support.front_ends import EVERYWHERE, FrontEnd, desk, over
from tests.support.room import (
    Rooms,
    error_of,
    free,
    gated,
    money_tools,
    paired,
    pay,
    tool_of,
)
from tests.support.script import ai, call

from adapter import ApprovalRule, Budgets, Effects, ToolSpec
from adapter.core.errors import ConfigurationError
from adapter.core.policy import Policy

pytestmark = pytest.mark.anyio


@EVERYWHERE
async def test_hitl02_answers_go_by_id_and_a_positional_list_is_refused(
    rooms: Rooms, end: FrontEnd
) -> None:
    """As a screen sorts its cards: the answer to the second question first."""
    room = desk(rooms, end, ai(pay("c1", 1), pay("c2", 2)))
    await room.say()
    asked = await room.asked()
    signed = [room.sign(question) for question in reversed(asked)]
    for wrong in (signed, {"decisions": [{"type": "reject"}, {"type": "approve"}]}):
        await room.resume({question.id: wrong for question in asked})
        assert room.ledger.paid == []
    assert [question.id for question in await room.asked()] == [question.id for question in asked]
    await room.answered(
        lambda q: "reject" if q.value["request"]["call_id"] == "c1" else "approve", reason="no"
    )
    assert room.ledger.paid == [2]
    found = await room.results()
    assert (found["c1"].status, found["c2"].status) == ("error", "success")


@EVERYWHERE
@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_hitl03_a_wrong_count_is_refused_and_can_be_corrected(
    rooms: Rooms, end: FrontEnd, count: int
) -> None:
    room = desk(rooms, end, ai(call("note", "n1", text="x"), pay()))
    await room.say()
    (question,) = await room.asked()
    await room.resume({question.id: {"decisions": [{"type": "approve"}] * count}})
    assert room.ledger.paid == []
    # A page that is loaded again has the thread's state only.
    (question,) = await room.asked()
    request = question.value["request"]
    assert (request["tool"], request["call_id"]) == ("send_money", "c1")
    assert request["arguments"] == {"to": "bob", "amount": 100}
    await room.decide(question)
    assert room.ledger.paid == [100]
    assert len(room.ledger.of("note")) == 1
    await room.results()


def declared(name: str = "send_money", **more: Any) -> Any:
    return lambda: [gated(name, **more), free("note"), free("look", Effects(read_only=True))]


def rule(**more: Any) -> Any:
    return lambda: [gated("send_money", approval=ApprovalRule(name="r", **more))]


BROKEN: dict[str, tuple[Any, str]] = {
    "no such tool": (declared("send_monney"), "send_mon"),
    "letter case": (declared("Send_Money"), "(?i)send_money"),
    "misspelt key": (declared(approvall=None), "approvall"),
    "approval left out": (lambda: [_spec(name="send_money", effects=Effects())], "approval"),
    "no decision": (rule(allowed=()), "allowed"),
    "unknown decision": (rule(allowed=("aprove",)), "allowed"),
    "misspelt decisions": (rule(alowed=("approve",)), "alowed"),
    "a rule that is none": (declared(approval="always"), "approval"),
}


def _spec(**fields: Any) -> ToolSpec:
    return ToolSpec(**fields)


@over(how=["async"])
@pytest.mark.parametrize("name", BROKEN)
async def test_hitl04_a_mistake_in_the_rules_stops_the_wiring(
    rooms: Rooms, end: FrontEnd, name: str
) -> None:
    """Found at the wiring, which is the same for sync and async."""
    specs, named = BROKEN[name]
    tools, _ = money_tools(rooms.ledger)
    with pytest.raises((ConfigurationError, TypeError), match=named):
        await desk(rooms, end, ai(pay()), tools=tools, specs=specs(), closed=True).say()
    assert rooms.ledger.all == []


@over("wrapper", how=["async"])
async def test_hitl04_nearly_the_name_of_a_tool_stops_a_wrapper_over_several_nodes(
    rooms: Rooms, end: FrontEnd
) -> None:
    """The other front ends have one set of tools, and refuse every other name."""
    tools, _ = money_tools(rooms.ledger)
    for name in ("Send_Money", "send-money", "sendmoney"):
        with pytest.raises(ConfigurationError, match=name):
            await desk(rooms, end, ai(pay()), tools=tools, specs=[gated(name)]).say()
    elsewhere = [gated("send_money"), gated("tool_of_another_node")]
    await desk(rooms, end, ai(pay()), tools=tools, specs=elsewhere).say()
    assert rooms.ledger.all == []


@over(how=["async"])
@pytest.mark.parametrize("name", ["send_monney", "Send_Money", "send-money"])
async def test_hitl04_a_policy_for_a_tool_that_is_none_stops_the_wiring(
    rooms: Rooms, end: FrontEnd, name: str
) -> None:
    specs = [free("send_money"), free("note"), free("look", Effects(read_only=True))]
    policy = Policy(escalate={name: "x"})
    with pytest.raises(ConfigurationError, match=name):
        await desk(
            rooms, end, ai(pay()), specs=specs, policy=policy, store="adapter.db", closed=True
        ).say()
    assert rooms.ledger.all == []


@EVERYWHERE
async def test_hitl05_approve_reject_and_edit_in_one_batch(rooms: Rooms, end: FrontEnd) -> None:
    room = desk(rooms, end, ai(pay("c1", 1), pay("c2", 2), pay("c3", 3)))
    await room.say()
    for _ in range(3):
        question = (await room.asked())[0]
        answers: dict[str, tuple[str, dict[str, Any]]] = {
            "c1": ("approve", {}),
            "c2": ("reject", {"reason": "no"}),
            "c3": ("edit", {"edited_args": {"to": "bob", "amount": 30}}),
        }
        kind, more = answers[question.value["request"]["call_id"]]
        await room.decide(question, kind, **more)
    assert sorted(room.ledger.paid) == [1, 30]
    found = await room.results()
    assert [found[name].status for name in ("c1", "c2", "c3")] == ["success", "error", "success"]
    paired(room.model.sent[-1])


class Letter(BaseModel):
    to: str
    body: str = "hi"


@EVERYWHERE
async def test_an_edit_that_leaves_out_what_was_shown_does_not_run_with_a_default(
    rooms: Rooms, end: FrontEnd
) -> None:
    def letter(to: str, body: str = "hi") -> str:
        rooms.ledger.add(tool="letter", to=to, body=body)
        return "sent"

    tools = [tool_of(letter, "letter", Letter)]
    line = ai(call("letter", "c1", to="bob", body="Important"))
    room = desk(rooms, end, line, ai(text="done"), tools=tools, specs=[gated("letter")])
    await room.say()
    (question,) = await room.asked()
    part = room.sign(question, "edit", edited_args={"to": "ann"})
    whole = room.sign(question, "edit", edited_args={"to": "ann", "body": "So"})
    await room.resume({question.id: part})
    assert room.ledger.all == []
    await room.resume({question.id: whole})
    assert [(fact["to"], fact["body"]) for fact in room.ledger.all] == [("ann", "So")]


def stubborn(messages: list[BaseMessage]) -> AIMessage:
    """Proposes the same call until it is done."""
    last = messages[-1]
    if isinstance(last, ToolMessage) and last.status == "success":
        return AIMessage("done")
    tries = sum(isinstance(message, ToolMessage) for message in messages)
    return ai(pay(f"c{tries}"))


@EVERYWHERE
async def test_hitl06_a_refusal_says_that_a_person_refused(rooms: Rooms, end: FrontEnd) -> None:
    room = desk(rooms, end, ai(pay()))
    await room.say()
    await room.answered(["reject"], reason="too much")
    error = error_of((await room.results())["c1"])
    assert error["kind"] == "ApprovalDenied"
    assert "a person refused this call" in error["message"]
    assert "do not retry" in error["message"]
    assert "too much" in error["message"]


def until_told(messages: list[BaseMessage]) -> AIMessage:
    """Proposes the same call until its result says that nobody is asked any more."""
    told = isinstance(messages[-1], ToolMessage) and "too often" in messages[-1].text
    return AIMessage("as you wish") if told else stubborn(messages)


@EVERYWHERE
async def test_hitl06_the_same_call_is_asked_about_five_times_a_turn_and_no_more(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = desk(rooms, end, *[until_told] * 7, ai(pay("again")), ai(text="done"))
    await room.say()
    asked = await room.answered(["reject"] * 20, reason="no")
    assert len(asked) == len(await room.events("decided")) == 5
    assert len(await room.events("refused")) == 1
    assert error_of((await room.results())["c5"])["kind"] == "BudgetExceeded"
    assert room.ledger.paid == []
    await room.say("now do it")  # another turn
    await room.answered(["approve"])
    assert room.ledger.paid == [100]


@EVERYWHERE
async def test_hitl06_other_arguments_are_asked_about_all_the_same(
    rooms: Rooms, end: FrontEnd
) -> None:
    lines = [ai(pay(f"c{amount}", amount=amount)) for amount in (1, 2, 3, 3)]
    budgets = Budgets(refusals_per_turn=1)
    room = desk(rooms, end, *lines, ai(text="done"), budgets=budgets)
    await room.say()
    asked = await room.answered(["reject", "reject", "approve"], reason="no")
    assert len(asked) == 4
    assert sorted(room.ledger.paid) == [3, 3]


@EVERYWHERE
async def test_hitl06_the_same_call_spelt_otherwise_is_the_same_call(
    rooms: Rooms, end: FrontEnd
) -> None:
    def letter(to: str, body: str = "hi") -> str:
        rooms.ledger.add(tool="letter")
        return "sent"

    lines = [call("letter", "c1", to="bob"), call("letter", "c2", to="bob", body="hi")]
    room = desk(
        rooms,
        end,
        *[ai(line) for line in lines],
        ai(text="done"),
        tools=[tool_of(letter, "letter", Letter)],
        specs=[gated("letter")],
        budgets=Budgets(refusals_per_turn=1),
    )
    await room.say()
    assert await room.answered(["reject"], reason="no") == ["c1"]
    assert error_of((await room.results())["c2"])["kind"] == "BudgetExceeded"
    assert room.ledger.all == []


@over("middleware")
async def test_hitl06_a_model_that_does_not_listen_is_stopped_by_its_budget(
    rooms: Rooms, end: FrontEnd
) -> None:
    """Of model calls, which are the middleware's; a hand-built graph has the host's limit."""
    room = desk(rooms, end, *[stubborn] * 9, budgets=Budgets(model_calls_per_turn=4))
    await room.say()
    asked = await room.answered(["reject"] * 20, reason="no")
    assert len(asked) == 3  # the fourth answer of the model is not asked for
    assert len(await room.events("decided")) == 3
    assert room.ledger.paid == []
    await room.results()
