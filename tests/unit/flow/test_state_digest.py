"""What a gate is bound to: the whole state, by one digest."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.flow.gating import state_digest


def test_a_state_has_one_digest_whatever_kept_it() -> None:
    kept = {"n": 1e22, "table": {"a": 1, "b": [2.0]}}
    back = {"table": {"b": [2], "a": 1.0}, "n": 10**22}
    assert state_digest(kept) == state_digest(back)


@pytest.mark.parametrize(
    "other", [{"n": 2**60 + 1}, {"n": True}, {"n": "1"}, {"n": None}, {"m": 1}, {"n": [1]}]
)
def test_another_state_has_another_digest(other: dict[str, Any]) -> None:
    assert state_digest(other) not in (state_digest({"n": 1}), state_digest({"n": 2**60}))


@pytest.mark.parametrize(
    "other", [{"number": "5/1"}, ["number", "5/1"], ["list", 5], "5", 5.5, float("inf"), 2**70]
)
def test_no_other_value_has_the_form_of_a_number(other: Any) -> None:
    assert state_digest({"limit": other}) != state_digest({"limit": 5})


def test_a_list_is_no_other_list_that_begins_like_its_form() -> None:
    assert state_digest({"a": []}) != state_digest({"a": ["list"]})
    assert state_digest({"a": [5]}) != state_digest({"a": [["number", "5/1"]]})
