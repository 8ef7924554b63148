"""What is wrong with a policy's names: no tool, no argument, no pattern at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final

from adapter.core.errors import ConfigurationError
from adapter.core.rates import Rate
from adapter.core.rules import ApprovalRule, Condition, misfit
from adapter.core.spec import Registry
from adapter.core.types import Effects

__all__ = ["check_names", "check_table", "plain_name", "read_rate", "read_rules"]

_WILD = frozenset("*?[")
_MAPS: Final = "maps tool names or patterns to"
_SHAPES: Final[Mapping[str, str]] = {
    "deny": f"{_MAPS} the reason that the model reads, such as {{'drop_*': 'drops tables'}}",
    "allow": "is a tuple of tool names or patterns, such as ('get_*', 'refund')",
    "escalate": f"{_MAPS} a reason, an ApprovalRule or several, such as {{'refund': 'pays money'}}",
    "rates": f"{_MAPS} how often they may start, such as {{'search_*': '10/minute'}}",
    "results": f"{_MAPS} a list of names of hidden fields, such as {{'get_user': ['email']}}",
    "effects": f"{_MAPS} Effects, such as {{'get_*': Effects(read_only=True)}}",
}
_VALUES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "deny": str,
    "rates": (Rate, str),
    "results": Collection,
    "effects": Effects,
}


def check_table(where: str, said: Any) -> None:
    """Refuse a field of another shape, or whose keys are no names.

    What the rules themselves may be is looked at where they are read.

    Args:
        where: The policy's field.
        said: Its value.

    Raises:
        ConfigurationError: Names the field and shows its shape.
    """
    if said is None and where in ("allow", "deny"):
        return
    listed = isinstance(said, Collection) and not isinstance(said, str | bytes | Mapping)
    if not (listed if where == "allow" else isinstance(said, Mapping)):
        msg = f"Policy.{where} {_SHAPES[where]}; got {said!r}."
        raise ConfigurationError(msg)
    for key in said:
        if not isinstance(key, str) or not key:
            msg = f"Policy.{where} has {key!r} where a tool's name or a pattern belongs."
            raise ConfigurationError(msg)
        value = None if where == "allow" else said[key]
        if where in _VALUES and not isinstance(value, _VALUES[where]):
            raise _misshapen(where, key, value)


def _misshapen(where: str, key: str, said: object) -> ConfigurationError:
    return ConfigurationError(f"Policy.{where}[{key!r}] is {said!r}: {where} {_SHAPES[where]}.")


def read_rate(key: str, said: Rate | str) -> Rate | None:
    """Return the rate of one entry of ``rates``.

    Raises:
        ConfigurationError: Its text says no rate.
    """
    try:
        return Rate.parse(said)
    except ConfigurationError as error:
        msg = f"Policy.rates[{key!r}]: {error.message}"
        raise ConfigurationError(msg) from None


def read_rules(key: str, said: str | ApprovalRule | Sequence[ApprovalRule]) -> list[ApprovalRule]:
    """Return the rules of one entry of ``escalate``.

    Raises:
        ConfigurationError: It is no reason and no rules.
    """
    if isinstance(said, str):
        return [ApprovalRule(name=f"escalate {key}", reason=said)]
    given: Any = [said] if isinstance(said, ApprovalRule) else said
    rules = list(given) if isinstance(given, Iterable) else []
    if not rules or not all(isinstance(rule, ApprovalRule) for rule in rules):
        raise _misshapen("escalate", key, said)
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
        if isinstance(rule.when, Condition):
            _check_condition(key, rule, rule.when, registry)
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


def _check_condition(key: str, rule: ApprovalRule, when: Condition, registry: Registry) -> None:
    schemas = {name: schema.json_schema for name, schema in registry.schemas.items()}
    if key in schemas and when.argument not in (properties := schemas[key].get("properties", {})):
        msg = (
            f"Policy.escalate[{key!r}] has a condition on the argument {when.argument!r}; the "
            f"tool has: {', '.join(sorted(properties)) or 'none'}."
        )
        raise ConfigurationError(msg)
    covered = [key] if key in schemas else [name for name in schemas if fnmatchcase(name, key)]
    faults = {
        name: misfit(when, schemas[name])
        for name in covered
        if when.argument in schemas[name].get("properties", {})
    }
    # A pattern may cover tools whose arguments differ: what fits none of them is the mistake.
    if faults and all(faults.values()):
        name, fault = next(iter(faults.items()))
        tool = "" if name == key else f" over the tool {name!r}"
        msg = f"Policy.escalate[{key!r}]{tool}, rule {rule.name!r}: {fault}"
        raise ConfigurationError(msg)


def plain_name(name: str) -> str:
    """Return a name without what is easily mistyped: its case, ``-`` and ``_``."""
    return name.casefold().replace("-", "").replace("_", "")
