"""Test kit: ending this very process, without a word, at a named point of a call's life.

For proofs about crashes, in processes made for it (POSIX). The product has no hooks and pays
nothing: a test puts these around the store and into its own tools.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable
from typing import Any, cast

from adapter.core.store import Store

__all__ = ["CrashAt", "FaultyStore"]


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class CrashAt:
    """Called with the name of each point that is reached; at one of them the process ends.

    Args:
        point: Where; None nowhere.
        nth: At which arrival there, counted from 1.
        kill: Ends the process. The default is SIGKILL: nothing is flushed, no handler runs.

    Attributes:
        reached: Every point so far, in order.
    """

    def __init__(
        self, point: str | None, *, nth: int = 1, kill: Callable[[], None] = _kill
    ) -> None:
        self.point = point
        self.reached: list[str] = []
        self._left = nth
        self._kill = kill

    def __call__(self, point: str) -> None:
        """Note that a point is reached, and end the process if it is the one."""
        self.reached.append(point)
        if point == self.point:
            self._left -= 1
            if self._left == 0:
                self._kill()


class FaultyStore:
    """A store that tells when an operation begins and when it is committed.

    The points of an operation are ``before <name>`` and ``after <name>``, e.g. ``after claim``.

    Args:
        inner: The real store.
        reached: Told of each point.
    """

    def __init__(self, inner: Store, reached: Callable[[str], None]) -> None:
        self._inner = inner
        self._reached = reached

    @classmethod
    def around(cls, inner: Store, reached: Callable[[str], None]) -> Store:
        """Return the wrapped store as a Store, for an Executor."""
        return cast("Store", cls(inner, reached))

    def __getattr__(self, name: str) -> Any:
        """Return an operation of the real store between its two points."""
        operation = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(operation):
            return operation

        async def between(*args: Any, **named: Any) -> Any:
            self._reached(f"before {name}")
            result = await operation(*args, **named)
            self._reached(f"after {name}")
            return result

        return between
