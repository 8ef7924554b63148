"""One answer, many processes: one effect, through the real graph.

Each round is a fresh paused thread, and all processes resume it at once with the same signed
answer. Every process has its own copy of the checkpoints (or all share one file): only the claim
in the adapter's store keeps them apart.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.support.racers import racers

from adapter import ApprovalAlreadyDecided, CallInProgress

REFUSED = {ApprovalAlreadyDecided.code, CallInProgress.code}


def raced(folder: Path, uri: str, *, workers: int, rounds: int, shared: bool = False) -> Counter:  # type: ignore[type-arg]
    """Race, check every round, and return how often each end was seen."""
    ends: Counter[str] = Counter()
    with racers(folder, uri, workers, shared=shared) as all_of_them:
        threads = all_of_them.ask(rounds)
        for thread, answer in threads:
            replies = all_of_them.ask(thread, answer, None)
            ends.update(replies)
    lines = (folder / "effects.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    assert len(keys) == rounds
    assert len(set(keys)) == rounds
    assert len({json.loads(line)["pid"] for line in lines}) > 1, "always the same winner"
    return ends


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_eight_processes_and_two_hundred_answers_have_two_hundred_effects(
    durable_uri: str, tmp_path: Path
) -> None:
    ends = raced(tmp_path, durable_uri, workers=8, rounds=200)
    assert ends.pop("done") == 200
    assert set(ends) <= REFUSED, ends
    assert ends.total() == 7 * 200


def test_three_processes_have_one_effect_each_round(durable_uri: str, tmp_path: Path) -> None:
    ends = raced(tmp_path, durable_uri, workers=3, rounds=10)
    assert ends.pop("done") == 10
    assert set(ends) <= REFUSED, ends


def test_processes_that_share_their_checkpoints_have_one_effect_each_round(
    durable_uri: str, tmp_path: Path
) -> None:
    """A late one may find the thread at its end already: it then runs nothing."""
    ends = raced(tmp_path, durable_uri, workers=3, rounds=10, shared=True)
    assert ends["done"] >= 10
    assert set(ends) - {"done"} <= REFUSED, ends
