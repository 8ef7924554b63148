"""Opening the server's store for a command that runs where the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from adapter.core.errors import ConfigurationError

if TYPE_CHECKING:
    from adapter.core.keys import KeyRing
    from adapter.settings import AdapterSettings
    from adapter.stores import SqlStore

__all__ = ["audit_keys", "is_absent", "server_store"]


@asynccontextmanager
async def server_store(settings: AdapterSettings) -> AsyncIterator[SqlStore]:
    """Open the store that the settings name, and close it.

    Events written through it move signed heads, for which it needs the key file.

    Raises:
        ConfigurationError: There is no such database file, or a key file that cannot be used.
    """
    from adapter.stores import open_store

    if is_absent(settings.database_uri):
        raise ConfigurationError(
            f"There is no database at {_file(settings.database_uri)} (ADAPTER_DATABASE_URI): run "
            "this where the server runs, or set ADAPTER_DATABASE_URI or ADAPTER_DATA_DIR to the "
            "server's."
        )
    keys = await asyncio.to_thread(audit_keys, settings)

    def sign(message: bytes) -> Mapping[str, str]:
        if keys is None:
            raise ConfigurationError(
                f"This writes to the audit trail, whose heads are signed, and there is no key file "
                f"at {settings.key_file} (ADAPTER_KEY_FILE): set it to the server's."
            )
        return keys.sign("audit", message)

    store = open_store(settings.database_uri, sqlite_sync=settings.sqlite_sync, head_signer=sign)
    try:
        yield store
    finally:
        await store.aclose()


def audit_keys(settings: AdapterSettings) -> KeyRing | None:
    """Return the ring of the server's key file; None where there is none. Blocks.

    Raises:
        ConfigurationError: It was named and is not there, or cannot be used.
    """
    from adapter.keyfile import load_keys

    if not settings.key_file_given and not settings.key_file.exists():
        return None
    return load_keys(settings.key_file)


def is_absent(uri: str) -> bool:
    """Tell whether an SQLite file does not exist: opening it would make an empty, innocent one."""
    file = _file(uri)
    return file is not None and not file.exists()


def _file(uri: str) -> Path | None:
    scheme, separator, path = uri.partition(":///")
    path = path.partition("?")[0]
    if scheme.startswith("sqlite") and separator and path and not path.startswith("file:"):
        return Path(path)
    return None
