"""Masks hide declared arguments whole and what looks like a secret in free text."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.core.redaction import (
    DEEPEST,
    MASK,
    mask_arguments,
    mask_text,
    mask_value,
    without_masked,
)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("use sk-abcdefghijklmnop now", "sk-abcdefghijklmnop"),
        ("jwt eyJhbGciOiJIUz.eyJzdWIiOiIx.c2ln", "eyJzdWIiOiIx"),
        ("postgresql://bob:hunter2@db/x", "hunter2"),
        ("password = hunter2", "hunter2"),
        ('api_key: "two words"', "two words"),
        ("card 4111 1111 1111 1111 ok", "4111 1111"),
    ],
)
def test_a_secret_in_text_is_masked(text: str, secret: str) -> None:
    masked = mask_text(text)
    assert secret not in masked
    assert MASK in masked


@pytest.mark.parametrize("text", ["send 30 euros to Bob", "order 12345", "https://host/a"])
def test_harmless_text_stays(text: str) -> None:
    assert mask_text(text) == text


def test_secret_names_are_masked_at_any_depth() -> None:
    value = {"a": [{"password": "x", "api-key": 1, "tokens": ["t"]}], "n": 1}
    assert mask_value(value) == {
        "a": [{"password": MASK, "api-key": MASK, "tokens": MASK}],
        "n": 1,
    }


def test_an_absent_secret_is_shown_as_absent() -> None:
    assert mask_value({"password": None}) == {"password": None}


def test_tuples_are_masked_like_lists() -> None:
    assert mask_value(("password=x", 2)) == [MASK, 2]


def test_a_declared_argument_is_hidden_whole() -> None:
    assert mask_arguments({"card": {"no": 1}, "to": "bob"}, ["card"]) == {
        "card": MASK,
        "to": "bob",
    }


def test_an_undeclared_argument_is_masked_by_pattern() -> None:
    assert mask_arguments({"text": "token=abc"}, []) == {"text": MASK}


def test_what_the_reviewer_cannot_see_is_left_out_of_an_edit() -> None:
    assert without_masked({"card": 1, "to": "bob"}, ["card"]) == {"to": "bob"}


def test_what_is_no_json_stays_as_it_is_and_what_is_beside_it_is_masked() -> None:
    moment = object()
    assert mask_value({"when": moment, "password": "x"}) == {"when": moment, "password": MASK}


def nested(levels: int, *, in_lists: bool, inmost: Any = "x") -> Any:
    made = inmost
    for _ in range(levels):
        made = [made] if in_lists else {"a": made}
    return made


@pytest.mark.parametrize("in_lists", [True, False])
def test_what_is_too_deep_to_run_is_masked_below_a_depth(in_lists: bool) -> None:
    whole = nested(DEEPEST, in_lists=in_lists)
    assert mask_value(whole) == whole
    masked = nested(DEEPEST, in_lists=in_lists, inmost=MASK)
    assert mask_value(nested(10_000, in_lists=in_lists)) == masked
