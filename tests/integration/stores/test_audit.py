"""Conformance: the audit chains and the counters of a turn."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.stores.backends import Backend
from tests.integration.stores.records import T, charge, claim, event, question, ungated

from adapter.core.chain import GENESIS, link, read_link
from adapter.core.store import StoredEvent
from adapter.stores import SqlStore

pytestmark = pytest.mark.anyio


async def chain(store: SqlStore, thread_id: str = T) -> list[StoredEvent]:
    """Return a thread's links after checking that each holds on to the one before."""
    links = list(await store.events(thread_id, limit=10_000))
    prev = GENESIS
    for seq, stored in enumerate(links, 1):
        taken = read_link(stored.line)
        assert (taken.prev, taken.seq, stored.seq) == (prev, seq, seq)
        again = link(body=taken.body, prev=prev, seq=seq, run_seq=taken.run_seq)
        assert again == (stored.line, stored.hash)
        prev = stored.hash
    heads = await store.heads(thread_id)
    assert [(head.seq, head.hash) for head in heads] == ([(len(links), prev)] if links else [])
    return links


async def test_events_are_linked_in_order(store: SqlStore) -> None:
    assert await store.append([event("a"), event("b")]) == 2
    assert await store.append([event("c", kind="settled")]) == 1
    links = await chain(store)
    assert [one.event_id for one in links] == ["a", "b", "c"]
    assert links[2].kind == "settled"
    assert read_link(links[1].line).body == b'{"id":"b"}'


async def test_each_thread_has_its_own_chain(store: SqlStore) -> None:
    await store.append([event("a"), event("a", thread_id="t2"), event("b"), event("b", run_id="r")])
    assert len(await chain(store)) == 2
    assert len(await chain(store, "t2")) == 1
    assert [head.thread_id for head in await store.heads()] == ["t2", T]
    assert await store.heads("none") == ()


async def test_runs_are_counted_apart_and_go_on(store: SqlStore) -> None:
    for n, run_id in enumerate(("r1", "r1", "r2", "r1", "r3", "r2")):
        await store.append([event(f"e{n}", run_id=run_id)])
    assert [read_link(one.line).run_seq for one in await chain(store)] == [1, 2, 1, 3, 1, 2]


@pytest.mark.parametrize("once", [True, False])
async def test_an_event_that_exists_is_skipped(store: SqlStore, once: bool) -> None:
    assert await store.append([event("a", once=once), event("a", once=once)]) == 1
    assert await store.append([event("a", once=once), event("b", once=once)]) == 1
    assert [one.event_id for one in await chain(store)] == ["a", "b"]


async def test_more_ids_than_one_lookup_takes(store: SqlStore) -> None:
    many = [event(f"e{n}", once=True) for n in range(150)]
    assert await store.append(many[:100]) == 100
    assert await store.append(many) == 50
    assert len(await chain(store)) == 150


async def test_a_doubled_event_does_not_sink_its_neighbours(store: SqlStore) -> None:
    await store.append([event("a")])
    counts = await asyncio.gather(
        store.append([event("b")]), store.append([event("a")]), store.append([event("c")])
    )
    assert tuple(counts) == (1, 0, 1)
    assert [one.event_id for one in await chain(store)] == ["a", "b", "c"]


async def test_events_are_paged(store: SqlStore) -> None:
    await store.append([event(f"e{n}") for n in range(5)])
    assert [one.seq for one in await store.events(T, after=1, limit=2)] == [2, 3]
    assert await store.events(T, after=5) == ()


async def test_many_writers_make_one_chain(backend: Backend) -> None:
    stores = [backend.open()]
    if backend.uri != "sqlite://":
        stores += [backend.open(), backend.open()]
    await asyncio.gather(
        *(
            stores[n % len(stores)].append([event(f"e{n}", run_id=f"r{n % 2}"), event(f"f{n}")])
            for n in range(60)
        )
    )
    assert len(await chain(stores[0])) == 120


async def test_claims_and_events_of_many_callers_share_a_chain(store: SqlStore) -> None:
    await asyncio.gather(*(store.open(question(n), [event(f"q{n}")]) for n in range(10)))
    claims = (
        ungated(n, events=(event(f"s{n}"),)) if n >= 10 else claim(n, events=(event(f"s{n}"),))
        for n in range(20)
    )
    assert {one.state for one in await asyncio.gather(*map(store.claim, claims))} == {"claimed"}
    assert len(await chain(store)) == 30


async def test_a_charge_counts_and_shows(store: SqlStore) -> None:
    turn = await store.charge(
        [charge("b", 5, 2), charge("a", None)],
        [event("a")],
        show=["c"],
        recent=(T, "turn-1", 10),
    )
    assert turn.exceeded is None
    assert turn.used == {"a": 1, "b": 2, "c": 0}
    assert [one.event_id for one in turn.recent] == ["a"]
    assert turn.head is not None
    assert (turn.head.seq, turn.head.hash) == (1, turn.recent[0].hash)


async def test_any_number_of_counters_is_shown(store: SqlStore) -> None:
    scopes = [f"s{n}" for n in range(70)]
    await store.charge([charge(scope, None, n + 1) for n, scope in enumerate(scopes)])
    turn = await store.charge([], show=[*scopes, "never", "s0"], refunds=[charge("s3", None, 2)])
    assert turn.used == {**{f"s{n}": n + 1 for n in range(70)}, "s3": 2, "never": 0}


async def test_a_spent_counter_charges_and_writes_nothing(store: SqlStore) -> None:
    await store.charge([charge("b", 5, 5)])
    charges = [charge("c"), charge("a"), charge("b", 5)]
    turn = await store.charge(charges, [event("a")], show=["a", "b", "c"])
    assert turn.exceeded == "b"
    assert turn.used == {"a": 0, "b": 5, "c": 0}
    assert turn.head is None
    assert await store.events(T) == ()


async def test_what_was_counted_before_is_not_charged_again(store: SqlStore) -> None:
    for _ in range(2):
        turn = await store.charge(
            [charge("a", 1)], [event("model", once=True)], unless=f"{T}\nmodel", show=["a"]
        )
        assert turn.exceeded is None
        assert turn.used == {"a": 1}
    assert len(await chain(store)) == 1
    assert (await store.charge([charge("a", 1)], unless=f"{T}\nother")).exceeded == "a"


async def test_the_newest_events_of_a_turn_come_oldest_first(store: SqlStore) -> None:
    await store.append([event(f"e{n}", turn_id=f"t{n % 2}") for n in range(10)])
    turn = await store.charge([], recent=(T, "t1", 3))
    assert [one.event_id for one in turn.recent] == ["e5", "e7", "e9"]


async def test_concurrent_charges_never_pass_the_limit(backend: Backend) -> None:
    stores = [backend.open()]
    if backend.uri != "sqlite://":
        stores.append(backend.open())
    turns = await asyncio.gather(
        *(stores[n % len(stores)].charge([charge("x", None), charge("a", 10)]) for n in range(50))
    )
    assert sum(turn.exceeded is None for turn in turns) == 10
    assert (await stores[0].charge([], show=["a", "x"])).used == {"a": 10, "x": 10}
