"""What differs between the databases: how one is opened, how a transaction begins, what time it is.

Everything here runs in the writer thread or in a reader's worker thread, never on an event loop.
"""

from __future__ import annotations

import random
import sqlite3
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

from sqlalchemy import URL, Engine, StaticPool, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import PoolProxiedConnection
from typing_extensions import override

from adapter.core.errors import ConfigurationError
from adapter.stores import faults
from adapter.stores.prepare import migrate_postgresql, migrate_sqlite, use_wal
from adapter.stores.schema import POSTGRES_SCHEMA, Tables, tables
from adapter.stores.statements import Statements

__all__ = ["Clock", "Database", "PostgresDatabase", "SqliteDatabase", "SqliteSync"]

Clock: TypeAlias = Callable[[], int]
"""Returns milliseconds since the epoch."""

SqliteSync: TypeAlias = Literal["NORMAL", "FULL"]

_LOCK_SPACE = zlib.crc32(b"agent-adapter:store") & 0x7FFFFFFF
_LOCK_BUCKETS = 256
_LOCKS = "SELECT pg_advisory_xact_lock(%s, bucket) FROM unnest(%s::int[]) AS bucket"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_PATIENCE = 5.0
"""Seconds that a lock of SQLite is waited for."""
_SQLITE_NEEDED = (3, 35, 0)  # RETURNING


def _process_clock() -> int:
    return time.time_ns() // 1_000_000


_compiled: dict[tuple[str, str], Statements] = {}
"""What was compiled in this process, by dialect and paramstyle: it is the same for every store."""


class Database(ABC):
    """One database and its engine, opened on first use.

    Args:
        url: Where it is.
        clock: The store's clock, or None for the database's usual one.
    """

    retries_begin = False

    def __init__(self, url: URL, *, clock: Clock | None) -> None:
        self.url = url
        self.place = url.set(query={}).render_as_string(hide_password=True)
        self.ready = False
        self.sql: Statements
        self.engine: Engine
        self._clock = clock
        self._driver_errors: tuple[type[Exception], ...] = ()

    def open(self) -> None:
        """Make the engine and bring the schema up to date; safe to repeat after a failure."""
        if not hasattr(self, "engine"):
            self._create()
        self._prepare()
        self.ready = True

    def connect(self) -> PoolProxiedConnection:
        """Borrow a connection."""
        return self.engine.raw_connection()

    def release(self) -> None:
        """Close every connection that is not lent out at the moment."""
        if hasattr(self, "engine"):
            self.engine.pool.dispose()

    def fault(self, error: Exception) -> Exception:
        """Translate an error into one for the caller."""
        made: Exception = faults.unavailable(
            error, place=self.place, driver_errors=self._driver_errors
        )
        return made

    def lost(self, error: Exception) -> bool:
        """Tell whether an error means that the connection is of no more use."""
        if isinstance(error, DBAPIError):
            return error.connection_invalidated
        dbapi = self.engine.dialect.loaded_dbapi
        return isinstance(error, (dbapi.OperationalError, dbapi.InterfaceError))

    @abstractmethod
    def begin(self, cursor: Any, locks: Iterable[str]) -> int:
        """Begin a transaction that writes; return its time in milliseconds."""

    @abstractmethod
    def _prepare(self) -> None: ...

    @abstractmethod
    def _engine(self) -> tuple[Engine, Tables]: ...

    def _create(self) -> None:
        try:
            engine, made = self._engine()
        except (ArgumentError, NoSuchModuleError) as error:
            msg = f"{faults.SETTING} is not a usable database address: {self.place}"
            raise ConfigurationError(msg) from error
        except ImportError as error:
            msg = (
                f"{faults.SETTING} names PostgreSQL, whose driver is not installed: "
                "pip install 'agent-adapter[postgres]'"
            )
            raise ConfigurationError(msg) from error
        self._driver_errors = (engine.dialect.loaded_dbapi.Error,)
        dialect = engine.dialect
        kind = (dialect.name, dialect.paramstyle)
        self.sql = _compiled.get(kind) or _compiled.setdefault(kind, Statements(dialect, made))
        self.engine = engine


