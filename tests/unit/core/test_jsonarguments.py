"""Arguments described by a plain JSON schema: strict, closed, and nothing is fetched."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.core.errors import ConfigurationError, ToolArgsInvalid
from adapter.core.jsonarguments import JsonSchema

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "maxLength": 5},
        "amount": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["fast", "slow"]},
        "note": {"type": ["string", "null"], "default": {"properties": 1}},
        "where": {
            "type": "object",
            "properties": {"city": {"$ref": "#/$defs/city"}},
        },
        "tags": {"type": "array", "items": {"properties": {"a": {}}}},
        "any": {"type": "object", "additionalProperties": True},
    },
    "required": ["to"],
    "$defs": {"city": {"type": "string"}},
}


def fault(schema: dict[str, Any], **arguments: Any) -> str:
    with pytest.raises(ToolArgsInvalid) as error:
        JsonSchema(schema).validate(arguments)
    return error.value.message


def test_valid_arguments_come_back_as_they_are() -> None:
    given = {
        "to": "bob",
        "amount": 7,
        "mode": "fast",
        "note": None,
        "where": {"city": "x"},
        "tags": [{"a": 1}],
        "any": {"thing": [1]},
    }
    assert JsonSchema(SCHEMA).validate(given) == given
    assert JsonSchema(SCHEMA).json_schema is SCHEMA


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"to": 7}, "to: must be of type string"),
        ({"to": "a", "amount": "7"}, "amount: must be of type integer"),
        ({"to": "a", "amount": True}, "amount: must be of type integer"),
        ({"to": "a", "amount": 1.5}, "amount: must be of type integer"),
        ({"to": "a", "amount": 0}, "amount: does not keep minimum 1"),
        ({"to": "secret"}, "to: does not keep maxLength 5"),
        ({"to": "a", "mode": "secret"}, "mode: does not keep enum"),
        ({"to": "a", "note": 1}, "note: must be of type string or null"),
        ({}, "arguments: to missing"),
        ({"to": "a", "force": 1}, "arguments: unknown argument force"),
        ({"to": "a", "where": {"town": 1}}, "where: unknown argument town"),
        ({"to": "a", "where": {"city": 1}}, "where.city: must be of type string"),
        ({"to": "a", "tags": [{"b": 1}]}, "tags.0: unknown argument b"),
    ],
)
def test_a_fault_is_named_without_its_value(arguments: dict[str, Any], said: str) -> None:
    message = fault(SCHEMA, **arguments)
    assert message.startswith(f"Invalid arguments: {said}")
    assert "secret" not in message
    assert "Accepted arguments: to, amount" in message


def test_what_a_combination_declares_is_known() -> None:
    schema = {
        "properties": {"a": {}},
        "anyOf": [{"$ref": "#/$defs/b"}, {"type": "object", "required": ["c"]}],
        "$defs": {"b": {"properties": {"b": {}}, "required": ["b"], "additionalProperties": True}},
    }
    assert JsonSchema(schema).validate({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    only_a = {"properties": {"a": {}}, "not": {"required": ["b"]}}
    assert "unknown argument z" in fault(only_a, a=1, z=2)


def test_a_schema_without_properties_takes_nothing() -> None:
    assert JsonSchema({}).validate({}) == {}
    assert "Accepted arguments: none" in fault({}, a=1)


def test_open_schemas_take_more() -> None:
    schema = {"properties": {"a": {}}, "patternProperties": {"^x-": {"type": "string"}}}
    assert JsonSchema(schema).validate({"a": 1, "x-b": "c"})
    assert JsonSchema({"additionalProperties": {"type": "integer"}}).validate({"n": 1})
    assert JsonSchema({"properties": {"b": False}}).validate({}) == {}


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        ({"type": "array"}, "one object"),
        ("text", "one object"),
        ({"properties": {"a": {"$ref": "https://example.org/x.json"}}}, "nothing is fetched"),
        ({"properties": {"a": {"type": "strnig"}}}, "no valid JSON schema"),
        ({"properties": 7}, "no valid JSON schema"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(schema: Any, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        JsonSchema(schema, tool="t")


@pytest.mark.parametrize("target", ["#/$defs/none", "#"])
def test_a_reference_that_leads_nowhere_refuses_the_call(target: str) -> None:
    schema: dict[str, Any] = {"properties": {"a": {"$ref": target}}}
    if target == "#":
        schema = {"properties": {"a": {}}, "allOf": [{"$ref": "#"}]}
    assert "cannot be applied" in fault(schema, a={})
