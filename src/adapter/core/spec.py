"""ToolSpec and Registry: what is declared about each tool before anything runs.

A declaration is data; a mistake in one is found when it is made or when the registry is built,
because a typing error must never remove a gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import UnionType
from typing import Any, Protocol

from adapter.core.canonical import digest
from adapter.core.errors import ConfigurationError
from adapter.core.rates import Rate
from adapter.core.rules import (
    DECISION_KINDS,
    ApprovalRule,
    Condition,
    DecisionKind,
    NamedCondition,
    is_number,
    misfit,
)
from adapter.core.types import Effects, JsonObject, ToolCall

__all__ = [
    "DECISION_KINDS",
    "ApprovalRule",
    "ArgumentSchema",
    "Condition",
    "DecisionKind",
    "Implementation",
    "Limits",
    "NamedCondition",
    "Registry",
    "Retry",
    "ToolSpec",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a failed call of a repeatable tool is tried, in LangGraph's terms (seconds)."""

    max_attempts: int = 1
    initial_interval: float = 0.5
    backoff_factor: float = 2.0
    max_interval: float = 30.0
    jitter: bool = True

    def __post_init__(self) -> None:
        """Refuse fewer than one attempt."""
        numbers = (self.max_attempts, self.initial_interval, self.backoff_factor)
        if (
            not all(map(is_number, numbers))
            or self.max_attempts < 1
            or self.initial_interval < 0
            or self.backoff_factor < 1
        ):
            msg = "Retry needs max_attempts >= 1, initial_interval >= 0 and backoff_factor >= 1."
            raise ConfigurationError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How often one tool may run; None means no limit of its own.

    Attributes:
        per_turn: Calls in one user turn.
        per_thread: Calls in one thread.
        per_user: Calls of one authenticated user; without authentication, of the thread.
        rate: Calls of everybody within a sliding window: a Rate or a text such as ``10/minute``.
    """

    per_turn: int | None = None
    per_thread: int | None = None
    per_user: int | None = None
    rate: Rate | str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no limit, and read the rate strictly."""
        for name in ("per_turn", "per_thread", "per_user"):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or value < 0
            ):
                msg = f"Limits.{name} must be a whole number, 0 or more, or None."
                raise ConfigurationError(msg)
        object.__setattr__(self, "rate", Rate.parse(self.rate))


class ArgumentSchema(Protocol):
    """What a tool accepts."""

    @property
    def json_schema(self) -> JsonObject:
        """JSON schema of the arguments as the model sees them."""
        ...

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Return canonical arguments, or raise ToolArgsInvalid naming each fault."""
        ...


class Implementation(Protocol):
    """What runs a tool where no front end brings its own way to it."""

    def invocation(self, call: ToolCall) -> Any:
        """Return one call's way to the tool, an ``adapter.core.invoke.Invocation``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool and its rules.

    Attributes:
        name: Exact name of the tool.
        effects: Declared side effects.
        approval: When a person must decide; None, said explicitly, means never.
        timeout: Seconds per attempt.
        retries: Only used for repeatable effects.
        masks: Names of top-level arguments nobody but the tool may see.
        limits: Limits of this tool alone.
        version: Raise it when the tool's meaning changes.
        once_per_run: A second call with the same arguments in a run gets the first result,
            whatever it was: no second effect, no second question. A run is the user's turn, over
            all its resumes; a flow's run; where there is neither, the thread.
        cache_ttl: Seconds a result may be given again to the same user (without authentication:
            the same thread) for the same arguments; read-only tools only. None keeps nothing.
        function: The tool itself, for front ends that are given a spec alone: a LangChain tool
            or a function. Part of no digest.
    """

    name: str
    effects: Effects
    approval: ApprovalRule | None
    timeout: float = 30.0
    retries: Retry = Retry()
    masks: tuple[str, ...] = ()
    limits: Limits = Limits()
    version: str = "1"
    once_per_run: bool = False
    cache_ttl: float | None = None
    function: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        if not self.name:
            msg = "A ToolSpec needs the tool's name."
            raise ConfigurationError(msg)
        if not isinstance(self.effects, Effects) or not (
            self.approval is None or isinstance(self.approval, ApprovalRule)
        ):
            msg = (
                f"ToolSpec {self.name!r}: effects must be Effects, approval an ApprovalRule or "
                "None."
            )
            raise ConfigurationError(msg)
        for name, (kind, cure) in _FIELDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                msg = f"ToolSpec {self.name!r}: {name} is {value!r}; give {cure}."
                raise ConfigurationError(msg)
        if not is_number(self.timeout) or self.timeout <= 0:
            msg = (
                f"ToolSpec {self.name!r}: timeout must be positive seconds, a number such as 30; "
                f"got {self.timeout!r}."
            )
            raise ConfigurationError(msg)
        if self.effects.read_only and self.effects.destructive:
            msg = f"ToolSpec {self.name!r} cannot be read_only and destructive at once."
            raise ConfigurationError(msg)
        if self.cache_ttl is not None and not (
            self.effects.read_only
            and is_number(self.cache_ttl)
            and 0 < self.cache_ttl < float("inf")
        ):
            msg = (
                f"ToolSpec {self.name!r}: cache_ttl is for read_only tools, a positive number of "
                "seconds."
            )
            raise ConfigurationError(msg)
        if self.retries.max_attempts > 1 and not self.effects.repeatable:
            msg = (
                f"ToolSpec {self.name!r}: retries need effects that are read_only or idempotent, "
                "else a retry could repeat the effect."
            )
            raise ConfigurationError(msg)

    @property
    def policy_digest(self) -> str:
        """Digest of everything a reviewer's approval relies on."""
        rule = None if self.approval is None else self.approval.describe()
        facts = {"approval": rule, "masks": sorted(self.masks), "version": self.version}
        return digest("policy/v1", facts)


