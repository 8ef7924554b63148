"""Conformance: questions, from asking to an end without a run."""

from __future__ import annotations

import pytest
from tests.integration.stores.backends import START, Clock
from tests.integration.stores.records import T, charge, claim, event, key, new_call, question

from adapter.core.store import Close
from adapter.core.types import CallStatus
from adapter.stores import SqlStore

pytestmark = pytest.mark.anyio


async def test_the_first_audience_proposed_is_kept(store: SqlStore) -> None:
    assert await store.audience("first") == "first"
    assert await store.audience("second") == "first"


async def test_a_question_makes_its_row_with_the_stores_times(store: SqlStore) -> None:
    opened = await store.open(question(), [event("asked")])
    assert opened.created
    assert opened.now == START
    row = opened.row
    assert row is not None
    assert (row.status, row.issued_at, row.expires_at) == (
        CallStatus.REQUESTED,
        START,
        START + 60_000,
    )
    assert row.request == question().request
    assert (row.fence, row.answers, row.outcome) == (0, (), None)
    assert await store.get(key()) == row
    assert len(await store.events(T)) == 1


async def test_the_first_writer_of_a_question_wins(store: SqlStore, clock: Clock) -> None:
    first = await store.open(question(), [event("asked")])
    clock.pass_(5)
    second = await store.open(question(tool="other"), [event("asked again")])
    assert not second.created
    assert second.row == first.row
    assert second.now == START + 5000
    assert len(await store.events(T)) == 1


async def test_nobody_is_asked_when_a_counter_has_nothing_left(store: SqlStore) -> None:
    assert (await store.charge([charge("a", 2, 2)])).exceeded is None
    opened = await store.open(question(), [event("asked")], [charge("b"), charge("a", 2)])
    assert (opened.row, opened.created, opened.exceeded) == (None, False, "a")
    assert await store.get(key()) is None
    assert await store.events(T) == ()
    # room left: asked, and nothing charged
    assert (await store.open(question(), [], [charge("a", 3)])).created
    assert (await store.charge([], show=["a", "b"])).used == {"a": 2, "b": 0}


async def test_a_limit_of_zero_lets_nothing_pass(store: SqlStore) -> None:
    assert (await store.open(question(), [], [charge("a", 0)])).exceeded == "a"
    assert (await store.charge([charge("a", 0)])).exceeded == "a"


async def test_rows_of_a_message_come_oldest_first(store: SqlStore, clock: Clock) -> None:
    for n in (3, 1, 2):
        await store.open(question(n))
        clock.pass_(1)
    await store.open(question(4, message_id="other"))
    await store.open(question(5, thread_id="other"))
    assert [row.key for row in await store.of_message(T, "message-1")] == [key(3), key(1), key(2)]


async def test_waiting_rows_come_oldest_first_and_limited(store: SqlStore, clock: Clock) -> None:
    for n, thread in ((2, T), (1, "other"), (3, T)):
        await store.open(question(n, thread_id=thread))
        clock.pass_(1)
    await store.claim(claim(3))
    assert [row.key for row in await store.requested()] == [key(2), key(1)]
    assert [row.key for row in await store.requested(limit=1)] == [key(2)]
    assert [row.key for row in await store.requested("other")] == [key(1)]


async def test_a_question_ends_once(store: SqlStore) -> None:
    await store.open(question())
    close = Close(
        key=key(),
        status=CallStatus.DENIED,
        run_id="run-2",
        decision={"kind": "reject"},
        answer="d1",
        outcome={"message": "no"},
        events=(event("denied"),),
    )
    changed, row = await store.close_question(close)
    assert changed
    assert row is not None
    assert (row.status, row.decision, row.answers, row.outcome, row.run_id) == (
        CallStatus.DENIED,
        {"kind": "reject"},
        ("d1",),
        {"message": "no"},
        "run-2",
    )
    assert await store.close_question(close) == (False, row)
    assert len(await store.events(T)) == 1


async def test_a_claimed_call_is_no_open_question(store: SqlStore) -> None:
    await store.open(question())
    claimed = await store.claim(claim())
    close = Close(key=key(), status=CallStatus.VOID)
    assert await store.close_question(close) == (False, claimed.row)
    assert await store.close_question(Close(key=key(9), status=CallStatus.VOID)) == (False, None)


async def test_every_field_of_a_call_is_kept(store: SqlStore) -> None:
    call = new_call(
        kind="gate",
        policy_digest="p",
        schema_digest="s",
        idempotency_key="i",
        interrupt_id="int",
        position=3,
        requester="ann",
        request={"deep": [1, None, {"a": 1.5}]},
        ttl=None,
        approval_id="ap",
        quorum_need=2,
    )
    row = (await store.open(call)).row
    assert row is not None
    assert row.expires_at is None
    for name in NewCallFields:
        assert getattr(row, name) == getattr(call, name), name


NewCallFields = tuple(name for name in new_call().__slots__ if name != "ttl")


async def test_what_is_no_json_is_refused_before_it_is_written(store: SqlStore) -> None:
    with pytest.raises(ValueError, match="canonical"):
        await store.open(question(request={"amount": float("nan")}))
    assert await store.get(key()) is None
