"""LIM-08: a result goes to nobody else; and limits that a run's caller lowers by its context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain_core.tools import tool
from langgraph.prebuilt import InjectedState
from langgraph.types import Command
from pydantic import BaseModel
from tests.support.room import Rooms, free, gated
from tests.support.script import ai, call
from typing_extensions import TypedDict

from adapter import ApprovalRule, Budgets, Condition, Effects
from adapter.core.errors import ConfigurationError
from adapter.langgraph import registry_of

READ = Effects(read_only=True)
CACHED = free("look", READ, cache_ttl=60)


@pytest.mark.anyio
async def test_a_second_call_gets_the_first_ones_result_under_its_own_id(rooms: Rooms) -> None:
    lines = [ai(call("look", f"l{number}", text="x")) for number in range(2)]
    room = rooms(*lines, specs=[CACHED, free("note"), gated("send_money")])
    await room.say()
    results = await room.results()
    assert {name: found.content for name, found in results.items()} == {
        "l0": "saw x",
        "l1": "saw x",
    }
    assert results["l0"].id != results["l1"].id
    assert len(room.ledger.of("look")) == 1
    assert len(await room.events("cached")) == 1


@pytest.mark.anyio
async def test_a_result_does_not_cross_threads_or_graphs(rooms: Rooms) -> None:
    lines = [ai(call("look", "l1", text="x")), ai(text="ok"), ai(call("look", "l1", text="x"))]
    specs = [CACHED, free("note"), gated("send_money")]
    room = rooms(*lines, specs=specs)
    await room.say()
    await room.on("thread-2").say()
    assert len(room.ledger.of("look")) == 2
    other = rooms(ai(call("look", "l1", text="x")), specs=specs)
    await other.say()
    assert len(room.ledger.of("look")) == 3


@pytest.mark.anyio
async def test_a_call_id_used_again_in_the_next_turn_runs_normally(rooms: Rooms) -> None:
    lines = [ai(call("note", "same", text="x")), ai(text="ok"), ai(call("note", "same", text="x"))]
    room = rooms(*lines)
    await room.say()
    await room.say("again")
    assert len(room.ledger.of("note")) == 2


def test_a_tool_that_is_given_more_than_its_arguments_cannot_be_cached() -> None:
    @tool
    def mine(text: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Look."""
        return text

    registry_of([mine], [free("mine", READ)])
    with pytest.raises(ConfigurationError, match=r"no cache key covers"):
        registry_of([mine], [free("mine", READ, cache_ttl=60)])


class AsDict(TypedDict, total=False):
    max_calls: int
    max_amount: int


@dataclass
class AsDataclass:
    max_calls: int | None = None
    max_amount: int | None = None


class AsModel(BaseModel):
    max_calls: int | None = None
    max_amount: int | None = None


FORMS = pytest.mark.parametrize("form", [AsDict, AsDataclass, AsModel])


@pytest.mark.anyio
@FORMS
async def test_a_run_may_lower_its_budget_by_context(rooms: Rooms, form: Any) -> None:
    lines = [ai(call("note", f"n{number}", text="x")) for number in range(9)]
    budgets = Budgets(tool_calls_per_turn=3, context_limits={"tool_calls_per_turn": "max_calls"})
    room = rooms(*lines, budgets=budgets, agent={"context_schema": form})
    await room.say(context=form(max_calls=1))
    assert len(room.ledger.of("note")) == 1
    await room.say("more", context=form(max_calls=99))
    assert len(room.ledger.of("note")) == 4


@pytest.mark.anyio
@FORMS
async def test_a_run_may_lower_what_needs_no_approval_and_not_take_it_back(
    rooms: Rooms, form: Any
) -> None:
    when = Condition(argument="amount", op="gt", value=500, context="max_amount")
    spec = gated("send_money", approval=ApprovalRule(name="large", when=when))
    line = ai(call("send_money", "c1", to="bob", amount=100))
    room = rooms(
        line, specs=[spec, free("note"), free("look", READ)], agent={"context_schema": form}
    )
    asked = await room.question(context=form(max_amount=50))
    await room.run(Command(resume={asked.id: True}))
    assert room.ledger.paid == []
    (asked,) = await room.asked()
    await room.decide(asked)
    assert room.ledger.paid == [100]
    room.model.then(line)
    await room.on("other").say(context=form(max_amount=10_000))
    assert room.ledger.paid == [100, 100]
