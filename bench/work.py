"""The work that `bench/store.py` measures: claims, claims with their settling, audit events.

One claim is a new row, two counters charged, two events linked. What is asked of the store is made
before the clock starts: in an agent it is the stages' work, and `bench/overhead.py` measures it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from adapter.core.store import Charge, Claim, Event, NewCall, Settle
from adapter.core.types import CallStatus
from adapter.stores import SqlStore

CALLERS = 64
PER_THREAD = 8
BODY = (
    b'{"arguments_digest":"' + b"a" * 64 + b'","at":1800000000000,"call_id":"call_%d",'
    b'"data":{"arguments":{"amount_cents":500,"order_id":"A-1001"}},"id":"%b","kind":"%b",'
    b'"run_id":"run-1","thread_id":"%b","tool":"issue_refund","turn_id":"turn-1","user":null,"v":1}'
)
Piece = Callable[[], Awaitable[None]]


def event(kind: str, thread: str, key: str, n: int, turn: str = "turn-1") -> Event:
    return Event(
        id=f"{key}:{kind}",
        thread_id=thread,
        run_id="run-1",
        turn_id=turn,
        kind=kind,
        body=BODY % (n, f"{key}:{kind}".encode(), kind.encode(), thread.encode()),
    )


def key_of(n: int) -> str:
    return f"{(n * 0x9E3779B97F4A7C15) % 2**64:016x}" * 4


def claim(thread: str, n: int, turn: str = "turn-1") -> Claim:
    key = key_of(n)
    call = NewCall(
        key=key,
        thread_id=thread,
        checkpoint_ns="tools:5f0c1d7e",
        task_id="5f0c1d7e-7a5e-4a3c-8a55-3f6a3d1b8f60",
        turn_id=turn,
        message_id=f"message-{n // 8}",
        tool_call_id=f"call_{n}",
        tool="issue_refund",
        arguments_digest="a" * 64,
        policy_digest="b" * 64,
        schema_digest="c" * 64,
        idempotency_key="d" * 64,
    )
    return Claim(
        key=key,
        new=call,
        run_id="run-1",
        owner="worker-1",
        lease=30.0,
        executed_digest="a" * 64,
        charges=(
            Charge(scope=f"turn:{thread}:{turn}:tool_calls", limit=10**9),
            Charge(scope=f"thread:{thread}:tool_calls", limit=10**9),
        ),
        events=(event("decided", thread, key, n, turn), event("started", thread, key, n, turn)),
    )


def settle(thread: str, n: int, turn: str = "turn-1") -> Settle:
    key = key_of(n)
    return Settle(
        key=key,
        fence=1,
        status=CallStatus.SUCCEEDED,
        outcome={"content": "refunded"},
        events=(event("succeeded", thread, key, n, turn),),
    )


def pieces(store: SqlStore, what: str, total: int, writer: int) -> list[list[Piece]]:
    """Make the work of each caller; nothing of it has begun."""
    make = {"claims": _claiming, "claim+settle": _settling, "events": _linking}[what]
    made = []
    for n in range(CALLERS):
        thread = f"bench-{writer}-{n // PER_THREAD}-2f0c4f3e9f7e"
        first = (writer * CALLERS + n) * 10**6
        made.append([make(store, thread, first + i) for i in range(total // CALLERS)])
    return made


async def drive(work: Sequence[Sequence[Piece]]) -> float:
    """Return the seconds that all callers take, each doing one piece after the other."""

    async def caller(mine: Sequence[Piece]) -> None:
        for piece in mine:
            await piece()

    began = time.perf_counter()
    await asyncio.gather(*(caller(mine) for mine in work))
    return time.perf_counter() - began


def _claiming(store: SqlStore, thread: str, n: int) -> Piece:
    asked = claim(thread, n)

    async def piece() -> None:
        claimed = await store.claim(asked)
        assert claimed.state == "claimed", claimed.state

    return piece


def _settling(store: SqlStore, thread: str, n: int) -> Piece:
    claiming, asked = _claiming(store, thread, n), settle(thread, n)

    async def piece() -> None:
        await claiming()
        assert await store.settle(asked)

    return piece


def _linking(store: SqlStore, thread: str, n: int) -> Piece:
    asked = [event("proposed", thread, f"{n:064x}", n)]

    async def piece() -> None:
        assert await store.append(asked) == 1

    return piece
