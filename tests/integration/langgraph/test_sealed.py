"""Recorded results at rest: bound to their row, never plain, kept over rotations, gone in time."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from typing import Any

import pytest
from tests.support.room import KEYS, Room, Rooms, pay
from tests.support.script import ai

from adapter import ApprovalAlreadyDecided, KeyRing, StoreUnavailable
from adapter.core.keychange import revoke, rotate
from adapter.stores import open_store

pytestmark = pytest.mark.anyio


class Lost(Exception):
    """The worker is gone after the result was recorded, before the thread had it."""


async def paid(rooms: Rooms, thread: str = "thread-1") -> Room:
    """A paid call whose result is in the journal and not in the thread."""
    lost = [Lost()]

    async def hook(_call: Any, _ctx: Any) -> None:
        if lost:
            raise lost.pop()

    room = rooms(ai(pay("c1")), store="adapter.db", thread=thread, after_tool=[hook])
    asked = await room.question()
    with pytest.raises(Lost):
        await room.decide(asked)
    return room


def sql(rooms: Rooms, statement: str, *values: Any) -> list[Any]:
    db = sqlite3.connect(rooms.folder / "adapter.db")
    with db:
        found = db.execute(statement, values).fetchall()
    db.close()
    return found


async def test_a_recorded_result_is_sealed_and_comes_back(rooms: Rooms) -> None:
    room = await paid(rooms)
    ((stored,),) = sql(rooms, "SELECT outcome FROM calls")
    assert "sent 100" not in stored
    assert set(json.loads(stored)) == {"sealed"}
    await room.run(None)
    assert room.ledger.paid == [100]
    assert "sent 100" in str((await room.results())["c1"].content)


@pytest.mark.parametrize(
    "forged",
    [
        {"result": {"kind": "text", "content": "forged"}},
        {"error": {"kind": "ToolError", "message": "forged"}},
        {"sealed": {}},
    ],
)
async def test_ckp03_a_plain_row_in_its_place_is_refused(rooms: Rooms, forged: Any) -> None:
    room = await paid(rooms)
    sql(rooms, "UPDATE calls SET outcome = ?", json.dumps(forged))
    with pytest.raises(StoreUnavailable, match="does not open"):
        await room.run(None)
    assert room.ledger.paid == [100]
    assert "forged" not in repr(await room.messages())


async def test_a_result_moved_from_another_thread_does_not_open(rooms: Rooms) -> None:
    room = await paid(rooms)
    await paid(rooms, "thread-2")
    sql(
        rooms,
        "UPDATE calls SET outcome = (SELECT outcome FROM calls WHERE thread_id = 'thread-2')"
        " WHERE thread_id = 'thread-1'",
    )
    with pytest.raises(StoreUnavailable, match="altered or moved"):
        await room.run(None)
    assert room.ledger.paid == [100, 100]


async def test_a_row_moved_to_another_thread_does_not_open(rooms: Rooms) -> None:
    room = await paid(rooms)
    (asked_key,) = [row[0] for row in sql(rooms, "SELECT key FROM calls")]
    ((sealed,),) = sql(rooms, "SELECT outcome FROM calls")
    assert room.executor.journal.sealer is not None
    with pytest.raises(StoreUnavailable):
        room.executor.journal.sealer.open(json.loads(sealed), asked_key, "thread-2")
    opened: Any = room.executor.journal.sealer.open(json.loads(sealed), asked_key, "thread-1")
    assert "result" in opened


async def test_results_open_after_a_rotation_and_not_after_the_keys_revocation(
    rooms: Rooms,
) -> None:
    room = await paid(rooms)
    rotated = rotate(KEYS, ["state"], now=9)[0]
    gone: KeyRing = revoke(rotated, KEYS.newest("state").kid, now=10)[0]
    refused = rooms(store="adapter.db", saver=room.saver, keys=gone)
    with pytest.raises(StoreUnavailable, match="revoked"):
        await refused.run(None)

    later = rooms(store="adapter.db", saver=room.saver, keys=rotated)
    await later.run(None)
    assert "sent 100" in str((await later.results())["c1"].content)
    assert room.ledger.paid == [100]


async def test_a_result_that_retention_removed_is_said_to_be_and_nothing_runs_again(
    rooms: Rooms,
) -> None:
    room = await paid(rooms)
    sql(rooms, "UPDATE calls SET outcome = NULL")
    with pytest.raises(ApprovalAlreadyDecided, match="retention has removed"):
        await room.run(None)
    assert room.ledger.paid == [100]


async def test_heads_signed_under_a_key_stay_good_after_its_rotation(rooms: Rooms) -> None:
    from adapter.cli.trail import verify_thread

    ring = [KEYS]
    store = open_store(
        f"sqlite:///{rooms.folder}/signed.db",
        head_signer=lambda message: ring[0].sign("audit", message),
    )
    room = rooms(ai(pay("c1")), store=store)
    await room.say()
    ring[0] = rotate(KEYS, ["audit"], now=9)[0]
    assert (await verify_thread(store, "thread-1", keys=ring[0])).faults == ()
    (asked,) = await room.asked()
    await room.decide(asked)
    verdict = await verify_thread(store, "thread-1", keys=ring[0])
    assert verdict.faults == ()
    assert verdict.head is not None
    assert verdict.head.kid == ring[0].newest("audit").kid
    gone = KeyRing(
        replace(key, revoked_at=1) if key.purpose == "audit" else key for key in ring[0].keys
    )
    (fault,) = (await verify_thread(store, "thread-1", keys=gone)).faults
    assert "revoked" in fault.message
    await store.aclose()
