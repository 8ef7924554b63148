"""A1, A2: the same answer again, at the paused checkpoint, in another process, after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from tests.support.room import Room, Rooms

from adapter import ApprovalAlreadyDecided


async def approved(room: Room) -> tuple[Any, Any]:
    """Ask, approve; return the answer and the config of the paused checkpoint."""
    asked = await room.question()
    paused = (await room.agent.aget_state(room.config)).config
    answer = {asked.id: room.sign(asked)}
    await room.resume(answer)
    assert room.ledger.paid == [100]
    return answer, paused


async def refused(room: Room, answer: Any, config: Any) -> None:
    with pytest.raises(ApprovalAlreadyDecided) as caught:
        await room.resume(answer, config)
    assert caught.value.code == "already_decided"


@pytest.mark.anyio
@pytest.mark.parametrize("store", [None, "adapter.db"])
async def test_a01_replay_at_the_paused_checkpoint(rooms: Rooms, store: str | None) -> None:
    room = rooms.paying(store=store)
    answer, paused = await approved(room)
    for _ in range(3):
        await refused(room, answer, paused)
    assert room.ledger.paid == [100]
    codes = [event["data"].get("code") for event in await room.events("refused")]
    assert codes
    assert set(codes) == {"already_decided"}
    await room.verified()


@pytest.mark.anyio
async def test_a01_the_same_answer_to_the_finished_thread_does_nothing(rooms: Rooms) -> None:
    room = rooms.paying()
    answer, _ = await approved(room)
    await room.resume(answer)
    assert room.ledger.paid == [100]
    await room.results()


@pytest.mark.anyio
async def test_a01_a_replay_without_answer_is_a_fork_and_asks_anew(rooms: Rooms) -> None:
    room = rooms.paying()
    answer, paused = await approved(room)
    await room.run(None, paused)
    assert room.ledger.paid == [100]
    for asked in await room.asked():
        await room.resume({asked.id: next(iter(answer.values()))})
    assert room.ledger.paid == [100]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["reject", "respond", "edit"])
async def test_a01_other_decisions_are_used_once_too(rooms: Rooms, kind: str) -> None:
    room = rooms.paying()
    asked = await room.question()
    paused = (await room.agent.aget_state(room.config)).config
    more: Any = {
        "reject": {"reason": "no"},
        "respond": {"response": "by hand"},
        "edit": {"edited_args": {"to": "bob", "amount": 1}},
    }[kind]
    answer = {asked.id: room.sign(asked, kind, **more)}
    await room.resume(answer)
    effects = [1] if kind == "edit" else []
    assert room.ledger.paid == effects
    await refused(room, answer, paused)
    assert room.ledger.paid == effects


@pytest.mark.anyio
async def test_a01_an_approval_after_a_reject_at_the_old_checkpoint(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    paused = (await room.agent.aget_state(room.config)).config
    approval = {asked.id: room.sign(asked)}
    await room.decide(asked, "reject", reason="no")
    await refused(room, approval, paused)
    assert room.ledger.paid == []
    assert await room.status("c1") == ["denied"]


@pytest.mark.anyio
async def test_a02_a_restarted_worker_refuses_too(rooms: Rooms) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(rooms.folder / "graph.db")) as saver:
        first = rooms.paying(store="adapter.db", saver=saver)
        answer, paused = await approved(first)
        await first.store.aclose()
    async with AsyncSqliteSaver.from_conn_string(str(rooms.folder / "graph.db")) as saver:
        second = rooms(store="adapter.db", saver=saver)
        await refused(second, answer, paused)
    assert rooms.ledger.paid == [100]


@pytest.mark.anyio
async def test_a02_two_workers_at_once_have_one_effect(rooms: Rooms) -> None:
    saver = InMemorySaver()
    first = rooms.paying(store="adapter.db", saver=saver)
    asked = await first.question()
    paused = (await first.agent.aget_state(first.config)).config
    answer = {asked.id: first.sign(asked)}
    workers = [first, *(rooms(store="adapter.db", saver=saver) for _ in range(3))]
    ended = await asyncio.gather(
        *(worker.resume(answer, paused) for worker in workers), return_exceptions=True
    )
    assert rooms.ledger.paid == [100]
    errors = [error for error in ended if isinstance(error, BaseException)]
    assert {getattr(error, "code", repr(error)) for error in errors} <= {
        "already_decided",
        "in_progress",
    }
