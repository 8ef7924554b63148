"""Conformance: what a person says about a call, what the sweeper notes, decisions put in a row."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.integration.stores.backends import Backend, Clock
from tests.integration.stores.records import T, charge, claim, event, key, question, ungated

from adapter.core.store import Close, Resolve, Settle
from adapter.core.types import CallStatus
from adapter.stores import SqlStore

pytestmark = pytest.mark.anyio

SAID = (CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.APPROVED)


def said(fence: int = 1, status: CallStatus = CallStatus.SUCCEEDED, **more: Any) -> Resolve:
    return Resolve(key=key(), fence=fence, status=status, **more)


async def lost(store: SqlStore, clock: Clock, **changes: Any) -> None:
    """Claim a gated call and lose its worker."""
    await store.open(question(ttl=3600.0))
    assert (await store.claim(claim(decision={"kind": "approve"}, **changes))).state == "claimed"
    clock.pass_(30)


# ---------------------------------------------------------------------------- resolving


@pytest.mark.parametrize("status", SAID)
async def test_a_claim_that_ran_out_is_resolved(
    store: SqlStore, clock: Clock, status: CallStatus
) -> None:
    await lost(store, clock)
    outcome = None if status is CallStatus.APPROVED else {"result": 5}
    changed, row = await store.resolve(said(status=status, outcome=outcome, events=(event("r"),)))
    assert changed
    assert row is not None
    assert (row.status, row.outcome, row.fence) == (status, outcome, 2)
    assert [one.event_id for one in await store.events(T)] == ["r"]


async def test_a_live_claim_is_not_resolved(store: SqlStore, clock: Clock) -> None:
    await store.open(question())
    await store.claim(claim())
    changed, row = await store.resolve(said(events=(event("r"),)))
    assert not changed
    assert row is not None
    assert row.status is CallStatus.CLAIMED
    assert await store.events(T) == ()
    assert await store.resolve(Resolve(key=key(9), fence=1, status=CallStatus.FAILED)) == (
        False,
        None,
    )


async def test_a_resolution_is_about_the_claim_it_names(store: SqlStore, clock: Clock) -> None:
    """Somebody lets it run again, it is claimed and lost again: the old word is not about that."""
    await lost(store, clock)
    await store.resolve(said(status=CallStatus.APPROVED))
    assert (await store.claim(claim())).state == "claimed"
    clock.pass_(30)
    for fence in (1, 2, 4):
        changed, row = await store.resolve(said(fence, events=(event("late"),)))
        assert not changed
        assert row is not None
        assert (row.status, row.fence) == (CallStatus.CLAIMED, 3)
    assert await store.events(T) == ()
    assert (await store.resolve(said(3)))[0]


async def test_of_many_resolutions_one_counts(backend: Backend, clock: Clock) -> None:
    stores = [backend.open() for _ in range(1 if backend.uri == "sqlite://" else 3)]
    await lost(stores[0], clock)
    ended = await asyncio.gather(
        *(
            stores[n % len(stores)].resolve(
                said(status=SAID[n % 3], outcome={"n": n}, events=(event(f"r{n}"),))
            )
            for n in range(12)
        )
    )
    assert sum(changed for changed, _ in ended) == 1
    assert len(await stores[0].events(T)) == 1


async def test_no_other_status_can_be_said(store: SqlStore, clock: Clock) -> None:
    await lost(store, clock)
    with pytest.raises(ValueError, match="succeeded, failed or approved"):
        await store.resolve(said(status=CallStatus.DENIED))
    assert (await store.unsettled())[0].status is CallStatus.CLAIMED


# ----------------------------------------------------------------------- noting a doubt


async def test_a_doubt_is_noted_once_and_keeps_the_claims_fence(
    store: SqlStore, clock: Clock
) -> None:
    await lost(store, clock)
    note = said(status=CallStatus.IN_DOUBT, events=(event("doubt"),))
    changed, row = await store.resolve(note)
    assert changed
    assert row is not None
    assert (row.status, row.fence) == (CallStatus.IN_DOUBT, 1)
    assert (await store.resolve(note)) == (False, row)
    assert [one.event_id for one in await store.events(T)] == ["doubt"]
    # the slow worker's own word still counts
    assert await store.settle(Settle(key=key(), fence=1, status=CallStatus.SUCCEEDED))


async def test_a_live_claim_is_not_in_doubt(store: SqlStore, clock: Clock) -> None:
    await store.open(question())
    await store.claim(claim())
    clock.pass_(29.999)
    assert not (await store.resolve(said(status=CallStatus.IN_DOUBT)))[0]
    clock.pass_(0.001)
    assert not (await store.resolve(said(2, status=CallStatus.IN_DOUBT)))[0]
    assert (await store.resolve(said(status=CallStatus.IN_DOUBT)))[0]


@pytest.mark.parametrize("gated", [True, False])
async def test_a_repeatable_call_that_was_noted_is_still_taken_over(
    store: SqlStore, clock: Clock, gated: bool
) -> None:
    make = claim if gated else ungated
    if gated:
        await store.open(question())
    await store.claim(make(repeatable=True, charges=(charge(),)))
    clock.pass_(30)
    await store.resolve(said(status=CallStatus.IN_DOUBT))
    assert (await store.claim(make(repeatable=False))).state == "in_doubt"
    taken = await store.claim(make(repeatable=True, charges=(charge(),), owner="worker-2"))
    assert taken.state == "claimed"
    assert taken.row is not None
    assert (taken.row.fence, taken.row.owner) == (2, "worker-2")
    assert (await store.charge([], show=["turn"])).used == {"turn": 1}
    assert not await store.settle(Settle(key=key(), fence=1, status=CallStatus.FAILED))


async def test_a_twin_of_a_noted_repeatable_call_takes_its_row_over(
    store: SqlStore, clock: Clock
) -> None:
    other = {"task_id": "task-2", "tool_call_id": "call-1", "arguments_digest": "a1"}
    await store.claim(ungated(repeatable=True))
    clock.pass_(30)
    await store.resolve(said(status=CallStatus.IN_DOUBT))
    twin = await store.claim(ungated(2, call=other, unique=True, repeatable=True))
    assert twin.state == "claimed"
    assert twin.row is not None
    assert (twin.row.key, twin.row.fence) == (key(1), 2)


async def test_a_doubt_that_a_run_reported_is_not_taken_over(store: SqlStore, clock: Clock) -> None:
    await store.claim(ungated(repeatable=True))
    await store.settle(Settle(key=key(), fence=1, status=CallStatus.IN_DOUBT))
    clock.pass_(3600)
    assert (await store.claim(ungated(repeatable=True))).state == "in_doubt"


async def test_unsettled_are_those_in_doubt_and_those_that_ran_out(
    store: SqlStore, clock: Clock
) -> None:
    for n in (1, 2, 3):
        await store.claim(ungated(n, lease=60.0 if n == 3 else 10.0))
        clock.pass_(1)
    await store.settle(Settle(key=key(2), fence=1, status=CallStatus.IN_DOUBT))
    assert [row.key for row in await store.unsettled()] == [key(2)]
    clock.pass_(10)
    assert [row.key for row in await store.unsettled()] == [key(1), key(2)]
    assert [row.key for row in await store.unsettled(limit=1)] == [key(1)]


async def test_overdue_are_open_questions_decided_or_not(store: SqlStore, clock: Clock) -> None:
    for n in range(1, 5):
        await store.open(question(n, ttl=None if n == 4 else 60.0))
    await store.close_question(Close(key=key(2), status=CallStatus.APPROVED))
    await store.close_question(Close(key=key(3), status=CallStatus.DENIED))
    assert await store.overdue() == ()
    clock.pass_(60)
    assert [row.key for row in await store.overdue()] == [key(1), key(2)]
    assert [row.key for row in await store.overdue(limit=1)] == [key(1)]


# ----------------------------------------------------------------------- amending a row


def amend(before: Any, after: Any) -> Close:
    return Close(
        key=key(), status=CallStatus.REQUESTED, decision=after, compare=True, before=before
    )


async def test_a_decision_is_amended_only_as_it_was_read(store: SqlStore) -> None:
    await store.open(question())
    one, two = {"signed": ["a", 1.5, "grüß"]}, {"signed": ["a", "b"]}
    assert not (await store.close_question(amend(one, two)))[0]
    assert (await store.close_question(amend(None, one)))[0]
    changed, row = await store.close_question(amend(None, two))
    assert not changed
    assert row is not None
    assert row.decision == one
    assert (await store.close_question(amend(row.decision, two)))[0]
    # without comparing, whatever is there is replaced
    assert (await store.close_question(Close(key=key(), status=CallStatus.APPROVED, decision={})))[
        0
    ]


async def test_of_many_that_read_the_same_one_amends(backend: Backend) -> None:
    stores = [backend.open() for _ in range(1 if backend.uri == "sqlite://" else 3)]
    await stores[0].open(question())
    ended = await asyncio.gather(
        *(stores[n % len(stores)].close_question(amend(None, {"signed": [n]})) for n in range(12))
    )
    assert sum(changed for changed, _ in ended) == 1
