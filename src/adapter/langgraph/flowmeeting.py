"""What the nodes of a compiled flow share: among it, where those of a superstep meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from adapter.core.executor import Executor
from adapter.flow.gates import Barrier
from adapter.flow.shape import Shape
from adapter.langgraph.flowseal import TaskSeal
from adapter.langgraph.flowtold import Told
from adapter.langgraph.supersteps import Superstep

__all__ = ["Meeting", "Wiring"]


@dataclass(slots=True)
class Meeting:
    """Where the nodes of one superstep of one run meet.

    Attributes:
        run: Held, so that its id names no other run meanwhile.
        present: How many nodes are there.
    """

    barrier: Barrier
    run: Any
    present: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What all nodes of one compiled flow share.

    Attributes:
        wait: Seconds within which the gated nodes of a superstep have to show up.
    """

    flow: Shape
    executor: Executor
    seal: TaskSeal
    told: Told
    wait: float
    meetings: dict[tuple[int, str], Meeting] = field(default_factory=dict)

    def enter(self, step: Superstep, gates: Sequence[str], wait: float) -> Meeting:
        """Return where the nodes of a superstep of one run meet."""
        key = (id(step.run), step.checkpoint_id)
        meeting = self.meetings.setdefault(
            key, Meeting(Barrier(gates, step.active, wait), step.run)
        )
        meeting.present += 1
        return meeting

    def leave(self, step: Superstep, meeting: Meeting) -> None:
        """Forget the place when the last one leaves it."""
        meeting.present -= 1
        if not meeting.present:
            self.meetings.pop((id(step.run), step.checkpoint_id), None)
