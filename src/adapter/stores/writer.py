"""One thread that writes: it takes everything waiting and commits it in one transaction.

A commit costs many times what an operation does, so callers share it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from sqlalchemy.pool import PoolProxiedConnection

from adapter.core.sinks import Outlet
from adapter.stores.chains import HeadSigner
from adapter.stores.database import Database
from adapter.stores.jobs import Job, Jobs, deliver
from adapter.stores.recent import Recent
from adapter.stores.transaction import Operation, Transaction

__all__ = ["Writer"]


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
        self._recent = Recent()
        self._jobs = Jobs(self._work)
        self._connection: PoolProxiedConnection | None = None
        self._cursor: Any = None

    @property
    def closed(self) -> bool:
        """Whether no more operations are taken."""
        return self._jobs.closed

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
        self._jobs.put(Job(operation, locks, loop, future, look), loop)
        return await future

    def post(self, operation: Operation[Any], locks: Sequence[str] = ()) -> None:
        """Have an operation carried out without waiting for it.

        It is committed before, or together with, whatever is asked for after it. A failure is
        logged.

        Raises:
            StoreUnavailable: The store is closed.
        """
        self._jobs.post(Job(operation, locks, None, None))

    def owes(self) -> bool:
        """Tell whether posted operations are still held."""
        return self._jobs.owes()

    def close(self) -> threading.Thread | None:
        """Take no more operations; return the thread, which ends when the queue is done."""
        return self._jobs.close()

    def _work(self) -> None:
        more = True
        while more:
            batch, more = self._jobs.take()
            if batch:
                self._commit(batch)
                deliver(batch)
        self._disconnect()
        self._database.release()

    def _commit(self, batch: Sequence[Job]) -> None:
        """Carry a batch out together or, if one of it fails, one by one."""
        try:
            self._attempt(batch, careful=False)
        except (_NotBegun, _Unconfirmed) as stopped:
            self._fail(batch, stopped)
        except Exception:  # noqa: BLE001 - whatever one operation met, its neighbours go on
            self._commit_alone(batch)

    def _commit_alone(self, batch: Sequence[Job]) -> None:
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

    def _attempt(self, batch: Sequence[Job], *, careful: bool) -> None:
        now = self._begin(batch)
        connection = self._connection
        assert connection is not None  # noqa: S101 - begin made it
        try:
            tx = Transaction(
                self._cursor,
                self._database.sql,
                careful=careful,
                now=now,
                sign=self._sign,
                recent=self._recent,
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
        self._recent.committed(tx)
        for job, result in zip(batch, results, strict=True):
            job.result = result
        if self._outlet is not None and (committed := tx.chains.committed()) is not None:
            self._outlet.put(committed)

    def _begin(self, batch: Sequence[Job]) -> int:
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

    def _fail(self, batch: Sequence[Job], stopped: Exception) -> None:
        cause = stopped.__cause__
        for job in batch:
            job.error = self._database.fault(cause if isinstance(cause, Exception) else stopped)
