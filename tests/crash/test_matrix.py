"""Kill -9 at every point between the question and the saved result, in real processes.

Each case: one process is killed at a point, a second one goes on. Effects are counted in a file
outside. Never two effects; where nobody can know, the call is in doubt and waits for a person.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

ASK = ("before open", "after open", "pause saved")
START = ("before claim",)
RUNNING = ("after claim", "before effect")
UNKNOWN = ("in effect", "before settle")
SETTLED = ("after settle", "result saved", "checkpoint saved")
LEASE = 0.3


class Case:
    """One thread, worked on by processes that may be killed."""

    def __init__(self, zygote: Zygote, uri: str, folder: Path, kind: str) -> None:
        self.zygote = zygote
        self.folder = folder
        self.named: dict[str, Any] = {
            "folder": str(folder),
            "uri": uri,
            "kind": kind,
            "lease": LEASE,
            "thread": f"thread-{uuid4().hex}",
            # An ungated effect needs the model's message on disk first; a pause saves it anyway.
            "durability": None if kind.startswith("gated") else "sync",
        }

    def run(self, step: str, **more: Any) -> Any:
        ended = self.zygote.run(step, **self.named, **more)
        assert ended.signal == 0
        return ended.result

    def killed(self, step: str, point: str, **more: Any) -> None:
        """The step ends by SIGKILL at this point, and nowhere else."""
        ended = self.zygote.run(step, **self.named, crash=point, **more)
        assert ended.signal == signal.SIGKILL, f"{point} was never reached: {ended.result}"

    @property
    def effects(self) -> list[str]:
        """The idempotency key of each effect."""
        file = self.folder / "effects.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line)["key"] for line in lines]

    def settled_once(self, seen: Any, *, effects: int = 1) -> None:
        """The thread is at its end, its call has one result, and its trail is whole."""
        assert seen["ends"][-1] == "done", seen
        assert len(self.effects) == effects
        assert len(set(self.effects)) <= 1, "one call, two idempotency keys"
        assert seen["results"] == ["did x"]
        assert seen["last"] == "done"
        assert seen["faults"] == []


def cases() -> Iterator[Any]:
    for kind in ("gated", "gated_put"):
        for point in ASK:
            yield pytest.param(kind, "first", point, None, id=f"{kind}, {point}")
        for point in (*START, *RUNNING, *UNKNOWN, *SETTLED):
            for way in ("same answer", "no input"):
                yield pytest.param(kind, "again", point, way, id=f"{kind}, {point}, {way}")
    for kind in ("free", "put"):
        for point in ("before claim", *RUNNING, *UNKNOWN, *SETTLED):
            yield pytest.param(kind, "first", point, None, id=f"{kind}, {point}")
    for point in ("before effect", "in effect", "result saved", "checkpoint saved"):
        yield pytest.param("look", "first", point, None, id=f"look, {point}")


@pytest.mark.parametrize(("kind", "step", "point", "way"), list(cases()))
def test_killed_at(
    zygote: Zygote, uri: str, tmp_path: Path, kind: str, step: str, point: str, way: str | None
) -> None:
    case = Case(zygote, uri, tmp_path, kind)
    answer = None
    if step == "first":
        case.killed("first", point)
    else:
        (answer,) = case.run("first")
        assert case.effects == []
        case.killed("again", point, answer=answer)
    before = len(case.effects)
    assert before == (point in (*UNKNOWN, *SETTLED))

    seen = case.run("recover", answer=answer if way == "same answer" else None)

    repeatable = kind in ("gated_put", "put", "look")
    if point in UNKNOWN and repeatable:
        case.settled_once(seen, effects=2)  # with one idempotency key: one effect elsewhere
    elif point in (*RUNNING, *UNKNOWN) and not repeatable:
        in_doubt(case, seen, before)
    else:
        case.settled_once(seen)


def in_doubt(case: Case, seen: Any, effects: int) -> None:
    """Nobody runs it again; a person looks, says so, and the thread goes on without input."""
    assert seen["ends"][-1] == "in_doubt", seen
    assert set(seen["ends"]) <= {"in_progress", "in_doubt"}
    assert seen["rows"] in (["in_doubt"], ["claimed"])
    assert len(case.effects) == effects
    if effects:
        assert case.run("resolve", verdict="succeeded", text="did x") == "succeeded"
    else:
        assert case.run("resolve", verdict="retry") == "approved"
    seen = case.run("recover")
    case.settled_once(seen)
    assert "resolved" in seen["events"]
    assert seen["ends"] == ["done"]


@pytest.mark.parametrize("way", ["same answer", "no input"])
def test_killed_while_the_answer_is_being_saved(
    zygote: Zygote, uri: str, tmp_path: Path, way: str
) -> None:
    """LangGraph saves an answer while the tool runs already: one of several points is met."""
    case = Case(zygote, uri, tmp_path, "gated")
    (answer,) = case.run("first")
    case.killed("again", "answer saved", answer=answer)
    before = len(case.effects)
    seen = case.run("recover", answer=answer if way == "same answer" else None)
    if seen["ends"][-1] == "in_doubt":
        in_doubt(case, seen, before)
    else:
        case.settled_once(seen)


@pytest.mark.parametrize("kind", ["gated", "free"])
def test_killed_at_any_moment(zygote: Zygote, uri: str, tmp_path: Path, kind: str) -> None:
    """Not only between the steps: in the middle of a statement, a commit or a checkpoint too."""
    chance = random.Random(7)
    for turn in range(12):
        folder = tmp_path / str(turn)
        folder.mkdir()
        case = Case(zygote, uri, folder, kind)
        answer = None
        if kind == "gated":
            (answer,) = case.run("first")
        step, given = ("again", {"answer": answer}) if answer else ("first", {})
        zygote.run(step, kill_after=chance.uniform(0.01, 0.15), **case.named, **given)
        before = len(case.effects)
        seen = case.run("recover", answer=answer)
        if seen["ends"][-1] == "nothing":
            assert case.effects == []
        elif seen["ends"][-1] == "in_doubt":
            assert len(case.effects) == before <= 1
        else:
            case.settled_once(seen)
