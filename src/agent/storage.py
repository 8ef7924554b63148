"""The Acme file itself: opening, seeding, transactions and what a broken file means.

Only `agent.database` uses this room. It knows the schema and no question asked of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from adapter.core.errors import ConfigurationError
from agent.seed import CUSTOMERS, PRODUCTS, SCHEMA, UPGRADES, orders

__all__ = ["AcmeError", "AcmeStorage", "AcmeUnavailableError"]

SCHEMA_VERSION: Final = 2
_WAL_ATTEMPTS: Final = 20


class AcmeError(Exception):
    """The books do not allow this; the message is fit for the model."""


class AcmeUnavailableError(AcmeError):
    """The file cannot be read or written just now."""


class AcmeStorage:
    """One SQLite file in WAL mode, created and seeded when it does not exist.

    Args:
        path: The file; its directory is created.
        timeout: Seconds to wait for another writer.

    Raises:
        ConfigurationError: The file cannot be opened or written, or is no Acme database.
    """

    def __init__(self, path: Path, *, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"AGENT_DATABASE: {_fault(error, path)}") from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own, with rows by name.

        Raises:
            AcmeUnavailableError: SQLite refused something.
        """
        try:
            with closing(self._connect()) as db:
                db.execute("PRAGMA foreign_keys = ON")
                yield db
        except sqlite3.Error as error:
            raise AcmeUnavailableError(
                f"The Acme database is not available: {_fault(error, self._path)}"
            ) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """As `reading`, inside one write transaction that is undone when the body raises."""
        with self.reading() as db, _immediate(db):
            yield db

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None)
        db.row_factory = sqlite3.Row
        return db

    def _prepare(self) -> None:
        with closing(self._connect()) as db:
            # Two processes starting at once wait for each other here, and one seeds.
            with _immediate(db):
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version in UPGRADES:
                    for older in range(version, SCHEMA_VERSION):
                        for statement in UPGRADES[older]:
                            db.execute(statement)
                elif version != SCHEMA_VERSION:
                    if version or db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                        raise ConfigurationError(
                            f"AGENT_DATABASE: {self._path} belongs to another program or version: "
                            "name a file of its own, or one that does not exist yet."
                        )
                    _seed(db)
                # Written each time: a read-only file is known now, not at the first refund.
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            _use_wal(db)


@contextmanager
def _immediate(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.commit()


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to WAL. SQLite does not wait for the lock this needs, though it does for a writer's.

    A file that stays in the rollback mode is correct and slower, so giving up is no error.
    """
    for _ in range(_WAL_ATTEMPTS):
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            with _immediate(db):
                continue
        return


def _seed(db: sqlite3.Connection) -> None:
    for statement in SCHEMA:
        db.execute(statement)
    db.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", PRODUCTS)
    db.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", CUSTOMERS)
    db.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", orders())


def _fault(error: Exception, path: Path) -> str:
    """What is wrong with the file, and the cure."""
    text = str(error).lower()
    if "locked" in text or "busy" in text:
        return f"{path} is locked by another program: close it, or name another file."
    if "readonly" in text or "read-only" in text:
        return f"{path} is read-only: make the file and its directory writable."
    if "not a database" in text or "malformed" in text:
        return f"{path} is not a sound SQLite database: restore it, or name another file."
    return (
        f"{path} cannot be used ({type(error).__name__}): check that its directory exists, is "
        "writable and has space."
    )
