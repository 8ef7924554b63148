"""Several calls of one message: each its own question, each effect once."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from tests.support.room import Rooms, error_of, pay
from tests.support.script import ai, call

THREE = (pay("c1", 1), pay("c2", 2), pay("c3", 3))


@pytest.mark.anyio
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_three_answers_in_any_order(rooms: Rooms, order: tuple[int, ...]) -> None:
    room = rooms.paying(*THREE)
    await room.say()
    asked = await room.asked()
    assert len({question.id for question in asked}) == 3
    for index in order:
        await room.decide(asked[index])
    assert room.ledger.paid == [index + 1 for index in order]
    assert len(await room.results()) == 3


@pytest.mark.anyio
async def test_approve_edit_and_reject_one_after_another(rooms: Rooms) -> None:
    room = rooms.paying(*THREE)
    await room.say()
    first, second, third = await room.asked()
    await room.decide(second, "edit", edited_args={"to": "bob", "amount": 20})
    await room.decide(third, "reject", reason="no")
    await room.decide(first)
    assert room.ledger.paid == [20, 1]
    results = await room.results()
    assert results["c2"].content == "sent 20 to bob"
    assert error_of(results["c3"])["kind"] == "ApprovalDenied"
    await room.say("go on")
    await room.results()


@pytest.mark.anyio
@pytest.mark.parametrize("bad", [{"approved": True}, "yes", None, [1]])
async def test_one_bad_answer_beside_two_good_ones(rooms: Rooms, bad: Any) -> None:
    room = rooms.paying(*THREE)
    await room.say()
    first, second, third = await room.asked()
    await room.resume({first.id: room.sign(first), second.id: bad, third.id: room.sign(third)})
    assert sorted(room.ledger.paid) == [1, 3]
    (still,) = await room.asked()
    assert still.id == second.id
    await room.decide(second)
    assert sorted(room.ledger.paid) == [1, 2, 3]
    await room.results()


@pytest.mark.anyio
async def test_in_mode_raise_a_good_sibling_runs_once_at_the_latest_on_the_retry(
    rooms: Rooms,
) -> None:
    room = rooms.paying(pay("c1", 1), pay("c2", 2), on_invalid="raise")
    await room.say()
    first, second = await room.asked()
    with pytest.raises(Exception, match="not a valid"):
        await room.resume({first.id: room.sign(first), second.id: "junk"})
    assert room.ledger.paid in ([], [1])
    await room.resume({first.id: room.sign(first), second.id: room.sign(second)})
    if sorted(room.ledger.paid) != [1, 2]:
        await room.run(None)
    assert sorted(room.ledger.paid) == [1, 2]
    await room.results()


@pytest.mark.anyio
async def test_a_free_sibling_runs_once_over_all_pauses(rooms: Rooms) -> None:
    room = rooms(ai(call("note", "n1", text="x"), *THREE, call("look", "l1", text="y")))
    await room.say()
    assert len(room.ledger.of("note")) == 1
    for question in await room.asked():
        await room.resume({question.id: "junk"})
        await room.run(None)
        await room.decide(question)
    assert len(room.ledger.of("note")) == 1
    assert room.ledger.paid == [1, 2, 3]
    assert len(await room.results()) == 5


@pytest.mark.anyio
async def test_all_answers_in_one_resume(rooms: Rooms) -> None:
    room = rooms.paying(*[pay(f"c{n}", n) for n in range(8)])
    await room.say()
    asked = await room.asked()
    await room.resume({question.id: room.sign(question) for question in asked})
    assert sorted(room.ledger.paid) == list(range(8))
    await room.results()


@pytest.mark.anyio
async def test_two_equal_calls_are_two_questions_and_two_effects(rooms: Rooms) -> None:
    room = rooms.paying(pay("c1"), pay("c2"))
    await room.say()
    first, second = await room.asked()
    assert first.value["binding"] != second.value["binding"]
    await room.decide(first)
    assert room.ledger.paid == [100]
    await room.decide(second)
    assert room.ledger.paid == [100, 100]


@pytest.mark.anyio
async def test_a_resume_without_answers_leaves_every_question_open(rooms: Rooms) -> None:
    room = rooms.paying(*THREE)
    await room.say()
    asked = await room.asked()
    for _ in range(3):
        await room.run(None)
    assert [q.id for q in await room.asked()] == [q.id for q in asked]
    assert room.ledger.paid == []
    assert len(await room.events("requested")) == 3
    assert len(await room.events("proposed")) == 3


@pytest.mark.anyio
async def test_many_threads_at_once_do_not_mix(rooms: Rooms) -> None:
    room = rooms(*[ai(pay("c1", 5)) for _ in range(10)], store="adapter.db")
    threads = [room.on(f"t{n}") for n in range(10)]
    await asyncio.gather(*(thread.say() for thread in threads))
    asked = [(await thread.asked())[0] for thread in threads]
    assert len({question.value["binding"] for question in asked}) == 10
    await asyncio.gather(
        *(thread.decide(question) for thread, question in zip(threads, asked, strict=True))
    )
    assert len(room.ledger.paid) == 10
    for thread in threads:
        await thread.results()
        await thread.verified()
