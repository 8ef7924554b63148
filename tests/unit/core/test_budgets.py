"""Budgets name counters and limits; the words for a spent one are for the model."""

from __future__ import annotations

import pytest
from tests.unit.core.kit import WRITE, tool

from adapter.core.budgets import Budgets, exceeded
from adapter.core.errors import ConfigurationError
from adapter.core.spec import Limits
from adapter.testing import make_context

PLACE = make_context().place


@pytest.mark.parametrize("fields", [{"model_calls_per_turn": 0}, {"tool_calls_per_turn": 0}])
def test_a_budget_nothing_fits_in_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        Budgets(**fields)


def test_a_model_call_is_charged_to_its_turn() -> None:
    (charge,) = Budgets(model_calls_per_turn=3).model_call(PLACE)
    assert (charge.scope, charge.limit) == ("turn:thread-1:turn-1:model_calls", 3)


def test_a_tool_call_is_charged_to_its_thread_and_turn() -> None:
    charges = Budgets(tool_calls_per_turn=4).tool_call(PLACE, WRITE[0])
    assert [(one.scope, one.limit) for one in charges] == [
        ("thread:thread-1:tool_calls", None),
        ("turn:thread-1:turn-1:tool_calls", 4),
    ]


def test_a_tool_has_its_own_limits() -> None:
    limited, _ = tool("write", limits=Limits(per_turn=1, per_thread=2))
    charges = Budgets().tool_call(PLACE, limited)[2:]
    assert [(one.scope, one.limit) for one in charges] == [
        ("turn:thread-1:turn-1:tool:write", 1),
        ("thread:thread-1:tool:write", 2),
    ]


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("turn:t:u:model_calls", "the model calls of this turn"),
        ("turn:t:u:tool:write", "the calls of write allowed here"),
        ("turn:t:u:tool_calls", "the tool calls of this turn"),
    ],
)
def test_a_spent_counter_is_named(scope: str, words: str) -> None:
    assert words in exceeded(scope).message
