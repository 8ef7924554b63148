"""SqlStore: the store interface over SQLite and PostgreSQL, one state machine for both.

Nothing here blocks an event loop: writes go to the writer's thread, reads to worker threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError
from typing_extensions import override

from adapter.core.errors import ConfigurationError
from adapter.core.sinks import Outlet
from adapter.core.store import Charge, Event, Turn
from adapter.stores import reads
from adapter.stores.calls import Calls, scopes_of, threads_of
from adapter.stores.chains import HeadSigner
from adapter.stores.charges import charge_turn
from adapter.stores.database import Clock, Database, PostgresDatabase, SqliteDatabase, SqliteSync
from adapter.stores.faults import SETTING
from adapter.stores.trail import Trail
from adapter.stores.transaction import Operation, Transaction
from adapter.stores.writer import Writer

__all__ = ["TRIAL", "SqlStore"]

TRIAL: ContextVar[bool] = ContextVar("trial", default=False)
"""Whether stores made here are in memory, whatever their address: for a command that only tries."""


class SqlStore(Calls, Trail):
    """Durable memory of the adapter in a SQL database; see ``adapter.core.store.Store``.

    Nothing is opened before the first call, or ``prepare``. Close it with ``aclose``.

    Args:
        uri: ``sqlite:///path``, ``sqlite://`` (in memory) or ``postgresql://…``.
        clock: Milliseconds since the epoch. By default PostgreSQL's own clock, or for SQLite
            this process's.
        sqlite_sync: ``NORMAL`` (safe against a killed process; a power cut may lose the last
            commits) or ``FULL``.
        head_signer: Signs the audit chains' heads, e.g. a ring's ``sign`` for ``audit``; each
            process that writes to a store needs it, or heads it moves are left unsigned.
        outlet: Told of audit events once they are committed; closed with the store.

    Raises:
        ConfigurationError: The address or the sync mode is not one of these.
    """

    def __init__(
        self,
        uri: str,
        *,
        clock: Clock | None = None,
        sqlite_sync: SqliteSync = "NORMAL",
        head_signer: HeadSigner | None = None,
        outlet: Outlet | None = None,
    ) -> None:
        url = _url(uri)
        if TRIAL.get():
            url, outlet = make_url("sqlite://"), None
        self._in_memory = False
        self._database: Database
        if url.get_backend_name() == "sqlite":
            if sqlite_sync not in ("NORMAL", "FULL"):
                msg = "ADAPTER_SQLITE_SYNC is NORMAL or FULL."
                raise ConfigurationError(msg)
            self._in_memory = url.database in (None, "", ":memory:")
            self._database = SqliteDatabase(
                url, clock=clock, sync=sqlite_sync, memory=self._in_memory
            )
        else:
            self._database = PostgresDatabase(url, clock=clock)
        self._outlet = outlet
        self._writer = Writer(self._database, sign=head_signer, outlet=outlet)

    async def prepare(self) -> None:
        """Open the database and bring its schema up to date, now instead of at the first call.

        Raises:
            StoreUnavailable: It cannot be opened; the message says why.
            ConfigurationError: It was made by a newer version, or its driver is missing.
        """
        await self._writer.run(_nothing)

    async def aclose(self) -> None:
        """Finish what is queued and release threads and connections."""
        thread = self._writer.close()
        if thread is not None:
            await asyncio.to_thread(thread.join)
        if self._outlet is not None:
            await asyncio.to_thread(self._outlet.close)

    async def audience(self, proposed: str) -> str:
        """Return the stored audience id, storing ``proposed`` when there is none."""
        found: str = await self._writer.run(
            partial(reads.audience, proposed=proposed), ("audience",)
        )
        return found

    async def charge(
        self,
        charges: Sequence[Charge],
        events: Sequence[Event] = (),
        *,
        unless: str | None = None,
        show: Sequence[str] = (),
        recent: tuple[str, str, int] | None = None,
        refunds: Sequence[Charge] = (),
    ) -> Turn:
        """Charge counters (all or none) and write events if the charge succeeded."""
        operation = partial(
            charge_turn,
            charges=charges,
            events=events,
            unless=unless,
            show=show,
            recent=recent,
            refunds=refunds,
        )
        look = None if unless is None else unless.partition("\n")
        counted = () if look is None else (look[0],)
        turn: Turn = await self._writer.run(
            operation,
            (*counted, *threads_of(events), *scopes_of(charges), *scopes_of(refunds)),
            look=None if look is None else (look[0], look[2]),
        )
        return turn

    async def append(self, events: Sequence[Event]) -> int:
        """Append events to their threads' chains; returns how many were new."""
        fresh: int = await self._writer.run(
            partial(reads.append, events=events), tuple(threads_of(events))
        )
        return fresh

    def post(self, events: Sequence[Event]) -> None:
        """Append events without waiting; they are committed before whatever is asked next."""
        self._writer.post(partial(reads.append, events=events), tuple(threads_of(events)))

    @override
    async def _read(self, operation: Operation[Any]) -> Any:
        if self._in_memory:  # one connection, the writer's
            return await self._writer.run(partial(_after_all, operation=operation))
        if self._writer.closed or not self._database.ready:
            await self.prepare()
        if self._writer.owes():  # what was posted before this look is seen by it
            await self._writer.run(_nothing)
        return await asyncio.to_thread(reads.run, self._database, self._writer, operation)


def _after_all(tx: Transaction, now: int, *, operation: Operation[Any]) -> Any:
    """Look at what the transaction's earlier operations wrote, too."""
    tx.flush(now)
    return operation(tx, now)


def _nothing(tx: Transaction, now: int) -> None:
    """Have the writer open the database."""


def _url(uri: str) -> URL:
    try:
        url = make_url(uri)
    except ArgumentError as error:
        msg = (
            f"The store's address (given to open_store, or by {SETTING}) is no database address: "
            "write a file as sqlite:///adapter.db, or postgresql://…."
        )
        raise ConfigurationError(msg) from error
    if url.drivername == "postgres":
        url = url.set(drivername="postgresql")
    if url.drivername not in {
        "sqlite",
        "sqlite+pysqlite",
        "postgresql",
        "postgresql+psycopg",
    }:
        msg = (
            f"The store's address (given to open_store, or by {SETTING}) begins with sqlite:/// or "
            f"postgresql://, not with {url.drivername}."
        )
        raise ConfigurationError(msg)
    return url
