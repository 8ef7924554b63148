"""Whoever may write to a thread, and holds no key, cannot keep a signed answer from counting."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.types import Command
from tests.support.room import Rooms

from adapter.langgraph.middleware import AdapterState

pytestmark = pytest.mark.anyio

OWN = ("audit_head", "audit_log", "total_tool_calls", "turn_id")


def test_every_field_of_ours_is_tried() -> None:
    hosts = {"messages", "jump_to", "structured_response"}
    assert set(AdapterState.__annotations__) - hosts == set(OWN)


@pytest.mark.parametrize("name", OWN)
async def test_a_field_of_ours_written_twice_locks_nothing(rooms: Rooms, name: str) -> None:
    room = rooms.paying()
    await room.say()
    assert len(await room.asked()) == 1
    poison: Any = Command(update={name: "x"}, resume=True)
    for _ in range(2):
        await room.run(poison)
    (still,) = await room.asked()
    await room.decide(still)
    assert room.ledger.paid == [100]
    state = await room.agent.aget_state(room.config)
    assert state.values[name] != "x"


async def test_clients_cannot_give_them_as_input(rooms: Rooms) -> None:
    shown = rooms.paying().agent.get_input_jsonschema()["properties"]
    assert "messages" in shown
    assert not set(OWN) & set(shown)
