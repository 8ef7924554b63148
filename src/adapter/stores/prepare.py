"""Bringing a database's schema up to date when it is opened, once, whoever comes first.

Alembic is imported only where there is something to do. It keeps module-level state, so one lock
per process lets one store migrate at a time; between processes the database's own lock does.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, column, insert, inspect, select, table, text

from adapter.core.errors import ConfigurationError
from adapter.stores.faults import SETTING
from adapter.stores.schema import POSTGRES_SCHEMA, VERSION_TABLE

__all__ = ["HEAD", "migrate_postgresql", "migrate_sqlite", "use_wal"]

HEAD = "0002"
"""The newest revision in ``migrations/versions``; a test compares."""

_PATIENCE = 60
"""Seconds that another process's migration is waited for."""

_migrating = threading.Lock()

_VERSION = table(VERSION_TABLE, column("version_num"))

_made: tuple[str, ...] = ()
"""What the migrations make of an empty SQLite database, once one was migrated in this process."""


def use_wal(
    engine: Engine,
    *,
    patience: float = 5.0,
    sleep: Callable[[float], None] = time.sleep,  # noqa: TID251 - the default; in a worker thread
) -> None:
    """Switch a SQLite file to its write-ahead log, which lasts.

    Args:
        engine: The file's engine.
        patience: Seconds to wait for others; SQLite itself does not wait for this lock.
        sleep: How to wait.

    Raises:
        sqlite3.OperationalError: Locked, read-only or no such folder.
    """
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        for turn in range(100):
            try:
                cursor.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as error:
                if turn == 99 or "locked" not in str(error):
                    raise
                sleep(patience / 100)
        cursor.close()
    finally:
        connection.close()


def migrate_sqlite(engine: Engine) -> None:
    """Run what is missing of the migrations inside one transaction that excludes others."""
    with engine.connect() as connection:
        if _revision(connection, None) == HEAD:
            return
        connection.rollback()
        # Others may be at it: whoever comes first needs its time, and the rest find nothing to do.
        connection.exec_driver_sql(f"PRAGMA busy_timeout={_PATIENCE * 1000:d}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        _make(connection)
        connection.commit()
        connection.invalidate()  # with its patience


def _make(connection: Connection) -> None:
    """Migrate; an empty database gets at once what the last empty one came to step by step."""
    global _made  # noqa: PLW0603 - found once in a process
    empty = not _statements(connection)
    if empty and _made:
        for statement in _made:
            connection.exec_driver_sql(statement)
        connection.execute(insert(_VERSION).values(version_num=HEAD))
        return
    _upgrade(connection, None)
    if empty:
        _made = _statements(connection)


def _statements(connection: Connection) -> tuple[str, ...]:
    found = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    return tuple(found.scalars())


def migrate_postgresql(engine: Engine, *, lock: int) -> None:
    """Run what is missing of the migrations inside one transaction that excludes others.

    Args:
        engine: The database's engine.
        lock: First number of the advisory lock.
    """
    with engine.connect() as connection:
        if _revision(connection, POSTGRES_SCHEMA) == HEAD:
            return
        connection.rollback()
        connection.execute(text(f"SET LOCAL lock_timeout = '{_PATIENCE}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:space, -1)"), {"space": lock})
        if not inspect(connection).has_schema(POSTGRES_SCHEMA):
            connection.execute(text(f"CREATE SCHEMA {POSTGRES_SCHEMA}"))
        _upgrade(connection, POSTGRES_SCHEMA)
        connection.commit()


def _revision(connection: Connection, schema: str | None) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE, schema=schema):
        return None
    version = table(VERSION_TABLE, column("version_num"), schema=schema)
    found: str | None = connection.execute(select(version.c.version_num)).scalar()
    return found


def _upgrade(connection: Connection, schema: str | None) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema
    with _migrating:
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            msg = (
                f"The database that {SETTING} names was made by a newer version of this package; "
                "install that version, or name another database."
            )
            raise ConfigurationError(msg) from error
