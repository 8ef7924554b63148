"""Trying again: how often, what for, and how long to wait in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)
from tenacity.wait import wait_base

from adapter.core.errors import StoreUnavailable
from adapter.core.spec import Retry

__all__ = ["between", "recorded", "tried"]

T = TypeVar("T")

_RECORD_ATTEMPTS = 5


def between(retry: Retry) -> wait_base:
    """Return how long to wait between attempts."""
    wait = wait_exponential(
        multiplier=retry.initial_interval, exp_base=retry.backoff_factor, max=retry.max_interval
    )
    return wait + wait_random(0, retry.initial_interval) if retry.jitter else wait


async def tried(
    once: Callable[[], Awaitable[T]],
    retry: Retry,
    *,
    worth: Callable[[BaseException], bool],
    sleep: Callable[[float], Awaitable[None]],
) -> T:
    """Return the result of the first attempt that succeeds.

    Args:
        once: One attempt.
        retry: How many there are.
        worth: Tells the errors that another attempt may mend.
        sleep: How to wait between attempts.

    Raises:
        BaseException: What the last attempt raised.
    """
    if retry.max_attempts == 1:
        return await once()

    async def attempt() -> T:
        return await once()

    return await AsyncRetrying(
        stop=stop_after_attempt(retry.max_attempts),
        wait=between(retry),
        retry=retry_if_exception(worth),
        sleep=sleep,
        reraise=True,
    )(attempt)


async def recorded(
    record: Callable[[], Awaitable[object]],
    *,
    failed: Callable[[], None],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Record what has happened already: a store that is away for a moment loses nothing.

    Args:
        record: Writes it; safe to repeat.
        failed: Told when the first attempt finds no store.
        sleep: How to wait between attempts.

    Raises:
        StoreUnavailable: It stayed away.
    """

    async def attempt() -> None:
        await record()

    try:
        await attempt()
    except StoreUnavailable:
        failed()
    else:
        return
    await AsyncRetrying(
        stop=stop_after_attempt(_RECORD_ATTEMPTS - 1),
        wait=wait_exponential(multiplier=0.1, max=1),
        retry=retry_if_exception_type(StoreUnavailable),
        sleep=sleep,
        reraise=True,
    )(attempt)
