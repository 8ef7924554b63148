"""A sample is what its schema accepts."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from adapter.core.sampling import sample

DEEP: dict[str, Any] = {
    "properties": {"a": {"$ref": "#/$defs/node"}},
    "required": ["a"],
    "$defs": {"node": {"properties": {"b": {"$ref": "#/$defs/node"}}, "required": ["b"]}},
}


@pytest.mark.parametrize(
    "part",
    [
        {"const": 7},
        {"default": 8, "type": "integer"},
        {"enum": ["fast", "slow"]},
        {"examples": ["x"], "type": "string"},
        {"$ref": "#/$defs/kind"},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"oneOf": [{"type": "boolean"}]},
        {"allOf": [{"type": "string"}]},
        {"type": ["null", "string"]},
        {"type": "string", "minLength": 3},
        {"type": "integer", "minimum": 5},
        {"type": "integer", "exclusiveMinimum": 5},
        {"type": "integer", "maximum": -3},
        {"type": "number", "exclusiveMaximum": 0},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        {"type": "array"},
        {"type": "object"},
        {"properties": {"b": {"type": "integer"}, "c": {}}, "required": ["b"]},
        {},
    ],
    ids=repr,
)
def test_every_kind_of_argument_has_one(part: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": {"a": part, "optional": {"type": "string"}},
        "required": ["a"],
        "$defs": {"kind": {"enum": ["k"]}},
    }
    made = sample(schema)
    assert set(made) == {"a"}
    Draft202012Validator(schema).validate(made)


def test_a_schema_without_arguments_has_an_empty_one() -> None:
    assert sample({}) == {}
    assert sample({"type": "array"}) == {}


def test_a_schema_without_end_and_a_reference_to_nothing_end() -> None:
    assert sample(DEEP)["a"]["b"] is not None
    schema = {"properties": {"a": {"$ref": "#/$defs/none/x"}}, "required": ["a"]}
    assert sample(schema) == {"a": None}
