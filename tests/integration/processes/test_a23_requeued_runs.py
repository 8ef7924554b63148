"""A23: the platform re-queues a run while its first worker still runs: the claim refuses."""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from tests.crash.test_matrix import Case
from tests.support.racers import racers
from tests.support.zygote import Zygote

from adapter import CallInProgress

pytestmark = pytest.mark.slow

IN_PROGRESS = CallInProgress.code
LEASE = 0.5


def test_a_second_worker_is_refused_while_the_first_still_runs(
    zygote: Zygote, durable_uri: str, tmp_path: Path
) -> None:
    """Longer than the lease: the first worker renews it."""
    case = Case(zygote, durable_uri, tmp_path, "gated")
    (answer,) = case.run("first")
    given: dict[str, Any] = {"answer": answer, "run_id": str(uuid4())}
    other = Zygote("tests.support.worker")
    slow = {**case.named, "lease": LEASE, "pause": 4.0}
    ends: list[Any] = []
    first = threading.Thread(target=lambda: ends.append(other.run("again", **slow, **given)))
    first.start()
    while not case.effects:  # bounded by the test's own time limit
        assert first.is_alive()
    begun = monotonic()
    try:
        refused = []
        while first.is_alive():
            started = monotonic() - begun
            ended = case.run("again", **given)
            if ended == "done":  # the first one ended meanwhile
                break
            assert ended == IN_PROGRESS
            refused.append(started)
    finally:
        first.join()
        other.close()
    assert refused[-1] > LEASE, "never tried after the first lease"
    assert ends[0].result == "done"
    assert len(case.effects) == 1
    # re-queued once more after the end: the same run gets the recorded outcome
    case.settled_once(case.run("recover"))


def test_a_requeued_run_on_other_workers_has_one_effect(durable_uri: str, tmp_path: Path) -> None:
    """The same run id everywhere, before, while and after the first one ends."""
    with racers(tmp_path, durable_uri, 3, pause=0.1) as workers:
        for thread, answer in workers.ask(5):
            run_id = str(uuid4())
            at_once = workers.ask(thread, answer, run_id)
            assert sorted(set(at_once)) in (["done"], ["done", IN_PROGRESS])
            assert set(workers.ask(thread, answer, run_id)) == {"done"}
    assert len((tmp_path / "effects.jsonl").read_text().splitlines()) == 5
