"""RES: one result for each call, whatever a tool returns, raises or is interrupted by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import ToolException
from langgraph.errors import GraphRecursionError
from langgraph.types import Command
from tests.support.front_ends import EVERYWHERE, Desk, FrontEnd, desk, eventually, over
from tests.support.room import Rooms, error_of, free, gated, paired, pay, tool_of
from tests.support.script import ai, call

from adapter import Budgets
from adapter.langgraph import Compression, langgraph_compressor

pytestmark = pytest.mark.anyio


def says(text: str, call_id: str) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id, name="odd")


def updates(*messages: Any, **more: Any) -> Command[Any]:
    return Command(update={"messages": list(messages)}, **more)


def mapped(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": "mapped", "tool_call_id": call_id}


Made = Callable[[str], Any]
GOOD: dict[str, tuple[Made, str]] = {
    "message": (lambda me: says("hi", me), "hi"),
    "command": (lambda me: updates(says("hi", me)), "hi"),
    "command-with-map": (lambda me: updates(mapped(me)), "mapped"),
    "list-of-command-with-map": (lambda me: [updates(mapped(me))], "mapped"),
    "command-with-no-list": (lambda me: Command(update={"messages": says("hi", me)}), "hi"),
    "command-beside-message": (lambda me: [Command(update={}), says("hi", me)], "hi"),
    "blocks": (lambda _: [{"type": "text", "text": "hi"}], "hi"),
    "bytes": (lambda _: b"hi\xff", "b'hi\\xff'"),
    "nan": (lambda _: float("nan"), "NaN"),
    "world": (lambda _: "grüße 世界 😀", "grüße 世界 😀"),
    "map-of-the-world": (lambda _: {"größe": "世界"}, '{"größe": "世界"}'),
    "nothing": (lambda _: None, "null"),
}
BAD: dict[str, Made] = {
    "message-for-nobody": lambda _: says("hi", "zz"),
    "message-for-the-sibling": lambda _: says("hi", "n1"),
    "command-without-message": lambda _: Command(update={}),
    "command-without-update": lambda _: Command(goto="nowhere"),
    "command-with-two-messages": lambda me: updates(says("a", me), says("b", me)),
    "command-for-it-and-the-sibling": lambda me: updates(says("a", me), says("b", "n1")),
    "command-with-map-for-nobody": lambda _: updates(mapped("zz")),
    "two-messages": lambda me: [says("a", me), says("b", me)],
}


async def one_result_for_each(room: Desk) -> None:
    await room.say()
    await room.answered()
    found = await room.results()
    assert set(found) == {"n1", *GOOD, *BAD}
    assert found["n1"].content == "noted x"
    for name in GOOD:
        assert (found[name].name, found[name].status) == ("odd", "success"), name
    assert {name: found[name].text for name in GOOD} == {
        name: text for name, (_, text) in GOOD.items()
    }
    for name in BAD:
        assert error_of(found[name])["kind"] == "ToolFailed", name
    assert len(room.ledger.of("odd")) == len(GOOD) + len(BAD)
    paired(room.model.sent[-1])


def returning(rooms: Rooms, end: FrontEnd, spec: Any) -> Desk:
    """The name of what a call returns is its id."""

    def odd(text: str) -> Any:
        rooms.ledger.add(tool="odd")
        made = GOOD[text][0] if text in GOOD else BAD[text]
        return made(text)

    calls = [call("odd", name, text=name) for name in (*GOOD, *BAD)]
    return desk(
        rooms,
        end,
        ai(*calls, call("note", "n1", text="x")),
        tools=[tool_of(odd, "odd")],
        specs=[spec, free("note")],
        budgets=Budgets(tool_calls_per_turn=99),
    )


@EVERYWHERE
async def test_res01_one_result_for_each_call(rooms: Rooms, end: FrontEnd) -> None:
    await one_result_for_each(returning(rooms, end, free("odd")))


@over("middleware", "tool_node", how=["async"])
async def test_res01_one_result_for_each_approved_call(rooms: Rooms, end: FrontEnd) -> None:
    """The same code reads them; one way of running, and one node whose task runs again, do."""
    await one_result_for_each(returning(rooms, end, gated("odd")))


class Odd(Exception):
    """An error no library knows."""


RAISED: dict[str, Callable[[str], BaseException]] = {
    "value": ValueError,
    "timeout": TimeoutError,
    "tool": ToolException,
    "odd": Odd,
    "cancelled": asyncio.CancelledError,
}


@EVERYWHERE
@pytest.mark.parametrize("names", [["value"], ["cancelled"], list(RAISED)], ids="+".join)
async def test_res02_an_error_is_the_result_of_its_call_only(
    rooms: Rooms, end: FrontEnd, names: list[str]
) -> None:
    """RES-03 too: a cancellation that a tool raises itself cancels nobody else."""

    def odd(text: str) -> str:
        rooms.ledger.add(tool="odd")
        raise RAISED[text]("postgres://u:hunter2@db")

    async def aodd(text: str) -> str:
        return odd(text)

    calls = [call("odd", name, text=name) for name in names]
    if len(names) > 1:
        calls.append(call("note", "n1", text="y"))
    room = desk(
        rooms,
        end,
        ai(*calls),
        tools=[tool_of(aodd if end.how == "async" else odd, "odd")],
        specs=[free("odd"), free("note")],
    )
    ended = await room.say()
    assert ended["messages"][-1].content == "done"
    found = await room.results()
    assert {found[name].status for name in names} == {"error"}
    assert "hunter2" not in str(room.model.sent)
    assert len(room.ledger.of("odd")) == len(names)
    assert len(names) == 1 or found["n1"].content == "noted y"


@over("tool_node")
async def test_res02_our_tool_node_raises_unless_told_to_show(rooms: Rooms, end: FrontEnd) -> None:
    """Its default; the sibling's result is recorded, and the next turn's model reads both."""
    from adapter import ToolFailed

    def odd(text: str) -> str:
        rooms.ledger.add(tool="odd")
        raise ValueError("boom")

    room = desk(
        rooms,
        end,
        ai(call("odd", "o1", text="x"), call("note", "n1", text="y")),
        tools=[tool_of(odd, "odd")],
        specs=[free("odd"), free("note")],
        failure="raise",
    )
    with pytest.raises(ToolFailed):
        await room.say()
    await room.say("and now?")
    found = await room.results()
    assert error_of(found["o1"])["kind"] == "ToolFailed"
    assert found["n1"].content == "noted y"
    assert len(room.ledger.all) == 2


def slow_desk(rooms: Rooms, end: FrontEnd, *calls: Any, grace: float = 5.0) -> Any:
    started, go = asyncio.Event(), asyncio.Event()

    async def search(text: str) -> str:
        rooms.ledger.add(tool="search")
        started.set()
        await go.wait()
        return "found"

    room = desk(
        rooms,
        end,
        ai(*calls),
        ai(text="fine"),
        tools=[tool_of(search, "search")],
        specs=[free("search"), free("send_money"), free("note")],
        cancel_grace=grace,
    )
    return room, started, go


@over(how=["async"])
@pytest.mark.parametrize("finishes", [True, False], ids=["in time", "never"])
async def test_res03_res05_a_cancelled_run_reports_what_was_done(
    rooms: Rooms, end: FrontEnd, finishes: bool
) -> None:
    """Async only: a synchronous run has nobody who could cancel it."""
    room, started, go = slow_desk(
        rooms, end, pay(), call("search", "s1", text="x"), grace=5.0 if finishes else 0.05
    )

    async def settled() -> Any:
        return await room.status("s1") != ["claimed"]

    run = asyncio.create_task(room.say("one"))
    await asyncio.wait_for(started.wait(), 10)
    await eventually(lambda: room.ledger.paid)
    run.cancel()
    if finishes:
        asyncio.get_running_loop().call_later(0.02, go.set)
    with pytest.raises(asyncio.CancelledError):
        await run
    # A ToolNode does not wait for what its cancelled calls still do.
    await eventually(settled)
    await room.say("two")
    paired(room.model.sent[-1])
    found = {m.tool_call_id: m for m in room.model.sent[-1] if isinstance(m, ToolMessage)}
    assert found["c1"].content == "sent 100 to bob"
    if finishes:
        assert found["s1"].content == "found"
    else:
        assert error_of(found["s1"])["kind"] == "CallInDoubt"
    assert room.ledger.paid == [100]
    assert len(room.ledger.of("search")) == 1
    await room.results()


@EVERYWHERE
async def test_res04_a_run_stopped_between_call_and_result_is_mended(
    rooms: Rooms, end: FrontEnd
) -> None:
    """By the host's own limit of steps, before the tools ran at all."""
    room = desk(rooms, end, ai(pay(), call("note", "n1", text="x")), ai(text="fine"))
    short = {**room.config, "recursion_limit": 1 if end.kind == "middleware" else 2}
    with pytest.raises(GraphRecursionError):
        await room.run({"messages": [HumanMessage("one")]}, short)
    assert room.ledger.all == []
    await room.say("two")
    paired(room.model.sent[-1])
    found = await room.results()
    assert error_of(found["c1"])["kind"] == "NotExecuted"
    assert error_of(found["n1"])["kind"] == "NotExecuted"
    assert room.ledger.all == []


