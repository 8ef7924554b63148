"""A policy that is loosened while a question is open: the question stays one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.front_ends import EVERYWHERE, Desk, FrontEnd, desk
from tests.support.room import Rooms, free, gated, pay, tool_of
from tests.support.script import ai, call
from tests.unit.core.kit import LOOK, NO, SEND, kinds, row_of, tool

from adapter import ApprovalRule, Condition, Effects, Executor
from adapter.core.deferred import DeferredApproval
from adapter.core.errors import ApprovalDenied, ApprovalPending
from adapter.core.spec import Registry
from adapter.testing import Paused, make_call, make_context, wired

pytestmark = pytest.mark.anyio

FIRST, SECOND = make_context(), make_context(run_id="run-2")


def gate_over(limit: int | None) -> Any:
    if limit is None:
        return free("send_money", effects=Effects(destructive=True))
    when = Condition(argument="amount", op="gt", value=limit)
    return gated("send_money", approval=ApprovalRule(name="large", reason="a sum", when=when))


async def loosened(rooms: Rooms, end: FrontEnd, limit: int | None) -> tuple[Desk, Any]:
    """A desk that asked over 50, taken over by one with another limit."""
    before = desk(rooms, end, ai(pay("c1", 100)), specs=[gate_over(50)], store="adapter.db")
    await before.say()
    (question,) = await before.asked()
    after = desk(
        rooms,
        end,
        ai(text="done"),
        specs=[gate_over(limit)],
        store="adapter.db",
        saver=before.saver,
    )
    return after, question


@EVERYWHERE
@pytest.mark.parametrize("limit", [1000, None])
@pytest.mark.parametrize("kind", ["reject", "respond", "edit", "junk"])
async def test_whatever_is_answered_the_call_does_not_run_as_proposed(
    rooms: Rooms, end: FrontEnd, limit: int | None, kind: str
) -> None:
    more: dict[str, Any] = {
        "respond": {"response": "by hand"},
        "edit": {"edited_args": {"to": "bob", "amount": 5}},
    }
    room, question = await loosened(rooms, end, limit)
    answer = {"junk": 1} if kind == "junk" else room.sign(question, kind, **more.get(kind, {}))
    await room.resume({question.id: answer})
    assert room.ledger.paid == []
    (again,) = await room.asked()
    assert again.value["request"]["rule"] == "large"
    assert len(await room.events("policy_changed")) == 1
    if kind == "junk":
        await room.decide(again)
    else:
        await room.decide(again, kind, **more.get(kind, {}))
    assert room.ledger.paid == {"junk": [100], "edit": [5]}.get(kind, [])
    await room.verified()


@EVERYWHERE
async def test_a_new_call_of_the_loosened_tool_asks_nobody(rooms: Rooms, end: FrontEnd) -> None:
    room, question = await loosened(rooms, end, None)
    await room.resume({question.id: room.sign(question)})
    await room.decide((await room.asked())[0])
    assert room.ledger.paid == [100]
    fresh = desk(rooms, end, ai(pay("c2", 70)), specs=[gate_over(None)], thread="thread-2")
    await fresh.say()
    assert fresh.ledger.paid == [100, 70]


@EVERYWHERE
async def test_a_read_that_was_asked_about_stays_asked_about(rooms: Rooms, end: FrontEnd) -> None:
    def look(text: str) -> str:
        rooms.ledger.add(tool="look")
        return text

    read = Effects(read_only=True)
    saver: Any = None
    found: list[Any] = []
    room: Any = None
    for spec in (replace(gated("look"), effects=read), free("look", effects=read)):
        room = desk(
            rooms,
            end,
            ai(call("look", "r1", text="x")) if saver is None else ai(text="done"),
            tools=[tool_of(look, "look")],
            specs=[spec],
            store="adapter.db",
            saver=saver,
        )
        if saver is None:
            await room.say()
            found = await room.asked()
        saver = room.saver
    (question,) = found
    await room.resume({question.id: room.sign(question, "reject")})
    assert room.ledger.of("look") == []
    await room.decide((await room.asked())[0], "reject")
    assert room.ledger.of("look") == []


async def test_where_nobody_can_be_asked_any_more_the_new_rules_decide() -> None:
    async with wired(SEND) as kit:
        call = make_call("send", to="bob")
        with pytest.raises(Paused):
            await kit.run(call)
        later = wired(tool("send"), store=kit.store, clock=kit.clock)
        executor = Executor(later.registry, store=kit.store, clock=kit.clock)
        await executor.run(call, SECOND, later.invocation(call))
        assert len(later.runs) == 1


async def test_a_rejected_call_stays_rejected_when_the_policy_is_loosened_later() -> None:
    async with wired(SEND) as kit:
        call = make_call("send", to="bob")
        with pytest.raises(ApprovalDenied):
            await kit.run(call, FIRST, NO)
        later = wired(tool("send"), store=kit.store, clock=kit.clock, keys=kit.port.keys)
        with pytest.raises(ApprovalDenied):
            await later.run(call, SECOND)
        assert later.runs == []
        assert (await row_of(kit)).status == "denied"
        assert "policy_changed" not in await kinds(kit)


async def test_a_recorded_no_to_a_read_holds_when_the_policy_is_loosened() -> None:
    async with wired(LOOK) as kit:
        port = DeferredApproval(kit.store, kit.port.keys, clock=kit.clock)
        strict = Registry(
            [replace(LOOK[0], approval=ApprovalRule(name="eyes", reason="private"))],
            {"look": LOOK[1]},
        )
        call, runs = make_call("look", text="x"), kit.runs
        asking = Executor(strict, store=kit.store, approval=port, clock=kit.clock)
        with pytest.raises(ApprovalPending):
            await asking.run(call, FIRST, kit.invocation(call))
        await port.record(await row_of(kit), NO)
        loose = Executor(kit.registry, store=kit.store, approval=port, clock=kit.clock)
        with pytest.raises(ApprovalPending):
            await loose.run(call, SECOND, kit.invocation(call))
        await port.record(await row_of(kit), NO)
        with pytest.raises(ApprovalDenied):
            await loose.run(call, SECOND, kit.invocation(call))
        assert runs == []
