"""Edited arguments are checked on the reviewer's side before anything is signed."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.core.decisions import ApprovalDecision
from adapter.core.editing import check_edit, faults_of
from adapter.core.errors import InvalidAnswer

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


@pytest.mark.parametrize(
    ("edited", "faults"),
    [
        ({}, ["note: missing", "made: missing"]),
        ({"note": "a", "made": 1}, []),
        ({"made": 2}, ["note: missing"]),
    ],
)
def test_what_would_run_with_another_value_than_shown_is_missing(
    edited: dict[str, Any], faults: list[str]
) -> None:
    """``fast`` was shown as its default, which is what it falls back to."""
    text = {"type": "string", "default": "hi"}
    fast = {"type": "boolean", "default": False}
    properties = {"note": text, "made": {"type": "integer"}, "fast": fast}
    shown = {"note": "bye", "made": 2, "fast": False}
    assert faults_of({"schema": {"properties": properties}, "arguments": shown}, edited) == faults


@pytest.mark.parametrize(
    ("edited", "faults"),
    [
        ({"cents": True}, ["cents: must be of type integer"]),
        ({"cents": 1}, []),
        ({"cents": 1.0}, []),  # a database may have given it back so
    ],
)
def test_true_is_no_one_where_one_was_shown(edited: dict[str, Any], faults: list[str]) -> None:
    request = {"schema": {"properties": SCHEMA["properties"]}, "arguments": {"cents": 1}}
    assert faults_of(request, edited) == faults


@pytest.mark.parametrize("request_", [{}, {"schema": {}}, {"schema": {"type": "object"}}])
def test_a_request_without_a_schema_says_nothing(request_: dict[str, Any]) -> None:
    assert faults_of(request_, {"anything": 1}) == []


def test_a_tool_with_open_arguments_takes_them() -> None:
    request = {"schema": {"properties": {}, "additionalProperties": True}, "arguments": {}}
    assert faults_of(request, {"anything": 1}) == []


DEEP: dict[str, Any] = {
    "kind": "gate",
    "tool": "place",
    "arguments": {"shown": ["***"]},
    "schema": {
        "additionalProperties": False,
        "$defs": {
            "Item": {
                "type": "object",
                "properties": {"id": {"type": "integer", "minimum": 1}, "note": {}},
                "required": ["id"],
                "additionalProperties": False,
            },
            "Tree": {
                "type": "object",
                "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
            },
        },
        "properties": {
            "rates": {"type": "array", "items": {"type": "number"}, "maxItems": 3},
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            "by": {"type": "object", "additionalProperties": {"type": "integer"}},
            "free": {"type": "object", "additionalProperties": True},
            "maybe": {"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}]},
            "how": {"enum": ["slow", "fast"]},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            "note": {"type": "string", "minLength": 2},
            "tree": {"$ref": "#/$defs/Tree"},
            "lost": {"$ref": "#/$defs/Nowhere"},
            "shown": {"type": "array", "items": {"type": "integer"}},
            "both": {"allOf": [{"type": "integer"}, {"maximum": 5}]},
            "one": {"const": 1},
        },
    },
}


@pytest.mark.parametrize(
    "edited",
    [
        {"rates": [1, 2.5]},
        {"items": [{"id": 1, "note": None}]},
        {"by": {"a": 1}},
        {"free": {"a": ["x"]}},
        {"maybe": None},
        {"maybe": {"id": 2}},
        {"how": "fast"},
        {"pair": ["a", 1]},
        {"note": "ab"},
        {"tree": {"below": [{"below": []}]}},
        {"lost": 7},
        {"shown": ["***"]},
        {"both": 5},
        {"one": 1},
    ],
)
def test_an_edit_that_fits_at_every_depth_has_no_faults(edited: dict[str, Any]) -> None:
    assert faults_of(DEEP, edited) == []
    check_edit({"request": DEEP}, ApprovalDecision(edited_args=edited))


@pytest.mark.parametrize(
    ("edited", "fault"),
    [
        ({"rates": ["a"]}, "rates.0: must be of type number"),
        ({"rates": [1, True]}, "rates.1: must be of type number"),
        ({"rates": [1, 2, 3, 4]}, "rates: maxItems is 3"),
        ({"items": [{"id": 1}, {"note": 1}]}, "items.1.id: missing"),
        ({"items": [{"id": 0}]}, "items.0.id: minimum is 1"),
        ({"items": [{"id": 1, "x": 1}]}, "items.0.x: there is no such field"),
        ({"by": {"a": "b"}}, "by.a: must be of type integer"),
        ({"maybe": 7}, "maybe: must be of type object or null"),
        ({"maybe": {"id": "b"}}, "maybe.id: must be of type integer"),
        ({"how": "never"}, "how: must be one of those the schema names"),
        ({"pair": ["a", "b"]}, "pair.1: must be of type integer"),
        ({"note": "a"}, "note: minLength is 2"),
        ({"tree": {"below": [{"below": 1}]}}, "tree.below.0.below: must be of type array"),
        ({"shown": ["x"]}, "shown.0: must be of type integer"),
        ({"both": 6}, "both: maximum is 5"),
        ({"one": 2}, "one: must be the one value the schema names"),
        ({"ratse": []}, "ratse: the state has no such field"),
    ],
)
def test_a_fault_is_named_at_its_depth_and_refused(edited: dict[str, Any], fault: str) -> None:
    assert faults_of(DEEP, edited) == [fault]
    with pytest.raises(InvalidAnswer, match="does not fit place") as caught:
        check_edit({"request": DEEP}, ApprovalDecision(edited_args=edited))
    assert fault in caught.value.message
    assert "which are rates, items" in caught.value.message


@pytest.mark.parametrize("value", [None, "x", {}, {"request": 7}])
def test_what_shows_no_request_is_left_to_the_seal(value: object) -> None:
    check_edit(value, ApprovalDecision(edited_args={"a": 1}))


def test_a_decision_without_an_edit_fits() -> None:
    check_edit({"request": DEEP}, ApprovalDecision(approved=True))


def test_arguments_of_one_type_are_taken_by_any_name() -> None:
    request = {"schema": {"properties": {}, "additionalProperties": {"type": "integer"}}}
    assert faults_of(request, {"a": 1}) == []
    assert faults_of(request, {"a": "b"}) == ["a: must be of type integer"]


@pytest.mark.parametrize(
    ("edited", "faults"),
    [
        ({"n": 2.0**60}, []),  # given back as it was shown
        ({"n": 2**60}, ["n: maximum is 5"]),  # the same number, and none that JSON keeps exact
    ],
)
def test_a_number_that_has_no_canonical_form_is_not_as_it_was_shown(
    edited: dict[str, Any], faults: list[str]
) -> None:
    schema = {"properties": {"n": {"type": "number", "maximum": 5}}}
    assert faults_of({"schema": schema, "arguments": {"n": 2.0**60}}, edited) == faults


@pytest.mark.parametrize(
    ("edited", "faults"),
    [
        ({"code": "A-1"}, []),
        ({"code": "secret-1"}, ["code: does not keep pattern"]),
        ({"tags": ["a", "a"]}, ["tags: does not keep uniqueItems"]),
    ],
)
def test_any_other_rule_is_named_without_its_words(
    edited: dict[str, Any], faults: list[str]
) -> None:
    rules = {"code": {"pattern": "^A-"}, "tags": {"uniqueItems": True}}
    assert faults_of({"schema": {"properties": rules}, "arguments": {}}, edited) == faults
