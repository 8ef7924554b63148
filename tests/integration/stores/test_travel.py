"""Rows that travel with a checkpoint come in as they were, and never take anything back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.stores.backends import Backend
from tests.integration.stores.records import T, claim, event, key, question, ungated

from adapter.core.errors import ToolUsageError
from adapter.core.store import Settle, Vote
from adapter.core.types import CallStatus
from adapter.stores import MemoryStore, SqlStore

pytestmark = pytest.mark.anyio


async def moved(store: SqlStore, *namespaces: str) -> tuple[list[Any], MemoryStore]:
    return await store.export_rows(T, namespaces or None), MemoryStore()


async def test_rows_arrive_as_they_were(store: SqlStore) -> None:
    await store.open(question(1), [event("asked")])
    await store.claim(ungated(2))
    rows, other = await moved(store)
    assert await other.adopt_rows(rows) == 2
    for n in (1, 2):
        assert await other.get(key(n)) == await store.get(key(n))
    await other.aclose()


async def test_only_the_tasks_that_are_named_are_exported(store: SqlStore) -> None:
    await store.open(question(1))
    await store.open(question(2, checkpoint_ns="other:1"))
    await store.open(question(3, thread_id="thread-2"))
    rows, other = await moved(store, "other:1")
    assert [row["key"] for row in rows] == [key(2)]
    assert len(await store.export_rows(T)) == 2
    await other.aclose()


async def test_votes_come_along(store: SqlStore) -> None:
    await store.open(question(1, quorum_need=2))
    vote = Vote(
        key=key(1), reviewer="rita", kid="k", answer="a1", executed_digest="x", decision={"n": 1}
    )
    assert await store.vote(vote, [])
    rows, other = await moved(store)
    await other.adopt_rows(rows)
    assert list(await other.votes(key(1))) == [vote]
    await other.aclose()


async def test_a_row_that_got_further_there_replaces_ours(store: SqlStore) -> None:
    await store.open(question(1))
    early, other = await moved(store)
    await other.adopt_rows(early)
    await store.claim(claim(1, decision={"approved": True}, answer="a1"))
    await store.settle(Settle(key=key(1), fence=1, status=CallStatus.SUCCEEDED, outcome={"n": 1}))
    late, _ = await moved(store)
    assert await other.adopt_rows(late) == 1
    found = await other.get(key(1))
    assert found is not None
    assert found.status is CallStatus.SUCCEEDED
    await other.aclose()


async def test_a_row_that_got_further_here_stays(store: SqlStore) -> None:
    await store.open(question(1))
    early = await store.export_rows(T)
    await store.claim(claim(1, decision={"approved": True}, answer="a1"))
    before = await store.get(key(1))
    assert await store.adopt_rows(early) == 0
    assert await store.get(key(1)) == before


async def test_rows_of_another_version_are_refused_whole(backend: Backend) -> None:
    store = backend.open()
    await store.open(question(1))
    rows = await store.export_rows(T)
    other = MemoryStore()
    odd = [{**rows[0], "key": key(9)}, {"key": key(8)}]
    with pytest.raises(ToolUsageError, match="version"):
        await other.adopt_rows(odd)
    assert await other.export_rows(T) == []
    await other.aclose()
