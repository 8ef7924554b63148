"""The writer's thread: one transaction for everything waiting, and nobody sinks a neighbour."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from adapter.core.errors import StoreUnavailable
from adapter.stores import MemoryStore
from adapter.stores.transaction import Transaction
from adapter.stores.writer import Writer

pytestmark = pytest.mark.anyio


def put(tx: Transaction, name: str) -> None:
    tx.run(tx.sql.meta_put, {"key": name, "value": "here"})


def names(tx: Transaction, now: int) -> set[str]:
    asked = ("good 0", "good 1", "good 2", "bad", "abandoned")
    return {name for name in asked if tx.one(tx.sql.meta_get, {"at_key": name})}


def writer_of(store: MemoryStore) -> Writer:
    return store._writer


async def test_what_waits_is_committed_together() -> None:
    store = MemoryStore()
    writer = writer_of(store)
    await store.prepare()
    gate = threading.Event()
    seen: list[Any] = []

    def hold(tx: Transaction, now: int) -> None:
        gate.wait(10)

    def look(tx: Transaction, now: int) -> None:
        seen.append(tx)

    held = asyncio.ensure_future(writer.run(hold))
    await asyncio.sleep(0)
    rest = [asyncio.ensure_future(writer.run(look)) for _ in range(5)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(held, *rest)
    # those that were waiting shared a transaction (the first may have been taken alone)
    assert len({id(tx) for tx in seen}) == 1
    await store.aclose()


async def test_what_one_turn_of_a_loop_asks_for_shares_a_transaction() -> None:
    store = MemoryStore()
    await store.prepare()

    def which(tx: Transaction, now: int) -> int:
        return id(tx)

    found = await asyncio.gather(*(writer_of(store).run(which) for _ in range(5)))
    assert len(set(found)) == 1
    await store.aclose()


async def test_a_failing_operation_does_not_sink_its_neighbours() -> None:
    store = MemoryStore()
    writer = writer_of(store)

    def good(n: int) -> Any:
        return lambda tx, now: put(tx, f"good {n}")

    def bad(tx: Transaction, now: int) -> None:
        put(tx, "bad")
        raise LookupError("on purpose")

    results = await asyncio.gather(
        writer.run(good(0)),
        writer.run(bad),
        writer.run(good(1)),
        writer.run(good(2)),
        return_exceptions=True,
    )
    assert [type(one) for one in results] == [type(None), LookupError, type(None), type(None)]
    assert await writer.run(names) == {"good 0", "good 1", "good 2"}
    await store.aclose()


async def test_a_cancelled_callers_operation_is_carried_out() -> None:
    store = MemoryStore()
    writer = writer_of(store)
    task = asyncio.ensure_future(writer.run(lambda tx, now: put(tx, "abandoned")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await writer.run(names) == {"abandoned"}
    await store.aclose()


async def test_closing_finishes_what_is_queued_and_refuses_what_comes_later() -> None:
    store = MemoryStore()
    writer = writer_of(store)
    task = asyncio.ensure_future(writer.run(names))
    await asyncio.sleep(0)
    await store.aclose()
    assert await task == set()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.get("key")
    await store.aclose()


async def test_an_unused_store_starts_no_thread() -> None:
    before = threading.active_count()
    store = MemoryStore()
    assert threading.active_count() == before
    await store.aclose()
    assert threading.active_count() == before


def test_one_store_serves_several_event_loops() -> None:
    store = MemoryStore(clock=lambda: 1)
    made: list[str] = []

    def serve(n: int) -> None:
        made.append(asyncio.run(store.audience(f"proposed {n}")))

    threads = [threading.Thread(target=serve, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(store.aclose())
    assert len(made) == 8
    assert len(set(made)) == 1


def test_a_loop_that_closed_meanwhile_loses_only_its_own_answer() -> None:
    store = MemoryStore()
    gate = threading.Event()

    def wait_and_put(tx: Transaction, now: int) -> None:
        gate.wait(10)
        put(tx, "abandoned")

    async def leave() -> None:
        task = asyncio.ensure_future(store._writer.run(wait_and_put))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    gate.set()
    assert asyncio.run(store._writer.run(names)) == {"abandoned"}
    asyncio.run(store.aclose())
