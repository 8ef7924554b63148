"""A20: the tool has its effect, then times out, and retry middleware is there: one effect."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents.middleware import ToolRetryMiddleware
from langgraph.types import Command
from tests.support.room import Room, Rooms, error_of, free, gated, tool_of
from tests.support.script import ai, call

from adapter import ApprovalAlreadyDecided, CallInDoubt, Effects
from adapter.core.operating import Operator, Resolution, sign_statement
from adapter.langgraph.results import stated_record

pytestmark = pytest.mark.anyio


def retry() -> ToolRetryMiddleware:
    return ToolRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)


def late(rooms: Rooms, where: str, spec: Any, **more: Any) -> Room:
    def odd(text: str) -> str:
        rooms.ledger.add(tool="odd")
        raise TimeoutError("the other side did not answer")

    around: dict[str, Any] = {where: [retry()]}
    return rooms(
        ai(call("odd", "o1", text="x")),
        tools=[tool_of(odd, "odd")],
        specs=[spec],
        **around,
        **more,
    )


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("mode", ["message", "raise"])
async def test_an_approved_tool_that_times_out_after_its_effect_runs_once(
    rooms: Rooms, where: str, mode: str
) -> None:
    room = late(rooms, where, gated("odd"), middleware={"on_tool_failure": mode})
    asked = await room.question()
    state = await room.agent.aget_state(room.config)
    answer = {asked.id: room.sign(asked)}
    await room.resume(answer)
    assert len(room.ledger.of("odd")) == 1
    assert await room.status("o1") == ["in_doubt"]

    # the same answer again, before and after somebody said what became of it
    await again(room, answer, state.config, where, CallInDoubt)
    operator = Operator(journal=room.executor.journal, keys=room.approval.keys)
    (row,) = await operator.doubtful()
    record = stated_record("it was sent", "o1", "odd")
    resolution = Resolution(verdict="succeeded", by="olga", outcome=record)
    statement = operator.statement(row, resolution)
    signature = sign_statement(room.approval.keys, statement)
    await operator.resolve(row, resolution, statement, signature)
    await again(room, answer, state.config, where, ApprovalAlreadyDecided)
    assert len(room.ledger.of("odd")) == 1
    assert await room.status("o1") == ["succeeded"]


async def again(room: Room, answer: Any, config: Any, where: str, error: type[Exception]) -> None:
    """Replay the paused checkpoint; retry middleware outside ours makes a message of the error."""
    if where == "after":
        with pytest.raises(error):
            await room.run(Command(resume=answer), config)
    else:
        await room.run(Command(resume=answer), config)
    assert len(room.ledger.of("odd")) == 1


@pytest.mark.parametrize("where", ["before", "after"])
async def test_an_ungated_effect_that_times_out_runs_once(rooms: Rooms, where: str) -> None:
    room = late(rooms, where, free("odd"))
    await room.say()
    assert len(room.ledger.of("odd")) == 1
    assert await room.status("o1") == ["in_doubt"]
    said = error_of((await room.results())["o1"])["message"] if where == "before" else ""
    assert where == "after" or "Do not repeat" in said


async def test_a_tool_whose_effect_can_be_repeated_is_not_in_doubt(rooms: Rooms) -> None:
    room = late(rooms, "before", free("odd", Effects(idempotent=True)))
    await room.say()
    assert await room.status("o1") == ["failed"]
