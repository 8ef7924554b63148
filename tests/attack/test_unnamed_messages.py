"""An AI message without an id is still one proposal: a replay of it repeats no effect."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from tests.support.room import Rooms
from tests.support.script import ai

pytestmark = pytest.mark.anyio


async def proposed(room: Any, message: AIMessage) -> Any:
    """Put a message into the state as if the model had said it; return where that was."""
    return await room.agent.aupdate_state(
        room.config, {"messages": [HumanMessage("go", id="h"), message]}, as_node="model"
    )


@pytest.mark.parametrize("name", ["", "m1"])
async def test_a_replayed_proposal_runs_once_whatever_its_id(rooms: Rooms, name: str) -> None:
    room = rooms(ai())
    call = {"name": "note", "args": {"text": "once"}, "id": "c1", "type": "tool_call"}
    where = await proposed(room, AIMessage("", id=name, tool_calls=[call]))
    await room.run(None)
    assert len(room.ledger.of("note")) == 1
    for _ in range(2):
        await room.agent.ainvoke(None, where)
    assert len(room.ledger.of("note")) == 1


async def test_true_is_not_admitted_because_one_was(rooms: Rooms) -> None:
    room = rooms(ai())
    for amount, asked in ((1, 1), (True, 0)):
        room = room.on(f"thread-{amount}")
        call = {
            "name": "send_money",
            "args": {"to": "bob", "amount": amount},
            "id": "c1",
            "type": "tool_call",
        }
        await proposed(room, AIMessage("", id="same", tool_calls=[call]))
        await room.run(None)
        assert len(await room.asked()) == asked
    assert room.ledger.paid == []
