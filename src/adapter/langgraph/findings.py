"""What trying the ways around the gate found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Finding", "Report", "Severity"]

Severity = Literal["hole", "warning", "note", "ok"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one attempt found.

    Attributes:
        severity: ``hole``: a tool ran that should not have; ``warning``: what weakens the gate
            without opening it; ``note``: not tried, and why; ``ok``: it held.
        attempt: Which way was tried.
        node: Name of the node, with the subgraphs around it.
        tool: The tool, if it is about one.
        text: What happened, and the cure.
    """

    severity: Severity
    attempt: str
    node: str
    tool: str
    text: str


@dataclass(slots=True)
class Report:
    """Everything that was found."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def holes(self) -> list[Finding]:
        """Findings that let a tool run ungoverned."""
        return [one for one in self.findings if one.severity == "hole"]

    @property
    def tried(self) -> bool:
        """Whether there was anything to try; without it, no hole means nothing."""
        return any(one.severity != "note" for one in self.findings)

    def add(self, severity: Severity, attempt: str, node: str, tool: str, text: str) -> None:
        """Add a finding."""
        self.findings.append(
            Finding(severity=severity, attempt=attempt, node=node, tool=tool, text=text)
        )
