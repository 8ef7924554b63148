"""A42: very large or deep arguments and answers are refused within bounds, and cost nothing."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from pydantic import BaseModel
from tests.support.room import Rooms, error_of, gated, pay, tool_of
from tests.support.script import ai, call
from tests.unit.core.kit import SEND, YES, kinds

from adapter.core.decisions import MAX_TEXT
from adapter.core.errors import InvalidAnswer
from adapter.testing import make_call, wired

pytestmark = pytest.mark.anyio


class Anything(BaseModel):
    value: Any


def deep(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made


TOO_MUCH = {
    "a megabyte of text": "x" * 1_500_000,
    "deep": deep(90),
    "deeper": deep(200),
    "wide": list(range(400_000)),
}


@pytest.mark.parametrize("name", TOO_MUCH)
async def test_a42_arguments_beyond_the_bounds_are_an_error_and_another_try(
    rooms: Rooms, name: str
) -> None:
    def keep(value: Any) -> str:
        rooms.ledger.add(tool="keep")
        return "kept"

    room = rooms(
        ai(call("keep", "big", value=TOO_MUCH[name])),
        ai(call("keep", "small", value=[[1]])),
        tools=[tool_of(keep, "keep", Anything)],
        specs=[gated("keep")],
    )
    begun = process_time()
    await room.say()
    assert process_time() - begun < 20
    results = {m.tool_call_id: m for m in await room.messages() if isinstance(m, ToolMessage)}
    assert error_of(results["big"])["kind"] == "ToolArgsInvalid"
    assert len(str(results["big"].content)) < 2_000
    (asked,) = await room.asked()
    assert asked.value["request"]["call_id"] == "small"
    await room.decide(asked)
    assert len(room.ledger.of("keep")) == 1


@pytest.mark.parametrize("field", ["reason", "response", "reviewer"])
async def test_a42_a_signed_answer_of_a_megabyte_does_not_count(field: str) -> None:
    async with wired(SEND) as kit:

        def huge(question: Any) -> Any:
            good = YES.to_json(decided_at=kit.clock(), reviewer="rita")
            if field == "response":
                good |= {"kind": "respond", "approved": False}
            from adapter.core.signing import sign_answer

            long = {**good, field: "x" * 1_000_000}
            return sign_answer(kit.port.keys, question.binding, long)

        send = make_call("send", to="bob")
        with pytest.raises(InvalidAnswer):
            await kit.run(send, None, huge)
        assert kit.runs == []
        assert "answer_refused" in await kinds(kit)
        from adapter.core.decisions import ApprovalDecision

        long = ApprovalDecision(approved=True, reason="x" * MAX_TEXT)
        await kit.run(send, None, long)
        assert len(kit.runs) == 1


async def test_a42_junk_of_a_megabyte_leaves_the_question_open(rooms: Rooms) -> None:
    room = rooms(ai(pay()))
    asked = await room.question()
    for junk in ("x" * 1_000_000, {"binding": "x" * 1_000_000}, deep(300)):
        await room.resume({asked.id: junk})
        (still,) = await room.asked()
        assert still.id == asked.id
    assert all(len(str(event)) < 2_000 for event in await room.events("answer_refused"))
    assert room.ledger.paid == []
    await room.decide(asked)
    assert room.ledger.paid == [100]
