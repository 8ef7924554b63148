"""Calls that ask go one at a time after the others; what goes wrong is raised in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapter.core.batches import checked_concurrency, in_order
from adapter.core.errors import ToolUsageError

pytestmark = pytest.mark.anyio


async def run(calls: list[Any], work: Any, cap: int | None = None) -> Any:
    return await in_order(
        calls, confirms=lambda call: str(call).startswith("ask"), run=work, concurrency=cap
    )


async def test_results_come_in_the_calls_order_and_asking_calls_run_last() -> None:
    ran: list[str] = []

    async def work(call: str) -> str:
        await asyncio.sleep(0)
        ran.append(call)
        return call.upper()

    calls = ["ask1", "b", "ask2", "d"]
    assert await run(calls, work) == ["ASK1", "B", "ASK2", "D"]
    assert ran == ["b", "d", "ask1", "ask2"]
    assert await run(["ask1"], work) == ["ASK1"]
    assert await run([], work) == []


async def test_the_cap_holds() -> None:
    running, peak = 0, 0

    async def work(call: str) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1

    await run(list("abcdef"), work, cap=2)
    assert peak == 2


async def test_the_first_error_in_order_is_raised_once_all_have_ended_and_nobody_is_asked() -> None:
    ended: list[str] = []

    async def work(call: str) -> None:
        if call == "b":
            await asyncio.sleep(0)
        ended.append(call)
        if call in ("b", "c"):
            raise ValueError(call)

    with pytest.raises(ValueError, match="b"):
        await run(["a", "b", "c", "ask"], work)
    assert sorted(ended) == ["a", "b", "c"]


async def test_a_cancelled_caller_ends_its_calls() -> None:
    started, ended = asyncio.Event(), []

    async def work(call: str) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(call)

    task = asyncio.create_task(run(["a", "b"], work))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == ["a", "b"]


async def test_a_call_that_is_cancelled_itself_cancels_the_batch() -> None:
    async def work(call: str) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await run(["a", "b"], work)


def test_a_cap_is_a_whole_number() -> None:
    assert checked_concurrency(None) is None
    assert checked_concurrency(3) == 3
    for wrong in (0, True, 1.5, "2"):
        odd: Any = wrong
        with pytest.raises(ToolUsageError, match="concurrency"):
            checked_concurrency(odd)
