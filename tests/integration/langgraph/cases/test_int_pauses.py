"""INT: pauses inside tools, the same over every front end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from tests.support.front_ends import EVERYWHERE, Desk, FrontEnd, desk, over
from tests.support.room import Rooms, error_of, free, gated, paired, pay, tool_of
from tests.support.script import ai, call
from typing_extensions import TypedDict

from adapter import Effects, Retry

pytestmark = pytest.mark.anyio


def paying(rooms: Rooms, end: FrontEnd, *calls: Any, **more: Any) -> Desk:
    return desk(rooms, end, ai(*calls), **more)


@EVERYWHERE
async def test_int01_three_gated_calls_are_three_questions_that_name_their_calls(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = paying(rooms, end, pay("c1", 1), pay("c2", 2), pay("c3", 3))
    await room.say()
    seen: dict[str, tuple[str, int]] = {}
    for _ in range(3):
        for question in await room.asked():
            request = question.value["request"]
            seen[question.id] = (request["call_id"], request["arguments"]["amount"])
        await room.decide((await room.asked())[0])
    assert sorted(seen.values()) == [("c1", 1), ("c2", 2), ("c3", 3)]
    assert await room.asked() == []
    assert sorted(room.ledger.paid) == [1, 2, 3]
    assert set(await room.results()) == {"c1", "c2", "c3"}


@EVERYWHERE
async def test_int03_an_ungated_sibling_runs_once_over_two_pauses(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = paying(rooms, end, call("note", "n1", text="mail"), pay("c1", 1), pay("c2", 2))
    await room.say()
    before = len(room.ledger.of("note"))
    first = (await room.asked())[0]
    await room.resume({first.id: {"approved": True}})
    await room.decide((await room.asked())[0])
    assert len(await room.asked()) == 1
    await room.answered()
    assert before == len(room.ledger.of("note")) == 1
    assert (await room.results())["n1"].content == "noted mail"


@EVERYWHERE
async def test_int04_approve_approve_deny_then_a_further_message(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = paying(rooms, end, pay("c1", 1), pay("c2", 2), pay("c3", 3))
    await room.say()
    asked = await room.answered(
        lambda q: "reject" if q.value["request"]["call_id"] == "c3" else "approve", reason="no"
    )
    assert sorted(asked) == ["c1", "c2", "c3"]
    assert sorted(room.ledger.paid) == [1, 2]
    found = await room.results()
    assert {name: message.status for name, message in found.items()} == {
        "c1": "success",
        "c2": "success",
        "c3": "error",
    }
    await room.say("and now?")
    paired(room.model.sent[-1])
    assert sorted(room.ledger.paid) == [1, 2]


@over("wrapper")
@pytest.mark.parametrize("handle", [True, False, "oops", (Exception,)])
async def test_int05_error_handling_of_the_node_leaves_the_pause_alone(
    rooms: Rooms, end: FrontEnd, handle: Any
) -> None:
    """A plain ToolNode's only: our tool node and create_agent's have no such setting."""
    room = paying(rooms, end, pay(), handle=handle)
    await room.say()
    (question,) = await room.asked()
    assert not any(isinstance(message, ToolMessage) for message in await room.messages())
    await room.decide(question)
    assert room.ledger.paid == [100]
    await room.results()


def failing(rooms: Rooms, times: int) -> Any:
    left = [times]

    def flaky(text: str) -> str:
        rooms.ledger.add(tool="flaky")
        if left[0]:
            left[0] -= 1
            raise ConnectionError("away")
        return "there"

    return tool_of(flaky, "flaky")


RETRY = Retry(max_attempts=3, initial_interval=0.0, jitter=False)


@EVERYWHERE
async def test_int06_our_retries_neither_repeat_nor_spend_themselves_on_a_pause(
    rooms: Rooms, end: FrontEnd
) -> None:
    spec = replace(gated("flaky"), effects=Effects(idempotent=True), retries=RETRY)
    room = paying(
        rooms, end, call("flaky", "f1", text="x"), tools=[failing(rooms, 2)], specs=[spec]
    )
    await room.say()
    assert room.ledger.all == []
    assert len(await room.events("requested")) == 1
    await room.answered()
    assert len(room.ledger.of("flaky")) == 3
    assert (await room.results())["f1"].content == "there"


@EVERYWHERE
async def test_int07_a_broad_except_in_a_tool_cannot_swallow_the_gate(
    rooms: Rooms, end: FrontEnd
) -> None:
    def careless(text: str) -> str:
        try:
            rooms.ledger.add(tool="careless")
            raise RuntimeError("inside")
        except BaseException as error:  # noqa: BLE001 - that is the point
            return f"swallowed {type(error).__name__}"

    room = paying(
        rooms,
        end,
        call("careless", "k1", text="x"),
        tools=[tool_of(careless, "careless")],
        specs=[gated("careless")],
    )
    await room.say()
    assert room.ledger.all == []
    await room.answered()
    assert len(room.ledger.of("careless")) == 1
    assert (await room.results())["k1"].content == "swallowed RuntimeError"


@EVERYWHERE
async def test_int07_a_pause_from_a_thread_without_context_is_an_error_and_no_way_in(
    rooms: Rooms, end: FrontEnd
) -> None:
    def lost(text: str) -> str:
        rooms.ledger.add(tool="lost")
        found: list[BaseException] = []

        def ask() -> None:
            try:
                interrupt("may I?")
                rooms.ledger.add(tool="went on")
            except BaseException as error:  # noqa: BLE001 - carried over to the caller
                found.append(error)

        thread = threading.Thread(target=ask, name="no-context")
        thread.start()
        thread.join()
        raise found[0]

    room = paying(
        rooms,
        end,
        call("lost", "l1", text="x"),
        tools=[tool_of(lost, "lost")],
        specs=[free("lost")],
    )
    await room.say()
    assert [fact["tool"] for fact in room.ledger.all] == ["lost"]
    assert error_of((await room.results())["l1"])["kind"] == "ToolFailed"


@EVERYWHERE
async def test_int08_two_refusals_and_an_approval_are_three_decisions(
    rooms: Rooms, end: FrontEnd
) -> None:
    """What stands before the question (policy, budget, audit) runs with each re-run of the task."""

    def again(messages: list[BaseMessage]) -> AIMessage:
        tries = sum(isinstance(message, ToolMessage) for message in messages)
        last = messages[-1]
        done = isinstance(last, ToolMessage) and last.status == "success"
        return AIMessage("done") if done else ai(pay(f"c{tries}"))

    room = desk(rooms, end, again, again, again, again)
    await room.say()
    for kind in ("reject", "reject", "approve"):
        (question,) = await room.asked()
        await room.resume({question.id: "not an answer"})
        await room.resume({question.id: "not an answer"})
        (question,) = await room.asked()
        await room.decide(question, kind, **({"reason": "no"} if kind == "reject" else {}))
    assert room.ledger.paid == [100]
    kinds = [event["kind"] for event in await room.events()]
    assert kinds.count("requested") == 3
    assert kinds.count("decided") == 3
    assert kinds.count("started") == 1


class Steps(TypedDict, total=False):
    heard: list[str]


def delegate(rooms: Rooms, questions: int, how: str) -> Any:
    """A tool that runs a graph: a step that counts, then questions."""

    def count(state: Steps) -> Steps:
        rooms.ledger.add(tool="inner step")
        return {"heard": []}

    def ask(number: int) -> Any:
        def step(state: Steps) -> Steps:
            return {"heard": [*state.get("heard", []), str(interrupt(f"question {number}"))]}

        return step

    graph: Any = StateGraph(Steps)
    names = ["count", *(f"ask{number}" for number in range(questions))]
    graph.add_node("count", count)
    for number in range(questions):
        graph.add_node(f"ask{number}", ask(number))
    for before, after in zip([START, *names], names, strict=False):
        graph.add_edge(before, after)
    inner = graph.compile()

    def run(text: str) -> str:
        rooms.ledger.add(tool="delegate")
        return f"{text}: {', '.join(inner.invoke({})['heard'])}"

    async def arun(text: str) -> str:
        rooms.ledger.add(tool="delegate")
        return f"{text}: {', '.join((await inner.ainvoke({}))['heard'])}"

    return tool_of(arun if how == "async" else run, "delegate")


@EVERYWHERE
@pytest.mark.parametrize("spec", [free("delegate"), gated("delegate")], ids=["free", "gated"])
async def test_int10_each_question_of_a_sub_agent_gets_its_own_answer(
    rooms: Rooms, end: FrontEnd, spec: Any
) -> None:
    room = paying(
        rooms,
        end,
        call("delegate", "d1", text="x"),
        tools=[delegate(rooms, 2, end.how)],
        specs=[spec],
    )
    await room.say()
    if spec.approval is not None:
        assert room.ledger.all == []
        await room.decide((await room.asked())[0])
    for number in range(2):
        (question,) = await room.asked()
        assert question.value == f"question {number}"
        await room.resume({question.id: f"answer {number}"})
    assert await room.asked() == []
    assert (await room.results())["d1"].content == "x: answer 0, answer 1"
    assert len(room.ledger.of("inner step")) == 1


@over("middleware")
async def test_int10_two_sub_agents_of_one_message_are_answered_by_id(
    rooms: Rooms, end: FrontEnd
) -> None:
    """create_agent's calls are tasks of their own; in one node LangGraph shows one pause."""
    calls = [call("delegate", f"d{number}", text=f"{number}") for number in (1, 2)]
    room = paying(rooms, end, *calls, tools=[delegate(rooms, 1, end.how)], specs=[free("delegate")])
    await room.say()
    first, second = await room.asked()
    await room.resume({second.id: "two"})
    await room.resume({first.id: "one"})
    found = await room.results()
    assert {str(found[name].content) for name in ("d1", "d2")} == {"1: one", "2: two"}
    assert len(room.ledger.of("inner step")) == 2


