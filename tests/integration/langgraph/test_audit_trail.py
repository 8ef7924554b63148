"""One event for everything that happens to a call, in one chain that verifies (AUD-01)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.room import Clock, Room, Rooms, free, money_tools, pay, tool_of
from tests.support.script import ai, call, unreadable

from adapter import ApprovalAlreadyDecided, Budgets, Policy
from adapter.core.errors import ToolError

SHAPE = {
    "arguments_digest",
    "at",
    "call_id",
    "data",
    "id",
    "kind",
    "run_id",
    "thread_id",
    "tool",
    "turn_id",
    "user",
    "v",
}


async def kinds(room: Room, call_id: str = "c1") -> list[str]:
    """What happened to one call; every event has the one shape and the chain is whole."""
    await room.verified()
    events = await room.events()
    for event in events:
        assert set(event) == SHAPE
        assert event["thread_id"] == str(room.thread)
        assert event["tool"]
    return [event["kind"] for event in events if event["call_id"] == call_id]


async def refusal(room: Room, call_id: str = "c1") -> dict[str, Any]:
    (event,) = [e for e in await room.events("refused") if e["call_id"] == call_id]
    data: dict[str, Any] = event["data"]
    return data


@pytest.mark.anyio
async def test_an_approved_call(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.run(None)
    await room.decide(asked)
    assert await kinds(room) == ["proposed", "requested", "decided", "started", "succeeded"]
    digests = {e["arguments_digest"] for e in await room.events() if e["kind"] != "proposed"}
    assert len(digests) == 1
    assert "" not in digests


@pytest.mark.anyio
async def test_a_free_and_a_read_only_call(rooms: Rooms) -> None:
    room = rooms(ai(call("note", "n1", text="x"), call("look", "l1", text="x")))
    await room.say()
    assert await kinds(room, "n1") == ["proposed", "started", "succeeded"]
    assert await kinds(room, "l1") == ["proposed", "started", "succeeded"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (ai(call("nope", "c1")), "UnknownTool"),
        (ai(call("send_money", "c1", to=1, amount=1)), "ToolArgsInvalid"),
        (ai(pay("c1"), pay("c1")), "ToolArgsInvalid"),
        (ai(bad=[unreadable("send_money", "c1")]), "ToolArgsInvalid"),
    ],
)
async def test_a_bad_call(rooms: Rooms, bad: Any, kind: str) -> None:
    room = rooms(bad)
    await room.say()
    found = await kinds(room)
    assert set(found) == {"proposed", "refused"}
    data = await refusal(room)
    assert data["error"] == kind
    assert data["reason"]


@pytest.mark.anyio
async def test_a_call_the_policy_denies(rooms: Rooms) -> None:
    room = rooms.paying(policy=Policy(deny={"send_money": "frozen"}))
    await room.say()
    assert await kinds(room) == ["proposed", "refused"]
    data = await refusal(room)
    assert (data["error"], data["code"]) == ("PolicyDenied", "policy_denied")


@pytest.mark.anyio
async def test_a_call_over_budget(rooms: Rooms) -> None:
    room = rooms(
        ai(call("note", "n1", text="x")), ai(pay()), budgets=Budgets(tool_calls_per_turn=1)
    )
    await room.say()
    assert "refused" in await kinds(room)
    assert (await refusal(room))["error"] == "BudgetExceeded"


@pytest.mark.anyio
async def test_a_rejected_call(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.decide(asked, "reject", reason="no", reviewer="ann")
    assert await kinds(room) == ["proposed", "requested", "decided"]
    (decided,) = await room.events("decided")
    assert decided["data"]["decision"] == "reject"
    assert decided["data"]["reviewer"] == "ann"
    assert decided["data"]["reason"] == "no"


@pytest.mark.anyio
async def test_an_expired_call(rooms: Rooms) -> None:
    clock = Clock()
    room = rooms.paying(clock=clock, approval_ttl=60)
    await room.say()
    clock.advance(61)
    await room.run(None)
    assert await kinds(room) == ["proposed", "requested", "expired"]
    (expired,) = await room.events("expired")
    assert "nobody answered" in expired["data"]["reason"]


@pytest.mark.anyio
async def test_a_forged_answer(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.resume({asked.id: {**room.sign(asked), "mac": "0" * 64}})
    assert await kinds(room) == ["proposed", "requested", "answer_refused"]


@pytest.mark.anyio
async def test_a_replayed_answer(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    paused = (await room.agent.aget_state(room.config)).config
    answer = room.sign(asked)
    await room.resume({asked.id: answer})
    with pytest.raises(ApprovalAlreadyDecided):
        await room.resume({asked.id: answer}, paused)
    assert (await kinds(room))[-1] == "refused"
    assert (await refusal(room))["code"] == "already_decided"


@pytest.mark.anyio
async def test_calls_that_fail_and_time_out(rooms: Rooms) -> None:
    import asyncio

    async def slow(text: str) -> str:
        await asyncio.sleep(30)
        return ""

    def sorry(text: str) -> str:
        raise ToolError("sorry")

    def broken(text: str) -> str:
        raise KeyError("x")

    room = rooms(
        ai(*[call(name, name, text="x") for name in ("slow", "sorry", "broken")]),
        tools=[tool_of(f, f.__name__) for f in (slow, sorry, broken)],
        specs=[free("slow", timeout=0.05), free("sorry"), free("broken")],
    )
    await room.say()
    assert (await kinds(room, "slow"))[-1] == "in_doubt"
    assert (await kinds(room, "sorry"))[-1] == "failed"
    assert (await kinds(room, "broken"))[-1] == "failed"
    errors = {e["call_id"]: e["data"]["error"] for e in await room.events("failed", "in_doubt")}
    assert errors == {"slow": "ToolTimeout", "sorry": "ToolError", "broken": "ToolFailed"}


@pytest.mark.anyio
async def test_nothing_is_written_twice_however_often_a_task_runs_again(rooms: Rooms) -> None:
    room = rooms(ai(call("note", "n1", text="x"), pay("c1"), pay("c2", 2)))
    await room.say()
    for asked in await room.asked():
        for _ in range(2):
            await room.run(None)
            await room.resume({asked.id: "junk"})
        await room.decide(asked)
    counted = Counter((e["kind"], e["call_id"]) for e in await room.events())
    once = ("proposed", "requested", "decided", "started", "succeeded")
    assert [key for key, times in counted.items() if key[0] in once and times != 1] == []


@pytest.mark.anyio
async def test_every_proposed_call_has_an_end(rooms: Rooms) -> None:
    tools, specs = money_tools(rooms.ledger)
    room = rooms(
        ai(pay("c1"), call("note", "n1", text="x")),
        ai(call("nope", "x1")),
        tools=tools,
        specs=specs,
    )
    await room.say()
    await room.say("never mind")
    ends = {"succeeded", "refused", "void", "failed", "decided", "expired"}
    for call_id in ("c1", "n1", "x1"):
        assert set(await kinds(room, call_id)) & ends
