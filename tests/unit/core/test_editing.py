"""Edited arguments are checked on the reviewer's side before anything is signed."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.core.editing import faults_of

SCHEMA = {
    "properties": {
        "order": {"type": "string"},
        "cents": {"type": "integer"},
        "card": {"type": "string"},
        "free": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "fast": {"type": "boolean"},
    },
    "required": ["order", "cents", "card"],
}
REQUEST: dict[str, Any] = {"schema": SCHEMA, "arguments": {"order": "A", "card": "***"}}


def test_a_sound_edit_has_no_faults_and_omits_what_is_masked() -> None:
    assert faults_of(REQUEST, {"order": "A", "cents": 1, "free": None, "fast": True}) == []


@pytest.mark.parametrize(
    ("edited", "fault"),
    [
        ({"order": "A"}, "cents: missing"),
        ({"order": "A", "cents": "1"}, "cents: must be of type integer"),
        ({"order": "A", "cents": True}, "cents: must be of type integer"),
        ({"order": "A", "cents": 1, "x": 1}, "x: the tool has no such argument"),
    ],
)
def test_each_fault_is_named(edited: dict[str, Any], fault: str) -> None:
    assert faults_of(REQUEST, edited) == [fault]


@pytest.mark.parametrize("request_", [{}, {"schema": {}}, {"schema": {"type": "object"}}])
def test_a_request_without_a_schema_says_nothing(request_: dict[str, Any]) -> None:
    assert faults_of(request_, {"anything": 1}) == []


def test_a_tool_with_open_arguments_takes_them() -> None:
    request = {"schema": {"properties": {}, "additionalProperties": True}, "arguments": {}}
    assert faults_of(request, {"anything": 1}) == []
