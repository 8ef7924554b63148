"""Merge rules are pure: a current value and the writes in order."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.core.errors import ToolUsageError
from adapter.core.merge import UNSET, Merge, MergeRule


@pytest.mark.parametrize(
    ("rule", "current", "writes", "wanted"),
    [
        (Merge.append, UNSET, [1, [2, 3]], [1, 2, 3]),
        (Merge.append, None, [1], [1]),
        (Merge.append, [0], [[[1]]], [0, [1]]),
        (Merge.last, 1, [2, 3], 3),
        (Merge.last, UNSET, [None], None),
        (Merge.union, UNSET, [{1}, {2}], {1, 2}),
        (Merge.union, None, [[1]], [1]),
        (Merge.union, None, [[1, 1], [2, 1]], [1, 2]),
        (Merge.union, UNSET, [[1, 1]], [1]),
        (Merge.union, {"a": 1}, [{"b": 2}, {"a": 3}], {"a": 3, "b": 2}),
        (Merge.union, [1, 1], [[2, 2], [1]], [1, 1, 2]),
        (Merge.sum, UNSET, [1, 2.5], 3.5),
        (Merge.sum, None, [1], 1),
        (Merge.sum, 1, [2], 3),
        (Merge.max, UNSET, [1, 3, 2], 3),
        (Merge.max, 4, [1], 4),
        (Merge.min, None, [2, 1], 1),
    ],
)
def test_a_rule_merges(rule: MergeRule, current: Any, writes: list[Any], wanted: Any) -> None:
    assert rule(current, writes) == wanted


@pytest.mark.parametrize("rule", [Merge.append, Merge.last, Merge.union, Merge.sum])
def test_no_writes_change_nothing(rule: MergeRule) -> None:
    assert rule("as it was", []) == "as it was"


def test_the_current_value_is_not_changed_in_place() -> None:
    current: list[int] = [1]
    Merge.append(current, [2])
    Merge.union(current, [[2]])
    assert current == [1]


@pytest.mark.parametrize(
    ("rule", "current", "writes"),
    [(Merge.union, [1], [{2}]), (Merge.sum, 1, ["a"]), (Merge.max, 1, ["a"])],
)
def test_values_that_do_not_go_together_are_refused(
    rule: MergeRule, current: Any, writes: list[Any]
) -> None:
    with pytest.raises(ToolUsageError, match=f"Merge.{rule.name}"):
        rule(current, writes)


def test_a_rule_of_ones_own_sees_the_current_value_and_all_writes() -> None:
    seen: list[Any] = []

    def newest(current: Any, writes: Any) -> Any:
        seen.append((current, writes))
        return writes[-1]

    rule = Merge.custom(newest)
    assert rule(UNSET, (1, 2)) == 2
    assert rule(2, [3]) == 3
    assert seen == [(None, [1, 2]), (2, [3])]
    assert rule.name == "custom(newest)"