_FIELDS: Mapping[str, tuple[type | UnionType, str]] = {
    "retries": (Retry, "a Retry, such as Retry(max_attempts=3)"),
    "limits": (Limits, "Limits, such as Limits(per_turn=3)"),
    "masks": (tuple | list | set | frozenset, 'names of arguments, such as ("card",)'),
}


class Registry:
    """All tools of one agent: specs and argument schemas, complete and closed.

    Iterating yields the specs in the order given.
    """

    def __init__(
        self,
        specs: Iterable[ToolSpec],
        schemas: Mapping[str, ArgumentSchema],
        implementations: Mapping[str, Implementation] | None = None,
    ) -> None:
        """Match specs with schemas.

        Args:
            specs: One for each tool.
            schemas: Argument schemas by name.
            implementations: What runs a tool where no front end does, by name.

        Raises:
            ConfigurationError: A tool without a spec, a spec without a tool, a name twice, a mask
                or condition on an argument the tool does not have, or one that cannot fit it.
        """
        listed: Sequence[ToolSpec] = tuple(specs)
        self._specs = {spec.name: spec for spec in listed}
        self.schemas = dict(schemas)
        self.implementations = dict(implementations or {})
        if len(self._specs) != len(listed):
            names = [spec.name for spec in listed]
            twice = ", ".join(sorted(name for name in self._specs if names.count(name) > 1))
            msg = f"Two ToolSpecs have the same name, {twice}: each tool has exactly one."
            raise ConfigurationError(msg)
        missing = ", ".join(sorted(self.schemas.keys() - self._specs.keys()))
        lacking = (
            f"These tools have no ToolSpec: {missing}. Declare effects and approval for each (in "
            "the template: src/agent/policies.py)."
        )
        unknown = sorted((self._specs.keys() | self.implementations.keys()) - self.schemas.keys())
        if unknown:
            msg = (
                f"These ToolSpecs name no tool: {', '.join(map(self._nearly, unknown))}. Tools "
                f"are: {', '.join(sorted(self.schemas)) or 'none'} (names are exact, also in "
                "case). Is the tool in the list that is given (in the template: build_tools in "
                "src/agent/tools.py)?"
            )
            raise ConfigurationError(f"{msg} {lacking}" if missing else msg)
        if missing:
            raise ConfigurationError(lacking)
        for spec in listed:
            _check_names(spec, self.schemas[spec.name].json_schema)
        self._digests = {
            name: (
                spec.policy_digest,
                digest("schema/v1", self.schemas[name].json_schema),
            )
            for name, spec in self._specs.items()
        }

    def __iter__(self) -> Iterator[ToolSpec]:
        """Iterate over the specs."""
        return iter(self._specs.values())

    def get(self, name: str) -> ToolSpec | None:
        """Return the spec of exactly this name."""
        return self._specs.get(name)

    def _nearly(self, name: str) -> str:
        tools = {tool.casefold(): tool for tool in self.schemas}
        near = get_close_matches(name.casefold(), tools, n=1)
        return f"{name} (did you mean {tools[near[0]]}?)" if near else name

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tools, sorted."""
        return tuple(sorted(self._specs))

    def digests(self, name: str) -> tuple[str, str]:
        """Return the policy digest and the schema digest of a tool."""
        return self._digests[name]

    def under(self, rules: Callable[[str], JsonObject]) -> Registry:
        """Return the same tools with policy digests that cover further rules.

        Args:
            rules: JSON form of the rules that concern a tool; empty if none does.
        """
        made = copy(self)
        made._digests = {  # noqa: SLF001 - a copy of this class
            name: (digest("policies/v1", [own, facts]) if (facts := rules(name)) else own, schema)
            for name, (own, schema) in self._digests.items()
        }
        return made


def _check_names(spec: ToolSpec, schema: JsonObject) -> None:
    known = schema.get("properties", {})
    when = None if spec.approval is None else spec.approval.when
    named = {*spec.masks, when.argument} if isinstance(when, Condition) else set(spec.masks)
    wrong = sorted(named - set(known))
    if wrong:
        msg = (
            f"ToolSpec {spec.name!r} names arguments the tool does not have: {', '.join(wrong)}. "
            f"It has: {', '.join(sorted(known)) or 'none'}."
        )
        raise ConfigurationError(msg)
    if spec.approval is None or not isinstance(when, Condition):
        return
    fault = misfit(when, schema)
    if fault is not None:
        msg = f"ToolSpec {spec.name!r}, rule {spec.approval.name!r}: {fault}"
        raise ConfigurationError(msg)
