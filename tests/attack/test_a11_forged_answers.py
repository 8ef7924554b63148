"""A11, A30, A31: forged answers by every key but the right one; the event loop stays free."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.room import KEYS, START, Rooms
from tests.support.script import ai, call

from adapter import ApprovalDecision, Key, KeyRing
from adapter.core.keys import PURPOSES
from adapter.core.signing import sign_answer
from adapter.langgraph import LangGraphApproval

ROOT = Path(__file__).parents[2]


def signed_with(ring: KeyRing) -> Callable[[str], dict[str, Any]]:
    body = ApprovalDecision(kind="approve").to_json(decided_at=START, reviewer="r")
    return lambda binding: sign_answer(ring, binding, body)


def ring(secret: bytes, kid: str = "shared", **more: Any) -> KeyRing:
    return KeyRing(
        [
            Key(kid=f"{kid}-{purpose}", purpose=purpose, secret=secret, **more)
            for purpose in PURPOSES
        ]
    )


SEAL = KEYS.newest("seal").secret
OTHER = b"other-secret-0123456789-abcdefghij"
FORGERS = {
    "another key under the right kid": signed_with(ring(OTHER)),
    "the seal's key": signed_with(ring(SEAL)),
    "the right key under another kid": signed_with(ring(KEYS.newest("decision").secret, kid="old")),
    "a derived ring of another secret": signed_with(KeyRing.from_secret(OTHER)),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", sorted(FORGERS))
async def test_a11_a_forged_signature_does_not_count(rooms: Rooms, name: str) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.resume({asked.id: FORGERS[name](asked.value["binding"])})
    assert room.ledger.paid == []
    (still,) = await room.asked()
    assert still.id == asked.id
    assert still.value["refused"]["code"] == "invalid_answer"
    (event,) = await room.events("answer_refused")
    assert event["data"]["code"] == "invalid_answer"
    await room.decide(still)
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_a11_the_message_is_the_same_whatever_was_wrong(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    said = set()
    answers = [forge(asked.value["binding"]) for forge in FORGERS.values()]
    for bad in [*answers, "yes", {"approved": True}, [], {**answers[0], "alg": "none"}]:
        await room.resume({asked.id: bad})
        (still,) = await room.asked()
        said.add(str(still.value["refused"]))
    assert len(said) == 1


def rotated(*revoked: str) -> KeyRing:
    keys = [
        Key(
            kid=f"{kid}-{purpose}",
            purpose=purpose,
            secret=kid.encode() + KEYS.newest(purpose).secret,
            created_at=number,
            revoked_at=5 if kid in revoked else None,
        )
        for number, kid in enumerate(("old", "new"), start=1)
        for purpose in PURPOSES
    ]
    return KeyRing(keys)


def only(kid: str) -> KeyRing:
    return KeyRing(
        [
            Key(
                kid=f"{kid}-{purpose}",
                purpose=purpose,
                secret=kid.encode() + KEYS.newest(purpose).secret,
            )
            for purpose in PURPOSES
        ]
    )


@pytest.mark.anyio
async def test_a11_an_old_key_counts_until_it_is_revoked(rooms: Rooms) -> None:
    room = rooms.paying(keys=rotated(), store="adapter.db")
    asked = await room.question()
    by_old = signed_with(only("old"))(asked.value["binding"])
    after = rooms(keys=rotated("old"), saver=room.saver, store="adapter.db")
    await after.resume({asked.id: by_old})
    assert after.ledger.paid == []
    await room.resume({asked.id: by_old})
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_a11_a_random_key_resumes_in_its_own_process_only(rooms: Rooms) -> None:
    room = rooms.paying(keys=KeyRing.random(), store="adapter.db")
    asked = await room.question()
    elsewhere = rooms(keys=KeyRing.random(), saver=room.saver, store="adapter.db")
    await elsewhere.resume({asked.id: room.sign(asked)})
    assert room.ledger.paid == []
    await room.decide(asked)
    assert room.ledger.paid == [100]


def test_a11_no_key_at_all_is_a_random_one() -> None:
    first, second = LangGraphApproval(), LangGraphApproval()
    assert first.keys.newest("decision").secret != second.keys.newest("decision").secret


@pytest.mark.anyio
async def test_a30_the_event_loop_is_never_blocked(rooms: Rooms) -> None:
    """No store call, key or digest keeps the loop; the server's own check is in tests/e2e."""
    room = rooms(
        ai(*[call("note", f"n{n}", text="x") for n in range(5)]),
        ai(call("send_money", "c1", to="bob", amount=1)),
        store="adapter.db",
    )
    await room.store.prepare()
    await room.on("warm").say()
    gaps: list[float] = []

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            gaps.append(time.perf_counter() - before)

    watching = asyncio.create_task(watch())
    room.model.then(ai(call("send_money", "c2", to="bob", amount=1)))
    await room.say()
    for asked in await room.asked():
        await room.decide(asked)
    watching.cancel()
    assert max(gaps) < 1.0


BLOCK = """
import asyncio, os, sys
from pathlib import Path
from blockbuster import BlockBuster
from tests.support.room import Rooms, pay
from tests.support.script import ai, call

async def main(rooms):
    room = rooms(ai(pay(), call("note", "n1", text="x"), call("look", "l1", text="x")),
                 tools=None, store="adapter.db")
    await room.say()
    for bad in ("junk", {"approved": True}):
        (asked,) = await room.asked()
        await room.resume({asked.id: bad})
    paused = (await room.agent.aget_state(room.config)).config
    answer = {asked.id: room.sign(asked)}
    await room.resume(answer)
    try:
        await room.resume(answer, paused)
    except Exception as error:
        print(error.code)
    await room.say("again")
    await room.store.aclose()

rooms = Rooms(Path(sys.argv[1]))
buster = BlockBuster()
buster.activate()
try:
    asyncio.run(main(rooms))
finally:
    buster.deactivate()
print(rooms.ledger.paid, flush=True)
os._exit(0)  # the detector itself may crash a finished interpreter
"""


def test_a30_nothing_blocks_under_the_servers_own_detector(rooms: Rooms) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK, str(rooms.folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    )
    assert "BlockingError" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["already_decided", "[100]"]


def test_a31_the_exported_graph_brings_no_checkpointer_and_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent.settings import AgentSettings
    from agent.wiring import build_agent

    monkeypatch.chdir(tmp_path)
    graph = build_agent(AgentSettings.load({"ADAPTER_DATA_DIR": str(tmp_path)}, None))
    assert graph.checkpointer is None
    assert graph.store is None
