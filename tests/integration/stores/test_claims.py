"""Conformance: a call is claimed once, and settled by the claim's own fence only."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.integration.stores.backends import START, Backend, Clock
from tests.integration.stores.records import T, charge, claim, event, key, question, ungated

from adapter.core.store import CallRow, Claimed, Close, Settle
from adapter.core.types import CallStatus
from adapter.stores import SqlStore

pytestmark = pytest.mark.anyio


def held(claimed: Claimed) -> CallRow:
    assert claimed.state == "claimed", claimed
    assert claimed.row is not None
    return claimed.row


def done(fence: int = 1, status: CallStatus = CallStatus.SUCCEEDED, **changes: Any) -> Settle:
    return Settle(key=key(), fence=fence, status=status, **changes)


async def test_an_answered_question_is_claimed_once(store: SqlStore) -> None:
    await store.open(question())
    asked = claim(
        decision={"kind": "approve"},
        answer="d1",
        charges=(charge("b"), charge("a")),
        events=(event("started"),),
    )
    row = held(await store.claim(asked))
    assert (row.status, row.fence, row.owner, row.run_id) == (
        CallStatus.CLAIMED,
        1,
        "worker-1",
        "run-2",
    )
    assert (row.lease_until, row.executed_digest) == (START + 30_000, "x1")
    assert (row.decision, row.answers) == ({"kind": "approve"}, ("d1",))
    again = await store.claim(asked)
    assert (again.state, again.row) == ("in_progress", row)
    assert (await store.charge([], show=["a", "b"])).used == {"a": 1, "b": 1}
    assert len(await store.events(T)) == 1


async def test_an_ungated_call_makes_its_row_claimed(store: SqlStore) -> None:
    row = held(await store.claim(ungated(events=(event("started"),))))
    assert (row.status, row.fence, row.expires_at, row.answers) == (
        CallStatus.CLAIMED,
        1,
        None,
        (),
    )
    assert await store.get(key()) == row
    assert (await store.claim(ungated())).state == "in_progress"


async def test_of_many_claims_at_once_one_wins(backend: Backend) -> None:
    store = backend.open()
    await store.open(question())
    claims = await asyncio.gather(*(store.claim(claim(charges=(charge(),))) for _ in range(50)))
    assert sorted(one.state for one in claims) == ["claimed"] + ["in_progress"] * 49
    assert (await store.charge([], show=["turn"])).used == {"turn": 1}


async def test_without_row_and_call_there_is_nothing_to_claim(store: SqlStore) -> None:
    missing = await store.claim(claim())
    assert (missing.state, missing.row) == ("missing", None)


async def test_past_its_deadline_a_question_expires(store: SqlStore, clock: Clock) -> None:
    await store.open(question())
    clock.pass_(60)
    late = await store.claim(claim(charges=(charge(),), events=(event("started"),)))
    assert late.state == "expired"
    assert late.row is not None
    assert late.row.status is CallStatus.EXPIRED
    assert await store.get(key()) == late.row
    assert (await store.charge([], show=["turn"])).used == {"turn": 0}
    assert await store.events(T) == ()
    assert (await store.claim(claim())).state == "settled"


async def test_just_before_its_deadline_a_question_is_claimed(
    store: SqlStore, clock: Clock
) -> None:
    await store.open(question())
    clock.pass_(59.999)
    held(await store.claim(claim()))


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (CallStatus.DENIED, "settled"),
        (CallStatus.RESPONDED, "settled"),
        (CallStatus.EXPIRED, "settled"),
        (CallStatus.VOID, "void"),
    ],
)
async def test_an_ended_question_is_never_claimed(
    store: SqlStore, status: CallStatus, state: str
) -> None:
    await store.open(question())
    _, row = await store.close_question(Close(key=key(), status=status))
    refused = await store.claim(claim(charges=(charge(),)))
    assert (refused.state, refused.row) == (state, row)
    assert (await store.charge([], show=["turn"])).used == {"turn": 0}


@pytest.mark.parametrize("gated", [True, False])
async def test_a_spent_counter_changes_nothing(store: SqlStore, gated: bool) -> None:
    before = (await store.open(question())).row if gated else None
    await store.charge([charge("b", 5, 5)])
    charges = (charge("a"), charge("b", 5), charge("c"))
    asked = (claim if gated else ungated)(charges=charges, events=(event("started"),))
    refused = await store.claim(asked)
    assert (refused.state, refused.exceeded, refused.row) == ("exceeded", "b", before)
    assert await store.get(key()) == before
    assert (await store.charge([], show=["a", "b", "c"])).used == {"a": 0, "b": 5, "c": 0}
    assert await store.events(T) == ()
    held(await store.claim((claim if gated else ungated)(charges=(charge("b", 6),))))


async def test_a_settled_call_keeps_its_outcome(store: SqlStore) -> None:
    fence = held(await store.claim(ungated())).fence
    assert await store.settle(done(fence, outcome={"content": "ok"}, events=(event("done"),)))
    assert not await store.settle(done(fence, CallStatus.FAILED, events=(event("twice"),)))
    again = await store.claim(ungated())
    assert again.state == "settled"
    assert again.row is not None
    assert (again.row.status, again.row.outcome) == (CallStatus.SUCCEEDED, {"content": "ok"})
    assert [link.event_id for link in await store.events(T)] == ["done"]


async def test_a_stale_fence_settles_nothing(store: SqlStore) -> None:
    fence = held(await store.claim(ungated())).fence
    stale = done(fence - 1, events=(event("done"),), refunds=(charge(),))
    await store.charge([charge(amount=3)])
    assert not await store.settle(stale)
    assert await store.events(T) == ()
    assert (await store.charge([], show=["turn"])).used == {"turn": 3}


async def test_settling_gives_reservations_back(store: SqlStore) -> None:
    fence = held(await store.claim(ungated(charges=(charge(amount=3), charge("b"))))).fence
    assert await store.settle(done(fence, refunds=(charge(amount=2), charge("b", amount=9))))
    assert (await store.charge([], show=["turn", "b"])).used == {"turn": 1, "b": 0}


async def test_a_claim_that_ran_out_is_in_doubt(store: SqlStore, clock: Clock) -> None:
    held(await store.claim(ungated()))
    clock.pass_(29.999)
    assert (await store.claim(ungated())).state == "in_progress"
    clock.pass_(0.001)
    doubted = await store.claim(ungated(events=(event("again"),)))
    assert doubted.state == "in_doubt"
    assert doubted.row is not None
    assert (doubted.row.status, doubted.row.fence) == (CallStatus.IN_DOUBT, 1)
    assert await store.claim(ungated()) == doubted
    assert await store.events(T) == ()


async def test_a_late_result_settles_a_doubted_call_of_its_fence(
    store: SqlStore, clock: Clock
) -> None:
    fence = held(await store.claim(ungated())).fence
    clock.pass_(31)
    assert (await store.claim(ungated())).state == "in_doubt"
    assert await store.settle(done(fence))
    assert (await store.claim(ungated())).state == "settled"


async def test_a_repeatable_claim_that_ran_out_is_taken_over(store: SqlStore, clock: Clock) -> None:
    first = held(await store.claim(ungated(repeatable=True, charges=(charge(),))))
    clock.pass_(30)
    taker = ungated(repeatable=True, charges=(charge(),), owner="worker-2", run_id="run-3")
    second = held(await store.claim(taker))
    assert (second.fence, second.owner, second.run_id) == (first.fence + 1, "worker-2", "run-3")
    assert (await store.charge([], show=["turn"])).used == {"turn": 1}
    assert not await store.renew(key(), first.fence, 30)
    assert not await store.settle(done(first.fence))
    assert await store.settle(done(second.fence))


async def test_a_renewed_claim_lives_on(store: SqlStore, clock: Clock) -> None:
    fence = held(await store.claim(ungated())).fence
    clock.pass_(20)
    assert await store.renew(key(), fence, 30)
    clock.pass_(20)
    assert (await store.claim(ungated())).state == "in_progress"
    await store.settle(done(fence))
    assert not await store.renew(key(), fence, 30)


async def test_a_suspended_call_goes_on_uncharged_and_past_its_deadline(
    store: SqlStore, clock: Clock
) -> None:
    await store.open(question())
    fence = held(await store.claim(claim(answer="d1", charges=(charge(),)))).fence
    assert await store.settle(done(fence, CallStatus.SUSPENDED))
    clock.pass_(100)
    row = held(await store.claim(claim(answer="d1", charges=(charge(),))))
    assert (row.fence, row.answers) == (fence + 1, ("d1",))
    assert (await store.charge([], show=["turn"])).used == {"turn": 1}


OTHER_TASK = {"task_id": "task-2", "tool_call_id": "call-1", "arguments_digest": "a1"}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (None, "in_progress"),
        (CallStatus.SUSPENDED, "in_progress"),
        (CallStatus.SUCCEEDED, "settled"),
        (CallStatus.FAILED, "settled"),
        (CallStatus.IN_DOUBT, "in_doubt"),
    ],
)
async def test_a_call_that_ran_in_another_task_is_refused(
    store: SqlStore, status: CallStatus | None, state: str
) -> None:
    fence = held(await store.claim(ungated())).fence
    if status is not None:
        await store.settle(done(fence, status))
    twin = ungated(2, call=OTHER_TASK, unique=True, charges=(charge(),), events=(event("s"),))
    refused = await store.claim(twin)
    assert refused.state == state
    assert refused.row is not None
    assert refused.row.key == key(1)
    assert await store.get(key(2)) is None
    assert (await store.charge([], show=["turn"])).used == {"turn": 0}
    assert await store.events(T) == ()


async def test_a_twin_whose_claim_ran_out_is_in_doubt(store: SqlStore, clock: Clock) -> None:
    held(await store.claim(ungated()))
    clock.pass_(31)
    refused = await store.claim(ungated(2, call=OTHER_TASK, unique=True))
    assert refused.state == "in_doubt"
    assert refused.row is not None
    assert (refused.row.key, refused.row.status) == (key(1), CallStatus.IN_DOUBT)


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments_digest": "else"},
        {"tool_call_id": "else"},
        {"message_id": "else"},
        {"thread_id": "else"},
    ],
)
async def test_another_call_is_no_twin(store: SqlStore, changes: dict[str, str]) -> None:
    held(await store.claim(ungated()))
    held(await store.claim(ungated(2, call=OTHER_TASK | changes, unique=True)))


async def test_without_a_message_there_is_no_twin(store: SqlStore) -> None:
    held(await store.claim(ungated(call={"message_id": ""})))
    held(await store.claim(ungated(2, call=OTHER_TASK | {"message_id": ""}, unique=True)))


async def test_one_row_of_a_call_reached_by_many_tasks_at_once(backend: Backend) -> None:
    stores = [backend.open(), backend.open()] if "memory" not in backend.uri else [backend.open()]
    if backend.uri == "sqlite://":
        stores = stores[:1]
    twins = [
        ungated(n, call=OTHER_TASK | {"task_id": f"task-{n}"}, unique=True) for n in range(1, 21)
    ]
    claims = await asyncio.gather(
        *(stores[n % len(stores)].claim(twin) for n, twin in enumerate(twins))
    )
    assert sorted(one.state for one in claims) == ["claimed"] + ["in_progress"] * 19
