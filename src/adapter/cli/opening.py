"""Opening the server's store for a command that runs where the server runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from adapter.core.errors import ConfigurationError

if TYPE_CHECKING:
    from adapter.settings import AdapterSettings
    from adapter.stores import SqlStore

__all__ = ["server_store"]


@asynccontextmanager
async def server_store(settings: AdapterSettings) -> AsyncIterator[SqlStore]:
    """Open the store that the settings name, and close it.

    Raises:
        ConfigurationError: There is no such database file.
    """
    from adapter.stores import open_store

    _refuse_absent(settings.database_uri)
    store = open_store(settings.database_uri, sqlite_sync=settings.sqlite_sync)
    try:
        yield store
    finally:
        await store.aclose()


def _refuse_absent(uri: str) -> None:
    """Refuse a SQLite file that does not exist: opening it would make an empty, innocent one."""
    scheme, separator, path = uri.partition(":///")
    path = path.partition("?")[0]
    if scheme.startswith("sqlite") and separator and path and not path.startswith("file:"):
        file = Path(path)
        if not file.exists():
            raise ConfigurationError(
                f"There is no database at {file} (ADAPTER_DATABASE_URI): run this where the server "
                "runs, or set ADAPTER_DATABASE_URI or ADAPTER_DATA_DIR to the server's."
            )
