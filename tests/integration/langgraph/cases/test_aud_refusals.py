"""Every way a call may not run leaves a record with its reason (AUD-01, AUD-03)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.room import Clock, Rooms, free, pay, tool_of
from tests.support.script import ai, call

from adapter import ApprovalAlreadyDecided, Budgets

pytestmark = pytest.mark.anyio


async def one(room: Any, kind: str, call_id: str) -> dict[str, Any]:
    """The one event of this kind about this call; it says where, what and why."""
    await room.verified()
    (event,) = [e for e in await room.events(kind) if e["call_id"] == call_id]
    assert event["thread_id"] == "thread-1"
    assert event["tool"]
    return dict(event)


async def test_aud01_a_call_over_its_rate(rooms: Rooms) -> None:
    budgets = Budgets(tool_rate="1/hour", on_exceeded="refuse")
    notes = ai(call("note", "n1", text="a"), call("note", "n2", text="b"))
    room = rooms(notes, budgets=budgets, clock=Clock(), store="adapter.db")
    await room.say()
    refused = await room.events("refused")
    assert [event["data"]["error"] for event in refused] == ["RateLimited"]
    assert refused[0]["arguments_digest"]
    assert len(await room.events("succeeded")) == 1


async def test_aud01_a_cancelled_call(rooms: Rooms) -> None:
    begun = asyncio.Event()

    async def slow(text: str) -> str:
        begun.set()
        rooms.ledger.add(tool="slow")
        await asyncio.Event().wait()
        return text

    room = rooms(
        ai(call("slow", "s1", text="x")),
        tools=[tool_of(slow, "slow")],
        specs=[free("slow")],
        cancel_grace=0.01,
    )
    running = asyncio.ensure_future(room.say())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    event = await one(room, "in_doubt", "s1")
    assert event["arguments_digest"]
    assert len(rooms.ledger.of("slow")) == 1


async def test_aud03_an_answer_after_the_expiry_and_who_decided_before(rooms: Rooms) -> None:
    clock = Clock()
    room = rooms(ai(pay("c1", 1)), clock=clock, approval_ttl=60)
    asked = await room.question()
    late = room.sign(asked)
    clock.advance(60)
    await room.resume({asked.id: late})
    event = await one(room, "expired", "c1")
    assert event["data"]["reason"] == "nobody answered in time"
    assert event["arguments_digest"]
    assert await room.events("decided") == []
    assert room.ledger.paid == []


async def test_aud03_a_rejection_says_who_and_why(rooms: Rooms) -> None:
    room = rooms(ai(pay("c1", 1)))
    asked = await room.question()
    await room.decide(asked, "reject", reason="not this one", reviewer="rita")
    data = (await one(room, "decided", "c1"))["data"]
    assert (data["decision"], data["reviewer"], data["reason"]) == (
        "reject",
        "rita",
        "not this one",
    )


async def test_aud03_a_failed_call_keeps_its_digest(rooms: Rooms) -> None:
    def breaks(text: str) -> str:
        raise RuntimeError(text)

    room = rooms(
        ai(call("breaks", "b1", text="postgresql://u:secret-pw@db/x")),
        tools=[tool_of(breaks, "breaks")],
        specs=[free("breaks")],
    )
    await room.say()
    started, failed = await one(room, "started", "b1"), await one(room, "failed", "b1")
    assert started["arguments_digest"] == failed["arguments_digest"] != ""
    assert "secret-pw" not in str(failed)
    assert "secret-pw" not in str((await room.results())["b1"].content)


async def test_aud01_a_replayed_answer(rooms: Rooms) -> None:
    room = rooms(ai(pay("c1", 1)))
    asked = await room.question()
    paused = (await room.agent.aget_state(room.config)).config
    answer = {asked.id: room.sign(asked)}
    await room.resume(answer)
    with pytest.raises(ApprovalAlreadyDecided):
        await room.resume(answer, paused)
    event = await one(room, "refused", "c1")
    assert event["data"]["code"] == "already_decided"
    assert room.ledger.paid == [1]
