"""Requests that expire, stores that go away, processes that restart."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from tests.support.room import Clock, Room, Rooms, copy_thread, error_of, pay
from tests.support.script import ai, call

from adapter import ApprovalAlreadyDecided, CallInDoubt, CallInProgress, StoreUnavailable
from adapter.stores import open_store

# --------------------------------------------------------------------------------------- expiry


@pytest.mark.anyio
@pytest.mark.parametrize("trigger", ["late answer", "none", "junk"])
async def test_an_expired_request_ends_as_a_message_and_the_thread_goes_on(
    rooms: Rooms, trigger: str
) -> None:
    clock = Clock()
    room = rooms.paying(clock=clock, approval_ttl=60)
    asked = await room.question()
    answer = room.sign(asked)
    clock.advance(60)
    given: Any = {
        "late answer": Command(resume={asked.id: answer}),
        "none": None,
        "junk": Command(resume={asked.id: "junk"}),
    }[trigger]
    await room.run(given)
    assert room.ledger.paid == []
    assert error_of((await room.results())["c1"])["kind"] == "ApprovalExpired"
    assert (await room.messages())[-1].content == "done"
    assert await room.status("c1") == ["expired"]


@pytest.mark.anyio
async def test_a_request_is_good_until_the_last_millisecond(rooms: Rooms) -> None:
    clock = Clock()
    room = rooms.paying(clock=clock, approval_ttl=60)
    asked = await room.question()
    clock.advance(59.999)
    await room.decide(asked)
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_one_expired_question_leaves_its_sibling_alone(rooms: Rooms) -> None:
    from tests.support.room import gated, money_tools, tool_of

    from adapter import ApprovalRule

    def quick(text: str) -> str:
        rooms.ledger.add(tool="quick")
        return "ok"

    tools, specs = money_tools(rooms.ledger)
    clock = Clock()
    room = rooms(
        ai(pay(), call("quick", "q1", text="x")),
        tools=[*tools, tool_of(quick, "quick")],
        specs=[*specs, gated("quick", approval=ApprovalRule(name="quick", ttl=10))],
        clock=clock,
    )
    await room.say()
    first, second = await room.asked()
    clock.advance(11)
    await room.resume({second.id: room.sign(second)})
    assert [q.id for q in await room.asked()] == [first.id]
    await room.decide(first)
    assert room.ledger.paid == [100]
    assert room.ledger.of("quick") == []
    assert error_of((await room.results())["q1"])["kind"] == "ApprovalExpired"


# ------------------------------------------------------------------------------- the store is away


class Broken:
    """A store whose named methods are away."""

    def __init__(self, inner: Any, *names: str) -> None:
        self._inner, self._names, self.down = inner, names, True

    def __getattr__(self, name: str) -> Any:
        if self.down and name in self._names:
            return self._away
        return getattr(self._inner, name)

    async def _away(self, *_: Any, **__: Any) -> Any:
        raise StoreUnavailable("The store test (ADAPTER_DATABASE_URI) is away; bring it back.")


def break_store(room: Room, *names: str) -> Broken:
    broken = Broken(room.store, *names)
    room.executor.store = broken
    object.__setattr__(room.executor.journal, "store", broken)
    return broken


@pytest.mark.anyio
@pytest.mark.parametrize("names", [("charge",), ("open",), ("append", "open")])
async def test_a_store_away_before_the_question(rooms: Rooms, names: tuple[str, ...]) -> None:
    room = rooms.paying()
    broken = break_store(room, *names)
    with pytest.raises(StoreUnavailable, match="ADAPTER_DATABASE_URI"):
        await room.say()
    assert room.ledger.paid == []
    broken.down = False
    await room.run(None)
    (asked,) = await room.asked()
    await room.decide(asked)
    assert room.ledger.paid == [100]
    await room.results()


@pytest.mark.anyio
@pytest.mark.parametrize("names", [("get",), ("claim",), ("get", "claim", "open", "charge")])
async def test_a_store_away_at_the_answer_keeps_it(rooms: Rooms, names: tuple[str, ...]) -> None:
    room = rooms.paying()
    asked = await room.question()
    broken = break_store(room, *names)
    with pytest.raises(StoreUnavailable):
        await room.decide(asked)
    assert room.ledger.paid == []
    broken.down = False
    await room.run(None)
    if room.ledger.paid == []:
        await room.decide(asked)
    assert room.ledger.paid == [100]
    await room.results()


@pytest.mark.anyio
async def test_a_store_away_at_a_bad_answer_runs_nothing(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    broken = break_store(room, "charge", "append")
    with pytest.raises(StoreUnavailable):
        await room.resume({asked.id: "junk"})
    broken.down = False
    assert room.ledger.paid == []
    await room.decide(asked)
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_a_store_away_at_the_settlement_never_repeats_the_effect(rooms: Rooms) -> None:
    async def no_wait(_: float) -> None:
        await asyncio.sleep(0)

    room = rooms.paying(sleep=no_wait, lease=0.2)
    asked = await room.question()
    broken = break_store(room, "settle")
    with pytest.raises(StoreUnavailable):
        await room.decide(asked)
    assert room.ledger.paid == [100]
    broken.down = False
    with pytest.raises((CallInProgress, CallInDoubt)):
        await room.run(None)
    assert room.ledger.paid == [100]
    await room.say("go on")
    assert room.ledger.paid == [100]
    assert error_of((await room.results())["c1"])["kind"] == "CallInDoubt"


@pytest.mark.anyio
async def test_a_settlement_that_comes_back_in_time_is_recorded(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    broken = break_store(room, "settle")

    async def back(_: float) -> None:
        broken.down = False

    object.__setattr__(room.executor._stages.claimer.runner, "sleep", back)
    await room.decide(asked)
    assert room.ledger.paid == [100]
    assert await room.status("c1") == ["succeeded"]


@pytest.mark.anyio
@pytest.mark.parametrize("when", ["before", "between"])
async def test_a_removed_folder_fails_closed_and_comes_back(rooms: Rooms, when: str) -> None:
    folder = rooms.folder / "data"
    folder.mkdir()
    path, away = folder / "adapter.db", rooms.folder / "away"
    first = rooms.paying(store="data/adapter.db")
    answer: Any = None
    if when == "between":
        asked = await first.question()
        answer = Command(resume={asked.id: first.sign(asked)})
    else:
        await first.store.prepare()
    await first.store.aclose()
    path.parent.rename(away)

    down = rooms(ai(pay()), saver=first.saver, store="data/adapter.db")
    with pytest.raises(StoreUnavailable, match="ADAPTER_DATABASE_URI"):
        await (down.say() if when == "before" else down.run(answer))
    assert down.ledger.paid == []
    await down.store.aclose()
    shutil.rmtree(path.parent, ignore_errors=True)
    away.rename(path.parent)

    up = rooms(
        ai(pay()) if when == "before" else ai(text="fine"),
        saver=first.saver,
        store="data/adapter.db",
    )
    await up.run(None)
    for asked in await up.asked():
        await up.decide(asked)
    assert up.ledger.paid == [100]
    await up.results()


@pytest.mark.anyio
async def test_a_read_only_file_fails_closed(rooms: Rooms) -> None:
    room = rooms.paying(store="adapter.db")
    asked = await room.question()
    await room.store.aclose()

    # SQLite's own read-only mode: file permissions mean nothing to root, who may run these tests.
    file = rooms.folder / "adapter.db"
    store = open_store(f"sqlite:///file:{file}?mode=ro&uri=true")
    down = rooms(saver=room.saver, store=store)
    with pytest.raises(StoreUnavailable, match="ADAPTER_DATABASE_URI"):
        await down.decide(asked)
    assert down.ledger.paid == []
    await store.aclose()

    up = rooms(saver=room.saver, store="adapter.db")
    await up.decide(asked)
    assert up.ledger.paid == [100]
    await up.results()


# -------------------------------------------------------------------- threads, copies, processes


@pytest.mark.anyio
@pytest.mark.parametrize(
    "thread", [7, "7", "user-42", "ümläut / 'quoted' \"x\"", "a" * 200, "uuid"], ids=repr
)
async def test_any_thread_id_has_one_text_form(rooms: Rooms, thread: Any) -> None:
    from uuid import UUID

    given = UUID("12345678-1234-5678-1234-567812345678") if thread == "uuid" else thread
    room = rooms.paying(thread=given)
    asked = await room.question()
    await room.on(str(given)).decide(asked)
    assert room.ledger.paid == [100]
    assert {event["thread_id"] for event in await room.events()} == {str(given)}


@pytest.mark.anyio
async def test_a_thread_copied_after_its_answer_was_saved_asks_again(rooms: Rooms) -> None:
    """The copy brings a saved answer along that is not for it: void, and asked anew."""
    saver = InMemorySaver()
    room = rooms.paying(saver=saver)
    asked = await room.question()
    broken = break_store(room, "claim")
    with pytest.raises(StoreUnavailable):
        await room.decide(asked)
    broken.down = False
    copy_thread(saver, "thread-1", "thread-2")
    copy = room.on("thread-2")

    await copy.run(None)

    assert room.ledger.paid == []
    (again,) = await copy.asked()
    assert again.value["binding"] != asked.value["binding"]
    await copy.decide(again)
    assert room.ledger.paid == [100]
    await room.run(None)
    assert room.ledger.paid == [100, 100]  # each thread's own approval, once
    for one in (room, copy):
        await one.results()
        await one.run(None)
    assert room.ledger.paid == [100, 100]


@pytest.mark.anyio
async def test_revoked_between_save_and_claim_asks_again(rooms: Rooms) -> None:
    from adapter import KeyRing

    room = rooms.paying(store="adapter.db")
    asked = await room.question()
    break_store(room, "claim")
    with pytest.raises(StoreUnavailable):
        await room.decide(asked)

    other = KeyRing.from_secret(b"other-secret-0123456789-abcdefghij")
    later = rooms(saver=room.saver, store="adapter.db", keys=other)
    await later.run(None)
    assert later.ledger.paid == []
    (again,) = await later.asked()
    assert again.id != asked.id
    await later.decide(again)
    assert later.ledger.paid == [100]
    await later.results()


@pytest.mark.anyio
async def test_a_key_revoked_after_the_run_does_not_lock_the_thread(rooms: Rooms) -> None:
    from adapter import KeyRing

    room = rooms.paying(pay("c1", 1), pay("c2", 2), store="adapter.db")
    await room.say()
    first, second = await room.asked()
    await room.decide(first)
    other = KeyRing.from_secret(b"other-secret-0123456789-abcdefghij")
    later = rooms(saver=room.saver, store="adapter.db", keys=other)
    await later.run(None)
    again = next(q for q in await later.asked() if q.id == second.id)
    await later.resume({second.id: room.sign(second)})  # by the revoked key
    assert later.ledger.paid == [1]
    await later.decide(again)
    assert later.ledger.paid == [1, 2]
    await later.results()


CHILD = """
import asyncio, json, sys, warnings
warnings.simplefilter("error")
from pathlib import Path
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from tests.support.room import Rooms, pay
from tests.support.script import ai

