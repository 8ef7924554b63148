"""One flow, run by the local runner and as a compiled graph: what a case is and what is compared.

A case says what must be seen; each runner is held to it, so that both agree and agree with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.flow.world import State, World

from adapter import ApprovalDecision
from adapter.flow import Flow

YES = ApprovalDecision(approved=True)
NO = ApprovalDecision(approved=False, reason="no")

Build = Callable[[World], Flow]


def edited(**arguments: Any) -> ApprovalDecision:
    """Yes, with other arguments."""
    return ApprovalDecision(edited_args=arguments)


def answered(text: str) -> ApprovalDecision:
    """The reviewer's words in the tool's place."""
    return ApprovalDecision(response=text)


def asks(tool: str, **arguments: Any) -> tuple[str, str, Any]:
    """A question about a tool call."""
    return "tool", tool, arguments


def gate(node: str, **arguments: Any) -> tuple[str, str, Any]:
    """A question about a gated node."""
    return "gate", node, arguments


@dataclass(frozen=True, kw_only=True)
class Case:
    """One flow with its input, a reviewer's decisions, and all that must come of it.

    Attributes:
        id: Its name.
        build: Makes the flow over a world.
        given: Fields of the initial state.
        decisions: Answers to the first open question of each pause, in order.
        decides_at_once: The port answers by itself, with these decisions.
        options: Further arguments of the run.
        status: How it ends.
        state: The fields that are not at their default in the end.
        visits: Visits of each node that ended.
        steps: Supersteps that ended.
        pauses: What was asked at each pause: every open question, by node name.
        ran: Tools whose bodies ran, in any order: name and argument.
        error: The class of what is raised in the end, and a part of its text.
        unasked: Decisions may be left over.
        durable: Its processes share a store that lasts, as several gates at once need.
    """

    id: str
    build: Build
    given: Mapping[str, Any] = field(default_factory=dict)
    decisions: tuple[ApprovalDecision, ...] = ()
    decides_at_once: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    status: str = "done"
    state: Mapping[str, Any] = field(default_factory=dict)
    visits: Mapping[str, int] = field(default_factory=dict)
    steps: int = 1
    pauses: tuple[tuple[tuple[str, str, Any], ...], ...] = ()
    ran: tuple[tuple[str, Any], ...] = ()
    error: tuple[type[Exception], str] | None = None
    unasked: bool = False
    durable: bool = False

    def expected(self) -> Seen:
        """What every runner must see."""
        return Seen(
            status="raised" if self.error else self.status,
            state=None if self.error else State(**self.state),
            visits=None if self.error else dict(self.visits),
            steps=None if self.error else self.steps,
            pauses=list(self.pauses),
            ran=sorted(self.ran, key=repr),
        )


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a run showed; of one that raised, its questions and its effects only."""

    status: str
    state: State | None
    visits: dict[str, int] | None
    steps: int | None
    pauses: list[tuple[tuple[str, str, Any], ...]]
    ran: list[tuple[str, Any]]
