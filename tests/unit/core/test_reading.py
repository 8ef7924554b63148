"""Reads whose task runs again: recorded where they can be, else counted with each run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.core.kit import LOOK, Gate, flaky, kinds, row_of, used
from typing_extensions import override

from adapter import Budgets
from adapter.core.errors import BudgetExceeded, StoreUnavailable, ToolFailed
from adapter.core.types import CallStatus
from adapter.testing import Paused, make_call, make_context, wired

pytestmark = pytest.mark.anyio

FIRST, SECOND = make_context(), make_context(run_id="run-2")
LOOKING = make_call("look", text="x")


async def test_a_recorded_read_gives_its_result_to_later_runs() -> None:
    async with wired(LOOK) as kit:
        for where in (FIRST, SECOND, SECOND):
            assert await kit.run(LOOKING, where, kept=True) == {"ran": {"text": "x"}}
        assert len(kit.runs) == await used(kit) == 1
        assert await kinds(kit) == ["started", "succeeded", "replayed"]
        assert (await row_of(kit)).status is CallStatus.SUCCEEDED


async def test_hooks_are_told_of_the_run_and_not_of_what_was_recorded() -> None:
    told: list[str] = []

    async def before(_call: Any, _ctx: Any) -> None:
        told.append("before")

    async def after(_call: Any, _ctx: Any) -> None:
        told.append("after")

    async with wired(LOOK, before_tool=[before], after_tool=[after]) as kit:
        await kit.run(LOOKING, kept=True)
        await kit.run(LOOKING, SECOND, kept=True)
    assert told == ["before", "after"]


async def test_a_read_past_its_budget_leaves_nothing_behind() -> None:
    async with wired(LOOK, budgets=Budgets(tool_calls_per_turn=1)) as kit:
        await kit.run(make_call("look", id="c1"), kept=True)
        with pytest.raises(BudgetExceeded):
            await kit.run(make_call("look", id="c2"), kept=True)
        assert len(kit.runs) == 1
        assert len(await kit.store.of_message("thread-1", "message-1")) == 1


@pytest.mark.parametrize("result", [{"a", "b"}, (1, 2), float("nan"), 1.0, {"a": -0.0}])
async def test_a_result_that_would_come_back_otherwise_is_read_again_and_counted(
    result: Any,
) -> None:
    async with wired(LOOK) as kit:
        for where in (FIRST, SECOND):
            assert await kit.run(LOOKING, where, kept=True, body=lambda _: result) is result
        assert len(kit.runs) == await used(kit) == 2
        assert (await kinds(kit)).count("started") == 2


async def test_a_result_that_cannot_be_compared_is_read_again() -> None:
    class Odd(dict[str, int]):  # noqa: PLW1641 - a dict has no hash
        @override
        def __eq__(self, _other: object) -> bool:
            raise RuntimeError("no comparing")

    async with wired(LOOK) as kit:
        for where in (FIRST, SECOND):
            await kit.run(LOOKING, where, kept=True, body=lambda _: Odd(a=1))
        assert len(kit.runs) == 2


async def test_a_failed_read_is_read_again_in_a_later_run() -> None:
    fails = [True]

    def body(_: Any) -> str:
        if fails.pop():
            fails.append(False)
            raise KeyError("away")
        fails.append(False)
        return "there"

    async with wired(LOOK) as kit:
        with pytest.raises(ToolFailed, match="look failed: KeyError"):
            await kit.run(LOOKING, kept=True, body=body)
        assert (await row_of(kit)).status is CallStatus.FAILED
        assert await kit.run(LOOKING, SECOND, kept=True, body=body) == "there"
        assert await used(kit) == 2


async def test_a_result_that_reports_an_error_is_read_again() -> None:
    async with wired(LOOK) as kit:
        await kit.run(LOOKING, kept=True, is_error=True)
        await kit.run(LOOKING, SECOND, kept=True)
        assert len(kit.runs) == 2


async def test_a_read_that_asks_runs_again_and_is_counted_each_time() -> None:
    def pause(_: Any) -> None:
        raise Paused({})

    async with wired(LOOK, budgets=Budgets(tool_calls_per_turn=2)) as kit:
        for where in (FIRST, SECOND):
            with pytest.raises(Paused):
                await kit.run(LOOKING, where, kept=True, body=pause)
        assert await used(kit) == 2
        with pytest.raises(BudgetExceeded):
            await kit.run(LOOKING, make_context(run_id="run-3"), kept=True, body=pause)
        assert (await kinds(kit))[:4] == ["started", "suspended", "started", "suspended"]


async def test_a_cancelled_read_stops_at_once_and_can_be_read_again() -> None:
    async with wired(LOOK) as kit:
        gate = Gate()
        task = asyncio.ensure_future(kit.run(LOOKING, kept=True, body=gate))
        await gate.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gate.ended.is_set()
        assert (await row_of(kit)).status is CallStatus.FAILED
        assert await kit.run(LOOKING, SECOND, kept=True) == {"ran": {"text": "x"}}


async def test_a_read_under_way_elsewhere_is_read_here_too() -> None:
    async with wired(LOOK) as kit:
        gate = Gate()
        task = asyncio.ensure_future(kit.run(LOOKING, kept=True, body=gate))
        await gate.started.wait()
        assert await kit.run(LOOKING, SECOND, kept=True) == {"ran": {"text": "x"}}
        assert await used(kit) == 2
        gate.go.set()
        assert await task == "done"


async def test_a_read_whose_worker_died_is_taken_over_in_its_row() -> None:
    kit, store = flaky(LOOK)
    async with kit:
        store.failures["settle"] = 99
        with pytest.raises(StoreUnavailable):
            await kit.run(LOOKING, kept=True)
        store.failures.clear()
        kit.clock.advance(30)
        assert await kit.run(LOOKING, SECOND, kept=True) == {"ran": {"text": "x"}}
        row = await row_of(kit)
        assert (row.status, row.fence) == (CallStatus.SUCCEEDED, 2)
        assert await used(kit) == 1
