"""Killed while LangGraph still saves the model's message: the next run has other task ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.test_matrix import Case
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow


def lost_task(zygote: Zygote, uri: str, folder: Path, kind: str) -> Case:
    """A call that had its effect in a task that no checkpoint knows."""
    case = Case(zygote, uri, folder, kind)
    case.named["durability"] = None
    case.killed("first", "in effect", hold=True)
    assert len(case.effects) == 1
    return case


def test_an_effect_of_a_lost_task_is_in_doubt(zygote: Zygote, uri: str, tmp_path: Path) -> None:
    case = lost_task(zygote, uri, tmp_path, "free")
    seen = case.run("recover")
    assert seen["ends"][-1] == "in_doubt"
    assert len(case.effects) == 1
    assert case.run("resolve", verdict="succeeded", text="did x") == "succeeded"
    case.settled_once(case.run("recover"))


def test_an_idempotent_call_of_a_lost_task_is_taken_over(
    zygote: Zygote, uri: str, tmp_path: Path
) -> None:
    case = lost_task(zygote, uri, tmp_path, "put")
    case.settled_once(case.run("recover"), effects=2)
