"""Sliding windows in the store, reservations that are settled, and limits that were raised."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.stores.backends import Clock
from tests.integration.stores.records import T, charge, claim, event, key, question, ungated
from tests.support.racing import raced

from adapter.core.store import Charge
from adapter.stores import MemoryStore, SqlStore, open_store

pytestmark = pytest.mark.anyio


def token(
    mark: str, scope: str = "rate", *, limit: int = 3, window: float = 60, amount: int = 1
) -> Charge:
    return Charge(scope=scope, limit=limit, window=window, mark=mark, amount=amount)


async def passes(store: SqlStore, *charges: Charge) -> bool:
    return (await store.charge(charges)).exceeded is None


# ------------------------------------------------------------------------------------ windows


async def test_exactly_the_limit_passes_within_a_window(store: SqlStore) -> None:
    assert [await passes(store, token(f"m{n}")) for n in range(5)] == [True] * 3 + [False] * 2


async def test_a_token_counts_until_its_window_is_over(store: SqlStore, clock: Clock) -> None:
    for n in range(3):
        assert await passes(store, token(f"m{n}"))
        clock.pass_(10)
    # made at 0, 10 and 20 s; it is 30 s now
    clock.pass_(29.999)
    assert not await passes(store, token("late"))
    clock.pass_(0.001)
    assert await passes(store, token("first free"))
    assert not await passes(store, token("none left"))
    clock.pass_(9.999)
    assert not await passes(store, token("second, too early"))
    clock.pass_(0.001)
    assert await passes(store, token("second free"))
    assert not await passes(store, token("none left again"))


async def test_never_more_than_the_limit_in_any_window(store: SqlStore, clock: Clock) -> None:
    made = []
    for n in range(60):
        if await passes(store, token(f"m{n}", window=10)):
            made.append(clock.now)
        clock.pass_(1.7)
    assert len(made) > 20
    for start in made:
        assert len([at for at in made if start <= at < start + 10_000]) <= 3


async def test_a_clock_that_went_back_frees_nothing(store: SqlStore, clock: Clock) -> None:
    for n in range(3):
        assert await passes(store, token(f"m{n}"))
    clock.pass_(-3_600)
    assert not await passes(store, token("back then"))


async def test_scopes_have_windows_of_their_own(store: SqlStore) -> None:
    for n in range(3):
        assert await passes(store, token(f"m{n}", "a"))
    assert not await passes(store, token("x", "a"))
    assert await passes(store, token("x", "b"))


async def test_a_mark_is_charged_once(store: SqlStore, clock: Clock) -> None:
    for _ in range(5):
        assert await passes(store, token("same"))
        clock.pass_(1)
    assert await passes(store, token("m1"), token("m2"))
    assert not await passes(store, token("m3"))
    assert await passes(store, token("same"))


async def test_an_amount_is_taken_whole_or_not_at_all(store: SqlStore) -> None:
    assert await passes(store, token("a", amount=2))
    assert not await passes(store, token("b", amount=2))
    assert await passes(store, token("c"))


async def test_two_tokens_of_one_charge_count_both(store: SqlStore) -> None:
    assert not await passes(store, *(token(f"m{n}") for n in range(4)))
    assert await passes(store, *(token(f"m{n}") for n in range(3)))


async def test_windows_and_counters_are_charged_all_or_none(store: SqlStore) -> None:
    assert await passes(store, token("a", limit=1), charge("turn", limit=2))
    turn = await store.charge([charge("turn", limit=2), token("b", limit=1)], show=["turn"])
    assert (turn.exceeded, turn.used["turn"]) == ("rate", 1)
    turn = await store.charge([token("c", "other"), charge("turn", limit=1)])
    assert turn.exceeded == "turn"
    assert await passes(store, *(token(f"m{n}", "other") for n in range(3)))


async def test_a_token_given_back_is_free_again(store: SqlStore) -> None:
    one = token("a", limit=1)
    assert await passes(store, one)
    await store.charge([], refunds=[one])
    assert await passes(store, token("b", limit=1))
    assert not await passes(store, one)
    turn = await store.charge([token("c", limit=1)], refunds=[token("b", limit=1)])
    assert turn.exceeded is None


async def test_giving_back_what_was_never_taken_frees_nothing(store: SqlStore) -> None:
    assert await passes(store, token("a", limit=1))
    await store.charge([], refunds=[token("unknown", limit=1)])
    assert not await passes(store, token("b", limit=1))


@pytest.mark.parametrize(
    "wrong", [Charge(scope="r", window=60, limit=1), Charge(scope="r", window=60, mark="m")]
)
async def test_a_window_without_limit_or_mark_is_a_mistake(store: SqlStore, wrong: Charge) -> None:
    with pytest.raises(ValueError, match="needs a limit and a mark"):
        await store.charge([wrong])


async def test_marks_that_will_never_count_again_are_forgotten(
    store: SqlStore, clock: Clock
) -> None:
    for n in range(20):
        await passes(store, token(f"m{n}", limit=100))
        clock.pass_(10)
    sql = store._database.sql
    asked = {"at_scope": "rate", "at_time": 0}
    row = await store._writer.run(lambda tx, _now: tx.one(sql.rate_used, asked))
    assert row[0] == 6


# ----------------------------------------------------------------------------- claims, questions


async def test_a_claim_takes_one_token_and_a_refused_one_none(store: SqlStore) -> None:
    states = [
        (await store.claim(ungated(n, charges=(token(key(n), limit=2),)))).state
        for n in (1, 1, 2, 3, 3)
    ]
    assert states == ["claimed", "in_progress", "claimed", "exceeded", "exceeded"]


async def test_a_question_looks_at_windows_and_takes_nothing(store: SqlStore) -> None:
    one = (token(key(1), limit=1),)
    for n in (1, 2):
        assert (await store.open(question(n), [], (token(key(n), limit=1),))).created
    assert (await store.claim(claim(1, charges=one))).state == "claimed"
    assert (await store.claim(claim(1, charges=one))).state == "in_progress"
    refused = await store.open(question(3), [], (token(key(3), limit=1),))
    assert (refused.row, refused.exceeded) == (None, "rate")
    late = await store.claim(claim(2, charges=(token(key(2), limit=1),)))
    assert (late.state, late.exceeded) == ("exceeded", "rate")


async def test_an_expired_question_takes_no_token(store: SqlStore, clock: Clock) -> None:
    await store.open(question(1, ttl=5))
    clock.pass_(5)
    assert (await store.claim(claim(1, charges=(token(key(1), limit=1),)))).state == "expired"
    assert await passes(store, token("other", limit=1))


# -------------------------------------------------------------------------------- reservations


async def test_a_reservation_is_settled_to_what_was_used(store: SqlStore) -> None:
    held = Charge(scope="tokens", amount=100, limit=199)
    assert await passes(store, held)
    turn = await store.charge([Charge(scope="tokens", amount=30)], refunds=[held], show=["tokens"])
    assert turn.used == {"tokens": 30}
    fresh = await store.charge([], show=["tokens"])
    assert fresh.used == {"tokens": 30}


async def test_what_was_used_counts_even_over_the_limit(store: SqlStore) -> None:
    held = Charge(scope="tokens", amount=10, limit=109)
    assert await passes(store, held)
    await store.charge([Charge(scope="tokens", amount=250)], refunds=[held])
    assert (await store.charge([], show=["tokens"])).used == {"tokens": 250}
    assert not await passes(store, held)


async def test_a_refund_never_goes_below_nothing(store: SqlStore) -> None:
    await store.charge([charge("a", amount=2)])
    await store.charge([], refunds=[charge("a", amount=5), charge("b", amount=1)])
    assert (await store.charge([], show=["a", "b"])).used == {"a": 0, "b": 0}


async def test_settling_and_charging_at_once_disturb_nobody(store: SqlStore) -> None:
    """One transaction holds charges with a limit and, after them, ones that go over it."""
    await asyncio.gather(
        *(store.charge([charge("t", limit=10)], [event(f"e{n}")]) for n in range(12)),
        *(store.charge([Charge(scope="t", amount=7)]) for _ in range(4)),
    )
    used = (await store.charge([], show=["t"])).used["t"]
    links = await store.events(T)
    assert used == 28 + len(links)
    assert len(links) <= 10


async def test_events_are_written_although_nothing_is_charged(store: SqlStore) -> None:
    await store.charge([], [event("unknown usage")], show=["t"])
    assert [one.event_id for one in await store.events(T)] == ["unknown usage"]


# ------------------------------------------------------------------------------- raised limits


async def test_a_raise_counts_for_charges_that_can_be_raised_only(store: SqlStore) -> None:
    mine = Charge(scope="s", limit=2, raisable=True)
    assert [await passes(store, mine) for _ in range(3)] == [True, True, False]
    await store.charge([Charge(scope="raise:s", amount=2)])
    assert not await passes(store, charge("s", limit=2))
    assert [await passes(store, mine) for _ in range(3)] == [True, True, False]
    assert (await store.charge([], show=["s"])).used == {"s": 4}


async def test_a_raise_is_the_claim_of_its_question(store: SqlStore) -> None:
    raised = (Charge(scope="raise:s", amount=5),)
    await store.open(question(1, kind="budget"))
    states = [(await store.claim(claim(1, charges=raised))).state for _ in range(3)]
    assert states[0] == "claimed"
    assert "claimed" not in states[1:]
    assert (await store.charge([], show=["raise:s"])).used == {"raise:s": 5}


# ---------------------------------------------------------------------------------------- laws

steps = st.lists(
    st.tuples(
        st.sampled_from("abr"),
        st.integers(1, 4),
        st.sampled_from(["charge", "refund", "wait"]),
    ),
    max_size=40,
)


LIMITS = {"a": 5, "b": 9}


async def take(store: SqlStore, clock: Clock, n: int, step: tuple[str, int, str]) -> bool:
    """Do one step; return whether something was charged. No counter is ever out of bounds."""
    scope, amount, what = step
    if what == "wait":
        clock.pass_(amount * 5)
        return False
    one = token(f"m{n}", window=10)
    if scope != "r":
        one = Charge(scope=scope, amount=amount, limit=LIMITS[scope])
    if what == "refund" and scope != "r":
        turn = await store.charge([], refunds=[one], show=["a", "b"])
        charged = False
    else:
        turn = await store.charge([one], show=["a", "b"])
        charged = turn.exceeded is None
    assert all(0 <= turn.used[name] <= limit for name, limit in LIMITS.items())
    return charged


@settings(max_examples=40)
@given(steps=steps)
async def test_no_counter_passes_its_limit_whatever_comes_at_once(steps: Any) -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    await asyncio.gather(*(take(store, clock, n, step) for n, step in enumerate(steps)))
    used = (await store.charge([], show=["a", "b"])).used
    assert all(0 <= used[name] <= limit for name, limit in LIMITS.items())
    await store.aclose()


@settings(max_examples=40)
@given(steps=steps)
async def test_counters_and_windows_do_what_a_simple_model_does(steps: Any) -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    model = {"a": 0, "b": 0}
    window: list[int] = []
    for n, step in enumerate(steps):
        scope, amount, what = step
        charged = await take(store, clock, n, step)
        if what == "wait":
            continue
        if scope == "r":
            assert charged == (sum(at > clock.now - 10_000 for at in window) < 3)
            window += [clock.now] * charged
        elif what == "charge":
            assert charged == (model[scope] + amount <= LIMITS[scope])
            model[scope] += amount * charged
        else:
            model[scope] = max(0, model[scope] - amount)
    assert dict((await store.charge([], show=["a", "b"])).used) == model
    await store.aclose()


# ----------------------------------------------------------------------------------- processes

WORK = """
import asyncio, sys
from adapter.core.store import Charge, Claim, NewCall
from adapter.stores import open_store

