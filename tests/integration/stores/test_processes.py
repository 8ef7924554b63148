"""Several processes on one database: one effect, one chain, exact counters."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.stores.records import T
from tests.support.racing import raced

from adapter.core.chain import GENESIS, read_link
from adapter.stores import open_store

pytestmark = pytest.mark.anyio

WORK = """
import asyncio, sys
from adapter.core.store import Charge, Claim, Event, NewCall
from adapter.stores import open_store

async def main(uri, name, rounds):
    store = open_store(uri)
    await store.prepare()
    print("ready", flush=True)
    sys.stdin.readline()

    async def attempt(n):
        key = f"{n:064x}"
        call = NewCall(
            key=key, thread_id="thread-1", checkpoint_ns="", task_id="", turn_id="turn-1",
            message_id="m", tool_call_id=str(n), tool="t", arguments_digest="a",
        )
        event = Event(
            id=f"started:{key}", thread_id="thread-1", run_id=name, turn_id="turn-1",
            kind="started", body=b"{}",
        )
        claim = Claim(
            key=key, new=call, run_id=name, owner=name, lease=60, executed_digest="x",
            charges=(Charge(scope=f"b{n % 7}"), Charge(scope=f"a{n % 5}")), events=(event,),
        )
        return (await store.claim(claim)).state

    states = []
    for start in range(0, rounds, 10):
        states += await asyncio.gather(*(attempt(n) for n in range(start, start + 10)))
    print(states.count("claimed"), states.count("in_progress"), flush=True)
    await store.aclose()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def test_each_call_is_claimed_by_one_of_four_processes(durable_uri: str) -> None:
    rounds = 100
    counts = await asyncio.to_thread(
        raced, WORK, *([durable_uri, f"w{n}", str(rounds)] for n in range(4))
    )
    assert sum(claimed for claimed, _ in counts) == rounds
    assert sum(refused for _, refused in counts) == 3 * rounds

    store = open_store(durable_uri)
    scopes = [f"b{n}" for n in range(7)] + [f"a{n}" for n in range(5)]
    assert sum((await store.charge([], show=scopes)).used.values()) == 2 * rounds
    prev = GENESIS
    links = await store.events(T)
    for stored in links:
        assert read_link(stored.line).prev == prev
        prev = stored.hash
    assert len(links) == rounds
    await store.aclose()
