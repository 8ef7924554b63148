"""When a person must decide: conditions on arguments and approval rules, as data.

A typing error in a rule must never remove a gate, so every rule is checked when it is made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, Literal

from adapter.core.canonical import canonical_bytes
from adapter.core.errors import ConfigurationError
from adapter.core.types import JsonObject

__all__ = [
    "DECISION_KINDS",
    "ApprovalRule",
    "Condition",
    "DecisionKind",
    "NamedCondition",
    "combined",
    "is_number",
    "misfit",
]

_log = logging.getLogger(__name__)

DecisionKind = Literal["approve", "edit", "reject", "respond"]
DECISION_KINDS: tuple[DecisionKind, ...] = ("approve", "edit", "reject", "respond")

Operator = Literal["eq", "ne", "gt", "ge", "lt", "le", "in", "not_in"]
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "in": lambda a, b: a in b,
    "not_in": lambda a, b: a not in b,
}


def is_number(value: object) -> bool:
    """Tell whether a value is a number: no bool, no NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition on one argument, as data: ``amount_cents gt 10000``.

    Attributes:
        argument: Name of the argument.
        op: How it is compared.
        value: With what: of the argument's own type; for in and not_in a list of such values.
        context: Key of the run's context that may lower ``value`` of a gt or ge: the caller's
            own limit, such as ``max_refund_cents``. A greater one there changes nothing.
    """

    argument: str
    op: Operator
    value: Any
    context: str | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown operator, and one value where several are meant."""
        if self.op not in _OPERATORS or not self.argument:
            names = ", ".join(_OPERATORS)
            msg = f"A Condition needs an argument name and an op out of {names}; got {self.op!r}."
            raise ConfigurationError(msg)
        listed = isinstance(self.value, list | tuple | set | frozenset)
        if self.op in ("in", "not_in") and not listed:
            msg = (
                f"Condition on {self.argument!r}: {self.op} needs a list of values, such as "
                f"[{self.value!r}]; got {self.value!r}."
            )
            raise ConfigurationError(msg)
        if self.context is not None and (
            not self.context or self.op not in ("gt", "ge") or not is_number(self.value)
        ):
            msg = (
                f"Condition on {self.argument!r}: context names a key of the run's context, and is "
                "for gt and ge with a number, which it can only lower."
            )
            raise ConfigurationError(msg)

    def holds(self, arguments: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> bool:
        """Evaluate; what is absent or not comparable counts as holding.

        Args:
            arguments: Canonical arguments.
            context: What the run's caller set; None for unknown, where a condition that it might
                lower counts as holding.
        """
        if self.argument not in arguments:
            return True
        value = self.value
        if self.context is not None:
            said = None if context is None else context.get(self.context, value)
            if not is_number(said):
                return True
            value = min(value, said)
        try:
            return bool(_OPERATORS[self.op](arguments[self.argument], value))
        except TypeError:
            return True

    def describe(self) -> JsonObject:
        """Return the JSON form that goes into the policy digest."""
        value = self.value
        if isinstance(value, set | frozenset):
            value = sorted(value, key=canonical_bytes)  # a set's own order differs per process
        elif isinstance(value, tuple):
            value = list(value)
        made = {"argument": self.argument, "op": self.op, "value": value}
        return made if self.context is None else {**made, "context": self.context}


_KINDS: Mapping[str, str] = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_Forms = list[tuple[Any, ...]] | None
_NUMBERS: Final = ("integer", "number")
_UNORDERED: Final = ("null", "object", "")


def misfit(condition: Condition, schema: JsonObject) -> str | None:
    """Return why a condition cannot be meant for its argument; None if it can, or nobody can tell.

    A value of another type never equals the argument, which opens the gate, or cannot be compared,
    which always asks.

    Args:
        condition: On an argument of the schema.
        schema: JSON schema of the tool's arguments.
    """
    forms = _forms(schema["properties"][condition.argument], schema, {})
    if not forms:
        return None
    ordered = condition.op in ("gt", "ge", "lt", "le")
    values = condition.value if condition.op in ("in", "not_in") else [condition.value]
    for value in values:
        if any(_fits(value, form, ordered=ordered) for form in forms):
            continue
        if ordered:
            forms = [form for form in forms if form[0] not in _UNORDERED] or forms
        kinds = {kind for kind, *_ in forms}
        wanted = dict.fromkeys(repr(known[0]) if known else _KINDS[kind] for kind, *known in forms)
        hint = ""
        if isinstance(value, str) and "string" not in kinds:
            hint = ", without quotes"
        elif kinds == {"string"} and not isinstance(value, str):
            hint = ", in quotes"
        said = " or ".join(wanted)
        return (
            f"the argument {condition.argument!r} is {said}; its condition ({condition.op}) has "
            f"the value {value!r}, {_KINDS.get(_kind(value), 'no JSON')}. Give {said}{hint}."
        )
    return None


def _kind(value: object) -> str:
    """Return the narrowest JSON type of a value; empty for what is no JSON."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number" if isfinite(value) else ""
    kinds = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object"}
    return (
        "null"
        if value is None
        else next((name for kind, name in kinds.items() if isinstance(value, kind)), "")
    )


def _fits(value: object, form: tuple[Any, ...], *, ordered: bool) -> bool:
    kind, (wanted, *known) = _kind(value), form
    if ordered:
        numbers = kind in _NUMBERS and wanted in _NUMBERS
        return kind not in _UNORDERED and (kind == wanted or numbers)
    if known:
        return bool(kind == wanted and value == known[0])
    return wanted in (kind, "number" if kind == "integer" else kind)


def _forms(part: Any, root: JsonObject, met: dict[str, _Forms]) -> _Forms:
    """Return what a schema lets through: types, and values with theirs; None if it does not say."""
    if not isinstance(part, Mapping):
        return None
    known = [part["const"]] if "const" in part else part.get("enum")
    if known:
        return [(_kind(value), value) for value in known]
    ref = part.get("$ref")
    if ref is not None:
        if ref not in met:
            met[ref] = []  # one that comes back to itself adds nothing
            met[ref] = _forms(_target(ref, root), root, met)
        if met[ref] is not None:
            return met[ref]
    for key in ("anyOf", "oneOf"):
        found = [_forms(one, root, met) for one in part.get(key, ())]
        if found and None not in found:
            return [form for each in found if each for form in each]
    said = part.get("type", [])
    kinds = [said] if isinstance(said, str) else said
    return [(kind,) for kind in kinds] if kinds and _KINDS.keys() >= set(kinds) else None


def _target(ref: str, root: JsonObject) -> Any:
    found: Any = root if ref.startswith("#/") else None
    for name in ref.split("/")[1:]:
        plain = name.replace("~1", "/").replace("~0", "~")
        found = found.get(plain) if isinstance(found, Mapping) else None
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCondition:
    """A callable condition, registered with a name and a version so that a digest covers it."""

    name: str
    version: str
    test: Callable[[Mapping[str, Any]], bool] = field(compare=False)

    def __post_init__(self) -> None:
        """Refuse a nameless one."""
        if not self.name or not self.version:
            msg = "A NamedCondition needs a name and a version; raise the version when it changes."
            raise ConfigurationError(msg)

    def holds(
        self,
        arguments: Mapping[str, Any],
        context: Mapping[str, Any] | None = None,  # noqa: ARG002 - as of a Condition
    ) -> bool:
        """Evaluate the callable; one that fails counts as holding."""
        try:
            return bool(self.test(arguments))
        except Exception:  # noqa: BLE001 - a condition that fails must not open the gate
            _log.exception("the condition %s failed; it counts as holding", self.name)
            return True

    def describe(self) -> JsonObject:
        """Return the JSON form that goes into the policy digest."""
        return {"name": self.name, "version": self.version}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """When a person must decide, and what they may decide.

    Attributes:
        name: Shown to the reviewer as the rule that matched.
        reason: Shown to the reviewer.
        when: Ask only if this holds; None asks always.
        allowed: Decisions offered.
        ttl: Seconds the request stays open; None uses the executor's.
        quorum: Distinct reviewers needed.
        roles: Roles a reviewer needs one of; empty for any reviewer.
    """

    name: str
    reason: str = ""
    when: Condition | NamedCondition | None = None
    allowed: tuple[DecisionKind, ...] = DECISION_KINDS
    ttl: float | None = None
    quorum: int = 1
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would silently weaken the gate."""
        unknown = [kind for kind in self.allowed if kind not in DECISION_KINDS]
        if not self.allowed or unknown or len(set(self.allowed)) != len(self.allowed):
            msg = (
                f"ApprovalRule {self.name!r}: allowed must be some of "
                f"{', '.join(DECISION_KINDS)}, each once; got {list(self.allowed)!r}."
            )
            raise ConfigurationError(msg)
        if not self.name or self.quorum < 1 or (self.ttl is not None and self.ttl <= 0):
            msg = f"ApprovalRule {self.name!r} needs a name, quorum >= 1 and a positive ttl."
            raise ConfigurationError(msg)
        if self.when is not None and not isinstance(self.when, Condition | NamedCondition):
            msg = f"ApprovalRule {self.name!r}: when must be a Condition or NamedCondition."
            raise ConfigurationError(msg)

    def describe(self) -> JsonObject:
        """Return the JSON form that goes into the policy digest."""
        return {
            "name": self.name,
            "reason": self.reason,
            "when": None if self.when is None else self.when.describe(),
            "allowed": sorted(self.allowed),
            "quorum": self.quorum,
            "roles": sorted(self.roles),
        }

    def admits(self, reviewed: ApprovalRule) -> bool:
        """Tell whether reviewers and votes under another rule would do under this one."""
        return (
            reviewed.quorum >= self.quorum
            and "edit" in self.allowed
            and (not self.roles or bool(reviewed.roles and {*reviewed.roles} <= {*self.roles}))
        )


def combined(rules: Sequence[ApprovalRule]) -> ApprovalRule | None:
    """Return one rule as strict as all of these together.

    Args:
        rules: At least one.

    Returns:
        The rule: the most votes, the shortest time, roles and decisions all of them accept. None
        if no role or no decision is accepted by all.
    """
    first, *others = rules
    if not others:
        return first
    allowed = tuple(kind for kind in first.allowed if all(kind in one.allowed for one in others))
    roles = first.roles
    for rule in others:
        if roles and rule.roles:
            roles = tuple(role for role in roles if role in rule.roles)
            if not roles:
                return None
        roles = roles or rule.roles
    if not allowed:
        return None
    return ApprovalRule(
        name=" + ".join(dict.fromkeys(rule.name for rule in rules)),
        reason=" ".join(dict.fromkeys(rule.reason for rule in rules if rule.reason)),
        allowed=allowed,
        ttl=min((rule.ttl for rule in rules if rule.ttl is not None), default=None),
        quorum=max(rule.quorum for rule in rules),
        roles=roles,
    )
