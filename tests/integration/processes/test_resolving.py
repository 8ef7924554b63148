"""A worker is killed, a person looks and says what became of the call, and the thread goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.crash.test_matrix import Case
from tests.support.room import Clock, Rooms, error_of
from tests.support.worker import KEYS
from tests.support.zygote import Zygote
from typer.testing import CliRunner, Result

from adapter import ApprovalAlreadyDecided
from adapter.cli.app import app
from adapter.core.operating import Operator


class Operations:
    """The command line on the machine of the killed worker."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def __call__(self, *arguments: str) -> Result:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == 0, done.output
        return done

    @property
    def doubts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            self("calls", "list", "--in-doubt", "--json").stdout
        )
        return [one for one in found if one["thread_id"] == self.case.named["thread"]]


@pytest.fixture
def operations(
    zygote: Zygote, durable_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Operations:
    """A gated call whose worker died in the middle of its effect."""
    file = tmp_path / "keys.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(KEYS.to_document()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAPTER_KEY_FILE", str(file))
    monkeypatch.setenv("ADAPTER_REVIEWER", "olga")
    monkeypatch.setenv("ADAPTER_DATABASE_URI", durable_uri)
    return Operations(Case(zygote, durable_uri, tmp_path, "gated"))


def lost(operations: Operations, point: str) -> str:
    """Kill the worker there; return the beginning of the call's key."""
    case = operations.case
    (answer,) = case.run("first")
    case.killed("again", point, answer=answer)
    assert case.run("recover")["ends"][-1] == "in_doubt"
    (doubt,) = operations.doubts
    assert doubt["arguments"] == {"text": "x"}
    assert doubt["owner"].startswith("worker-")
    if case.effects:
        assert doubt["idempotency_key"] == case.effects[0]
    return str(doubt["key"][:10])


def test_a_stated_result_is_what_the_thread_goes_on_with(operations: Operations) -> None:
    key = lost(operations, "in effect")
    operations("calls", "resolve", key, "--succeeded", "did x", "--yes")
    assert operations.doubts == []
    seen = operations.case.run("recover")
    operations.case.settled_once(seen)
    assert seen["ends"] == ["done"]


def test_a_stated_failure_is_what_the_model_reads(operations: Operations) -> None:
    key = lost(operations, "before effect")
    operations("calls", "resolve", key, "--failed", "it never left", "--yes")
    seen = operations.case.run("recover")
    assert seen["ends"] == ["done"]
    assert "it never left" in seen["results"][0]
    assert operations.case.effects == []


def test_a_retry_runs_under_the_saved_decision(operations: Operations) -> None:
    key = lost(operations, "before effect")
    operations("calls", "resolve", key, "--retry", "--yes")
    seen = operations.case.run("recover")
    operations.case.settled_once(seen)
    assert seen["ends"] == ["done"]


# ------------------------------------------------------------------------------ the sweeper


@pytest.mark.anyio
@pytest.mark.parametrize("trigger", ["none", "late answer"])
async def test_a_swept_question_is_an_expiry_at_the_next_run(rooms: Rooms, trigger: str) -> None:
    clock = Clock()
    room = rooms.paying(clock=clock, approval_ttl=60)
    asked = await room.question()
    answer = {asked.id: room.sign(asked)}
    clock.advance(60)
    operator = Operator(journal=room.executor.journal, keys=room.approval.keys)
    assert len(await operator.expire()) == 1
    await (room.run(None) if trigger == "none" else room.resume(answer))
    assert room.ledger.paid == []
    assert error_of((await room.results())["c1"])["kind"] == "ApprovalExpired"
    assert len(await room.events("expired")) == 1
    await room.verified()


@pytest.mark.anyio
async def test_an_answer_in_time_wins_over_the_sweeper(rooms: Rooms) -> None:
    clock = Clock()
    room = rooms.paying(clock=clock, approval_ttl=60)
    asked = await room.question()
    await room.decide(asked)
    clock.advance(60)
    operator = Operator(journal=room.executor.journal, keys=room.approval.keys)
    assert await operator.expire() == []
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_sweeper_and_answer_at_the_deadline_have_one_winner(rooms: Rooms) -> None:
    clock = Clock()
    room = rooms.paying(clock=clock, approval_ttl=60)
    asked = await room.question()
    clock.advance(60)
    operator = Operator(journal=room.executor.journal, keys=room.approval.keys)
    deciding: Any = room.decide(asked)
    both: Any = asyncio.gather(operator.expire(), deciding, return_exceptions=True)
    ended = (await both)[1]
    assert not isinstance(ended, BaseException) or isinstance(ended, ApprovalAlreadyDecided)
    assert room.ledger.paid == []
    assert await room.status("c1") == ["expired"]
