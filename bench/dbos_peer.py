"""Recorded workflows of DBOS Transact per second, for `bench/store.py`; runs in `.bench`.

Each is one workflow of one step whose result is recorded: the nearest thing to claiming a call and
settling it. 64 asyncio callers, as there. SQLite gets the write-ahead log and the synchronous
setting that our store has; DBOS sets neither.

    .bench/bin/python bench/dbos_peer.py URI NORMAL|FULL COUNT
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from dbos import DBOS
from sqlalchemy import Engine, event

CALLERS = 64


@DBOS.step()
async def refund(order: str, amount_cents: int) -> dict[str, str]:
    return {"content": f"refunded {amount_cents} of {order}"}


@DBOS.workflow()
async def recorded(order: str, amount_cents: int) -> dict[str, str]:
    return await refund(order, amount_cents)


async def drive(total: int) -> float:
    """Return the seconds that all callers take for ``total`` workflows."""

    async def caller() -> None:
        for _ in range(total // CALLERS):
            await recorded("A-1001", 500)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return time.perf_counter() - began


async def measure(uri: str, total: int) -> float:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": uri,
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    await drive(CALLERS * 2)  # warm up
    seconds = await drive(total)
    DBOS.destroy()
    return seconds


def main() -> None:
    uri, sync, count = sys.argv[1:]

    @event.listens_for(Engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        if uri.startswith("sqlite"):
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={sync}")

    total = int(count) // CALLERS * CALLERS
    print(f"rate {total / asyncio.run(measure(uri, total)):.1f}")


if __name__ == "__main__":
    main()
