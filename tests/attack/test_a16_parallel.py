"""A16, A18, A19: several calls, one bad; what is coerced or dropped elsewhere is refused here."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.room import Rooms, error_of, pay
from tests.support.script import ai, call


@pytest.mark.anyio
async def test_a16_answers_out_of_order_with_one_bad_and_one_reject(rooms: Rooms) -> None:
    room = rooms.paying(pay("c1", 1), pay("c2", 2), pay("c3", 3))
    await room.say()
    first, second, third = await room.asked()
    await room.decide(third)
    await room.resume({second.id: {"approved": True}})
    open_now = await room.asked()
    assert [q.id for q in open_now] == [first.id, second.id]
    assert open_now[1].value["refused"]["code"] == "invalid_answer"
    await room.decide(first, "reject", reason="no")
    assert room.ledger.paid == [3]
    (still,) = await room.asked()
    assert still.id == second.id
    await room.decide(still)
    assert room.ledger.paid == [3, 2]
    results = await room.results()
    assert error_of(results["c1"])["kind"] == "ApprovalDenied"


@pytest.mark.anyio
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a18_one_invalid_call_of_three_stops_all(rooms: Rooms, place: int) -> None:
    calls = [pay(), call("note", "n1", text="x")]
    calls.insert(place, call("send_money", "bad", to="bob", amount="many"))
    room = rooms(ai(*calls))
    await room.say()
    assert room.ledger.all == []
    assert await room.asked() == []
    results = await room.results()
    assert len(results) == 3
    assert all(message.status == "error" for message in results.values())


@pytest.mark.anyio
async def test_a18_three_valid_calls_go_on(rooms: Rooms) -> None:
    room = rooms(ai(pay(), call("note", "n1", text="x"), call("look", "l1", text="x")))
    asked = await room.question()
    await room.decide(asked)
    assert room.ledger.paid == [100]
    assert len(room.ledger.of("note")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "bob", "amount": "7"},
        {"to": "bob", "amount": True},
        {"to": 7, "amount": 7},
        {"to": "bob", "amount": 7, "force": True},
        {"to": "bob", "amount": 7, "TO": "eve"},
        {"to": ["bob"], "amount": 7},
        {"to": None, "amount": 7},
        {"amount": 7},
    ],
    ids=repr,
)
async def test_a19_nothing_is_coerced_or_dropped(rooms: Rooms, arguments: dict[str, Any]) -> None:
    room = rooms(ai(call("send_money", "c1", **arguments)))
    await room.say()
    assert await room.asked() == []
    assert room.ledger.all == []
    assert error_of((await room.results())["c1"])["kind"] == "ToolArgsInvalid"


@pytest.mark.anyio
async def test_a19_the_same_holds_for_an_edit(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    for edited in ({"to": "bob", "amount": "7"}, {"to": "bob", "amount": 7, "force": True}):
        await room.decide(asked, "edit", edited_args=edited)
        assert room.ledger.all == []
    await room.decide(asked, "edit", edited_args={"to": "bob", "amount": 7})
    assert room.ledger.paid == [7]