@over("tool_node", "wrapper")
async def test_int10_two_sub_agents_of_one_node_are_answered_one_after_the_other(
    rooms: Rooms, end: FrontEnd
) -> None:
    calls = [call("delegate", f"d{number}", text=f"{number}") for number in (1, 2)]
    room = paying(rooms, end, *calls, tools=[delegate(rooms, 1, end.how)], specs=[free("delegate")])
    await room.say()
    for _ in range(6):
        asked = await room.asked()
        if not asked:
            break
        await room.resume({asked[0].id: "heard"})
    found = await room.results()
    assert [str(found[name].content) for name in ("d1", "d2")] == ["1: heard", "2: heard"]
    assert len(room.ledger.of("inner step")) == 2


@over(how=["async"])
@pytest.mark.parametrize("context", ["copied", "empty"])
async def test_int11_a_task_that_a_tool_starts_pauses_or_fails(
    rooms: Rooms, end: FrontEnd, context: str
) -> None:
    """Async only: a synchronous tool has no tasks to start."""

    async def spawn(text: str) -> str:
        rooms.ledger.add(tool="spawn")

        async def ask() -> str:
            return str(interrupt("may I?"))

        how: dict[str, Any] = {} if context == "copied" else {"context": contextvars.Context()}
        return await asyncio.create_task(ask(), **how)

    room = paying(
        rooms,
        end,
        call("spawn", "s1", text="x"),
        tools=[tool_of(spawn, "spawn")],
        specs=[gated("spawn")],
    )
    await room.say()
    assert room.ledger.all == []
    await room.decide((await room.asked())[0])
    if context == "copied":
        (question,) = await room.asked()
        assert question.value == "may I?"
        await room.resume({question.id: "you may"})
        assert (await room.results())["s1"].content == "you may"
    else:
        assert await room.asked() == []
        assert error_of((await room.results())["s1"])["kind"] == "ToolFailed"


@EVERYWHERE
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_gated_call_is_the_same_under_every_durability(
    rooms: Rooms, end: FrontEnd, durability: str
) -> None:
    room = paying(rooms, end, call("note", "n1", text="x"), pay())
    await room.say(durability=durability)
    (question,) = await room.asked()
    assert room.ledger.paid == []
    answer: Any = Command(resume={question.id: room.sign(question)})
    await room.run(answer, durability=durability)
    assert room.ledger.paid == [100]
    assert len(room.ledger.of("note")) == 1
    await room.results()
