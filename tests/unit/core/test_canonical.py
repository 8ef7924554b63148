"""One canonical form, within limits, for everything that is hashed or signed."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import pytest
import rfc8785

from adapter.core.canonical import (
    MAX_DEPTH,
    MAX_SIZE,
    SAFE_INTEGER,
    canonical_bytes,
    checked_json,
    digest,
    domain,
    strict_loads,
)
from adapter.core.errors import ToolArgsInvalid


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}'),
        ('\u20ac\x0f\n"\\/\x7f', '"€\\u000f\\n\\"\\\\/\x7f"'.encode()),
        ({"\U0001f600": 1, "\ufb33": 2}, '{"\U0001f600":1,"\ufb33":2}'.encode()),
        (1e21, b"1e+21"),
        (-0.0, b"0"),
        (SAFE_INTEGER, b"9007199254740991"),
    ],
)
def test_values_get_their_rfc_8785_form(value: Any, form: bytes) -> None:
    assert canonical_bytes(value) == form


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, SAFE_INTEGER + 1, "\ud800", {1: 2}, {"\ud800": 1}, b"x", object(), {1, 2}],
)
def test_what_is_no_json_value_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(ValueError, match=r"canonical|surrogates"):
        canonical_bytes(value)


def test_a_deep_value_is_canonical_beyond_the_limit_for_arguments() -> None:
    assert canonical_bytes(nested(MAX_DEPTH + 5)) == rfc8785.dumps(nested(MAX_DEPTH + 5))


def test_a_bottomless_value_is_refused_and_not_a_crash() -> None:
    with pytest.raises(ValueError, match="too deeply"):
        canonical_bytes(nested(100_000))


def test_a_digest_is_the_hash_of_purpose_and_form() -> None:
    expected = hashlib.sha256(b'agent-adapter:x/v1\x00{"a":1}').hexdigest()
    assert digest("x/v1", {"a": 1}) == expected


def test_bytes_are_digested_as_they_are() -> None:
    assert digest("x/v1", b'{"a":1}') == digest("x/v1", {"a": 1})


def test_two_purposes_never_share_a_digest() -> None:
    assert digest("a", "x") != digest("b", "x")


def test_a_domain_ends_where_the_message_begins() -> None:
    assert domain("a") == b"agent-adapter:a\x00"


def test_arguments_within_the_limits_are_accepted() -> None:
    assert checked_json({"a": nested(MAX_DEPTH - 1)}).startswith(b'{"a":')


@pytest.mark.parametrize("deep", [nested(MAX_DEPTH + 2), {"a": (nested(MAX_DEPTH + 1),)}])
def test_arguments_nested_too_deeply_name_the_limit(deep: Any) -> None:
    with pytest.raises(ToolArgsInvalid, match=f"at most {MAX_DEPTH} levels"):
        checked_json(deep)


def test_arguments_too_large_name_the_limit() -> None:
    with pytest.raises(ToolArgsInvalid, match=f"at most {MAX_SIZE} bytes"):
        checked_json("x" * MAX_SIZE)


def test_the_largest_arguments_are_accepted() -> None:
    assert len(checked_json("x" * (MAX_SIZE - 2))) == MAX_SIZE


@pytest.mark.parametrize("value", [math.nan, "\ud800", {1: 1}])
def test_arguments_that_are_no_json_value_are_refused_by_name(value: Any) -> None:
    with pytest.raises(ToolArgsInvalid, match="The answer are not a JSON value"):
        checked_json(value, what="answer")


def test_strict_loads_reads_json() -> None:
    assert strict_loads('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1, "a": 2}', "a key occurs twice"),
        ('[{"a": {"b": 1, "b": 1}}]', "a key occurs twice"),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("{", "Expecting"),
    ],
)
def test_strict_loads_refuses(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        strict_loads(text)
