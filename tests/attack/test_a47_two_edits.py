"""A47: two different signed edits of one question: one effect. A48: a new message meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.support.room import Rooms, error_of, free, money_tools, paired, pay, tool_of
from tests.support.script import ai, call

from adapter import ApprovalAlreadyDecided, ToolFailed

ONE = {"to": "bob", "amount": 1}
TWO = {"to": "bob", "amount": 2}


@pytest.mark.anyio
async def test_a47_one_after_the_other_at_the_same_checkpoint(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    paused = (await room.agent.aget_state(room.config)).config
    first = room.sign(asked, "edit", edited_args=ONE)
    second = room.sign(asked, "edit", edited_args=TWO)
    await room.resume({asked.id: first})
    with pytest.raises(ApprovalAlreadyDecided) as caught:
        await room.resume({asked.id: second}, paused)
    assert caught.value.code == "already_decided"
    assert room.ledger.paid == [1]


@pytest.mark.anyio
@pytest.mark.parametrize("store", [None, "adapter.db"])
async def test_a47_both_at_once(rooms: Rooms, store: str | None) -> None:
    room = rooms.paying(store=store)
    asked = await room.question()
    paused = (await room.agent.aget_state(room.config)).config
    answers = [
        room.sign(asked, "edit", edited_args={"to": "bob", "amount": n}) for n in range(1, 6)
    ]
    ended = await asyncio.gather(
        *(room.resume({asked.id: answer}, paused) for answer in answers), return_exceptions=True
    )
    assert len(room.ledger.paid) == 1
    codes = {getattr(e, "code", repr(e)) for e in ended if isinstance(e, BaseException)}
    assert codes <= {"already_decided", "in_progress"}
    assert len(await room.events("started")) == 1


@pytest.mark.anyio
async def test_a47_an_edit_and_an_approval(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    paused = (await room.agent.aget_state(room.config)).config
    ended = await asyncio.gather(
        room.resume({asked.id: room.sign(asked)}, paused),
        room.resume({asked.id: room.sign(asked, "edit", edited_args=ONE)}, paused),
        room.resume({asked.id: room.sign(asked, "reject", reason="no")}, paused),
        return_exceptions=True,
    )
    assert len(ended) == 3
    assert len(room.ledger.paid) <= 1
    assert room.ledger.paid in ([], [1], [100])


@pytest.mark.anyio
async def test_a47_the_one_edit_runs(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.decide(asked, "edit", edited_args=TWO)
    assert room.ledger.paid == [2]


@pytest.mark.anyio
async def test_a48_a_new_message_voids_and_pairs(rooms: Rooms) -> None:
    room = rooms(ai(pay("c1"), call("note", "n1", text="x")), ai(text="fine"))
    asked = await room.question("pay")
    paused = (await room.agent.aget_state(room.config)).config
    late = {asked.id: room.sign(asked)}
    await room.say("never mind")
    paired(room.model.sent[-1])
    assert error_of((await room.results())["c1"])["kind"] == "NotExecuted"
    assert len(await room.events("void")) == 1
    await room.resume(late)
    with pytest.raises(ApprovalAlreadyDecided):
        await room.resume(late, paused)
    assert room.ledger.paid == []
    assert len(room.ledger.of("note")) == 1


@pytest.mark.anyio
async def test_a48_a_failed_tool_among_paused_siblings(rooms: Rooms) -> None:
    def broken(text: str) -> str:
        rooms.ledger.add(tool="broken")
        raise KeyError("x")

    tools, specs = money_tools(rooms.ledger)
    named: dict[str, Any] = {
        "tools": [*tools, tool_of(broken, "broken")],
        "specs": [*specs, free("broken")],
    }
    for failure in ("message", "raise"):
        room = rooms(
            ai(pay("c1"), call("broken", "b1", text="x"), pay("c2", 2)),
            middleware={"on_tool_failure": failure},
            thread=failure,
            **named,
        )
        before = len(room.ledger.of("broken"))
        with suppress(ToolFailed):
            await room.say()
        assert len(room.ledger.of("broken")) == before + 1
        await room.say("go on")
        results = await room.results()
        assert set(results) == {"c1", "b1", "c2"}
        assert len(room.ledger.of("broken")) == before + 1
        assert error_of(results["b1"])["kind"] == "ToolFailed"
    assert rooms.ledger.paid == []
