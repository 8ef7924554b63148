"""Approve, edit, reject, respond: what runs is exactly what was signed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.room import START, Clock, Rooms, error_of, gated, money_tools, pay
from tests.support.script import ai, call

from adapter import ApprovalRule, Condition, InvalidAnswer, Policy
from adapter.core.signing import to_iso


@pytest.mark.anyio
async def test_an_edit_runs_the_edited_arguments(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.decide(asked, "edit", edited_args={"to": "carol", "amount": 42})
    assert room.ledger.all == [{"tool": "send_money", "to": "carol", "amount": 42}]
    assert (await room.results())["c1"].content == "sent 42 to carol"
    (decided,) = await room.events("decided")
    assert decided["data"]["edited_args"] == {"to": "carol", "amount": 42}
    (started,) = await room.events("started")
    assert started["data"]["arguments"] == {"to": "carol", "amount": 42}


@pytest.mark.anyio
async def test_a_rejection_tells_the_model_why(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.decide(asked, "reject", reason="not this month")
    assert room.ledger.paid == []
    error = error_of((await room.results())["c1"])
    assert error["kind"] == "ApprovalDenied"
    assert "not this month" in error["message"]
    assert await room.status("c1") == ["denied"]
    (decided,) = await room.events("decided")
    assert decided["data"]["reason"] == "not this month"


@pytest.mark.anyio
async def test_a_response_stands_in_for_the_tool(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.decide(asked, "respond", response="I paid it by hand.")
    assert room.ledger.paid == []
    result = (await room.results())["c1"]
    assert (result.content, result.status) == ("I paid it by hand.", "success")
    assert await room.status("c1") == ["responded"]


BAD_EDITS: dict[str, Any] = {
    "text for a number": {"to": "carol", "amount": "42"},
    "true for a number": {"to": "carol", "amount": True},
    "missing": {"to": "carol"},
    "ghost": {"to": "carol", "amount": 1, "force": True},
    "other tool's": {"text": "x"},
    "a call": {"name": "note", "args": {"text": "x"}},
    "empty": {},
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", sorted(BAD_EDITS))
async def test_an_edit_is_validated_like_the_models_call(rooms: Rooms, name: str) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.decide(asked, "edit", edited_args=BAD_EDITS[name])
    (still,) = await room.asked()
    assert still.id == asked.id
    assert room.ledger.all == []
    await room.decide(asked, "edit", edited_args={"to": "carol", "amount": 1})
    assert room.ledger.paid == [1]


@pytest.mark.anyio
async def test_a_kind_that_was_not_offered_does_not_count(rooms: Rooms) -> None:
    tools, specs = money_tools(rooms.ledger)
    rule = ApprovalRule(name="narrow", allowed=("approve", "reject"))
    specs[0] = gated("send_money", approval=rule)
    room = rooms(ai(pay()), tools=tools, specs=specs)
    asked = await room.question()
    assert asked.value["request"]["allowed"] == ["approve", "reject"]
    with pytest.raises(InvalidAnswer):
        room.sign(asked, "edit", edited_args={"to": "x", "amount": 1})
    await room.resume({asked.id: force_sign(room, asked, "edit", {"to": "x", "amount": 1})})
    assert room.ledger.paid == []
    await room.decide(asked)
    assert room.ledger.paid == [100]


def force_sign(room: Any, asked: Any, kind: str, edited: Any = None, **more: Any) -> dict[str, Any]:
    """Sign as a client would that checks nothing."""
    from adapter import ApprovalDecision
    from adapter.core.signing import sign_answer

    decision = ApprovalDecision(kind=kind, edited_args=edited, **more)  # type: ignore[arg-type]
    body = decision.to_json(decided_at=START, reviewer="r")
    return sign_answer(room.approval.keys, asked.value["binding"], body)


@pytest.mark.anyio
async def test_an_edit_over_the_line_is_judged_by_the_rule_it_falls_under(rooms: Rooms) -> None:
    tools, specs = money_tools(rooms.ledger)
    rule = ApprovalRule(name="big", when=Condition(argument="amount", op="gt", value=50))
    specs[0] = gated("send_money", approval=rule)
    room = rooms(ai(pay("small", 50)), ai(pay("big", 51)), tools=tools, specs=specs)
    await room.say()
    assert room.ledger.paid == [50]
    (asked,) = await room.asked()
    assert asked.value["request"]["call_id"] == "big"
    await room.decide(asked, "edit", edited_args={"to": "bob", "amount": 10})
    assert room.ledger.paid == [50, 10]


@pytest.mark.anyio
async def test_a_tool_the_policy_denies_is_not_even_asked_about(rooms: Rooms) -> None:
    room = rooms.paying(policy=Policy(deny={"send_*": "frozen"}))
    await room.say()
    assert await room.asked() == []
    error = error_of((await room.results())["c1"])
    assert error["kind"] == "PolicyDenied"
    assert "frozen" in error["message"]
    assert room.ledger.paid == []


@pytest.mark.anyio
async def test_a_policy_that_denies_meanwhile_wins_over_an_approval(rooms: Rooms) -> None:
    room = rooms.paying(store="adapter.db")
    asked = await room.question()
    answer = room.sign(asked)

    strict = rooms(saver=room.saver, store="adapter.db", policy=Policy(deny={"send_money": "no"}))
    await strict.resume({asked.id: answer})

    assert strict.ledger.paid == []
    assert error_of((await strict.results())["c1"])["kind"] == "PolicyDenied"


@pytest.mark.anyio
async def test_a_changed_rule_asks_again_under_another_binding(rooms: Rooms) -> None:
    room = rooms.paying(store="adapter.db")
    asked = await room.question()
    tools, specs = money_tools(rooms.ledger)
    specs[0] = gated("send_money", approval=ApprovalRule(name="stricter"))

    later = rooms(saver=room.saver, store="adapter.db", tools=tools, specs=specs)
    await later.resume({asked.id: room.sign(asked)})

    assert later.ledger.paid == []
    (again,) = await later.asked()
    assert again.value["binding"] != asked.value["binding"]
    assert again.value["request"]["rule"] == "stricter"
    assert len(await later.events("policy_changed")) == 1
    await later.decide(again)
    assert later.ledger.paid == [100]


@pytest.mark.anyio
async def test_an_answer_past_its_own_expiry_does_not_count(rooms: Rooms) -> None:
    clock = Clock()
    room = rooms.paying(clock=clock)
    asked = await room.question()
    answer = room.sign(asked, expires_at=to_iso(START + 60_000))
    clock.advance(61)
    await room.resume({asked.id: answer})
    assert room.ledger.paid == []
    await room.resume({asked.id: room.sign(asked, expires_at=to_iso(clock.now + 60_000))})
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_a_masked_argument_is_neither_shown_nor_editable(rooms: Rooms) -> None:
    tools, specs = money_tools(rooms.ledger)
    specs[0] = gated("send_money", masks=("to",))
    room = rooms(ai(pay("c1", 100, "acct-4711-secret")), tools=tools, specs=specs)
    asked = await room.question()
    assert asked.value["request"]["arguments"] == {"to": "***", "amount": 100}
    bad = force_sign(room, asked, "edit", {"to": "eve", "amount": 100})
    await room.resume({asked.id: bad})
    assert room.ledger.all == []
    (asked,) = await room.asked()
    await room.decide(asked, "edit", edited_args={"amount": 7})
    assert room.ledger.all == [{"tool": "send_money", "to": "acct-4711-secret", "amount": 7}]
    assert "4711" not in repr(await room.events())


@pytest.mark.anyio
async def test_after_a_rejection_the_model_may_propose_anew_and_is_asked_anew(rooms: Rooms) -> None:
    room = rooms(ai(pay("c1")), ai(pay("c2", 5)))
    first = await room.question()
    old = room.sign(first)
    await room.decide(first, "reject", reason="too much")
    (second,) = await room.asked()
    assert second.value["request"]["arguments"]["amount"] == 5
    await room.resume({second.id: old})  # the old button
    assert room.ledger.paid == []
    await room.decide(second)
    assert room.ledger.paid == [5]


@pytest.mark.anyio
async def test_the_request_tells_a_reviewer_what_is_asked(rooms: Rooms) -> None:
    clock = Clock()
    room = rooms(ai(call("send_money", "c1", to="bob", amount=100)), clock=clock)
    asked = await room.question()
    assert asked.value["type"] == "agent_adapter.approval"
    assert set(asked.value) == {"type", "binding", "request", "seal"}
    request = asked.value["request"]
    assert request["tool"] == "send_money"
    assert request["kind"] == "tool"
    assert (request["rule"], request["reason"]) == ("always", "Money leaves.")
    assert request["issued_at"] == to_iso(START)
    assert request["expires_at"] == to_iso(START + 86_400_000)
    assert request["quorum"] == {"need": 1, "have": 0, "by": []}
    assert request["schema"]["required"] == ["to", "amount"]
