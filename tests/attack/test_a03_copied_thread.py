"""A3: the answer of the original, given to a copy of the thread."""

from __future__ import annotations

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from tests.support.room import Rooms, copy_thread


@pytest.mark.anyio
@pytest.mark.parametrize("first", ["original", "copy"])
async def test_a03_an_answer_counts_on_its_own_thread_only(rooms: Rooms, first: str) -> None:
    saver = InMemorySaver()
    room = rooms.paying(saver=saver, store="adapter.db")
    asked = await room.question()
    copy_thread(saver, "thread-1", "thread-2")
    copy = room.on("thread-2")
    (seen,) = await copy.asked()
    assert seen.id == asked.id  # the platform keeps the ids; only the thread differs
    answer = {asked.id: room.sign(asked)}

    for target in (room, copy) if first == "original" else (copy, room):
        await target.resume(answer)

    assert room.ledger.paid == [100]
    assert await room.asked() == []
    (still,) = await copy.asked()
    assert still.value["refused"]["code"] == "invalid_answer"
    (event,) = await copy.events("answer_refused")
    assert event["data"]["code"] == "invalid_answer"


@pytest.mark.anyio
async def test_a03_the_copy_has_its_own_question_and_its_own_effect(rooms: Rooms) -> None:
    saver = InMemorySaver()
    room = rooms.paying(saver=saver)
    await room.say()
    copy_thread(saver, "thread-1", "thread-2")
    copy = room.on("thread-2")
    await copy.run(None)  # its own question: the one copied along is the original's
    (own,) = await copy.asked()
    await copy.decide(own)
    assert room.ledger.paid == [100]
    (asked,) = await room.asked()
    await room.decide(asked)
    assert room.ledger.paid == [100, 100]


@pytest.mark.anyio
async def test_a03_a_copy_made_after_the_answer_repeats_nothing(rooms: Rooms) -> None:
    saver = InMemorySaver()
    room = rooms.paying(saver=saver)
    asked = await room.question()
    answer = {asked.id: room.sign(asked)}
    await room.resume(answer)
    copy_thread(saver, "thread-1", "thread-2")
    copy = room.on("thread-2")
    await copy.run(None)
    await copy.resume(answer)
    await copy.say("and now?")
    assert room.ledger.paid == [100]
    await copy.results()
