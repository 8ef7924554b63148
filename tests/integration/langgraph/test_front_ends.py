"""The same pause and the same one effect over every way of running a graph."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from tests.support.room import Room, Rooms, open_questions, paired, pay
from tests.support.script import ai, call

MODES = ["values", "updates", "messages", "custom", "debug", "tasks", "checkpoints"]
ASK = {"messages": [HumanMessage("pay")]}


@asynccontextmanager
async def checkpointer(kind: str, rooms: Rooms) -> Any:
    if kind == "memory":
        yield InMemorySaver()
    else:
        async with AsyncSqliteSaver.from_conn_string(str(rooms.folder / "graph.db")) as saver:
            yield saver


@pytest.mark.anyio
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("saver", ["memory", "sqlite"])
@pytest.mark.parametrize("store", [None, "adapter.db"])
async def test_one_approval_is_one_effect(
    rooms: Rooms, store: str | None, saver: str, durability: str
) -> None:
    async with checkpointer(saver, rooms) as saved:
        room = rooms.paying(store=store, saver=saved)
        paused = await room.say(durability=durability)
        (asked,) = await room.asked()
        assert paused["__interrupt__"][0].id == asked.id
        assert room.ledger.paid == []

        ended = await room.run(Command(resume={asked.id: room.sign(asked)}), durability=durability)

        assert room.ledger.paid == [100]
        assert ended["messages"][-1].content == "done"
        paired(await room.messages())
        assert await room.asked() == []


@pytest.mark.parametrize("saver", ["memory", "sqlite"])
def test_invoke_pauses_and_resumes(rooms: Rooms, saver: str) -> None:
    if saver == "sqlite":
        path = str(rooms.folder / "graph.db")
        saved: Any = rooms.stack.enter_context(SqliteSaver.from_conn_string(path))
    else:
        saved = InMemorySaver()
    room = rooms.paying(saver=saved, store="adapter.db")
    room.agent.invoke(ASK, room.config)
    (asked,) = open_questions(room.agent.get_state(room.config))
    assert room.ledger.paid == []

    ended = room.agent.invoke(Command(resume={asked.id: room.sign(asked)}), room.config)

    assert room.ledger.paid == [100]
    paired(ended["messages"])


@pytest.mark.anyio
async def test_invoke_works_inside_a_running_loop(rooms: Rooms) -> None:
    room = rooms.paying()
    room.agent.invoke(ASK, room.config)
    (asked,) = open_questions(room.agent.get_state(room.config))

    ended = room.agent.invoke(Command(resume={asked.id: room.sign(asked)}), room.config)

    assert room.ledger.paid == [100]
    paired(ended["messages"])


@pytest.mark.anyio
async def test_a_pause_of_invoke_is_answered_by_ainvoke(rooms: Rooms) -> None:
    room = rooms.paying()
    await asyncio.to_thread(room.agent.invoke, ASK, room.config)
    (asked,) = await room.asked()
    await room.decide(asked)
    assert room.ledger.paid == [100]


def seen_interrupts(mode: str, chunks: list[Any]) -> bool:
    return any("agent_adapter.approval" in repr(chunk) for chunk in chunks)


@pytest.mark.anyio
@pytest.mark.parametrize("subgraphs", [False, True])
@pytest.mark.parametrize("mode", MODES)
async def test_astream_in_every_mode(rooms: Rooms, mode: str, subgraphs: bool) -> None:
    room = rooms.paying()
    how = {"stream_mode": mode, "subgraphs": subgraphs}
    first = [chunk async for chunk in room.agent.astream(ASK, room.config, **how)]
    assert room.ledger.paid == []
    if mode in ("values", "updates", "debug", "tasks"):
        assert seen_interrupts(mode, first)
    (asked,) = await room.asked()

    answer: Any = Command(resume={asked.id: room.sign(asked)})
    second = [chunk async for chunk in room.agent.astream(answer, room.config, **how)]

    assert room.ledger.paid == [100]
    if mode != "custom":
        assert "sent 100 to bob" in repr(second)
    paired(await room.messages())


@pytest.mark.parametrize("mode", MODES)
def test_stream_in_every_mode(rooms: Rooms, mode: str) -> None:
    room = rooms.paying()
    list(room.agent.stream(ASK, room.config, stream_mode=mode))
    assert room.ledger.paid == []
    (asked,) = open_questions(room.agent.get_state(room.config))

    answer: Any = Command(resume={asked.id: room.sign(asked)})
    second = list(room.agent.stream(answer, room.config, stream_mode=mode))

    assert room.ledger.paid == [100]
    if mode != "custom":
        assert "sent 100 to bob" in repr(second)


@pytest.mark.anyio
async def test_all_modes_at_once(rooms: Rooms) -> None:
    room = rooms.paying()
    first = [
        part
        async for part in room.agent.astream(ASK, room.config, stream_mode=MODES, subgraphs=True)
    ]
    assert {mode for _, mode, _ in first} >= set(MODES) - {"custom"}
    (asked,) = await room.asked()
    await room.decide(asked)
    assert room.ledger.paid == [100]


def house(room: Room, saver: Any) -> Any:
    """The agent as a node of another graph."""
    graph = StateGraph(MessagesState)
    graph.add_node("desk", room.agent)
    graph.add_edge(START, "desk")
    return graph.compile(checkpointer=saver)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["values", "updates", "messages"])
async def test_an_agent_inside_another_graph_is_answered_through_it(
    rooms: Rooms, mode: str
) -> None:
    inner = rooms(ai(pay("c1"), pay("c2", 200)), agent={"name": "desk"}, saver="inherit")
    outer = house(inner, InMemorySaver())
    config = {"configurable": {"thread_id": "outer"}}
    how = {"stream_mode": mode, "subgraphs": True}
    async for _ in outer.astream(ASK, config, **how):
        pass
    state = await outer.aget_state(config, subgraphs=True)
    first, second = sorted(  # a task's own list has no order of calls
        open_questions(state), key=lambda asked: asked.value["request"]["call_id"]
    )
    assert inner.ledger.paid == []

    async for _ in outer.astream(Command(resume={second.id: inner.sign(second)}), config, **how):
        pass
    assert inner.ledger.paid == [200]
    async for _ in outer.astream(Command(resume={first.id: inner.sign(first)}), config, **how):
        pass

    assert inner.ledger.paid == [200, 100]
    paired((await outer.aget_state(config)).values["messages"])


@pytest.mark.anyio
async def test_a_restarted_executor_takes_the_answer(rooms: Rooms) -> None:
    saver = InMemorySaver()
    before = rooms.paying(saver=saver, store="adapter.db")
    asked = await before.question()
    await before.store.aclose()

    after = rooms(saver=saver, store="adapter.db")
    await after.decide(asked)

    assert after.ledger.paid == [100]


@pytest.mark.anyio
async def test_a_gated_call_without_a_checkpointer_never_runs(rooms: Rooms) -> None:
    from adapter import ConfigurationError

    room = rooms.paying(saver=False)
    with pytest.raises(ConfigurationError, match="checkpointer"):
        await room.agent.ainvoke(ASK)
    assert room.ledger.paid == []


@pytest.mark.anyio
async def test_ungated_calls_need_no_checkpointer(rooms: Rooms) -> None:
    room = rooms(ai(call("note", "n1", text="x")), saver=False)
    ended = await room.agent.ainvoke(ASK)
    assert len(room.ledger.of("note")) == 1
    paired(ended["messages"])
