"""Corners of calls that end oddly: late, lost, undecided; and numbers at JSON's edge."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.unit.core.kit import PUT, SEND, Gate, flaky, outlived
from tests.unit.core.test_running import CALL, PUTTING, QUICK, SECOND, status

from adapter.core.answers import Answer
from adapter.core.canonical import canonical_bytes, loads, strict_loads
from adapter.core.errors import ConfigurationError, ToolFailed
from adapter.core.invoke import timed
from adapter.core.journal import identify
from adapter.core.rules import Condition
from adapter.core.types import CallStatus
from adapter.core.validation import PydanticSchema
from adapter.testing import make_call, make_context, wired

pytestmark = pytest.mark.anyio


async def test_a_late_result_that_cannot_be_kept_is_recorded_as_failed() -> None:
    kit, store = flaky(QUICK)
    gate = Gate(result=object())
    async with kit:
        await outlived(kit, store, CALL, gate)
        assert await status(kit) is CallStatus.FAILED
        with pytest.raises(ToolFailed):
            await kit.run(CALL, SECOND)


async def test_a_lost_tasks_claim_is_taken_over_in_its_row() -> None:
    async with wired(PUT) as kit:
        lost, found = make_context(task_id="lost"), make_context(task_id="found")
        names = identify(PUTTING, lost)
        journal = kit.executor.journal
        claimed = await journal.claim(
            lost,
            journal.subject(PUTTING, names, None),
            arguments={},
            charges=(),
            repeatable=True,
            new=journal.new_call(PUTTING, lost, names),
        )
        assert claimed.state == "claimed"
        kit.clock.advance(journal.lease + 1)
        await kit.run(PUTTING, found)
        (row,) = await kit.store.of_message("thread-1", PUTTING.message_id)
        assert (row.key, row.status) == (names.key, CallStatus.SUCCEEDED)
        assert len(kit.runs) == 1


async def test_an_answer_without_a_decision_runs_nothing() -> None:
    async def undecided(_question: Any, _refused: Any) -> Answer:
        return Answer(digest="0" * 64)

    async with wired(SEND) as kit:
        kit.port.decide = undecided  # type: ignore[method-assign, assignment]
        with pytest.raises(ConfigurationError, match="without a decision"):
            await kit.run(make_call("send", to="ann"))
        assert kit.runs == []


async def test_a_tool_cancelled_from_outside_is_cancelled_only_where_it_can_be() -> None:
    for cancellable in (True, False):
        gate: asyncio.Event = asyncio.Event()
        begun: asyncio.Event = asyncio.Event()
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def slow(gate: Any = gate, begun: Any = begun, ended: Any = ended) -> None:
            begun.set()
            try:
                await gate.wait()
                ended.set_result("done")
            except asyncio.CancelledError:
                ended.set_result("stopped")
                raise

        outer = asyncio.ensure_future(
            timed(slow(), 60, cancellable=cancellable, late=lambda _task: None)
        )
        await begun.wait()
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer
        gate.set()
        assert await ended == ("stopped" if cancellable else "done")


async def test_a_light_tools_own_time_limit_is_its_own_error() -> None:
    async def impatient() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await timed(impatient(), 60, cancellable=True, late=lambda _task: None, light=True)


def test_a_large_whole_float_comes_back_as_it_was_written() -> None:
    written = canonical_bytes({"amount": 1e16})
    assert canonical_bytes(loads(written)) == written
    assert canonical_bytes(strict_loads(written)) == written
    assert loads(b"9007199254740991") == 2**53 - 1
    assert loads(b"-9007199254740992") == -(2.0**53)
    with pytest.raises(ValueError, match="too large"):
        strict_loads(b"1" + b"0" * 400)
    with pytest.raises(ValueError, match="too large"):
        strict_loads(b"1e999")


def test_a_bottomless_value_with_a_fraction_is_refused_too() -> None:
    value: Any = 0.5
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="too deeply"):
        canonical_bytes(value)


def test_a_bound_beyond_every_float_is_shown_as_text() -> None:
    class Wide(BaseModel):
        n: int = Field(le=10**400)

    shown = PydanticSchema(Wide).json_schema["properties"]["n"]["maximum"]
    assert shown == str(10**400)


def test_the_members_of_a_condition_have_one_order() -> None:
    values = {"eur", "usd", "chf"}
    sets = [Condition(argument="a", op="in", value=made) for made in (values, frozenset(values))]
    assert [one.describe()["value"] for one in sets] == [["chf", "eur", "usd"]] * 2
    given = Condition(argument="a", op="in", value=("b", "a"))
    assert given.describe()["value"] == ["b", "a"]
