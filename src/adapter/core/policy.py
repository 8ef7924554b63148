"""Allow, deny, or ask a person: one pure decision per call.

Names are matched exactly or by shell patterns over the whole name, never by substring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from adapter.core.errors import ConfigurationError, PolicyDenied
from adapter.core.spec import ApprovalRule, ToolSpec

__all__ = ["Decision", "Policy", "decide"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules over many tools, beside each tool's own ToolSpec.

    Attributes:
        deny: Patterns of tools that never run, with the reason the model reads.
        allow: Patterns of tools that may run at all; None allows every declared tool.
    """

    deny: Mapping[str, str] | None = None
    allow: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse a list of allowed tools that allows none."""
        if self.allow is not None and not self.allow:
            msg = "Policy.allow is empty: no tool could run. Leave it None to allow declared tools."
            raise ConfigurationError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the policy says about one call."""

    kind: Literal["allow", "ask"]
    rule: ApprovalRule | None = None


_ALLOW = Decision(kind="allow")


def decide(spec: ToolSpec, arguments: Mapping[str, Any], policy: Policy | None) -> Decision:
    """Decide about one call with valid arguments.

    Args:
        spec: The tool's declaration.
        arguments: Canonical arguments, as they would run.
        policy: Rules over all tools, if any.

    Returns:
        Allow, or the rule under which a person must be asked.

    Raises:
        PolicyDenied: The call may not run, whoever approves.
    """
    if policy is not None:
        for pattern, reason in (policy.deny or {}).items():
            if fnmatchcase(spec.name, pattern):
                msg = f"The policy does not allow {spec.name}: {reason or 'denied'}."
                raise PolicyDenied(msg)
        if policy.allow is not None and not any(
            fnmatchcase(spec.name, pattern) for pattern in policy.allow
        ):
            msg = f"The policy does not allow {spec.name}."
            raise PolicyDenied(msg)
    rule = spec.approval
    if rule is None or (rule.when is not None and not rule.when.holds(arguments)):
        return _ALLOW
    return Decision(kind="ask", rule=rule)
