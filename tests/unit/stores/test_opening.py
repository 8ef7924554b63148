"""Choosing a store: addresses, settings, and nothing opened before its first call."""

from __future__ import annotations

from pathlib import Path

import pytest

import adapter.stores
from adapter.core.errors import ConfigurationError
from adapter.stores import MemoryStore, SqlStore, open_store

pytestmark = pytest.mark.anyio


def test_the_public_names_are_sorted_and_importable() -> None:
    names = adapter.stores.__all__
    assert names == sorted(names)
    assert all(hasattr(adapter.stores, name) for name in names)


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:///relative.db",
        "sqlite+pysqlite:////tmp/x.db",
        "sqlite://",
        "postgres://u:p@h/d",
        "postgresql://u:p@h/d?sslmode=require",
        "postgresql+psycopg://u:p@h/d",
    ],
)
async def test_an_address_opens_nothing_yet(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(uri)
    assert isinstance(store, SqlStore)
    assert not files(tmp_path)
    await store.aclose()


@pytest.mark.parametrize(
    "uri", ["", "no address", "mysql://h/d", "postgresql+asyncpg://h/d", "sqlite+aiosqlite:///x"]
)
def test_any_other_address_names_the_setting(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="ADAPTER_DATABASE_URI"):
        open_store(uri)


def test_an_address_given_directly_is_not_blamed_on_the_setting() -> None:
    with pytest.raises(ConfigurationError, match="given to open_store") as caught:
        open_store("adapter.db")
    assert "sqlite:///adapter.db" in caught.value.message


def test_a_password_is_not_shown_in_the_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store("mysql://user:hunter2@host/db")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("sync", ["OFF", "full", ""])
def test_any_other_sync_mode_names_the_setting(sync: str) -> None:
    with pytest.raises(ConfigurationError, match="ADAPTER_SQLITE_SYNC"):
        open_store("sqlite:///x.db", sqlite_sync=sync)  # type: ignore[arg-type]


@pytest.mark.parametrize(("sync", "level"), [("NORMAL", 1), ("FULL", 2)])
async def test_the_sync_mode_reaches_sqlite(tmp_path: Path, sync: str, level: int) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db", sqlite_sync=sync)  # type: ignore[arg-type]
    await store.prepare()
    connection = store._database.connect()
    cursor = connection.cursor()
    assert cursor.execute("PRAGMA synchronous").fetchone() == (level,)
    assert cursor.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    await store.aclose()


async def test_the_memory_store_keeps_what_it_is_told_until_closed() -> None:
    store = MemoryStore(clock=lambda: 5)
    assert await store.audience("a") == "a"
    assert await store.audience("b") == "a"
    await store.aclose()
