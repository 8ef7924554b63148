"""What a gate is bound to: exactly the state that its node is given, by one digest."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel, Field

from adapter.flow.fields import Fields
from adapter.flow.gating import state_digest
from adapter.flow.wire import restored


class Kept(BaseModel):
    """Fields of one number, and one of several values."""

    n: Any = 0
    table: dict[str, Any] = Field(default_factory=dict)


FIELDS = Fields(Kept)


@pytest.mark.parametrize(
    ("written", "back"),
    [(1e16, 10**16), (-1e16, -(10**16)), (1e19, 10**19), (-0.0, 0.0)],
)
def test_a_field_of_one_number_is_given_in_the_form_that_postgres_gives_back(
    written: float, back: float
) -> None:
    given = FIELDS.given({"n": written})
    assert repr(given) == repr(FIELDS.given({"n": back})) == repr({"n": back})
    assert FIELDS.load(given).n == written


@pytest.mark.parametrize(
    "n", [0, 0.0, 1.0, 1e15, 1e-7, 1e22, -1e19, 2**60, 10**22, True, None, "1e22", [-0.0, 1e22]]
)
def test_every_other_value_is_given_as_it_is(n: Any) -> None:
    assert repr(FIELDS.given({"n": n, "gone": 1})) == repr({"n": n})


@pytest.mark.parametrize("written", [1e22, 1e23, -1e19, 2.0**64, 1e300, 2**60, 2**64 - 1, True])
def test_a_whole_number_too_wide_for_a_checkpoint_was_a_float(written: float) -> None:
    back = int(Decimal(repr(written))) if isinstance(written, float) else written
    assert repr(restored(back)) == repr(written)
    assert restored(10**400) == 10**400  # was none


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 0}, {"a": 0.0}),
        ({"a": 0.0}, {"a": -0.0}),
        ({"a": [1]}, {"a": [1.0]}),
        ({"a": 10**15}, {"a": 1e15}),
        ({"a": 10**22}, {"a": 1e22}),
    ],
)
def test_the_order_of_keys_and_the_form_of_a_number_make_another_state(
    one: Any, other: Any
) -> None:
    assert one == other
    assert state_digest({"table": one}) != state_digest({"table": other})


def test_a_state_has_the_same_digest_after_a_checkpoint() -> None:
    serde = JsonPlusSerializer()
    values = {"n": 1e22, "table": {"b": -0.0, "a": [1.0, 1, True, None], "ä": {}, "big": 2**62}}
    back = serde.loads_typed(serde.dumps_typed(values))
    assert state_digest(back) == state_digest(values)


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
