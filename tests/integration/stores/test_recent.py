"""A turn's newest events are those of the database, whoever wrote them, remembered or read."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.integration.stores.backends import Backend
from tests.integration.stores.records import T, charge, event

from adapter.core.store import Anchor
from adapter.stores import SqlStore
from adapter.stores.recent import Recent

pytestmark = pytest.mark.anyio


async def shown(store: SqlStore, turn_id: str = "turn-1", most: int = 4) -> list[str]:
    turn = await store.charge([], recent=(T, turn_id, most))
    return [one.event_id for one in turn.recent]


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by a thread's id each time its events are remembered as read."""
    found: list[str] = []
    committed = Recent.committed

    def watched(self: Recent, tx: object) -> None:
        found.extend(tx.read)  # type: ignore[attr-defined]
        committed(self, tx)  # type: ignore[arg-type]

    monkeypatch.setattr(Recent, "committed", watched)
    return found


async def test_what_this_process_wrote_is_read_once(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = reads(monkeypatch)
    assert await shown(store) == []
    await store.append([event("a"), event("other", turn_id="t2")])
    assert await shown(store) == ["a"]
    turn = await store.charge([charge("s")], [event("b")], recent=(T, "turn-1", 4))
    assert [one.event_id for one in turn.recent] == ["a", "b"]
    assert turn.recent == tuple(one for one in await store.events(T) if one.event_id in ("a", "b"))
    assert found == [T]


async def test_only_the_newest_are_remembered(store: SqlStore) -> None:
    await shown(store)
    await store.append([event(f"e{n}") for n in range(9)])
    assert await shown(store) == ["e5", "e6", "e7", "e8"]
    assert await shown(store, most=6) == [f"e{n}" for n in range(3, 9)]
    assert await shown(store, most=2) == ["e7", "e8"]


async def test_turns_that_take_turns_are_not_mixed_up(store: SqlStore) -> None:
    for n in range(6):
        await store.append([event(f"e{n}", turn_id=f"t{n % 2}")])
        assert await shown(store, f"t{n % 2}") == [f"e{k}" for k in range(n % 2, n + 1, 2)]


async def test_what_another_process_wrote_is_shown(durable_uri: str) -> None:
    backend = Backend(durable_uri)
    here, there = backend.open(), backend.open()
    for n in range(3):
        await shown(here)
        await there.append([event(f"there-{n}")])
        await here.append([event(f"here-{n}")])
        assert (await shown(here))[-2:] == [f"there-{n}", f"here-{n}"]
        assert await shown(here) == await shown(there)
    await here.aclose()
    await there.aclose()


async def test_what_was_pruned_is_not_shown(store: SqlStore) -> None:
    await shown(store)
    await store.append([event("a"), event("b"), event("c")])
    cut = (await store.events(T))[1]
    anchor = Anchor(thread_id=T, seq=2, hash=cut.hash, removed=2, at=1, by="operator")
    assert await store.prune(anchor, event("pruned", turn_id="")) == 2
    assert await shown(store) == ["c"]


async def test_a_transaction_that_failed_leaves_nothing(store: SqlStore) -> None:
    await store.append([event("a")])
    await shown(store)
    # not looked up first: the index refuses the second one, and all are repeated one by one
    await asyncio.gather(store.append([event("b")]), store.append([event("a"), event("c")]))
    assert await shown(store) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(3))
async def test_any_interleaving_shows_what_the_database_holds(backend: Backend, seed: int) -> None:
    dice = random.Random(seed)
    stores = [backend.open()]
    if backend.uri != "sqlite://":
        stores.append(backend.open())
    turns: dict[str, str] = {}
    for n in range(60):
        store, turn_id = dice.choice(stores), dice.choice(["t0", "t1"])
        new = [event(f"e{n}-{k}", turn_id=turn_id) for k in range(dice.randrange(3))]
        turns.update((one.id, turn_id) for one in new)
        asked = dice.choice(["t0", "t1"])
        if dice.random() < 0.5:
            store.post(new)
            await store.append([])
            seen = await shown(store, asked)
        else:
            found = (await store.charge([], new, recent=(T, asked, 4))).recent
            seen = [one.event_id for one in found]
        kept = [one.event_id for one in await stores[0].events(T)]
        assert seen == [one for one in kept if turns[one] == asked][-4:]
