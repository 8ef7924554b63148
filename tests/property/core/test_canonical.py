"""Laws of the one canonical form."""

from __future__ import annotations

import json
from typing import Any

import rfc8785
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.core.canonical import SAFE_INTEGER, canonical_bytes, digest, strict_loads

TEXT = st.text(max_size=20)
# A whole float beyond the safe integers is written without a point, and is read as an integer that
# has no canonical form.
NUMBERS = st.integers(-SAFE_INTEGER, SAFE_INTEGER) | st.floats(
    allow_nan=False, allow_infinity=False
).filter(lambda number: not (number.is_integer() and SAFE_INTEGER < abs(number) < 1e21))
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def typed(value: Any) -> Any:
    """A form in which two JSON values are equal only if they are the same JSON value."""
    if isinstance(value, dict):
        return ("object", frozenset((key, typed(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("array", tuple(typed(item) for item in value))
    if isinstance(value, bool) or value is None:
        return ("constant", repr(value))
    return ("text" if isinstance(value, str) else "number", value)


@given(ANYTHING)
def test_the_form_is_rfc_8785_wherever_both_accept(value: Any) -> None:
    try:
        ours = canonical_bytes(value)
    except ValueError:
        return
    assert ours == rfc8785.dumps(value)


@given(JSON)
def test_every_json_value_is_accepted_and_survives(value: Any) -> None:
    assert typed(strict_loads(canonical_bytes(value))) == typed(value)


@given(JSON)
def test_the_form_of_what_was_read_is_the_same(value: Any) -> None:
    body = canonical_bytes(value)
    assert canonical_bytes(strict_loads(body)) == body


@given(JSON, st.randoms(use_true_random=False))
def test_equal_values_give_equal_bytes(value: Any, random: Any) -> None:
    def shuffled(item: Any) -> Any:
        if isinstance(item, dict):
            pairs = [(key, shuffled(inner)) for key, inner in item.items()]
            random.shuffle(pairs)
            return dict(pairs)
        return [shuffled(inner) for inner in item] if isinstance(item, list) else item

    assert canonical_bytes(shuffled(value)) == canonical_bytes(value)


@given(JSON, JSON)
def test_different_values_give_different_bytes(one: Any, other: Any) -> None:
    assert (canonical_bytes(one) == canonical_bytes(other)) is (typed(one) == typed(other))


@given(st.sampled_from([(1, True), ("1", 1), (0, False), ("", None), ([], {}), ("true", True)]))
def test_lookalikes_of_another_type_differ(pair: tuple[Any, Any]) -> None:
    assert canonical_bytes(pair[0]) != canonical_bytes(pair[1])


@given(TEXT, TEXT, JSON)
def test_digests_of_two_purposes_differ(one: str, other: str, value: Any) -> None:
    assume(one != other and "\x00" not in one + other)
    assert digest(one, value) != digest(other, value)


@given(st.lists(st.tuples(TEXT, st.integers(0, 9)), max_size=5))
def test_a_key_twice_is_always_refused(pairs: list[tuple[str, int]]) -> None:
    text = "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in pairs) + "}"
    try:
        read = strict_loads(text)
    except ValueError:
        assert len({key for key, _ in pairs}) < len(pairs)
    else:
        assert read == dict(pairs)
        assert len(read) == len(pairs)
