"""What is wrong with a policy's names: no tool, no argument, no pattern at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from adapter.core.errors import ConfigurationError
from adapter.core.spec import ApprovalRule, Condition, Registry
from adapter.core.types import JsonObject

__all__ = ["check_names", "check_patterns", "plain_name", "read_rules"]

_WILD = frozenset("*?[")


def check_patterns(where: str, said: Any) -> None:
    """Refuse a table whose keys are no names.

    Args:
        where: The policy's field.
        said: Its value.

    Raises:
        ConfigurationError: Names the field.
    """
    if where not in ("allow", "deny") and not isinstance(said, Mapping):
        msg = f"Policy.{where} maps tool names or patterns to their rules; got {said!r}."
        raise ConfigurationError(msg)
    for key in said or ():
        if not isinstance(key, str) or not key:
            msg = f"Policy.{where} has {key!r} where a tool's name or a pattern belongs."
            raise ConfigurationError(msg)


def read_rules(key: str, said: str | ApprovalRule | Sequence[ApprovalRule]) -> list[ApprovalRule]:
    """Return the rules of one entry of ``escalate``.

    Raises:
        ConfigurationError: It is no reason and no rules.
    """
    if isinstance(said, str):
        return [ApprovalRule(name=f"escalate {key}", reason=said)]
    rules = [said] if isinstance(said, ApprovalRule) else list(said)
    if not rules or not all(isinstance(rule, ApprovalRule) for rule in rules):
        msg = (
            f"Policy.escalate[{key!r}] must be a reason, an ApprovalRule or several, not {said!r}."
        )
        raise ConfigurationError(msg)
    return rules


def check_names(
    tables: Mapping[str, Collection[str]],
    rules: Sequence[tuple[str, ApprovalRule]],
    registry: Registry,
    *,
    closed: bool,
) -> None:
    """Refuse exact names that are no tool or argument: a typing error must remove no rule.

    Args:
        tables: Names and patterns by the policy's field.
        rules: Every rule about people, with its name or pattern.
        registry: The tools there are.
        closed: There are no others. Else only a name that differs from a tool's in nothing
            but case, ``-`` and ``_`` is refused.

    Raises:
        ConfigurationError: Names the key and the nearest tool, or the argument.
    """
    names = registry.names
    known = set(names)
    for key, rule in rules:
        if key in known:
            _check_condition(key, rule, registry.schemas[key].json_schema)
    plain = {plain_name(name): name for name in names}
    for where, keys in tables.items():
        for key in keys:
            if _WILD & set(key) or key in known:
                continue
            near = plain.get(plain_name(key))
            if near is None and not closed:
                continue
            near = near or next(iter(get_close_matches(key, names, n=1)), None)
            hint = f" Did you mean {near!r}?" if near else ""
            msg = (
                f"Policy.{where} names {key!r}, and there is no such tool (names are exact, "
                f"also in case).{hint} Tools are: {', '.join(sorted(known)) or 'none'}."
            )
            raise ConfigurationError(msg)


def _check_condition(key: str, rule: ApprovalRule, schema: JsonObject) -> None:
    properties = schema.get("properties", {})
    if isinstance(rule.when, Condition) and rule.when.argument not in properties:
        msg = (
            f"Policy.escalate[{key!r}] has a condition on the argument {rule.when.argument!r}; the "
            f"tool has: {', '.join(sorted(properties)) or 'none'}."
        )
        raise ConfigurationError(msg)


def plain_name(name: str) -> str:
    """Return a name without what is easily mistyped: its case, ``-`` and ``_``."""
    return name.casefold().replace("-", "").replace("_", "")
