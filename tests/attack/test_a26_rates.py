"""A26: many runs of one user at once, in two processes, against ten a minute: exactly ten."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.stores.conftest import (
    durable_uri,
    postgresql,
    postgresql_uri,
)
from tests.support.racing import raced

from adapter.stores import open_store

__all__ = ["durable_uri", "postgresql", "postgresql_uri"]

pytestmark = pytest.mark.anyio

WORK = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace
from langchain_core.messages import HumanMessage
from tests.support.room import Rooms
from tests.support.script import ai, call
from adapter import Budgets
from adapter.stores import open_store

async def main(uri, name, runs, folder, what):
    store = open_store(uri)
    await store.prepare()
    rooms = Rooms(Path(folder))

    def answer(messages):
        return ai(call("note", None, text="x")) if len(messages) == 1 else ai(text="end")

    budgets = Budgets(**{f"{what}_rate": "10/minute"})
    room = rooms(*[answer] * 10 * runs, store=store, budgets=budgets)
    who = SimpleNamespace(identity="bob")
    print("ready", flush=True)
    sys.stdin.readline()

    async def run(n):
        thread = f"{name}-{n}"
        config = {"configurable": {"thread_id": thread, "langgraph_auth_user": who}}
        await room.on(thread).run({"messages": [HumanMessage("x")]}, config)

    await asyncio.gather(*(run(n) for n in range(runs)))
    print(len(room.model.sent), flush=True)
    await store.aclose()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]))
"""


def at_once(uri: str, folder: Path, what: str) -> list[int]:
    """Run 25 threads in each of two processes at once; return the model calls each made."""
    made = raced(WORK, *([uri, name, "25", str(folder), what] for name in ("one", "two")))
    return [calls for (calls,) in made]


async def test_a26_exactly_ten_of_fifty_calls_run(durable_uri: str, tmp_path: Path) -> None:
    await asyncio.to_thread(at_once, durable_uri, tmp_path, "tool")
    assert len((tmp_path / "effects.jsonl").read_text().splitlines()) == 10


async def test_a26_exactly_ten_of_fifty_model_calls_are_made(
    durable_uri: str,
    tmp_path: Path,
) -> None:
    made = await asyncio.to_thread(at_once, durable_uri, tmp_path, "model")
    assert sum(made) == 10
    store = open_store(durable_uri)
    refused = 0
    for head in await store.heads():
        refused += sum(one.kind == "refused" for one in await store.events(head.thread_id))
    await store.aclose()
    # ten runs began a model call or, where two of one run fell within the ten, fewer
    assert refused >= 40