@EVERYWHERE
async def test_res04_a_new_message_settles_what_was_open(rooms: Rooms, end: FrontEnd) -> None:
    room = desk(
        rooms,
        end,
        ai(pay("c1", 1), pay("c2", 2), call("note", "n1", text="x")),
        ai(text="fine"),
        ai(call("note", "n2", text="y")),
        budgets=Budgets(tool_calls_per_thread=2),
    )
    await room.say("one")
    late = (await room.asked())[0]
    await room.say("two")
    paired(room.model.sent[-1])
    found = await room.results()
    assert error_of(found["c1"])["kind"] == "NotExecuted"
    assert found["n1"].content == "noted x"
    await room.resume({late.id: room.sign(late)})
    assert room.ledger.paid == []
    await room.say("three")
    assert (await room.results())["n2"].content == "noted y"


@over("tool_node", "wrapper", how=["async"])
async def test_res06_every_shortened_list_is_paired(rooms: Rooms, end: FrontEnd) -> None:
    """In a node of one's own; create_agent's middleware is tried in test_compression.py."""
    room = desk(rooms, end, ai(call("look", "l1", text="x"), pay("c1", 1), pay("c2", 2)))
    await room.say()
    for kind in ("approve", "reject"):
        messages = await room.messages()
        for most in range(1, 10):
            short = langgraph_compressor(Compression(max_messages=most))(messages)
            paired(short)
            kept = {m.tool_call_id for m in short if isinstance(m, ToolMessage)}
            assert {"c1", "c2"} <= kept
        await room.decide((await room.asked())[0], kind)
    assert room.ledger.paid == [1]


def test_res06_read_only_results_are_kept_with_their_calls() -> None:
    compress = langgraph_compressor(Compression(max_messages=3))
    orphan = says("late", "gone")
    history = [
        HumanMessage("a"),
        ai(call("look", "l1", text="x")),
        orphan,
        HumanMessage("b"),
        says("saw x", "l1"),
        AIMessage("done"),
    ]
    short = compress(history)
    paired(short)
    assert orphan not in short
