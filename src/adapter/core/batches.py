"""The order in which several calls run: those that ask a person one at a time, after the others.

So a host that re-runs a task meets its questions in the same order, and each resume answers one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from adapter.core.errors import ToolUsageError

__all__ = ["checked_concurrency", "in_order"]

T = TypeVar("T")
R = TypeVar("R")


def checked_concurrency(concurrency: int | None) -> int | None:
    """Return the cap.

    Raises:
        ToolUsageError: It is no whole number of 1 or more.
    """
    whole = isinstance(concurrency, int) and not isinstance(concurrency, bool)
    if concurrency is not None and (not whole or concurrency < 1):
        msg = f"concurrency is a whole number, 1 or more, or None for no cap; not {concurrency!r}."
        raise ToolUsageError(msg)
    return concurrency


async def in_order(
    calls: Sequence[T],
    *,
    confirms: Callable[[T], bool],
    run: Callable[[T], Awaitable[R]],
    concurrency: int | None,
) -> list[R]:
    """Run calls and return their results in the order of the calls.

    Calls that ask nobody run at the same time and all come to their end; with an error among
    them, the first one in order is raised and nobody is asked anything.

    Args:
        calls: What to run.
        confirms: Whether a call asks a person.
        run: Runs one.
        concurrency: How many of the others run at once; None for all.
    """
    asking = [confirms(call) for call in calls]
    gate = asyncio.Semaphore(concurrency or max(len(calls), 1))
    done: dict[int, R] = {}

    async def one(index: int) -> None:
        async with gate:
            done[index] = await run(calls[index])

    tasks = [asyncio.create_task(one(n)) for n, asks in enumerate(asking) if not asks]
    await _all(tasks)
    for index, asks in enumerate(asking):
        if asks:
            done[index] = await run(calls[index])
    return [done[index] for index in range(len(calls))]


async def _all(tasks: Sequence[asyncio.Task[None]]) -> None:
    if not tasks:
        return
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    errors = [None if task.cancelled() else task.exception() for task in tasks]
    for error in errors:
        if error is not None:
            raise error
    if any(task.cancelled() for task in tasks):
        raise asyncio.CancelledError
