"""Conformance: signed heads, what an outlet is told, threads, pruning and removed outcomes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.stores.backends import Backend, Clock
from tests.integration.stores.records import T, claim, event, key, question, ungated

from adapter.core.audit_heads import judged_head
from adapter.core.audit_verify import verify_chain
from adapter.core.errors import ConfigurationError
from adapter.core.keys import KeyRing
from adapter.core.sinks import Committed
from adapter.core.store import Anchor, Settle, StoredEvent
from adapter.core.types import CallStatus
from adapter.stores import SqlStore, open_store

pytestmark = pytest.mark.anyio

RING = KeyRing.from_secret(bytes(range(32)))


class Told:
    """An outlet that remembers."""

    def __init__(self) -> None:
        self.batches: list[Committed] = []
        self.closed = False

    def put(self, committed: Committed) -> None:
        self.batches.append(committed)

    def close(self) -> None:
        self.closed = True

    @property
    def ids(self) -> list[str]:
        return [one.event_id for batch in self.batches for one in batch.events]


class Signer:
    def __init__(self) -> None:
        self.signed = 0

    def __call__(self, message: bytes) -> Mapping[str, str]:
        self.signed += 1
        return RING.sign("audit", message)


@pytest.fixture
def signer() -> Signer:
    return Signer()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def signing(backend: Backend, signer: Signer, told: Told) -> SqlStore:
    made = open_store(backend.uri, clock=backend.clock, head_signer=signer, outlet=told)
    backend.stores.append(made)
    return made


async def whole(store: SqlStore, thread: str = T) -> list[StoredEvent]:
    links = list(await store.events(thread))
    (head,) = await store.heads(thread)
    anchors = await store.anchors(thread)
    assert verify_chain(links, head, anchors[0] if anchors else None) == []
    assert judged_head(head, RING) is None
    return links


async def test_each_head_that_moves_is_signed_once_per_transaction(
    signing: SqlStore, signer: Signer
) -> None:
    await signing.append([event("a"), event("b"), event("c"), event("x", thread_id="t2")])
    assert signer.signed == 2
    assert len(await whole(signing)) == 3
    await signing.charge([], [event("d")], show=["s"], recent=(T, "turn-1", 5))
    assert signer.signed == 3
    assert [head.count for head in await signing.heads()] == [1, 4]
    await whole(signing)


async def test_a_head_moved_without_a_signer_is_not_signed(
    backend: Backend, signing: SqlStore
) -> None:
    if backend.uri == "sqlite://":
        return  # a store in memory is not shared
    await signing.append([event("a")])
    await backend.open().append([event("b")])
    (head,) = await signing.heads(T)
    assert (head.seq, head.kid, head.signature) == (2, None, None)


async def test_a_signer_that_fails_writes_nothing(backend: Backend) -> None:
    def refuse(message: bytes) -> Mapping[str, str]:
        raise ConfigurationError("no audit key")

    store = open_store(backend.uri, clock=backend.clock, head_signer=refuse)
    backend.stores.append(store)
    with pytest.raises(ConfigurationError, match="no audit key"):
        await store.append([event("a")])
    with pytest.raises(ConfigurationError):
        await store.claim(ungated(events=(event("b"),)))
    assert await store.get(key()) is None
    assert await store.threads() == ()


async def test_the_state_is_shown_the_head_the_transaction_leaves(signing: SqlStore) -> None:
    turn = await signing.charge([], [event("a"), event("b")], recent=(T, "turn-1", 1))
    (head,) = await signing.heads(T)
    assert turn.head is not None
    assert (turn.head.seq, turn.head.hash) == (head.seq, head.hash)
    assert [one.event_id for one in turn.recent] == ["b"]
    assert (await signing.charge([], recent=("none", "turn-1", 1))).head is None


async def test_the_outlet_is_told_what_was_committed(signing: SqlStore, told: Told) -> None:
    await signing.append([event("a"), event("x", thread_id="t2")])
    await signing.append([event("a"), event("b")])
    await signing.get(key())
    assert told.ids == ["a", "x", "b"]
    assert [one for batch in told.batches for one in batch.events if one.thread_id == T] == list(
        await signing.events(T)
    )
    heads = {head.thread_id: head for batch in told.batches for head in batch.heads}
    assert [heads["t2"], heads[T]] == list(await signing.heads())
    await signing.aclose()
    assert told.closed


async def test_the_outlet_is_not_told_of_what_was_rolled_back(
    signing: SqlStore, told: Told
) -> None:
    await signing.append([event("a")])
    results = await asyncio.gather(
        signing.append([event("b")]), signing.append([event("a")]), return_exceptions=True
    )
    assert tuple(results) == (1, 0)
    assert sorted(told.ids) == ["a", "b"]


async def test_threads_are_those_with_links(signing: SqlStore) -> None:
    assert await signing.threads() == ()
    await signing.append([event("a"), event("x", thread_id="t2")])
    assert await signing.threads() == ("t2", T) if T > "t2" else (T, "t2")


def anchor_at(link: StoredEvent) -> Anchor:
    return Anchor(
        thread_id=link.thread_id, seq=link.seq, hash=link.hash, removed=link.seq, at=1, by="ops"
    )


async def test_a_pruned_chain_begins_at_its_anchor_and_goes_on(signing: SqlStore) -> None:
    await signing.append([event(f"e{n}", run_id=f"r{n % 2}") for n in range(6)])
    links = await signing.events(T)
    anchor = anchor_at(links[3])
    assert await signing.prune(anchor, event("pruned", run_id="operator")) == 4
    assert await signing.anchors() == (anchor,)
    assert [one.event_id for one in await whole(signing)] == ["e4", "e5", "pruned"]
    await signing.append([event("e6", run_id="r0"), event("e7", run_id="r1")])
    again = anchor_at((await signing.events(T))[-1])
    assert await signing.prune(again, event("pruned-2", run_id="operator")) == 5
    assert await signing.anchors(T) == (again,)
    assert [one.event_id for one in await whole(signing)] == ["pruned-2"]
    (head,) = await signing.heads(T)
    assert (head.seq, head.count) == (10, 10)


async def test_a_chain_that_changed_is_not_pruned(signing: SqlStore) -> None:
    await signing.append([event("a"), event("b")])
    links = await signing.events(T)
    for wrong in (
        replace(anchor_at(links[0]), hash="0" * 64),
        replace(anchor_at(links[0]), seq=9),
        replace(anchor_at(links[0]), thread_id="none"),
    ):
        assert await signing.prune(wrong, event("pruned")) == 0
    assert len(await whole(signing)) == 2
    assert await signing.anchors() == ()


@pytest.mark.parametrize("status", ["requested", "claimed", "in_doubt"])
async def test_turns_of_unfinished_calls_are_kept(
    signing: SqlStore, clock: Clock, status: str
) -> None:
    await signing.append([event("old", turn_id="turn-0"), event("asked"), event("more")])
    if status == "requested":
        await signing.open(question())
    else:
        await signing.claim(ungated())
    if status == "in_doubt":
        await signing.settle(Settle(key=key(), fence=1, status=CallStatus.IN_DOUBT))
    assert await signing.first_kept(T) == 2
    links = await signing.events(T)
    assert await signing.prune(anchor_at(links[1]), event("pruned")) == 0
    assert await signing.prune(anchor_at(links[0]), event("pruned")) == 1
    assert len(await whole(signing)) == 3


async def test_turns_of_finished_calls_may_go(signing: SqlStore) -> None:
    await signing.append([event("a")])
    await signing.claim(ungated())
    await signing.settle(Settle(key=key(), fence=1, status=CallStatus.SUCCEEDED, outcome={}))
    assert await signing.first_kept(T) is None


async def settled(store: SqlStore, n: int, status: CallStatus, **call: Any) -> None:
    await store.claim(ungated(n, call=call))
    await store.settle(Settle(key=key(n), fence=1, status=status, outcome={"result": n}))


async def test_old_outcomes_are_removed_and_their_rows_stay(
    signing: SqlStore, clock: Clock
) -> None:
    await settled(signing, 1, CallStatus.SUCCEEDED)
    await settled(signing, 2, CallStatus.IN_DOUBT, turn_id="turn-0")
    await settled(signing, 3, CallStatus.FAILED, thread_id="t2")
    clock.pass_(100)
    await settled(signing, 4, CallStatus.SUCCEEDED)
    before = clock.now - 50_000
    assert dict(await signing.old_outcomes(before)) == {T: 1, "t2": 1}
    assert await signing.clear_outcomes(T, before, event("removed")) == 1
    assert await signing.clear_outcomes(T, before, event("again")) == 0
    assert [one.event_id for one in await signing.events(T)] == ["removed"]
    rows = [await signing.get(key(n)) for n in (1, 2, 3, 4)]
    assert [row.outcome if row else "?" for row in rows] == [
        None,
        {"result": 2},
        {"result": 3},
        {"result": 4},
    ]
    assert rows[0] is not None
    assert rows[0].status is CallStatus.SUCCEEDED
    assert (await signing.claim(claim(1))).state == "settled"


@pytest.mark.parametrize("status", ["requested", "claimed", "in_doubt"])
async def test_outcomes_stay_while_their_turn_has_an_unfinished_call(
    signing: SqlStore, clock: Clock, status: str
) -> None:
    await settled(signing, 1, CallStatus.SUCCEEDED)
    await settled(signing, 2, CallStatus.SUCCEEDED, turn_id="turn-0")
    await settled(signing, 3, CallStatus.SUCCEEDED, thread_id="t2")
    if status == "requested":
        await signing.open(question(4))
    else:
        await signing.claim(ungated(4))
    if status == "in_doubt":
        await signing.settle(Settle(key=key(4), fence=1, status=CallStatus.IN_DOUBT))
    clock.pass_(100)
    assert dict(await signing.old_outcomes(clock.now)) == {T: 1, "t2": 1}
    assert await signing.clear_outcomes(T, clock.now, event("removed")) == 1
    row = await signing.get(key(1))
    assert row is not None
    assert row.outcome == {"result": 1}
    if status != "claimed":
        return
    await signing.settle(Settle(key=key(4), fence=1, status=CallStatus.SUCCEEDED, outcome={}))
    clock.pass_(100)
    assert await signing.clear_outcomes(T, clock.now, event("again")) == 2


async def test_link_rows_are_read_from_the_first_row_on(signing: SqlStore) -> None:
    await signing.append([event("a"), event("b", run_id="run-2"), event("c", turn_id="turn-2")])
    rows = [tuple(row) for row in await signing.link_rows(T, limit=2)]
    rows += [tuple(row) for row in await signing.link_rows(T, after=2)]
    assert [row[1:3] + row[6:] for row in rows] == [
        (1, "a", "run-1", 1, "turn-1"),
        (2, "b", "run-2", 1, "turn-1"),
        (3, "c", "run-1", 2, "turn-2"),
    ]
    assert await signing.head_run(T) == ("run-1", 2)
    assert await signing.head_run("none") is None


async def test_a_sink_reads_what_it_missed(backend: Backend, signing: SqlStore) -> None:
    await signing.append([event("a"), event("b"), event("c")])
    anchor, links = await asyncio.to_thread(signing.backlog, T, 1, 1)
    assert anchor is None
    if backend.uri == "sqlite://":
        assert links == ()
        return
    assert [one.event_id for one in links] == ["b"]
    cut = anchor_at((await signing.events(T))[0])
    await signing.prune(cut, event("pruned"))
    assert (await asyncio.to_thread(signing.backlog, T, 0, 9))[0] == cut


async def test_a_line_turned_into_text_is_found_and_not_a_crash(tmp_path: Any) -> None:
    import sqlite3

    store = open_store(f"sqlite:///{tmp_path}/x.db")
    body = {"id": "a", "kind": "started", "run_id": "run-1", "thread_id": T, "tool": "x"}
    await store.append([event("a", body=json.dumps(body, separators=(",", ":")).encode())])
    db = sqlite3.connect(tmp_path / "x.db")
    with db:
        db.execute("UPDATE audit_events SET line = CAST(line AS TEXT)")
    db.close()
    (head,) = await store.heads(T)
    found = verify_chain(await store.events(T), head)
    assert "edited" in [fault.kind for fault in found]
    assert {fault.event_id for fault in found} == {"a"}
    await store.aclose()
