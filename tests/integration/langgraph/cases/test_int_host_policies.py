"""What LangGraph does around a node (retry, cache, error handler, drain) leaves pauses alone.

Hand-built graphs only: create_agent takes no such options for its tools.
"""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.errors import GraphDrained
from langgraph.graph import END
from langgraph.runtime import RunControl
from langgraph.types import CachePolicy, Command, RetryPolicy
from tests.support.front_ends import OWN, Desk, FrontEnd, desk, over
from tests.support.room import Rooms, gated, pay, tool_of
from tests.support.script import ai, call

from adapter import ApprovalAlreadyDecided

pytestmark = pytest.mark.anyio
EVERYTHING = RetryPolicy(
    initial_interval=0.0, max_attempts=3, jitter=False, retry_on=lambda error: True
)
BATCH = (call("note", "n1", text="x"), pay("c1", 1), pay("c2", 2))


def failing(rooms: Rooms, end: FrontEnd, **node: Any) -> Desk:
    """An agent whose one gated tool fails, and the failure leaves its node."""

    def odd(text: str) -> str:
        rooms.ledger.add(tool="odd")
        raise ValueError("boom")

    return desk(
        rooms,
        end,
        ai(call("odd", "o1", text="x")),
        tools=[tool_of(odd, "odd")],
        specs=[gated("odd")],
        failure="raise",
        node=node,
    )


@over(*OWN)
async def test_a_retry_policy_for_everything_repeats_neither_pause_nor_effect(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = desk(rooms, end, ai(*BATCH), node={"retry_policy": EVERYTHING})
    await room.say()
    await room.answered()
    assert room.ledger.paid == [1, 2]
    assert len(room.ledger.of("note")) == 1
    assert len(await room.events("requested")) == 2
    await room.results()


@over(*OWN)
async def test_a_retry_policy_does_not_repeat_an_approved_tool_that_failed(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = failing(rooms, end, retry_policy=EVERYTHING)
    await room.say()
    (question,) = await room.asked()
    with pytest.raises(ApprovalAlreadyDecided):  # what the last attempt is told
        await room.decide(question)
    assert len(room.ledger.of("odd")) == 1
    assert len(await room.events("requested")) == 1


@over(*OWN)
async def test_a_cache_policy_keeps_no_pause_and_gives_no_approval_again(
    rooms: Rooms, end: FrontEnd
) -> None:
    """Even with one key for everything: the second turn's call is another, and is asked about."""
    room = desk(
        rooms,
        end,
        ai(pay("c1", 1)),
        ai(text="ok"),
        ai(pay("c2", 2)),
        node={"cache_policy": CachePolicy()},
        compiled={"cache": InMemoryCache()},
    )
    await room.say()
    (question,) = await room.asked()
    assert room.ledger.paid == []
    await room.decide(question)
    assert room.ledger.paid == [1]
    await room.say("again")
    (question,) = await room.asked()
    await room.decide(question)
    assert room.ledger.paid == [1, 2]
    await room.results()


@over(*OWN)
async def test_an_error_handler_of_the_node_does_not_see_a_pause(
    rooms: Rooms, end: FrontEnd
) -> None:
    seen: list[str] = []

    def handler(state: Any) -> Any:
        seen.append("handled")
        return Command(goto=END)

    room = desk(rooms, end, ai(*BATCH), node={"error_handler": handler})
    await room.say()
    assert len(await room.asked()) == 1
    await room.answered()
    assert seen == []
    assert room.ledger.paid == [1, 2]
    await room.results()


@over(*OWN)
async def test_an_error_handler_of_the_node_gets_a_failure_once(
    rooms: Rooms, end: FrontEnd
) -> None:
    seen: list[str] = []

    def handler(state: Any) -> Any:
        seen.append("handled")
        return Command(goto=END)

    room = failing(rooms, end, error_handler=handler)
    await room.say()
    (question,) = await room.asked()
    await room.decide(question)
    assert seen == ["handled"]
    assert len(room.ledger.of("odd")) == 1


@over()
async def test_a_drain_while_a_question_is_open_keeps_it(rooms: Rooms, end: FrontEnd) -> None:
    control = RunControl()

    def drains(messages: Any) -> Any:
        control.request_drain()
        return ai(*BATCH)

    room = desk(rooms, end, drains)
    with pytest.raises(GraphDrained):
        await room.run({"messages": [("user", "pay")]}, control=control)
    assert room.ledger.paid == []
    await room.run(None)
    assert room.ledger.paid == []
    await room.answered()
    assert sorted(room.ledger.paid) == [1, 2]
    assert len(room.ledger.of("note")) == 1
    await room.results()


@over()
async def test_a_drain_during_an_approved_call_repeats_nothing(rooms: Rooms, end: FrontEnd) -> None:
    control = RunControl()

    def slow(text: str) -> str:
        rooms.ledger.add(tool="slow")
        control.request_drain()
        return "done"

    room = desk(
        rooms,
        end,
        ai(call("slow", "s1", text="x")),
        tools=[tool_of(slow, "slow")],
        specs=[gated("slow")],
    )
    await room.say()
    (question,) = await room.asked()
    answer: Any = Command(resume={question.id: room.sign(question)})
    with pytest.raises(GraphDrained):
        await room.run(answer, control=control)
    assert await room.asked() == []
    await room.run(None)
    assert len(room.ledger.of("slow")) == 1
    assert (await room.results())["s1"].content == "done"
