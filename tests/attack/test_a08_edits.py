"""A8: an edit keeps the tool, and what it makes of the call is judged strictly."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.types import Command
from tests.support.graphs import CONFIG, Own
from tests.support.room import Room, Rooms, free, gated, open_questions, pay
from tests.support.script import ai

from adapter import ApprovalDecision, ApprovalRule, Condition
from adapter.core.errors import InvalidAnswer
from adapter.core.policy import Policy
from adapter.core.rules import DecisionKind

ANY = ApprovalRule(name="any")


def large(**fields: Any) -> ApprovalRule:
    when = Condition(argument="amount", op="gt", value=1000)
    return ApprovalRule(name="large", when=when, **fields)


def edit(**arguments: Any) -> ApprovalDecision:
    return ApprovalDecision(kind="edit", edited_args=arguments)


async def answered(own: Own, decision: ApprovalDecision) -> None:
    (asked,) = open_questions(await own.graph.aget_state(CONFIG))
    await own.run(Command(resume={asked.id: own.approval.resume_value(asked, decision)}))


@pytest.mark.anyio
async def test_a8_an_edit_cannot_name_another_tool(rooms: Rooms) -> None:
    room: Room = rooms.paying(specs=[free("look"), free("note"), gated("send_money")])
    asked = await room.question()
    value = room.sign(asked, "edit", edited_args={"to": "bob", "amount": 5})
    for name in ("tool", "name", "action"):
        forged = {**value, "decision": {**value["decision"], name: "note"}}
        await room.resume({asked.id: forged})
        nested = {**value, "decision": {**value["decision"], "edited_args": {name: "note"}}}
        await room.resume({asked.id: nested})
    assert room.ledger.all == []
    await room.resume({asked.id: value})
    assert room.ledger.paid == [5]
    assert room.ledger.of("note") == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    "stricter",
    [{"quorum": 2}, {"roles": ("treasurer",)}, {"allowed": ("approve", "reject")}],
    ids=lambda fields: next(iter(fields)),
)
async def test_a8_an_edit_into_a_stricter_rule_does_not_run(rooms: Rooms, stricter: Any) -> None:
    policy = Policy(escalate={"send_money": [ANY, large(**stricter)]})
    own = Own(rooms, policy, ai(pay()))
    await own.run()
    await answered(own, edit(to="bob", amount=5000))
    assert own.ledger.paid == []
    await answered(own, edit(to="bob", amount=999))
    assert own.ledger.paid == [999]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "bob", "amount": "7"},
        {"to": "bob", "amount": True},
        {"to": "bob"},
        {"to": "bob", "amount": 7, "force": True},
    ],
    ids=repr,
)
async def test_a8_an_edit_is_validated_strictly_even_where_the_models_ghosts_are_stripped(
    rooms: Rooms, arguments: dict[str, Any]
) -> None:
    own = Own(rooms, Policy(escalate={"send_money": "x"}), ai(pay()))
    await own.run()
    await answered(own, edit(**arguments))
    assert own.ledger.paid == []
    await answered(own, edit(to="bob", amount=7))
    assert own.ledger.paid == [7]


@pytest.mark.anyio
async def test_a8_a_rule_that_offers_no_edit_takes_none(rooms: Rooms) -> None:
    allowed: tuple[DecisionKind, ...] = ("approve", "reject")
    rule = ApprovalRule(name="fixed", allowed=allowed)
    own = Own(rooms, Policy(escalate={"send_money": rule}), ai(pay()))
    await own.run()
    with pytest.raises(InvalidAnswer):
        await answered(own, edit(to="bob", amount=7))
    assert own.ledger.paid == []
    await answered(own, ApprovalDecision(kind="approve"))
    assert own.ledger.paid == [100]