async def main(uri, name, runs):
    store = open_store(uri)
    await store.prepare()
    print("ready", flush=True)
    sys.stdin.readline()

    async def run(n):
        key = f"{name}-{n:03}".ljust(64, "0")
        call = NewCall(
            key=key, thread_id=f"{name}-{n}", checkpoint_ns="", task_id="", turn_id="turn",
            message_id="m", tool_call_id="c", tool="t", arguments_digest="a",
        )
        rate = Charge(scope="rate:user:bob:tool_calls", limit=10, window=60, mark=key)
        claim = Claim(
            key=key, new=call, run_id=name, owner=name, lease=60, executed_digest="x",
            charges=(Charge(scope="user:bob:tool_calls"), rate),
        )
        return (await store.claim(claim)).state

    states = await asyncio.gather(*(run(n) for n in range(runs)))
    print(states.count("claimed"), states.count("exceeded"), flush=True)
    await store.aclose()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def test_exactly_ten_of_fifty_runs_in_two_processes_pass(durable_uri: str) -> None:
    counts = await asyncio.to_thread(raced, WORK, *([durable_uri, f"w{n}", "25"] for n in range(2)))
    assert sum(passed for passed, _ in counts) == 10
    assert sum(refused for _, refused in counts) == 40
    store = open_store(durable_uri)
    # all or none: what the rate refused was not counted either
    assert (await store.charge([], show=["user:bob:tool_calls"])).used["user:bob:tool_calls"] == 10
    await store.aclose()
