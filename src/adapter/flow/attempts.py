"""Trying a node's work: the time limit of each attempt, and how often it is tried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from adapter.core.errors import AdapterError, FlowError, ToolFailed, ToolTimeout
from adapter.core.retrying import tried
from adapter.flow.context import IsPause
from adapter.flow.kinds import Node

__all__ = ["Attempts"]

T = TypeVar("T")


class _Late(TimeoutError):
    """The node's own time limit, so that no other TimeoutError is taken for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Tries a node's work.

    Attributes:
        where: The node in words.
        is_pause: Which errors are waits for a person.
        sleep: How to wait between attempts.
    """

    node: Node
    where: str
    is_pause: IsPause
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self, once: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the first attempt that succeeds.

        Pauses are never tried again, nor is what trying again cannot mend: a refusal, a used
        answer, a missing store, a result that does not hold.

        Raises:
            FlowError: The last attempt did not end in time.
            Exception: What the last attempt raised.
        """
        timed = partial(self._timed, once)
        try:
            return await tried(timed, self.node.retries, worth=self._worth, sleep=self.sleep)
        except _Late as error:
            msg = f"{self.where}: it did not end within {self.node.timeout:g} s."
            raise FlowError(msg) from error

    def _worth(self, error: BaseException) -> bool:
        if not isinstance(error, Exception) or self.is_pause(error):
            return False
        return not isinstance(error, AdapterError) or isinstance(error, ToolFailed | ToolTimeout)

    async def _timed(self, once: Callable[[], Awaitable[T]]) -> T:
        if self.node.timeout is None:
            return await once()
        limit = asyncio.timeout(self.node.timeout)
        try:
            async with limit:
                return await once()
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise _Late from error
