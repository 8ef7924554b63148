"""A small valid value of a JSON schema, for trying a tool without a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapter.core.types import JsonObject

__all__ = ["sample"]

_DEEPEST = 8


def sample(schema: JsonObject) -> JsonObject:
    """Return arguments that a schema probably accepts: the required ones only.

    Args:
        schema: JSON schema of a tool's arguments.
    """
    made = _value(schema, schema, 0)
    return made if isinstance(made, dict) else {}


def _value(schema: Any, root: JsonObject, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _value(_found(reference, root), root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _value(schema[key][0], root, depth + 1)
    return _typed(schema, root, depth)


def _typed(schema: Mapping[str, Any], root: JsonObject, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema or depth == 0 else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        known = schema.get("properties", {})
        return {
            name: _value(known.get(name, {}), root, depth + 1)
            for name in schema.get("required", ())
        }
    if kind == "array":
        count = schema.get("minItems", 0)
        return [_value(schema.get("items", {}), root, depth + 1) for _ in range(count)]
    if kind in ("integer", "number"):
        return _number(schema)
    if kind == "boolean":
        return False
    return None if kind == "null" else "x" * max(1, schema.get("minLength", 1))


def _number(schema: Mapping[str, Any]) -> Any:
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + 1
    return min(1, schema.get("maximum", 1), schema.get("exclusiveMaximum", 2) - 1)


def _found(reference: str, root: JsonObject) -> Any:
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
