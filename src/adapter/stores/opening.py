"""Choosing the store for an address."""

from __future__ import annotations

from adapter.core.sinks import Outlet
from adapter.stores.chains import HeadSigner
from adapter.stores.database import Clock, SqliteSync
from adapter.stores.sql import SqlStore

__all__ = ["open_store"]


def open_store(
    uri: str,
    *,
    clock: Clock | None = None,
    sqlite_sync: SqliteSync = "NORMAL",
    head_signer: HeadSigner | None = None,
    outlet: Outlet | None = None,
) -> SqlStore:
    """Return the store at an address; nothing is opened before its first call.

    Args:
        uri: ``sqlite:///path``, ``sqlite://`` (in memory) or ``postgresql://…``.
        clock: Milliseconds since the epoch; None for the database's usual clock.
        sqlite_sync: ``NORMAL`` or ``FULL``.
        head_signer: Signs the audit chains' heads.
        outlet: Told of audit events once they are committed; closed with the store.

    Raises:
        ConfigurationError: The address or the sync mode is not one of these.
    """
    return SqlStore(
        uri, clock=clock, sqlite_sync=sqlite_sync, head_signer=head_signer, outlet=outlet
    )