async def main(folder, own, config, answer):
    rooms = Rooms(Path(folder))
    async with AsyncSqliteSaver.from_conn_string(folder + "/graph.db") as saver:
        room = rooms(store="adapter.db", saver=saver)
        error = None
        try:
            await room.resume(json.loads(answer), json.loads(config))
        except Exception as raised:
            error = getattr(raised, "code", repr(raised))
        own = room.on(own)
        room.model.then(ai(pay("own", 7)))
        asked = await own.question()
        await own.resume({asked.id: "junk"})
        await own.decide(asked)
        await room.store.aclose()
    print(json.dumps({"error": error}))

asyncio.run(main(*sys.argv[1:]))
"""


async def asked_here(rooms: Rooms) -> tuple[str, str]:
    """Ask in this process; the paused checkpoint's config and an answer, as JSON."""
    async with AsyncSqliteSaver.from_conn_string(str(rooms.folder / "graph.db")) as saver:
        room = rooms.paying(store="adapter.db", saver=saver)
        asked = await room.question()
        config = (await room.agent.aget_state(room.config)).config
        await room.store.aclose()
    return json.dumps(config), json.dumps({asked.id: room.sign(asked)})


def child(rooms: Rooms, name: str, config: str, answer: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[3]
    path = f"{root}{os.pathsep}{root / 'src'}"
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(rooms.folder), name, config, answer],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "LANGGRAPH_STRICT_MSGPACK": "true"},
    )


def outcome(process: subprocess.Popen[str]) -> str | None:
    """The code the child's resume ended with; the child printed no warning and no traceback."""
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "Warning" not in err
    assert "Traceback" not in err
    found: str | None = json.loads(out)["error"]
    return found


def test_three_more_processes_have_one_effect_between_them(rooms: Rooms) -> None:
    """A2 and CKP-02: other processes, with LangGraph's strict reading of checkpoints."""
    config, answer = asyncio.run(asked_here(rooms))
    assert rooms.ledger.paid == []
    both = [child(rooms, f"own-{number}", config, answer) for number in range(2)]
    codes = {outcome(process) for process in both}
    assert None in codes
    assert codes <= {None, "already_decided", "in_progress"}
    assert sorted(rooms.ledger.paid) == [7, 7, 100]
    assert outcome(child(rooms, "own-2", config, answer)) == ApprovalAlreadyDecided.code
    assert sorted(rooms.ledger.paid) == [7, 7, 7, 100]