class SqliteDatabase(Database):
    """A SQLite file, or a database in memory that lives as long as the store.

    Args:
        url: Where it is.
        clock: The store's clock; by default the process's, read once per transaction.
        sync: ``PRAGMA synchronous``.
        memory: Whether it is in memory: one connection, no migration.
        sleep: How the writer's thread waits for the lock.
    """

    def __init__(
        self,
        url: URL,
        *,
        clock: Clock | None,
        sync: SqliteSync,
        memory: bool,
        sleep: Callable[[float], None] = time.sleep,  # noqa: TID251 - the default; in a thread
    ) -> None:
        super().__init__(url, clock=clock or _process_clock)
        self._sleep = sleep
        self._sync = sync
        self._memory = memory
        self._impatient: Any = None

    @override
    def begin(self, cursor: Any, locks: Iterable[str]) -> int:
        """Take the write lock, then read the clock."""
        self._lock(cursor)
        assert self._clock is not None  # noqa: S101 - set in the constructor
        return self._clock()

    def _lock(self, cursor: Any) -> None:
        """Take the write lock, asking often.

        SQLite's own waiting backs off to a tenth of a second; among busy writers, who free the
        lock for a millisecond, one of them then waits for ever.
        """
        if cursor is not self._impatient:
            cursor.execute("PRAGMA busy_timeout=0")
            self._impatient = cursor
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                cursor.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                self._sleep(random.uniform(0.0002, 0.002))  # noqa: S311 - spreads the writers
            else:
                return

    @override
    def _engine(self) -> tuple[Engine, Tables]:
        engine = create_engine(
            self.url,
            paramstyle="qmark",
            # the driver begins nothing by itself; the writer says BEGIN IMMEDIATE
            connect_args={
                "isolation_level": None,
                "timeout": _PATIENCE,
                "check_same_thread": False,
            },
            **({"poolclass": StaticPool} if self._memory else {}),
        )
        if engine.dialect.loaded_dbapi.sqlite_version_info < _SQLITE_NEEDED:
            msg = "This Python's SQLite is older than 3.35; use a newer Python, or PostgreSQL."
            raise ConfigurationError(msg)
        sync = self._sync

        @event.listens_for(engine, "connect")
        def _set_up(connection: Any, _record: Any) -> None:
            connection.execute(f"PRAGMA synchronous={sync}")
            connection.execute("PRAGMA cache_size=-65536")
            # a checkpoint costs several commits: pages that change in each are copied once
            connection.execute("PRAGMA wal_autocheckpoint=4000")

        return engine, tables()

    @override
    def _prepare(self) -> None:
        if self._memory:
            tables().metadata.create_all(self.engine)
            return
        use_wal(self.engine)
        migrate_sqlite(self.engine)


class PostgresDatabase(Database):
    """PostgreSQL through psycopg, in the schema ``agent_adapter``.

    Writers of all processes take advisory locks, in order, on everything their transaction names.
    So transactions that hold the work of many callers cannot deadlock, and what one of them reads
    (is there another row of this call?) stays true until it commits.

    Args:
        url: Where it is.
        clock: The store's clock; by default the server's, read once per transaction.
    """

    retries_begin = True

    @override
    def begin(self, cursor: Any, locks: Iterable[str]) -> int:
        """Lock what the transaction names, then read the clock."""
        buckets = sorted({zlib.crc32(name.encode()) % _LOCK_BUCKETS for name in locks})
        if buckets:
            cursor.execute(_LOCKS, (_LOCK_SPACE, buckets))
        if self._clock is not None:
            return self._clock()
        cursor.execute(_NOW)
        now: int = cursor.fetchone()[0]
        return now

    @override
    def _engine(self) -> tuple[Engine, Tables]:
        engine = create_engine(
            self.url.set(drivername="postgresql+psycopg"),
            paramstyle="format",
            connect_args={"connect_timeout": 5},
        )

        @event.listens_for(engine, "connect")
        def _set_up(connection: Any, _record: Any) -> None:
            # a stopped process must not hold everybody up
            connection.execute(
                "SELECT set_config('lock_timeout', '5s', false),"
                " set_config('idle_in_transaction_session_timeout', '30s', false)"
            )
            connection.commit()

        return engine, tables(POSTGRES_SCHEMA)

    @override
    def _prepare(self) -> None:
        migrate_postgresql(self.engine, lock=_LOCK_SPACE)
