"""What of a result may be seen."""

from __future__ import annotations

import json

import pytest

from adapter.core.masking import ResultMask

MASK = ResultMask.of(["email", "ssn"])


def test_named_fields_are_hidden_at_any_depth() -> None:
    found = MASK.value({"a": [{"email": "x@y.z", "b": 1}], "ssn": {"no": 1}})
    assert found == {"a": [{"email": "***", "b": 1}], "ssn": "***"}


def test_a_json_text_stays_json() -> None:
    assert json.loads(MASK.text('{"email": "x@y.z", "n": 1}')) == {"email": "***", "n": 1}


@pytest.mark.parametrize("text", ['{"n":   1}', "plain", "[1, 2]", "7", '"email"', '{"a": 1, "a"'])
def test_what_hides_nothing_is_left_as_it_was_written(text: str) -> None:
    assert MASK.text(text) == text


@pytest.mark.parametrize(
    "text", ["the token=abcdefgh1234 works", '"token=abcdefgh1234"', '{"password": "hunter2"}']
)
def test_what_looks_like_a_secret_is_hidden_without_being_named(text: str) -> None:
    masked = ResultMask().text(text)
    assert "***" in masked
    assert "abcdefgh" not in masked
    assert "hunter2" not in masked


def test_text_nested_too_deeply_to_parse_is_still_searched() -> None:
    assert "***" in MASK.text("[" * 200_000 + "password=hunter22")


def test_json_within_a_text_is_searched_too() -> None:
    assert MASK.value({"text": '{"email": "x@y.z"}'}) == {"text": '{"email": "***"}'}
