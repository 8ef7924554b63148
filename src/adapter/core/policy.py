"""Allow, deny, or ask a person: one pure decision per call.

Names are matched exactly or by shell patterns over the whole name, never by substring. Where
several rules hold for one call, the strictest combination of them holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from adapter.core.errors import ConfigurationError, PolicyDenied
from adapter.core.masking import ResultMask
from adapter.core.policycheck import check_names, check_table, read_rate, read_rules
from adapter.core.rates import Rate
from adapter.core.rules import combined
from adapter.core.spec import ApprovalRule, Registry, ToolSpec
from adapter.core.store import Charge
from adapter.core.types import Effects, JsonObject

__all__ = ["Approver", "Decision", "Escalation", "Ghost", "Policy", "decide"]

Ghost = Literal["refuse", "strip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """One call put to a policy's approver.

    Attributes:
        tool: Name of the tool.
        arguments: Canonical arguments, masked where the tool's spec says so.
        rule: Name of the rule that holds.
        reason: Why it asks.
    """

    tool: str
    arguments: JsonObject
    rule: str
    reason: str
    call_id: str
    thread_id: str
    user: str | None = None


Approver = Callable[[Escalation], bool | Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules over many tools, beside each tool's own ToolSpec.

    Every key is an exact tool name or a shell pattern (``drop_*``) over whole names, in exact
    case.

    Attributes:
        deny: Tools that never run, with the reason the model reads.
        allow: Tools that may run at all; None allows every declared tool.
        escalate: Tools a person must decide about: a reason, a rule, or several rules.
        rates: How often a tool or all tools of a pattern together may start, by everybody:
            a Rate or ``10/minute``. One call spends one token, over question and answer.
        results: Fields hidden in JSON results, at any depth; what looks like a secret is hidden
            too. An empty list hides only that.
        effects: Declared effects, used where a spec is made from the policy: the first pattern
            that matches; a tool that none matches counts as destructive.
        ghost: Arguments a tool does not declare: ``refuse`` the call, or ``strip`` them, audited.
            None is the front end's own default.
        approver: Decides in process where there is no approval port: True runs the call.
    """

    deny: Mapping[str, str] | None = None
    allow: tuple[str, ...] | None = None
    escalate: Mapping[str, str | ApprovalRule | Sequence[ApprovalRule]] = field(
        default_factory=dict
    )
    rates: Mapping[str, Rate | str] = field(default_factory=dict)
    results: Mapping[str, Sequence[str]] = field(default_factory=dict)
    effects: Mapping[str, Effects] = field(default_factory=dict)
    ghost: Ghost | None = None
    approver: Approver | None = None
    _rules: tuple[tuple[str, ApprovalRule], ...] = field(init=False, repr=False, default=())
    _masks: tuple[tuple[str, ResultMask], ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        """Refuse what would silently weaken a rule, and read the short forms."""
        for where in _TABLES:
            check_table(where, getattr(self, where))
        if self.allow is not None:
            object.__setattr__(self, "allow", tuple(self.allow))
            if not self.allow:
                msg = (
                    "Policy.allow is empty: no tool could run. Leave it None to allow declared "
                    "tools."
                )
                raise ConfigurationError(msg)
        if self.ghost not in (None, "refuse", "strip"):
            msg = f"Policy.ghost is 'refuse' or 'strip', not {self.ghost!r}."
            raise ConfigurationError(msg)
        if self.approver is not None and not callable(self.approver):
            msg = "Policy.approver must be callable with an Escalation and return True or False."
            raise ConfigurationError(msg)
        made = [
            (key, rule) for key, said in self.escalate.items() for rule in read_rules(key, said)
        ]
        object.__setattr__(self, "_rules", tuple(made))
        masks = [(key, ResultMask.of(names)) for key, names in self.results.items()]
        object.__setattr__(self, "_masks", tuple(masks))
        object.__setattr__(
            self, "rates", {key: read_rate(key, rate) for key, rate in self.rates.items()}
        )

    @property
    def escalates(self) -> bool:
        """Whether any rule puts calls to a person."""
        return bool(self._rules)

    def denied(self, name: str) -> PolicyDenied | None:
        """Return why a tool never runs, whoever approves; None if it may."""
        for pattern, reason in (self.deny or {}).items():
            if fnmatchcase(name, pattern):
                return PolicyDenied(f"The policy does not allow {name}: {reason or 'denied'}.")
        if self.allow is not None and not _matches(name, self.allow):
            return PolicyDenied(f"The policy does not allow {name}.")
        return None

    def rules(self, name: str) -> list[ApprovalRule]:
        """Return the rules that may put a tool's calls to a person."""
        return [rule for pattern, rule in self._rules if fnmatchcase(name, pattern)]

    def charges(self, name: str, mark: str) -> tuple[Charge, ...]:
        """Return the windows a call of a tool counts in.

        Args:
            name: The tool.
            mark: The call key: one token per call, whatever becomes of it.
        """
        return tuple(
            Charge(
                scope=f"rate:policy:tool:{pattern}",
                limit=rate.limit,
                window=rate.seconds,
                mark=mark,
            )
            for pattern, rate in self.rates.items()
            if isinstance(rate, Rate) and fnmatchcase(name, pattern)
        )

    def mask(self, name: str) -> ResultMask | None:
        """Return what is hidden in a tool's results; None for nothing."""
        found: ResultMask | None = None
        for pattern, mask in self._masks:
            if fnmatchcase(name, pattern):
                found = mask if found is None else found.joined(mask)
        return found

    def spec(self, name: str) -> ToolSpec:
        """Return the spec of a tool that nobody declared: destructive unless ``effects`` says so.

        Its approval is None: this policy's own rules decide about it.
        """
        effects = next(
            (said for pattern, said in self.effects.items() if fnmatchcase(name, pattern)),
            Effects(destructive=True),
        )
        return ToolSpec(name=name, effects=effects, approval=None)

    def describe(self, name: str) -> JsonObject:
        """Return the rules that concern one tool, for its policy digest; empty if none does."""
        rules = self.rules(name)
        mask = self.mask(name)
        found = {
            "escalate": [rule.describe() for rule in rules],
            "rates": [
                [pattern, rate.limit, rate.seconds]
                for pattern, rate in self.rates.items()
                if isinstance(rate, Rate) and fnmatchcase(name, pattern)
            ],
            "results": None if mask is None else sorted(mask.fields),
            "ghost": self.ghost,
        }
        return {key: value for key, value in found.items() if value not in ([], None)}

    def over(self, registry: Registry) -> Registry:
        """Return the registry with digests that cover this policy's rules too."""
        return registry.under(self.describe)

    def check(self, registry: Registry, *, closed: bool) -> None:
        """Refuse exact names that are no tool or argument: a typing error must remove no rule.

        Args:
            registry: The tools there are.
            closed: There are no others. Else only a name that differs from a tool's in nothing
                but case, ``-`` and ``_`` is refused.

        Raises:
            ConfigurationError: Names the key and the nearest tool, or the argument.
        """
        tables = {where: getattr(self, where) or () for where in _TABLES}
        check_names(tables, self._rules, registry, closed=closed)


_TABLES = ("deny", "allow", "escalate", "rates", "results", "effects")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the policy says about one call.

    Attributes:
        rule: Why a person must be asked.
        lowered: It allows the call, and under another context of the run it might ask.
    """

    kind: Literal["allow", "ask"]
    rule: ApprovalRule | None = None
    lowered: bool = False


_ALLOW = Decision(kind="allow")


def decide(
    spec: ToolSpec,
    arguments: Mapping[str, Any],
    policy: Policy | None,
    context: Mapping[str, Any] | None = None,
) -> Decision:
    """Decide about one call with valid arguments.

    Args:
        spec: The tool's declaration.
        arguments: Canonical arguments, as they would run.
        policy: Rules over all tools, if any.
        context: What the run's caller set, which may lower limits; None for unknown, where every
            rule that it might lower holds.

    Returns:
        Allow, or the rule under which a person must be asked.

    Raises:
        PolicyDenied: The call may not run, whoever approves.
    """
    rules = [] if spec.approval is None else [spec.approval]
    if policy is not None:
        denied = policy.denied(spec.name)
        if denied is not None:
            raise denied
        rules += policy.rules(spec.name)
    holding = [rule for rule in rules if rule.when is None or rule.when.holds(arguments, context)]
    if not holding:
        lowered = any(getattr(rule.when, "context", None) is not None for rule in rules)
        return Decision(kind="allow", lowered=True) if lowered else _ALLOW
    rule = combined(holding)
    if rule is None:
        msg = (
            f"Not executed: the rules for {spec.name} ask for reviewers or decisions that exclude "
            "each other."
        )
        raise PolicyDenied(msg)
    return Decision(kind="ask", rule=rule)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
