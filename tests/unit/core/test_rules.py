"""Conditions and approval rules are data, and a mistake in one never removes a gate."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.core.errors import ConfigurationError
from adapter.core.rules import ApprovalRule, Condition, NamedCondition


@pytest.mark.parametrize(
    ("op", "value", "holds", "fails"),
    [
        ("eq", 5, 5, 6),
        ("ne", 5, 6, 5),
        ("gt", 5, 6, 5),
        ("ge", 5, 5, 4),
        ("lt", 5, 4, 5),
        ("le", 5, 5, 6),
        ("in", [1, 2], 1, 3),
        ("not_in", [1, 2], 3, 1),
    ],
)
def test_an_operator_holds_or_fails(op: Any, value: Any, holds: Any, fails: Any) -> None:
    condition = Condition(argument="n", op=op, value=value)
    assert condition.holds({"n": holds})
    assert not condition.holds({"n": fails})


@pytest.mark.parametrize("arguments", [{}, {"n": None}, {"n": "5"}])
def test_an_argument_absent_or_not_comparable_asks(arguments: dict[str, Any]) -> None:
    assert Condition(argument="n", op="gt", value=5).holds(arguments)


@pytest.mark.parametrize("fields", [{"op": "like"}, {"argument": ""}])
def test_an_unknown_operator_or_no_argument_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="A Condition needs"):
        Condition(**{"argument": "n", "op": "eq", "value": 1, **fields})


def test_a_condition_is_described_as_json() -> None:
    assert Condition(argument="n", op="in", value=(1, 2)).describe() == {
        "argument": "n",
        "op": "in",
        "value": [1, 2],
    }


def test_a_named_condition_asks_its_callable() -> None:
    condition = NamedCondition(name="big", version="1", test=lambda given: given["n"] > 1)
    assert condition.holds({"n": 2})
    assert not condition.holds({"n": 1})


def test_a_named_condition_is_described_by_name_and_version() -> None:
    made = NamedCondition(name="big", version="2", test=bool)
    assert made.describe() == {"name": "big", "version": "2"}


@pytest.mark.parametrize("fields", [{"name": ""}, {"version": ""}])
def test_a_nameless_condition_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="a name and a version"):
        NamedCondition(**{"name": "a", "version": "1", "test": bool, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"allowed": ()},
        {"allowed": ("aprove",)},
        {"allowed": ("approve", "approve")},
        {"name": ""},
        {"quorum": 0},
        {"ttl": 0},
        {"ttl": -1},
        {"when": lambda _: False},
    ],
)
def test_a_rule_that_would_weaken_the_gate_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="ApprovalRule"):
        ApprovalRule(**({"name": "r"} | fields))


@pytest.mark.parametrize("when", [None, Condition(argument="n", op="gt", value=1)])
def test_a_rule_is_described_with_its_condition(when: Condition | None) -> None:
    rule = ApprovalRule(name="r", when=when, allowed=("reject", "approve"), ttl=5.0)
    described = rule.describe()
    assert described["when"] == (None if when is None else when.describe())
    assert described["allowed"] == ["approve", "reject"]


def test_what_cannot_be_compared_counts_as_holding_under_a_lowered_limit_too() -> None:
    condition = Condition(argument="n", op="gt", value=5, context="max")
    assert condition.holds({"n": "text"}, {"max": 1})
    assert condition.holds({}, {"max": 1})


def test_a_named_condition_that_fails_counts_as_holding() -> None:
    def fails(_: object) -> bool:
        raise ValueError

    assert NamedCondition(name="n", version="1", test=fails).holds({})


def test_a_tuple_of_values_is_described_as_a_list() -> None:
    assert Condition(argument="n", op="in", value=("b", "a")).describe()["value"] == ["b", "a"]
