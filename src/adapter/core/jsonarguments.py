"""Strict arguments of a tool that describes them by a plain JSON schema, as MCP servers do.

The schema comes from elsewhere: it is held to what can be checked here, and nothing it names is
fetched.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from typing import Any

from adapter.core.canonical import checked_json
from adapter.core.errors import ConfigurationError, ToolArgsInvalid
from adapter.core.types import JsonObject

__all__ = ["JsonSchema", "library"]

_COMBINED = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "$ref", "dependentSchemas", "$dynamicRef"}
)
_PLAIN = frozenset(
    {
        "const",
        "default",
        "enum",
        "examples",
        "required",
        "description",
        "title",
        "dependentRequired",
    }
)
"""Keywords whose values are data, not schemas."""


@cache
def library() -> tuple[Any, Any, tuple[type[Exception], ...]]:
    """Load the validator where it is wanted first.

    Returns:
        The package, a registry that fetches nothing, and what a schema that cannot be applied
        raises.
    """
    package, referencing = import_module("jsonschema"), import_module("referencing")
    unresolvable = import_module("referencing.exceptions").Unresolvable
    unsound = (unresolvable, package.exceptions.UnknownType, RecursionError)
    return package, referencing.Registry(), unsound


class JsonSchema:
    """An ArgumentSchema over a JSON schema. Nothing is coerced, nothing undeclared is taken."""

    def __init__(self, schema: JsonObject, *, tool: str = "") -> None:
        """Take the schema.

        Args:
            schema: JSON schema of one object, draft 2020-12 unless it names another.
            tool: The tool's name, for messages.

        Raises:
            ConfigurationError: The schema is none, is not of an object, or refers to another
                document.
        """
        package, registry, self._unsound = library()
        if not isinstance(schema, dict) or schema.get("type", "object") != "object":
            msg = f"The arguments of the tool {tool!r} must be a JSON schema of one object."
            raise ConfigurationError(msg)
        distant = sorted(_distant(schema))
        if distant:
            msg = (
                f"The schema of the tool {tool!r} refers to another document ({distant[0][:80]}), "
                "and nothing is fetched. Have the schema written out in full."
            )
            raise ConfigurationError(msg)
        self.json_schema: JsonObject = schema
        try:
            closed = _closed({"type": "object", **schema})
            kind = package.validators.validator_for(closed, default=package.Draft202012Validator)
            kind.check_schema(closed)
        except (package.SchemaError, RecursionError) as error:
            msg = f"The arguments of the tool {tool!r} are described by no valid JSON schema."
            raise ConfigurationError(msg) from error
        self._validator: Any = kind(closed, registry=registry)
        self._names = tuple(schema.get("properties", {}))

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments as they will run.

        Raises:
            ToolArgsInvalid: Names each fault, and no value.
        """
        value: JsonObject = json.loads(checked_json(arguments))
        try:
            faults = [_said(error) for error in self._validator.iter_errors(value)]
        except self._unsound:
            faults = ["the tool's schema cannot be applied"]
        if faults:
            accepted = ", ".join(self._names) or "none"
            msg = f"Invalid arguments: {'; '.join(faults[:10])}. Accepted arguments: {accepted}."
            raise ToolArgsInvalid(msg)
        return value


def _closed(schema: Any) -> Any:
    """Return a schema whose objects take declared properties only, unless they say otherwise."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: (
            {name: _closed(part) for name, part in value.items()}
            if key in ("properties", "$defs", "definitions", "patternProperties")
            and isinstance(value, dict)
            else value
            if key in _PLAIN
            else _closed(value)
        )
        for key, value in schema.items()
    }
    says = {"additionalProperties", "unevaluatedProperties", "patternProperties"} & made.keys()
    if ("properties" in made or made.get("type") == "object") and not says:
        # Beside a combination only this keyword sees what the other parts declare.
        combined = _COMBINED & made.keys()
        made["unevaluatedProperties" if combined else "additionalProperties"] = False
    return made


def _distant(schema: Any) -> set[str]:
    waiting, found = [schema], set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for key in ("$ref", "$dynamicRef"):
                target = item.get(key)
                if isinstance(target, str) and not target.startswith("#"):
                    found.add(target)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return found


def _said(error: Any) -> str:
    """Word a fault without the value at fault."""
    where = ".".join(str(part) for part in error.absolute_path) or "arguments"
    wanted = error.validator_value
    if error.validator in ("additionalProperties", "unevaluatedProperties"):
        known = error.schema.get("properties", {})
        extra = [str(name)[:64] for name in error.instance if name not in known]
        return f"{where}: unknown argument {', '.join(extra[:5])}"
    if error.validator == "required":
        missing = [name for name in wanted if name not in error.instance]
        return f"{where}: {', '.join(missing)} missing"
    if error.validator == "type":
        return (
            f"{where}: must be of type {wanted if isinstance(wanted, str) else ' or '.join(wanted)}"
        )
    if isinstance(wanted, int | float | str) and not isinstance(wanted, bool):
        return f"{where}: does not keep {error.validator} {wanted}"
    return f"{where}: does not keep {error.validator}"
