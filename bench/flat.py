"""Whether a call costs the same in a long thread: its 10th event beside its 10,000th.

Young threads and an old one share a database and take turns, so that a machine whose speed drifts
shifts both alike; processor time is compared, which others on the machine change least.
"""

from __future__ import annotations

import time

from work import claim, event, settle

from adapter.core.store import Charge
from adapter.stores import SqlStore, open_store

YOUNG, OLD = 10, 10_000
CALLS = 8


async def turn(store: SqlStore, thread: str, n: int) -> float:
    """Run a model call and eight tool calls as the stages do; return processor seconds."""
    name = f"turn-{n}"
    charges = [Charge(scope=f"turn:{thread}:{name}:model_calls", limit=10)]
    scopes = [f"thread:{thread}:tool_calls"]
    began = time.process_time()
    await store.charge(charges, show=scopes, recent=(thread, name, 50))
    for i in range(n * CALLS, (n + 1) * CALLS):
        assert (await store.claim(claim(thread, i, name))).state == "claimed"
        assert await store.settle(settle(thread, i, name))
    await store.charge(charges, show=scopes, recent=(thread, name, 50))
    return time.process_time() - began


async def grow(store: SqlStore, thread: str, count: int) -> None:
    for first in range(0, count, 500):
        last = min(first + 500, count)
        await store.append(
            [event("proposed", thread, f"{thread}-{n:x}", n) for n in range(first, last)]
        )


async def flat(uri: str, sync: str, rounds: int) -> tuple[float, float]:
    """Return microseconds per call in young threads and in an old one."""
    store = open_store(uri, sqlite_sync=sync)  # type: ignore[arg-type]
    await grow(store, "old", OLD)
    young, old = [], []
    for n in range(rounds):
        await grow(store, f"young-{n}", YOUNG)
        young.append(await turn(store, f"young-{n}", 2 * n))
        old.append(await turn(store, "old", 2 * n + 1))
    await store.aclose()
    # what nothing disturbed: a low quantile, the same for both
    low = rounds // 10
    return sorted(young)[low] / CALLS * 1e6, sorted(old)[low] / CALLS * 1e6
