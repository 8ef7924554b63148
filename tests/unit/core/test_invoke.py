"""The fence lets one call through, time limits are kept, and cancellation waits for the record."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from adapter.core.errors import ToolTimeout, ToolUsageError
from adapter.core.invoke import Fence, held, timed

pytestmark = pytest.mark.anyio


def test_a_fence_lets_the_claimed_arguments_through_once() -> None:
    fence = Fence({"a": 1})
    assert not fence.consumed
    fence.consume({"a": 1})
    assert fence.consumed
    with pytest.raises(ToolUsageError, match="must not run a governed tool twice"):
        fence.consume({"a": 1})


def test_a_fence_refuses_other_arguments_and_stays_open() -> None:
    fence = Fence({"a": 1})
    with pytest.raises(ToolUsageError, match="differ"):
        fence.consume({"a": 2})
    fence.consume({"a": 1})


def test_only_a_renewed_fence_opens_again() -> None:
    fence = Fence({"a": 1})
    fence.consume({"a": 1})
    fence.saw(TimeoutError())
    fence.renew()
    assert not fence.ambiguous
    fence.consume({"a": 1})


class ReadTimeout(Exception):
    pass


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), ReadTimeout()])
def test_an_error_that_hides_the_outcome_is_ambiguous(error: Exception) -> None:
    fence = Fence({})
    fence.saw(error)
    assert fence.ambiguous


def test_an_ordinary_error_is_not_ambiguous() -> None:
    fence = Fence({})
    fence.saw(ValueError("no"))
    assert not fence.ambiguous


async def value(result: Any = 5) -> Any:
    return result


def never(_task: Any) -> None:
    pytest.fail("nothing was late")


async def test_a_tool_in_time_gives_its_result() -> None:
    assert await timed(value(), 5, cancellable=True, late=never) == 5


async def test_a_tool_that_raises_raises() -> None:
    async def broken() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await timed(broken(), 5, cancellable=True, late=never)


async def test_a_tool_out_of_time_is_stopped() -> None:
    stopped = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with pytest.raises(ToolTimeout, match=r"within 0\.001 s"):
        await timed(slow(), 0.001, cancellable=True, late=never)
    assert stopped.is_set()


async def test_a_tool_that_cannot_be_stopped_reports_its_late_end() -> None:
    go, ended = asyncio.Event(), asyncio.Event()
    results: list[Any] = []

    def late(task: asyncio.Task[Any]) -> None:
        results.append(task.result())
        ended.set()

    async def slow() -> int:
        await go.wait()
        return 7

    with pytest.raises(ToolTimeout):
        await timed(slow(), 0.001, cancellable=False, late=late)
    go.set()
    await ended.wait()
    assert results == [7]


async def test_a_tool_with_a_time_limit_of_its_own_has_failed_and_not_timed_out() -> None:
    async def impatient() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await timed(impatient(), 5, cancellable=True, late=never)


async def test_a_tool_that_cancels_itself_has_failed() -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="cancelled itself"):
        await timed(gives_up(), 5, cancellable=True, late=never)


async def test_a_cancelled_wait_cancels_the_tool() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    task = asyncio.ensure_future(timed(slow(), 5, cancellable=True, late=never))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stopped.wait()


async def nothing() -> None:
    pytest.fail("nothing was abandoned")


async def test_held_work_gives_its_result() -> None:
    assert await held(value(), 5, nothing, stop=True) == 5


class Work:
    """Work that goes on until it is told to end."""

    def __init__(self, *, fails: bool = False) -> None:
        self.started, self.go, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.cancelled = False
        self._fails = fails

    async def __call__(self) -> str:
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.done.set()
        if self._fails:
            raise ValueError("late")
        return "done"


async def test_cancelled_work_is_finished_first() -> None:
    work = Work()
    task = asyncio.ensure_future(held(work(), 60, nothing, stop=True))
    await work.started.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    work.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not work.cancelled


async def test_a_second_cancellation_does_not_tear_the_work() -> None:
    work = Work()
    task = asyncio.ensure_future(held(work(), 60, nothing, stop=True))
    await work.started.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    work.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not work.cancelled


async def test_an_error_after_a_cancellation_is_only_noted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    work = Work(fails=True)
    task = asyncio.ensure_future(held(work(), 60, nothing, stop=True))
    await work.started.wait()
    task.cancel()
    await asyncio.sleep(0)
    work.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "ended with an error after its run was cancelled" in caplog.text


@pytest.mark.parametrize("stop", [True, False])
async def test_work_past_its_grace_is_abandoned(stop: bool) -> None:
    work, noted = Work(), asyncio.Event()

    async def abandon() -> None:
        noted.set()

    task = asyncio.ensure_future(held(work(), 0.001, abandon, stop=stop))
    await work.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert noted.is_set()
    assert work.done.is_set() is stop
    work.go.set()
    await work.done.wait()
    assert work.cancelled is stop


async def test_work_that_ends_badly_after_it_was_abandoned_is_quiet(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Work(fails=True)

    async def abandon() -> None:
        pass

    task = asyncio.ensure_future(held(work(), 0.001, abandon, stop=False))
    await work.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    work.go.set()
    await work.done.wait()
    await asyncio.sleep(0)
    assert caplog.text == ""


async def test_abandoning_is_not_torn_by_another_cancellation() -> None:
    work, begun, go, noted = Work(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def abandon() -> None:
        begun.set()
        await go.wait()
        noted.set()

    task = asyncio.ensure_future(held(work(), 0.001, abandon, stop=True))
    await work.started.wait()
    task.cancel()
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert noted.is_set()


async def test_a_doubt_that_cannot_be_recorded_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Work()

    async def abandon() -> None:
        raise OSError

    task = asyncio.ensure_future(held(work(), 0.001, abandon, stop=True))
    await work.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "could not be recorded as in doubt" in caplog.text
