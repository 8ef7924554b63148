"""What a run of a flow gives back: its status and state, what is pending, how far a Map is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from adapter.core.store import CallRow
from adapter.core.types import JsonObject, JsonValue

__all__ = ["FlowProgress", "FlowResult", "Pending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One question that a run waits for.

    Attributes:
        kind: ``tool``, or ``gate``: a person decides whether a node may run.
        node: The node that waits.
        tool: The tool's name; for a gate the node's.
        arguments: What is asked about, masked where the spec says so.
        key: The call's key in the journal; empty where it is not known.
        interrupt_id: LangGraph's id of the pause, where there is one.
        value: The sealed request a reviewer signs.
    """

    kind: str
    node: str
    tool: str
    arguments: JsonObject
    key: str = ""
    interrupt_id: str | None = None
    value: JsonValue = None

    @classmethod
    def of_row(cls, row: CallRow, node: str) -> Self:
        """Return the question of a row in the journal."""
        request = row.request or {}
        return cls(
            kind=row.kind,
            node=node,
            tool=row.tool,
            arguments=dict(request.get("arguments") or {}),
            key=row.key,
            interrupt_id=row.interrupt_id,
            value=(row.decision or {}).get("sealed"),
        )

    @classmethod
    def of_value(cls, value: JsonObject, node: str, interrupt_id: str | None = None) -> Self:
        """Return the question of a sealed interrupt value."""
        request = value.get("request") or {}
        return cls(
            kind=str(request.get("kind", "tool")),
            node=node,
            tool=str(request.get("tool", "")),
            arguments=dict(request.get("arguments") or {}),
            interrupt_id=interrupt_id,
            value=value,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowResult:
    """How far a run came.

    Attributes:
        status: ``done``; ``paused`` for a person; ``denied``: a person said no, or did not answer
            in time, and no node caught it.
        state: The state model as it is now.
        visits: How often each node ran to its end.
        steps: Supersteps that ended.
        pending: The first question of ``pendings``.
        pendings: Every question the run waits for, by the nodes' names.
        checkpoint: Sealed; goes on with ``flow.run(checkpoint=…)`` in any process with the key.
        reason: Why it was denied.
    """

    status: Literal["done", "paused", "denied"]
    state: Any
    visits: Mapping[str, int] = field(default_factory=dict)
    steps: int = 0
    pendings: tuple[Pending, ...] = ()
    checkpoint: str | None = field(default=None, repr=False)
    reason: str | None = None

    @property
    def pending(self) -> Pending | None:
        """The first question, or None."""
        return self.pendings[0] if self.pendings else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowProgress:
    """A Map finished one more item.

    Attributes:
        done: Items that are finished.
        total: Items there are.
    """

    flow: str
    node: str
    visit: int
    done: int
    total: int
