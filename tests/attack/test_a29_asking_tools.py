"""A29: a tool that itself asks: it pauses, is not counted as executed, and goes on once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from langgraph.types import interrupt
from tests.support.room import Room, Rooms, free, gated, tool_of
from tests.support.script import ai, call

from adapter import Effects


def asking(rooms: Rooms, spec: Any) -> Room:
    def odd(text: str) -> str:
        answer = interrupt({"please": text})
        rooms.ledger.add(tool="odd", answer=answer)
        return f"got {answer}"

    return rooms(
        ai(call("odd", "o1", text="x"), call("odd", "o2", text="y")),
        tools=[tool_of(odd, "odd")],
        specs=[spec],
    )


@pytest.mark.anyio
async def test_a29_two_gated_asking_tools_in_parallel(rooms: Rooms) -> None:
    room = asking(rooms, gated("odd"))
    await room.say()
    for asked in await room.asked():
        await room.decide(asked)
    assert room.ledger.all == []
    assert [e["kind"] for e in await room.events("succeeded", "failed", "in_doubt")] == []
    own = {q.value["please"]: q for q in await room.asked()}
    assert set(own) == {"x", "y"}
    await room.resume({own["y"].id: "second"})
    await room.resume({own["x"].id: "first"})
    assert [fact["answer"] for fact in room.ledger.of("odd")] == ["second", "first"]
    results = await room.results()
    assert results["o1"].content == "got first"
    assert results["o2"].content == "got second"
    assert len(await room.events("decided")) == 2


@pytest.mark.anyio
async def test_a29_both_answers_at_once_do_not_mix(rooms: Rooms) -> None:
    room = asking(rooms, gated("odd"))
    await room.say()
    asked = await room.asked()
    await room.resume({question.id: room.sign(question) for question in asked})
    own = await room.asked()
    await room.resume({question.id: question.value["please"].upper() for question in own})
    assert sorted(fact["answer"] for fact in room.ledger.of("odd")) == ["X", "Y"]
    results = await room.results()
    assert (results["o1"].content, results["o2"].content) == ("got X", "got Y")


@pytest.mark.anyio
@pytest.mark.parametrize("effects", [Effects(), Effects(idempotent=True), Effects(read_only=True)])
async def test_a29_ungated(rooms: Rooms, effects: Effects) -> None:
    room = asking(rooms, free("odd", effects))
    await room.say()
    for question in await room.asked():
        await room.run(None)
        await room.resume({question.id: question.value["please"]})
    assert sorted(fact["answer"] for fact in room.ledger.of("odd")) == ["x", "y"]
    await room.results()


@pytest.mark.anyio
async def test_a29_an_unsigned_answer_to_the_tools_question_never_passes_the_gate(
    rooms: Rooms,
) -> None:
    room = asking(rooms, gated("odd"))
    await room.say()
    for asked in await room.asked():
        await room.resume({asked.id: "yes"})
    assert room.ledger.all == []
    assert all(q.value["type"] == "agent_adapter.approval" for q in await room.asked())


@pytest.mark.anyio
async def test_a29_a_new_message_while_the_tool_asks(rooms: Rooms) -> None:
    room = asking(rooms, gated("odd"))
    await room.say()
    first, second = await room.asked()
    await room.decide(first)
    own = next(q for q in await room.asked() if q.id not in (first.id, second.id))
    await room.say("never mind")
    results = await room.results()
    assert "unknown" in str(results["o1"].content)
    assert "Not executed" in str(results["o2"].content)
    with suppress(Exception):
        await room.resume({own.id: "late"})
    assert room.ledger.all == []
