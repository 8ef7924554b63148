"""A36: keys rotated while approvals are pending; a compromised key revoked, at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.room import Room, Rooms

from adapter import ApprovalDecision
from adapter.core.approvals import sign_decision
from adapter.core.keychange import revoke, rotate
from adapter.core.keys import KeyRing
from adapter.keyfile import KeyFileSource, edit_keys, load_keys, write_keys
from adapter.reviewerfile import enrol_reviewer, load_reviewer

YES = ApprovalDecision(kind="approve")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "server" / "keys.json"
    write_keys(made, now=1)
    return made


def paying(rooms: Rooms, path: Path) -> Room:
    source: Any = KeyFileSource(path)
    return rooms.paying(keys=source)


def signed(keys: KeyRing, asked: Any, reviewer: str = "local") -> Any:
    return sign_decision(keys, asked.value, YES, decided_at=1, reviewer=reviewer)


def rotated(path: Path) -> None:
    edit_keys(path, lambda ring: rotate(ring, [], now=2))


def damage(path: Path) -> None:
    path.write_text('{"version": 1, "keys": [')


def revoked(path: Path, kid: str) -> None:
    edit_keys(path, lambda ring: revoke(ring, kid, now=3))


@pytest.mark.anyio
async def test_a36_an_answer_under_the_old_key_counts_after_a_rotation(
    rooms: Rooms, path: Path
) -> None:
    room = paying(rooms, path)
    asked = await room.question()
    answer = room.sign(asked)
    rotated(path)
    await room.resume({asked.id: answer})
    assert room.ledger.paid == [100]
    assert room.approval.keys.newest("decision").kid != answer["kid"]


@pytest.mark.anyio
async def test_a36_a_request_sealed_before_a_rotation_is_signed_after_it(
    rooms: Rooms, path: Path
) -> None:
    room = paying(rooms, path)
    asked = await room.question()
    rotated(path)
    answer = signed(load_keys(path), asked)
    await room.resume({asked.id: answer})
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_a36_a_revoked_key_is_refused_at_once_in_the_running_process(
    rooms: Rooms, path: Path
) -> None:
    room = paying(rooms, path)
    asked = await room.question()
    stolen = load_keys(path)
    rotated(path)
    answer = signed(stolen, asked)
    revoked(path, answer["kid"])
    await room.resume({asked.id: answer})
    assert room.ledger.paid == []
    (still,) = await room.asked()
    assert still.id == asked.id
    assert still.value["refused"]["code"] == "invalid_answer"

    await room.resume({asked.id: signed(load_keys(path), still)})
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_a36_a_revoked_reviewer_is_refused_and_another_can_approve(
    rooms: Rooms, path: Path, tmp_path: Path
) -> None:
    for name in ("alice", "bob"):
        enrol_reviewer(path, tmp_path / f"{name}.json", name, now=2)
    alice, bob = (load_reviewer(tmp_path / f"{name}.json") for name in ("alice", "bob"))
    room = paying(rooms, path)
    asked = await room.question()
    assert asked.value["seal"]["alg"] == "Ed25519"
    revoked(path, alice.keys.newest("decision").kid)
    await room.resume({asked.id: signed(alice.keys, asked, "alice")})
    assert room.ledger.paid == []
    await room.resume({asked.id: signed(bob.keys, asked, "bob")})
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_a36_the_shared_key_decides_in_nobodys_name_who_has_one(
    rooms: Rooms, path: Path, tmp_path: Path
) -> None:
    room = paying(rooms, path)
    asked = await room.question()
    before = signed(load_keys(path), asked, "alice")
    enrol_reviewer(path, tmp_path / "alice.json", "alice", now=2)
    await room.resume({asked.id: before})
    assert room.ledger.paid == []
    (still,) = await room.asked()
    # Asked again, it carries the seal that her file pins.
    alice = load_reviewer(tmp_path / "alice.json")
    await room.resume({asked.id: signed(alice.keys, still, "alice")})
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_a36_a_server_that_holds_public_halves_only_still_asks(
    rooms: Rooms, path: Path, tmp_path: Path
) -> None:
    shared = load_keys(path).newest("decision").kid
    enrol_reviewer(path, tmp_path / "alice.json", "alice", now=2)
    revoked(path, shared)
    room = paying(rooms, path)
    asked = await room.question()
    alice = load_reviewer(tmp_path / "alice.json")
    await room.resume({asked.id: signed(alice.keys, asked, "alice")})
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_a36_a_half_written_file_locks_nobody_out(rooms: Rooms, path: Path) -> None:
    room = paying(rooms, path)
    asked = await room.question()
    answer = room.sign(asked)
    damage(path)
    await room.resume({asked.id: answer})
    assert room.ledger.paid == [100]
