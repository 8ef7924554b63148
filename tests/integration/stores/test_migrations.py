"""The schema: what Alembic makes is what the code expects, made once, whoever starts first."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from tests.integration.stores.records import T, event

import adapter.stores
from adapter.core.chain import read_link
from adapter.stores import open_store, prepare
from adapter.stores.prepare import HEAD
from adapter.stores.schema import VERSION_TABLE, tables

pytestmark = pytest.mark.anyio

START = """
import asyncio, sys
from adapter.stores import open_store

async def main():
    store = open_store(sys.argv[1])
    sys.stdin.readline()
    print(await store.audience(sys.argv[2]), flush=True)
    await store.aclose()
    print("alembic" in sys.modules, flush=True)

asyncio.run(main())
"""


def starter(uri: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", START, uri, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answers(processes: list[subprocess.Popen[str]]) -> list[list[str]]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate(timeout=60)[0].split() for process in processes]


async def test_the_migrations_make_the_schema_of_the_code(durable_uri: str) -> None:
    store = open_store(durable_uri)
    await store.prepare()
    engine = store._database.engine
    schema = "agent_adapter" if engine.dialect.name == "postgresql" else None
    options = {
        "version_table": VERSION_TABLE,
        "version_table_schema": schema,
        "include_schemas": schema is not None,
        "include_name": lambda name, kind, parents: kind != "schema" or name == schema,
    }
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, tables(schema).metadata) == []
        assert inspect(connection).has_table("calls", schema=schema)
        if schema is not None:
            assert inspect(connection).get_table_names(schema="public") == []
    await store.aclose()


def migrations() -> Config:
    config = Config()
    folder = Path(adapter.stores.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "newline")
    return config


async def test_a_second_file_of_a_process_is_made_as_the_first_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "_made", ())
    stepped, at_once = tmp_path / "1.db", tmp_path / "2.db"
    with monkeypatch.context() as patched:
        for path in (stepped, at_once):
            store = open_store(f"sqlite:///{path}")
            await store.prepare()
            await store.aclose()
            patched.setattr(prepare, "_upgrade", None)  # of no use any more

    def made(path: Path) -> set[Any]:
        with closing(sqlite3.connect(path)) as connection:
            schema = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
            version = connection.execute(f"SELECT * FROM {VERSION_TABLE}")
            return {*schema, *version}

    assert made(stepped) == made(at_once)
    assert (HEAD,) in made(at_once)


def test_the_newest_revision_is_the_one_the_code_expects() -> None:
    assert ScriptDirectory.from_config(migrations()).get_heads() == [HEAD]


async def test_a_database_of_the_first_revision_goes_on_counting_its_runs(
    durable_uri: str,
) -> None:
    store = open_store(durable_uri)
    for n, run_id in enumerate(("r1", "r1", "r2")):
        await store.append([event(f"e{n}", run_id=run_id)])
    engine, config = store._database.engine, migrations()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        postgresql = engine.dialect.name == "postgresql"
        config.attributes["schema"] = "agent_adapter" if postgresql else None
        command.downgrade(config, "0001")
    await store.aclose()
    later = open_store(durable_uri)
    for n, run_id in enumerate(("r1", "r2", "r3"), 3):
        await later.append([event(f"e{n}", run_id=run_id)])
    links = await later.events(T)
    assert [read_link(one.line).run_seq for one in links] == [1, 2, 1, 3, 2, 1]
    await later.aclose()


def test_processes_that_start_at_once_migrate_once(durable_uri: str) -> None:
    processes = [starter(durable_uri, f"p{n}") for n in range(4)]
    found = answers(processes)
    assert [process.returncode for process in processes] == [0] * 4
    assert len({one[0] for one in found}) == 1
    # the next start finds nothing to do and does not even load Alembic
    assert answers([starter(durable_uri, "later")]) == [[found[0][0], "False"]]
