"""What waits for the writer's thread: handed over together, answered together.

Callers wait on futures of their own event loops. What they ask for in one turn of a loop is handed
over at its end, so that it shares a transaction and the thread is woken once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from adapter.core.errors import StoreUnavailable
from adapter.stores.transaction import Operation

__all__ = ["Job", "Jobs", "deliver"]

_log = logging.getLogger(__name__)

_HOLD = 0.01
"""Seconds a posted operation may wait for company."""

_MOST = 256
"""Most operations in one transaction: bounds how long it holds its locks."""


class Job:
    """An operation, who waits for it, and what became of it."""

    __slots__ = ("error", "future", "locks", "look", "loop", "operation", "result")

    def __init__(
        self,
        operation: Operation[Any],
        locks: Sequence[str],
        loop: asyncio.AbstractEventLoop | None,
        future: asyncio.Future[Any] | None,
        look: tuple[str, str] | None = None,
    ) -> None:
        self.operation = operation
        self.locks = locks
        self.loop = loop
        self.future = future
        self.look = look
        self.result: Any = None
        self.error: Exception | None = None


class Jobs:
    """The writer's queue. Its thread starts with the first operation.

    Args:
        work: What the thread does; it ends when ``take`` returns nothing.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._queue: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._held: list[Job] = []
        self._due: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.closed = False

    def put(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        """Hand an operation over at the end of its loop's turn.

        Raises:
            StoreUnavailable: The store is closed.
        """
        with self._lock:
            self._refuse_closed()
            self._held.append(job)
            if self._due is loop:
                return
            self._due = loop
        loop.call_soon(self.release)

    def post(self, job: Job) -> None:
        """Hand over an operation that nobody waits for, with the next one that is waited for.

        Raises:
            StoreUnavailable: The store is closed.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        with self._lock:
            self._refuse_closed()
            self._held.append(job)
            first = len(self._held) == 1
            if loop is None:
                self._hand_over()
        if first and loop is not None:
            # Held for a moment: the thread is woken with the next operation that is waited for,
            # and not while the event loop has better use for the interpreter.
            loop.call_later(_HOLD, self.release)

    def owes(self) -> bool:
        """Tell whether operations are still held."""
        return bool(self._held)

    def release(self) -> None:
        """Hand over what is held."""
        with self._lock:
            self._due = None
            if self._held and not self.closed:
                self._hand_over()

    def close(self) -> threading.Thread | None:
        """Take no more operations; return the thread, which ends when the queue is done."""
        with self._lock:
            if not self.closed:
                if self._held:
                    self._hand_over()
                self.closed = True
                self._queue.put(None)
            return self._thread

    def take(self) -> tuple[list[Job], bool]:
        """Wait for operations; return what there is, and whether more may come."""
        batch: list[Job] = []
        while len(batch) < _MOST and (not batch or not self._queue.empty()):
            jobs = self._queue.get()
            if jobs is None:
                return batch, False
            batch.extend(jobs)
        return batch, True

    def _refuse_closed(self) -> None:
        if self.closed:
            msg = "The store is closed: this call came after aclose()."
            raise StoreUnavailable(msg)

    def _hand_over(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name="adapter-store-writer", daemon=True
            )
            self._thread.start()
        held, self._held = self._held, []
        self._queue.put(held)


def deliver(batch: Sequence[Job]) -> None:
    """Tell everybody what became of their operations; each loop is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in batch:
        if job.loop is not None:
            by_loop.setdefault(job.loop, []).append(job)
        elif job.error is not None:
            _log.error("audit events could not be written: %s", job.error)
    for loop, jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, jobs)
        except RuntimeError:  # the loop is closed: nobody waits any more
            continue


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future is None or job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
