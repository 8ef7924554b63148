"""A25: rejected calls burn no budget; nobody is asked about blocked calls; one result per call."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from tests.support.room import Clock, Rooms, error_of, pay
from tests.support.script import ai

from adapter import Budgets

pytestmark = pytest.mark.anyio


async def test_a25_a_turn_of_rejections_leaves_the_budget_whole(rooms: Rooms) -> None:
    rejected = [ai(*[pay(f"c{n}-{k}", k) for k in range(3)]) for n in range(3)]
    budgets = Budgets(tool_calls_per_turn=2, tool_calls_per_user=2, tool_rate="2/hour")
    room = rooms(
        *rejected,
        ai(pay("g1", 1), pay("g2", 2)),
        budgets=budgets,
        clock=Clock(),
        store="adapter.db",
    )
    await room.say()
    while True:
        asked = await room.asked()
        if asked[0].value["request"]["call_id"].startswith("g"):
            break
        await room.decide(asked[0], "reject", reason="no")
    for one in asked:
        await room.decide(one)
    assert sorted(room.ledger.paid) == [1, 2]
    messages = await room.messages()
    counts = Counter(m.tool_call_id for m in messages if isinstance(m, ToolMessage))
    assert set(counts.values()) == {1}
    assert len(counts) == 11
    await room.results()
    await room.verified()


@pytest.mark.parametrize(
    "budgets",
    [
        Budgets(tool_calls_per_turn=1),
        Budgets(tool_calls_per_thread=1),
        Budgets(tool_calls_per_user=1),
        Budgets(tool_rate="1/hour"),
        Budgets(tool_calls_per_turn=1, on_exceeded="refuse"),
    ],
)
async def test_a25_nobody_is_asked_about_a_blocked_call(rooms: Rooms, budgets: Any) -> None:
    room = rooms(
        ai(pay("c1", 1)),
        ai(pay("c2", 2), pay("c3", 3)),
        budgets=budgets,
        clock=Clock(),
        store="adapter.db",
    )
    asked = await room.question()
    await room.decide(asked)
    assert await room.asked() == []
    results = await room.results()
    assert {error_of(results[name])["kind"] for name in ("c2", "c3")} <= {
        "BudgetExceeded",
        "RateLimited",
    }
    assert len(await room.events("requested")) == 1
    assert room.ledger.paid == [1]
