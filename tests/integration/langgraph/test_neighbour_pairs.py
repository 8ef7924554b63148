"""Every middleware of LangChain's beside ours, alone and in pairs, on either side and between.

One message with a free call, a gated call that is approved, one that is rejected, and a gated one
that is approved and fails. Whatever stands around: effects happen once, what was rejected never
runs, nothing unapproved runs, no question is lost, and histories stay paired.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import langchain.agents.middleware as theirs
import pytest
from langchain.agents.middleware import AgentMiddleware, TodoListMiddleware
from langchain_core.messages import ToolMessage
from langgraph.types import Command, Interrupt
from tests.support.front_ends import Desk
from tests.support.others import AROUND_TOOLS, LEFT_OUT, OTHERS
from tests.support.room import Rooms, free, gated, money_tools, paired, pay, tool_of
from tests.support.script import Script, ai, call

from adapter.core.errors import ConfigurationError

pytestmark = pytest.mark.anyio
BATCH = ai(call("note", "n1", text="x"), pay("c1", 1), pay("c2", 2), call("odd", "o1", text="x"))
OURS = "agent_adapter.approval"


def odd_of(rooms: Rooms) -> Any:
    def odd(text: str) -> str:
        rooms.ledger.add(tool="odd")
        raise ValueError("boom")

    return tool_of(odd, "odd")


def agent(
    rooms: Rooms, before: Sequence[str], after: Sequence[str], how: str
) -> tuple[Desk, Script]:
    """An agent with ours between others; the second script is for models they bring."""
    spare = Script.of(BATCH.model_copy(deep=True))
    room = rooms(
        BATCH,
        tools=[odd_of(rooms)],
        specs=[*money_tools(rooms.ledger)[1], gated("odd")],
        before=[OTHERS[name].make(spare) for name in before],
        after=[OTHERS[name].make(spare) for name in after],
    )
    return Desk(**vars(room), how=how), spare


def answer(room: Desk, question: Interrupt) -> Any:
    """Ours by signature, rejecting c2; the host's review by its own words, approving all."""
    value = question.value
    if value.get("type") == OURS:
        kind = "reject" if value["request"]["call_id"] == "c2" else "approve"
        return room.sign(question, kind, **({"reason": "no"} if kind == "reject" else {}))
    if value.get("type") == "tool_approval":
        return {"type": "approve"}
    return {"decisions": [{"type": "approve"}] * len(value["action_requests"])}


async def holds(rooms: Rooms, before: Sequence[str], after: Sequence[str], how: str) -> None:
    room, spare = agent(rooms, before, after, how)
    earlier = len(room.ledger.all)
    await room.say()
    asked: list[str] = []
    for _ in range(12):
        open_now = await room.asked()
        if not open_now:
            break
        question = open_now[0]
        if question.value.get("type") == OURS:
            asked.append(question.value["request"]["call_id"])
        await room.run(Command(resume={question.id: answer(room, question)}))
    assert await room.asked() == []
    stopped: frozenset[str] = frozenset().union(*(OTHERS[name].stops for name in (*before, *after)))
    facts = room.ledger.all[earlier:]
    assert [fact["amount"] for fact in facts if fact["tool"] == "send_money"] == (
        [] if "c1" in stopped else [1]
    )
    ran = [fact["tool"] for fact in facts]
    assert ran.count("odd") == ("o1" not in stopped)
    assert ran.count("note") == ("n1" not in stopped)
    assert sorted(asked) == sorted({"c1", "c2", "o1"} - stopped)
    for sent in (*room.model.sent, *spare.sent):
        paired(sent)
    messages = await room.messages()
    paired(messages)
    found = {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}
    for refused in {"c2", "o1"} & set(found):
        assert found[refused].status == "error"
    assert room.ledger.all[earlier:] == facts


def test_every_middleware_of_langchain_is_tried_or_has_a_reason() -> None:
    listed = {
        name
        for name in theirs.__all__
        if name.endswith(("Middleware", "Emulator")) and name != AgentMiddleware.__name__
    }
    tried = {type(other.make(Script.of())).__name__ for other in OTHERS.values()}
    assert listed == tried | LEFT_OUT.keys()


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("name", OTHERS)
async def test_beside_one_other(rooms: Rooms, name: str, where: str) -> None:
    for how in ("async", "sync"):
        around = ([name], []) if where == "before" else ([], [name])
        await holds(rooms, *around, how)


def arrangements(one: str, other: str) -> list[tuple[list[str], list[str]]]:
    """Both orders of two, with ours before, between and behind them."""
    return [
        (list(order[:place]), list(order[place:]))
        for order in ((one, other), (other, one))
        for place in range(3)
    ]


def pairs(names: Sequence[str]) -> list[Any]:
    made = []
    for one, other in itertools.combinations(names, 2):
        kinds = [type(OTHERS[name].make(Script.of())) for name in (one, other)]
        if kinds[0] is not kinds[1]:  # create_agent takes one of a kind
            made.append(pytest.param(one, other, id=f"{one}+{other}"))
    return made


OFTEN = [name for name in AROUND_TOOLS if name.startswith(("tool-", "review-"))]


@pytest.mark.parametrize(("one", "other"), pairs(OFTEN))
async def test_between_two_that_retry_handle_review_or_limit_tool_calls(
    rooms: Rooms, one: str, other: str
) -> None:
    for before, after in arrangements(one, other):
        await holds(rooms, before, after, "async")


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), pairs(list(OTHERS)))
async def test_between_any_two(rooms: Rooms, one: str, other: str) -> None:
    for before, after in arrangements(one, other):
        for how in ("async", "sync"):
            await holds(rooms, before, after, how)


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_middleware_with_a_tool_of_its_own_needs_a_spec_for_it(
    rooms: Rooms, where: str
) -> None:
    todo = TodoListMiddleware()
    around: dict[str, Any] = {where: [todo]}
    with pytest.raises(ConfigurationError, match="write_todos"):
        await rooms(BATCH, **around).say()
    assert rooms.ledger.all == []
    plan = call("write_todos", "w1", todos=[{"content": "pay", "status": "pending"}])
    room = rooms(
        ai(plan, pay()),
        tools=todo.tools,
        specs=[*money_tools(rooms.ledger)[1], free("write_todos")],
        **around,
    )
    await room.say()
    (question,) = await room.asked()
    await room.decide(question)
    assert room.ledger.paid == [100]
    assert (await room.results())["w1"].status == "success"
