"""A34, A35, A41: the audit tampered with, in the way, repeated, or flooded."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.room import KEYS, Rooms, pay
from tests.support.script import ai, call

from adapter import StoreUnavailable
from adapter.cli.auditfile import heads_of, verify_file
from adapter.cli.trail import verify_thread
from adapter.sinks import JsonlSink, SinkFanout
from adapter.stores import SqlStore, open_store

pytestmark = pytest.mark.anyio


class Trail:
    """A signed store in a file, with an audit file beside it."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "adapter.db"
        self.file = folder / "audit.jsonl"
        self.sink = JsonlSink(self.file)
        self.fanout = SinkFanout([self.sink])
        self.store: SqlStore = open_store(
            f"sqlite:///{self.database}",
            head_signer=lambda message: KEYS.sign("audit", message),
            outlet=self.fanout,
        )
        self.sink.backlog = self.store.backlog

    def sql(self, *statements: str) -> None:
        db = sqlite3.connect(self.database)
        with db:
            for statement in statements:
                db.execute(statement)
        db.close()

    async def faults(self) -> list[str]:
        """Close everything, and verify the store with the file's heads, then the file itself."""
        await self.store.aclose()
        filed = verify_file(self.file, KEYS, None)
        seen = heads_of(filed, "the file")
        again = open_store(f"sqlite:///{self.database}")
        stored = await verify_thread(again, "thread-1", keys=KEYS, witnesses=seen["thread-1"])
        await again.aclose()
        return [fault.kind for one in (stored, *filed) for fault in one.faults]


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    made = Trail(tmp_path)
    yield made
    made.fanout.close()


async def paid(rooms: Rooms, trail: Trail) -> Any:
    room = rooms.paying(store=trail.store)
    asked = await room.question()
    await room.decide(asked)
    assert room.ledger.paid == [100]
    return room


async def test_a34_a_trail_nobody_touched_is_whole(rooms: Rooms, trail: Trail) -> None:
    room = await paid(rooms, trail)
    links = await room.store.events("thread-1")
    assert await trail.faults() == []
    assert len(trail.file.read_bytes().splitlines()) == len(links)


@pytest.mark.parametrize(
    ("statements", "kinds"),
    [
        (["UPDATE audit_events SET line = replace(line, '100', '999') WHERE seq = 2"], "edited"),
        (["DELETE FROM audit_events WHERE seq = 3"], "dropped"),
        (["DELETE FROM audit_events WHERE seq >= 4"], "truncated"),
        (
            [
                "UPDATE audit_events SET seq = -2 WHERE seq = 2",
                "UPDATE audit_events SET seq = 2 WHERE seq = 3",
                "UPDATE audit_events SET seq = 3 WHERE seq = -2",
            ],
            "reordered",
        ),
        (
            [
                "INSERT INTO audit_events SELECT thread_id, 99, 'twice', run_id, run_seq, turn_id,"
                " kind, line, hash FROM audit_events WHERE seq = 2"
            ],
            "doubled",
        ),
        (["DELETE FROM audit_heads"], "head"),
        (["UPDATE audit_heads SET kid = NULL, signature = NULL"], "signature"),
        (["DELETE FROM audit_events", "DELETE FROM audit_heads"], "truncated"),
    ],
)
async def test_a34_what_was_done_to_the_store_is_found(
    rooms: Rooms, trail: Trail, statements: list[str], kinds: str
) -> None:
    await paid(rooms, trail)
    await trail.store.aclose()
    trail.sql(*statements)
    assert kinds in await trail.faults()


async def test_a34_a_full_disk_under_the_audit_file_costs_no_call_and_no_event(
    rooms: Rooms, trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def full(file: int, data: Any) -> int:
        if file == trail.sink._file:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        room = await paid(rooms, trail)
        await room.store.append([])
        while trail.fanout._waiting:
            await room.store.get("nothing")
    assert trail.fanout.missed["jsonl"] > 0
    again = rooms(ai(call("note", "n1", text="x")), store=trail.store, saver=room.saver)
    await again.say("again")
    assert await trail.faults() == []
    assert trail.file.read_bytes().startswith(b'{"thread_id":"thread-1","seq":1,')


async def test_a34_no_gated_call_runs_where_the_store_cannot_write_its_event(
    rooms: Rooms, trail: Trail
) -> None:
    room = rooms.paying(store=trail.store)
    asked = await room.question()
    trail.sql(
        "CREATE TRIGGER full BEFORE INSERT ON audit_events"
        " BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
    )
    with pytest.raises(StoreUnavailable):
        await room.decide(asked)
    assert room.ledger.paid == []
    trail.sql("DROP TRIGGER full")
    await room.run(None)
    assert room.ledger.paid == [100]
    assert await trail.faults() == []


async def test_a34_two_stores_that_write_one_thread_keep_one_chain(
    rooms: Rooms, trail: Trail, tmp_path: Path
) -> None:
    other = Trail(tmp_path)
    room = rooms(ai(pay("c1")), ai(call("note", "n1", text="x")), store=trail.store)
    asked = await room.question()
    second = rooms(store=other.store, saver=room.saver)
    await second.resume({asked.id: room.sign(asked)})
    await room.say("more")
    await other.store.aclose()
    assert await trail.faults() == []


async def test_a35_events_are_not_repeated_by_a_node_that_runs_again(
    rooms: Rooms, trail: Trail
) -> None:
    room = rooms(ai(call("note", "n1", text="x"), pay("c1"), pay("c2", 2)), store=trail.store)
    await room.say()
    for asked in await room.asked():
        for _ in range(3):
            await room.run(None)
        await room.decide(asked)
    ids = Counter(event["id"] for event in await room.events())
    assert max(ids.values()) == 1
    kinds = Counter((event["kind"], event["call_id"]) for event in await room.events())
    for kind in ("proposed", "requested", "decided", "started", "succeeded"):
        assert kinds[kind, "c1"] == kinds[kind, "c2"] == 1, kind
    assert await trail.faults() == []


async def test_a35_the_heads_in_the_state_are_links_of_the_chain(
    rooms: Rooms, trail: Trail
) -> None:
    room = await paid(rooms, trail)
    head = (await room.agent.aget_state(room.config)).values["audit_head"]
    links = {one.seq: one.hash for one in await room.store.events("thread-1")}
    assert head == {"thread_id": "thread-1", "seq": head["seq"], "hash": links[head["seq"]]}


async def test_a41_a_flood_of_junk_is_audited_within_bounds_and_costs_nothing(
    rooms: Rooms, trail: Trail
) -> None:
    room = rooms.paying(store=trail.store)
    asked = await room.question()
    for n in range(30):
        await room.resume({asked.id: {"junk": n}})
    (again,) = await room.asked()
    assert again.id == asked.id
    refused = await room.events("answer_refused")
    assert 20 <= len(refused) <= 40
    assert await room.events("answers_refused_merged") or len(refused) == 30
    await room.decide(again)
    assert room.ledger.paid == [100]
    assert await trail.faults() == []
