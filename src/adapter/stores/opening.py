"""Choosing the store for an address."""

from __future__ import annotations

from adapter.stores.database import Clock, SqliteSync
from adapter.stores.sql import SqlStore

__all__ = ["open_store"]


def open_store(
    uri: str, *, clock: Clock | None = None, sqlite_sync: SqliteSync = "NORMAL"
) -> SqlStore:
    """Return the store at an address; nothing is opened before its first call.

    Args:
        uri: ``sqlite:///path``, ``sqlite://`` (in memory) or ``postgresql://…``.
        clock: Milliseconds since the epoch; None for the database's usual clock.
        sqlite_sync: ``NORMAL`` or ``FULL``.

    Raises:
        ConfigurationError: The address or the sync mode is not one of these.
    """
    return SqlStore(uri, clock=clock, sqlite_sync=sqlite_sync)
