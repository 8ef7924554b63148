"""One thread that writes: it takes everything waiting and commits it in one transaction.

A commit costs many times what an operation does, so callers share it. They wait on futures of
their own event loops; each loop is woken once per transaction.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

from sqlalchemy.pool import PoolProxiedConnection

from adapter.core.errors import StoreUnavailable
from adapter.core.sinks import Outlet
from adapter.stores.chains import HeadSigner
from adapter.stores.database import Database
from adapter.stores.transaction import Operation, Transaction

__all__ = ["Writer"]

_log = logging.getLogger(__name__)

_HOLD = 0.01
"""Seconds a posted operation may wait for company."""

_MOST = 256
"""Most operations in one transaction: bounds how long it holds its locks."""


class _Job:
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


class _NotBegun(Exception):
    """No transaction could be begun: nobody's operation can run now."""


class _Unconfirmed(Exception):
    """The commit failed: whether it took place is unknown, so nothing is repeated."""


class Writer:
    """The writer of one store in this process. Its thread starts with the first operation.

    Args:
        database: Where to write. Opened, and its schema prepared, in the writer's thread.
        sign: Signs the heads of the chains that a transaction moves.
        outlet: Told of the audit events of each transaction once it is committed.
    """

    def __init__(
        self,
        database: Database,
        *,
        sign: HeadSigner | None = None,
        outlet: Outlet | None = None,
    ) -> None:
        self._database = database
        self._sign = sign
        self._outlet = outlet
        self._queue: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._held: list[_Job] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._connection: PoolProxiedConnection | None = None
        self._cursor: Any = None
        self.closed = False

    async def run(
        self,
        operation: Operation[Any],
        locks: Sequence[str] = (),
        *,
        look: tuple[str, str] | None = None,
    ) -> Any:
        """Run an operation in the next transaction and return its result once committed.

        An operation whose caller is cancelled is carried out all the same.

        Args:
            operation: The work. It may run more than once; only what it wrote last is kept.
            locks: Names of everything it reads or writes.
            look: Thread and id of an event it will look for; a batch looks for all at once.

        Raises:
            StoreUnavailable: The database cannot be used, or the store is closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._put(_Job(operation, locks, loop, future, look))
        return await future

    def post(self, operation: Operation[Any], locks: Sequence[str] = ()) -> None:
        """Have an operation carried out without waiting for it.

        It is committed before, or together with, whatever is asked for after it. A failure is
        logged.

        Raises:
            StoreUnavailable: The store is closed.
        """
        job = _Job(operation, locks, None, None)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._put(job)
            return
        with self._lock:
            self._refuse_closed()
            self._held.append(job)
            first = len(self._held) == 1
        if first:
            # Held for a moment: the thread is woken with the next operation that is waited for,
            # and not while the event loop has better use for the interpreter.
            loop.call_later(_HOLD, self.release)

    def owes(self) -> bool:
        """Tell whether posted operations are still held."""
        return bool(self._held)

    def release(self) -> None:
        """Hand over what is held."""
        with self._lock:
            if self._held and not self.closed:
                self._hand_over()

    def _put(self, job: _Job) -> None:
        with self._lock:
            self._refuse_closed()
            self._hand_over(job)

    def _refuse_closed(self) -> None:
        if self.closed:
            msg = "The store is closed: this call came after aclose()."
            raise StoreUnavailable(msg)

    def _hand_over(self, *jobs: _Job) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name="adapter-store-writer", daemon=True
            )
            self._thread.start()
        held, self._held = self._held, []
        self._queue.put([*held, *jobs])

    def close(self) -> threading.Thread | None:
        """Take no more operations; return the thread, which ends when the queue is done."""
        with self._lock:
            if not self.closed:
                if self._held:
                    self._hand_over()
                self.closed = True
                self._queue.put(None)
            return self._thread

    def _work(self) -> None:
        open_ = True
        while open_:
            batch: list[_Job] = []
            while len(batch) < _MOST and (not batch or not self._queue.empty()):
                jobs = self._queue.get()
                if jobs is None:
                    open_ = False
                    break
                batch.extend(jobs)
            if batch:
                self._commit(batch)
                self._deliver(batch)
        self._disconnect()
        self._database.release()

    def _commit(self, batch: Sequence[_Job]) -> None:
        """Carry a batch out together or, if one of it fails, one by one."""
        try:
            self._attempt(batch, careful=False)
        except (_NotBegun, _Unconfirmed) as stopped:
            self._fail(batch, stopped)
        except Exception:  # noqa: BLE001 - whatever one operation met, its neighbours go on
            self._commit_alone(batch)

    def _commit_alone(self, batch: Sequence[_Job]) -> None:
        for done, job in enumerate(batch):
            try:
                self._attempt([job], careful=True)
            except _NotBegun as stopped:
                self._fail(batch[done:], stopped)
                return
            except _Unconfirmed as stopped:
                self._fail([job], stopped)
            except Exception as error:  # noqa: BLE001 - the caller's to handle
                job.error = self._database.fault(error)

    def _attempt(self, batch: Sequence[_Job], *, careful: bool) -> None:
        now = self._begin(batch)
        connection = self._connection
        assert connection is not None  # noqa: S101 - begin made it
        try:
            tx = Transaction(
                self._cursor, self._database.sql, careful=careful, now=now, sign=self._sign
            )
            tx.chains.look_for([job.look for job in batch if job.look is not None])
            results = [job.operation(tx, now) for job in batch]
            tx.flush(now)
        except BaseException:
            self._roll_back()
            raise
        try:
            connection.commit()
        except Exception as error:
            self._disconnect(broken=True)
            raise _Unconfirmed from error
        for job, result in zip(batch, results, strict=True):
            job.result = result
        if self._outlet is not None and (committed := tx.chains.committed()) is not None:
            self._outlet.put(committed)

    def _begin(self, batch: Sequence[_Job]) -> int:
        locks = [name for job in batch for name in job.locks]
        fresh = self._connection is None
        try:
            return self._begin_once(locks)
        except Exception as error:
            self._disconnect(broken=True)
            if fresh or not self._database.retries_begin:
                raise _NotBegun from error
        try:  # the connection may have died since it was last used
            return self._begin_once(locks)
        except Exception as error:
            self._disconnect(broken=True)
            raise _NotBegun from error

    def _begin_once(self, locks: Sequence[str]) -> int:
        if not self._database.ready:
            self._database.open()
        if self._connection is None:
            self._connection = self._database.connect()
            self._cursor = self._connection.cursor()
        return self._database.begin(self._cursor, locks)

    def _roll_back(self) -> None:
        try:
            if self._connection is not None:
                self._connection.rollback()
        except Exception:  # noqa: BLE001 - a connection that cannot roll back is dropped
            self._disconnect(broken=True)

    def _disconnect(self, *, broken: bool = False) -> None:
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is None:
            return
        if broken:
            connection.invalidate()
        else:
            connection.close()

    def _fail(self, batch: Sequence[_Job], stopped: Exception) -> None:
        cause = stopped.__cause__
        for job in batch:
            job.error = self._database.fault(cause if isinstance(cause, Exception) else stopped)

    def _deliver(self, batch: Sequence[_Job]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
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


def _resolve(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        if job.future is None or job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
