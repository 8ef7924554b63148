"""Every case, by every way of running it: each must see what the case says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from tests.flow.cases.all import CASES
from tests.flow.parity import Case
from tests.flow.runners import Compiled, Local

ASKING = [case for case in CASES if case.pauses]


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.id)


@pytest.fixture(scope="module")
def database(postgresql: str) -> str:
    """A database with LangGraph's tables; each run has a thread of its own in it."""
    with PostgresSaver.from_conn_string(postgresql) as saver:
        saver.setup()
    return postgresql


@pytest.fixture
def postgres(database: str) -> Iterator[PostgresSaver]:
    with PostgresSaver.from_conn_string(database) as saver:
        yield saver


@pytest.fixture
async def async_postgres(database: str) -> AsyncIterator[AsyncPostgresSaver]:
    async with AsyncPostgresSaver.from_conn_string(database) as saver:
        yield saver


def test_there_are_cases_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(CASES) >= 60
    assert len({case.id for case in CASES}) == len(CASES)


@each(CASES)
@pytest.mark.anyio
async def test_local(case: Case) -> None:
    assert await Local().run(case) == case.expected()


@each(ASKING)
@pytest.mark.anyio
async def test_local_in_a_new_process_after_each_pause(case: Case) -> None:
    assert await Local(anew=True).run(case) == case.expected()


@each(CASES)
@pytest.mark.anyio
async def test_compiled_in_memory(case: Case) -> None:
    assert await Compiled(saver=InMemorySaver()).run(case) == case.expected()


@pytest.mark.slow
@each(CASES)
def test_compiled_in_memory_synchronously(case: Case) -> None:
    runner = Compiled(saver=InMemorySaver(), sync=True)
    assert asyncio.run(runner.run(case)) == case.expected()


@each(ASKING)
@pytest.mark.anyio
async def test_compiled_in_memory_decided_in_the_store(case: Case) -> None:
    runner = Compiled(saver=InMemorySaver(), port="deferred")
    assert await runner.run(case) == case.expected()


@pytest.mark.slow
@each(CASES)
@pytest.mark.anyio
async def test_compiled_on_postgresql_in_a_new_process_after_each_pause(
    case: Case, async_postgres: AsyncPostgresSaver
) -> None:
    assert await Compiled(saver=async_postgres, anew=True).run(case) == case.expected()


@pytest.mark.slow
@each(CASES)
def test_compiled_on_postgresql_synchronously_in_a_new_process_after_each_pause(
    case: Case, postgres: PostgresSaver
) -> None:
    runner = Compiled(saver=postgres, anew=True, sync=True)
    assert asyncio.run(runner.run(case)) == case.expected()


@pytest.mark.slow
@each(ASKING)
@pytest.mark.anyio
async def test_compiled_on_postgresql_decided_in_the_store_by_a_new_process(
    case: Case, async_postgres: AsyncPostgresSaver
) -> None:
    runner = Compiled(saver=async_postgres, port="deferred", anew=True)
    assert await runner.run(case) == case.expected()


@pytest.mark.slow
@each(ASKING)
def test_compiled_on_postgresql_synchronously_decided_in_the_store(
    case: Case, postgres: PostgresSaver
) -> None:
    runner = Compiled(saver=postgres, port="deferred", sync=True)
    assert asyncio.run(runner.run(case)) == case.expected()
