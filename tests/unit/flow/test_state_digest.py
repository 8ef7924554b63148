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
