"""A store that cannot be used says so, names the setting and the cure, and works again after."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest
from tests.integration.stores.records import T, claim, event, key, question

from adapter.core.errors import AdapterError, ConfigurationError, StoreUnavailable
from adapter.core.store import Charge, Vote
from adapter.stores import SqlStore, open_store

pytestmark = pytest.mark.anyio


def message(error: pytest.ExceptionInfo[AdapterError]) -> str:
    assert "ADAPTER_DATABASE_URI" in error.value.message
    return error.value.message


async def closed(store: SqlStore) -> None:
    await store.aclose()


async def test_a_missing_folder_is_named_and_can_be_made(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/none/x.db")
    with pytest.raises(StoreUnavailable) as error:
        await store.prepare()
    assert "folder" in message(error)
    (tmp_path / "none").mkdir()
    await store.prepare()
    await closed(store)


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    file.write_bytes(b"a letter to a friend " * 500)
    store = open_store(f"sqlite:///{file}")
    with pytest.raises(StoreUnavailable) as error:
        await store.get(key())
    assert "not a usable SQLite database" in message(error)
    assert file.read_bytes() == b"a letter to a friend " * 500
    await closed(store)


async def test_a_read_only_database_can_be_read_but_not_written(tmp_path: Path) -> None:
    made = open_store(f"sqlite:///{tmp_path}/x.db")
    await made.open(question())
    await closed(made)
    store = open_store(f"sqlite:///file:{tmp_path}/x.db?mode=ro&uri=true")
    with pytest.raises(StoreUnavailable) as error:
        await store.open(question(2))
    assert "read-only" in message(error)
    await closed(store)


async def test_a_locked_database_fails_in_time_and_recovers(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    await store.open(question())
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as error:
        await store.append([event("a")])
    assert "locked" in message(error)
    (row,) = await store.requested()  # readers do not wait for writers
    assert row.key == key()
    other.execute("COMMIT")
    other.close()
    assert await store.append([event("a")]) == 1
    await closed(store)


async def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path: Path) -> None:
    store = open_store(f"postgresql://me:hunter2@/db?host={tmp_path}")
    with pytest.raises(StoreUnavailable) as error:
        await store.prepare()
    assert "PostgreSQL" in message(error)
    assert "hunter2" not in message(error)
    await closed(store)


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    made = open_store(f"sqlite:///{tmp_path}/x.db")
    await made.prepare()
    await closed(made)
    with sqlite3.connect(tmp_path / "x.db") as other:
        other.execute("UPDATE agent_adapter_version SET version_num = '9999'")
    other.close()
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(ConfigurationError) as error:
        await store.prepare()
    assert "newer version" in message(error)
    await closed(store)


async def test_connections_that_died_are_replaced(postgresql_uri: str, postgresql: str) -> None:
    store = open_store(postgresql_uri)
    await store.append([event("a")])
    assert len(await store.events(T)) == 1
    with psycopg.connect(postgresql, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname LIKE 't%'"
        )
    assert len(await store.events(T)) == 1
    assert await store.append([event("b")]) == 1
    await closed(store)


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"])
async def test_a_text_that_postgresql_cannot_hold_fails_alone(
    postgresql_uri: str, text: str
) -> None:
    store = open_store(postgresql_uri)
    with pytest.raises(StoreUnavailable, match="valid Unicode"):
        await store.open(question(tool=text))
    assert (await store.open(question())).created
    await closed(store)


async def test_a_question_past_its_time_uses_the_servers_clock(postgresql_uri: str) -> None:
    store = open_store(postgresql_uri)
    opened = await store.open(question())
    with psycopg.connect(postgresql_uri) as connection:
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000").fetchone()
    assert row is not None
    assert 0 <= int(row[0]) - opened.now < 10_000
    await closed(store)


TIMES = {
    "calls": ("issued_at", "expires_at", "lease_until", "updated_at"),
    "votes": ("created_at",),
    "counters": ("updated_at",),
    "rate_marks": ("at",),
}


async def test_no_time_in_a_row_is_the_workers(
    postgresql_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock stands at 1970 asks, votes, counts and claims."""
    monkeypatch.setattr("adapter.stores.database._process_clock", lambda: 1)
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000)
    monkeypatch.setattr("time.time", lambda: 0.001)
    store = open_store(postgresql_uri)
    rate = Charge(scope="window", limit=9, window=60.0, mark="one")
    await store.open(question(ttl=60.0))
    assert await store.vote(
        Vote(key=key(), reviewer="ann", kid="k", answer="a", executed_digest="x", decision={}), ()
    )
    claimed = await store.claim(claim(lease=60.0, charges=(Charge(scope="turn"), rate)))
    assert claimed.state == "claimed"
    await closed(store)
    with psycopg.connect(postgresql_uri) as connection:
        (schema,) = connection.execute(
            "SELECT table_schema FROM information_schema.tables WHERE table_name = 'rate_marks'"
        ).fetchone() or ("",)
        (now,) = connection.execute(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        ).fetchone() or (0,)
        for table, columns in TIMES.items():
            for column in columns:
                found = connection.execute(
                    f"SELECT {column} FROM {schema}.{table}".encode()
                ).fetchall()
                assert found, table
                for (time,) in found:
                    assert now - 60_000 < time < now + 60_001, (table, column)


async def test_in_tests_every_time_is_the_bound_one(postgresql_uri: str) -> None:
    store = open_store(postgresql_uri, clock=lambda: 1_000)
    opened = await store.open(question(ttl=60.0))
    assert opened.row is not None
    assert (opened.now, opened.row.issued_at, opened.row.expires_at) == (1_000, 1_000, 61_000)
    await closed(store)
