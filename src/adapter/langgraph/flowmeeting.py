"""What the nodes of a compiled flow share: where those of a superstep meet, and what they wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from adapter.core.errors import FlowError
from adapter.core.executor import Executor
from adapter.core.merge import UNSET
from adapter.core.types import JsonObject
from adapter.flow.gates import Barrier
from adapter.flow.shape import Shape
from adapter.langgraph.channels import as_overwrite
from adapter.langgraph.flowchannels import FLOW, Written
from adapter.langgraph.flowseal import TaskSeal
from adapter.langgraph.flowtold import Told
from adapter.langgraph.supersteps import Superstep

__all__ = ["Meeting", "Wiring", "ended_before"]

_TASK_ID = "__pregel_task_id"


_NOBODY = "00000000-0000-0000-0000-000000000000"
"""The task under whose id LangGraph keeps what a Command wrote."""


def ended_before(
    conf: Mapping[str, Any], found: CheckpointTuple | None, fields: Iterable[str]
) -> dict[str, dict[str, Written]]:
    """Return what the nodes wrote that ended in earlier runs of a superstep, by node and field.

    Args:
        conf: The configurable part of the running task's config.
        found: What the checkpointer holds of the superstep.
        fields: Names of the flow's.
    """
    names: dict[str, str] = {}
    wrote: dict[str, dict[str, Written]] = {}
    known = set(fields)
    for task, channel, value in (found.pending_writes or ()) if found is not None else ():
        if task in (_NOBODY, conf.get(_TASK_ID)):
            continue
        if channel == FLOW and isinstance(value, Mapping) and value.get("ran") is True:
            names[task] = str(value.get("node"))
        elif channel in known:
            edit = as_overwrite(value)
            before, writes = wrote.setdefault(task, {}).get(channel, (UNSET, ()))
            wrote[task][channel] = (
                (before, [*writes, value]) if edit is None else (edit.value, writes)
            )
    return {node: wrote.get(task, {}) for task, node in names.items()}


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

    def ended(
        self,
        step: Superstep,
        node: str,
        made: Mapping[str, Written],
        values: JsonObject,
        earlier: Mapping[str, Mapping[str, Written]],
    ) -> None:
        """Note what a node wrote, if it goes together with what its superstep's others wrote.

        The last of them judges the whole state too. Judged here and not when LangGraph merges:
        there, nobody can tell it from what a client wrote, and a thread that holds it could not
        even be read.

        Args:
            step: The superstep.
            node: The node.
            made: What it wrote, by field.
            values: Those the superstep began with.
            earlier: What nodes wrote that ended in an earlier run of the superstep.

        Raises:
            FlowError: Names the nodes and the field.
        """
        told = step.run[FLOW]
        told.ends = True
        told.ended[node] = made
        for name, written in made.items():
            others = step.run[name].ended
            others[node] = written
            past = {one: wrote[name] for one, wrote in earlier.items() if name in wrote}
            self._judge(name, dict(sorted({**past, **others}.items())), values)
        ended = {**earlier, **told.ended}
        if set(step.active) <= set(ended):
            self._judge_all(dict(sorted(ended.items())), values)

    def _judge_all(self, ended: Mapping[str, Mapping[str, Written]], values: JsonObject) -> None:
        fields = self.flow.fields
        where = f"flow {self.flow.name!r}, superstep of {', '.join(ended)}"
        after = dict(values)
        for made in ended.values():
            after |= {name: edit for name, (edit, _) in made.items() if edit is not UNSET}
        writes = [{name: one for name, (_, one) in made.items()} for made in ended.values()]
        fields.load(fields.apply(after, writes), where=where)

    def _judge(self, name: str, written: Mapping[str, Written], values: JsonObject) -> None:
        fields = self.flow.fields
        writes = {node: {name: made} for node, (_, made) in written.items() if made}
        edits = [edit for edit, _ in written.values() if edit is not UNSET]
        try:
            fields.conflict(writes)
            fields.apply({**values, name: edits[-1]} if edits else values, writes.values())
        except FlowError as error:
            msg = f"flow {self.flow.name!r}, superstep of {', '.join(writes)}: {error.message}"
            raise FlowError(msg) from error
