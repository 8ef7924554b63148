"""Kill -9 at every point of a flow's run, in both runners: another process goes on.

One whole run tells every point it reaches: store operations, effects, checkpoints, their writes.
Then a process is killed at each of them in turn, and a new one, which knows the checkpoint and the
store only, brings the run to its end. Effects are counted in a file outside.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.flow_worker import EFFECTS
from tests.support.zygote import Zygote

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WHOLE = {
    "status": "done",
    "visits": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1},
    "steps": 4,
    "log": ["a", "b1", "b2", "c", "d", "paid d", "e"],
}


@pytest.fixture(scope="module")
def workers() -> Iterator[Zygote]:
    made = Zygote("tests.support.flow_worker")
    yield made
    made.close()


class Case:
    """One run, worked on by a process that is killed and one that goes on."""

    def __init__(self, workers: Zygote, uri: str, folder: Path, how: str, **more: Any) -> None:
        folder.mkdir(parents=True)
        self.workers = workers
        self.folder = folder
        self.named = {"folder": str(folder), "uri": uri, "how": how, **more}
        self.named["thread"] = f"thread-{uuid4().hex}"

    def points(self) -> list[tuple[str, int]]:
        """Every point of a whole run: its name, and which arrival there it is."""
        ended = self.workers.run("whole", **self.named)
        assert ended.result["status"] == "done"
        seen: Counter[str] = Counter()
        found = []
        for point in ended.result["reached"]:
            seen[point] += 1
            found.append((point, seen[point]))
        return found

    def killed(self, point: str, nth: int) -> bool:
        """Run until killed there; False where this run took another order and never came there."""
        ended = self.workers.run("whole", crash=point, nth=nth, **self.named)
        assert ended.signal in (0, signal.SIGKILL)
        return ended.signal == signal.SIGKILL

    def recover(self) -> Any:
        ended = self.workers.run("recover", **self.named)
        assert ended.signal == 0
        return ended.result

    @property
    def effects(self) -> list[dict[str, Any]]:
        file = self.folder / "effects.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


HOW = [
    *[("sqlite", "local", None), ("sqlite", "compiled", None), ("sqlite", "compiled", "sync")],
    *[("postgresql", "local", None), ("postgresql", "compiled", None)],
]
each_way = pytest.mark.parametrize(("uri", "how", "durability"), HOW, indirect=["uri"])


@each_way
def test_killed_anywhere_every_effect_happens_once(
    workers: Zygote, uri: str, tmp_path: Path, how: str, durability: str | None
) -> None:
    """Its tools are idempotent: where nobody can know, they run again under the same key."""
    more = {"durability": durability}
    points = Case(workers, uri, tmp_path / "whole", how, **more).points()
    assert len(points) > 30
    kills = 0
    for number, (point, nth) in enumerate(points):
        case = Case(workers, uri, tmp_path / str(number), how, **more)
        kills += case.killed(point, nth)
        seen = case.recover()
        said = f"killed at {point} {nth}: {seen}"
        assert {name: seen.get(name) for name in WHOLE} == WHOLE, said
        assert {line["text"] for line in case.effects} == set(EFFECTS), said
        keys = Counter((line["text"], line["key"]) for line in case.effects)
        assert len(keys) == len(EFFECTS), f"{said}: an effect under two keys: {keys}"
        assert sum(keys.values()) <= len(EFFECTS) + 4, f"{said}: {keys}"
    assert kills > len(points) * 0.8


@each_way
def test_killed_anywhere_no_effect_that_may_not_be_repeated_is(
    workers: Zygote, uri: str, tmp_path: Path, how: str, durability: str | None
) -> None:
    """Where nobody can know, the call is in doubt, and the run says so."""
    more = {"durability": durability, "idempotent": False}
    points = Case(workers, uri, tmp_path / "whole", how, **more).points()
    doubts = 0
    for number, (point, nth) in enumerate(points):
        case = Case(workers, uri, tmp_path / str(number), how, **more)
        case.killed(point, nth)
        seen = case.recover()
        said = f"killed at {point} {nth}: {seen}"
        counts = Counter(line["text"] for line in case.effects)
        assert max(counts.values(), default=0) <= 1, f"{said}: twice: {counts}"
        if seen["status"] == "done":
            assert {name: seen.get(name) for name in WHOLE} == WHOLE, said
            assert set(counts) == set(EFFECTS), said
        else:
            assert seen["ends"][-1] == "in_doubt", said
            doubts += 1
    assert 0 < doubts < len(points) / 2


def test_without_a_lasting_store_the_sealed_checkpoint_holds_between_two_steps(
    workers: Zygote, tmp_path: Path
) -> None:
    """Rows of a store in memory travel in the checkpoint; what was saved never runs again."""
    points = Case(workers, "memory", tmp_path / "whole", "local").points()
    saved = [(point, nth) for point, nth in points if point == "after checkpoint"]
    assert len(saved) >= 4
    for number, (point, nth) in enumerate(saved):
        case = Case(workers, "memory", tmp_path / str(number), "local")
        assert case.killed(point, nth)
        seen = case.recover()
        assert {name: seen.get(name) for name in WHOLE} == WHOLE, f"{point} {nth}: {seen}"
        texts = sorted(line["text"] for line in case.effects)
        assert texts == sorted(EFFECTS), f"{point} {nth}: {texts}"
