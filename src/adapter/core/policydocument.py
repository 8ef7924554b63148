"""A policy as a document: its schema, and reading it with the place of every fault.

Pure: it is given plain data. Files and their syntax are `adapter.policyfile`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, get_args

from adapter.core.errors import ConfigurationError
from adapter.core.policy import Ghost, Policy
from adapter.core.rates import Rate
from adapter.core.rules import DECISION_KINDS, ApprovalRule, Condition, Operator
from adapter.core.types import Effects, JsonObject

__all__ = ["Path", "policy_of", "policy_schema"]

Path = tuple[str | int, ...]
"""Where a value stands in a document: keys and list positions."""

_EFFECTS = ("read_only", "destructive", "idempotent", "open_world")
# One line of TOML each, shown where something else stands.
_SHAPES: Mapping[str | int, str] = {
    "deny": 'deny = { "drop_*" = "drops tables" }',
    "allow": 'allow = ["get_*", "refund"]',
    "escalate": 'escalate = [{ tools = ["refund"], reason = "pays money" }], or [[escalate]]',
    "rates": 'rates = { "search_*" = "10/minute" }',
    "results": 'results = { get_user = ["email"] }',
    "effects": 'effects = { "get_*" = ["read_only"] }',
}
_NAMES: JsonObject = {
    "description": "An exact tool name or a shell pattern over whole names.",
    "type": "string",
    "minLength": 1,
}


def policy_schema() -> JsonObject:
    """Return the JSON schema of a policy document."""
    operators = list(get_args(Operator))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Policy",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "deny": _table("Tools that never run, with the reason.", {"type": "string"}),
            "allow": {
                "description": "Tools that may run at all; absent allows every declared one.",
                "type": "array",
                "minItems": 1,
                "items": _NAMES,
            },
            "escalate": {
                "description": "Rules under which a person must decide.",
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["tools", "reason"],
                    "properties": {
                        "tools": {
                            "anyOf": [_NAMES, {"type": "array", "minItems": 1, "items": _NAMES}]
                        },
                        "name": {"type": "string", "minLength": 1},
                        "reason": {"type": "string"},
                        "when": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["argument", "op", "value"],
                            "properties": {
                                "argument": {"type": "string", "minLength": 1},
                                "op": {"enum": operators},
                                "value": {},
                                "context": {"type": "string", "minLength": 1},
                            },
                        },
                        "allowed": {
                            "type": "array",
                            "minItems": 1,
                            "uniqueItems": True,
                            "items": {"enum": list(DECISION_KINDS)},
                        },
                        "ttl": {"type": "number", "exclusiveMinimum": 0},
                        "quorum": {"type": "integer", "minimum": 1},
                        "roles": {"type": "array", "items": {"type": "string", "minLength": 1}},
                    },
                },
            },
            "rates": _table("How often they may start: 10/minute, 5/30s.", {"type": "string"}),
            "results": _table(
                "Fields hidden in results.", {"type": "array", "items": {"type": "string"}}
            ),
            "effects": _table(
                "Declared effects; a tool without any counts as destructive.",
                {"type": "array", "uniqueItems": True, "items": {"enum": list(_EFFECTS)}},
            ),
            "ghost": {
                "description": "What happens to arguments a tool does not declare.",
                "enum": list(get_args(Ghost)),
            },
        },
    }


def _table(text: str, values: JsonObject) -> JsonObject:
    return {
        "description": text,
        "type": "object",
        "propertyNames": _NAMES,
        "additionalProperties": values,
    }


def policy_of(document: Any, fault: Callable[[Path, str], ConfigurationError]) -> Policy:
    """Return the policy a document says.

    Args:
        document: Plain data, as a TOML or YAML file holds it.
        fault: Makes the error for a path and what is wrong there.

    Raises:
        ConfigurationError: Made by ``fault``, for the first fault.
    """
    reader = _Reader(fault)
    reader.check(policy_schema(), document, ())
    escalate: dict[str, list[ApprovalRule]] = {}
    for number, said in enumerate(document.get("escalate", ())):
        path: Path = ("escalate", number)
        rule = reader.made(path, partial(_rule, said, number))
        tools = [said["tools"]] if isinstance(said["tools"], str) else said["tools"]
        for tool in tools:
            escalate.setdefault(tool, []).append(rule)
    effects = {}
    for key, names in document.get("effects", {}).items():
        effects[key] = Effects(**dict.fromkeys(names, True))
        reader.made(("effects", key), partial(Policy(effects={key: effects[key]}).spec, key))
    for key, rate in document.get("rates", {}).items():
        reader.made(("rates", key), partial(Rate.parse, rate))
    return Policy(
        deny=document.get("deny"),
        allow=None if "allow" not in document else tuple(document["allow"]),
        escalate=escalate,
        rates=document.get("rates", {}),
        results=document.get("results", {}),
        effects=effects,
        ghost=document.get("ghost"),
    )


def _rule(said: Mapping[str, Any], number: int) -> ApprovalRule:
    fields: dict[str, Any] = {key: said[key] for key in ("ttl", "quorum") if key in said}
    fields |= {key: tuple(said[key]) for key in ("allowed", "roles") if key in said}
    if "when" in said:
        fields["when"] = Condition(**said["when"])
    return ApprovalRule(
        name=said.get("name", f"escalate {number + 1}"), reason=said["reason"], **fields
    )


class _Reader:
    """Checks data against the small part of JSON schema that ours uses, and says where it fails."""

    def __init__(self, fault: Callable[[Path, str], ConfigurationError]) -> None:
        self._fault = fault

    def made(self, path: Path, make: Callable[[], Any]) -> Any:
        """Return what is made; a fault found while making it gets its place."""
        try:
            return make()
        except ConfigurationError as error:
            raise self._fault(path, error.message) from None

    def check(self, schema: JsonObject, value: Any, path: Path) -> None:
        if "anyOf" in schema:
            one, many = schema["anyOf"]
            schema = many if isinstance(value, list) else one
        kind = schema.get("type")
        if kind is not None and not _is(kind, value):
            # Further in, the rest of the shape is right.
            shape = _SHAPES.get(path[0]) if 0 < len(path) <= _DEEP else None
            hint = f"; in TOML: {shape}" if shape else ""
            raise self._fault(path, f"must be {_ARTICLES[kind]}, not {_said(value)}{hint}")
        if "enum" in schema and value not in schema["enum"]:
            raise self._fault(
                path, f"must be one of {', '.join(schema['enum'])}; got {_said(value)}"
            )
        if isinstance(value, dict):
            self._object(schema, value, path)
        elif isinstance(value, list):
            self._array(schema, value, path)
        elif isinstance(value, str) and len(value) < schema.get("minLength", 0):
            raise self._fault(path, "must not be empty")
        elif isinstance(value, int | float):
            self._number(schema, value, path)

    def _number(self, schema: JsonObject, value: float, path: Path) -> None:
        if value < schema.get("minimum", value):
            raise self._fault(path, f"must be at least {schema['minimum']}")
        low = schema.get("exclusiveMinimum")
        if low is not None and not low < value < float("inf"):
            raise self._fault(path, f"must be more than {low}, and finite")

    def _array(self, schema: JsonObject, value: list[Any], path: Path) -> None:
        if len(value) < schema.get("minItems", 0):
            raise self._fault(path, "must not be empty")
        for number, item in enumerate(value):
            self.check(schema.get("items", {}), item, (*path, number))
            if schema.get("uniqueItems") and item in value[:number]:
                raise self._fault((*path, number), f"names {_said(item)} twice")

    def _object(self, schema: JsonObject, value: dict[Any, Any], path: Path) -> None:
        known = schema.get("properties")
        for key, item in value.items():
            if not isinstance(key, str):
                raise self._fault(path, f"has {_said(key)} where a key that is text belongs")
            if "propertyNames" in schema:
                self.check(schema["propertyNames"], key, (*path, key))
            if known is not None and key in known:
                self.check(known[key], item, (*path, key))
            elif known is not None:
                near = get_close_matches(key, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f": {', '.join(known)}"
                raise self._fault((*path, key), f"is no key of a policy here{hint}")
            else:
                self.check(schema.get("additionalProperties", {}), item, (*path, key))
        for key in schema.get("required", ()):
            if key not in value:
                raise self._fault(path, f"lacks {key!r}")


_DEEP = 2

_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
}
_ARTICLES = {
    "object": "a table",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
}


def _is(kind: str, value: Any) -> bool:
    return isinstance(value, _KINDS[kind]) and not isinstance(value, bool)


def _said(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 64 else f"{text[:61]}..."
