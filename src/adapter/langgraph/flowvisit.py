"""One run of a node of a compiled flow: its gate, its superstep's gates, its visit, its writes.

The visit is the local runner's own. What differs is only where calls stand (LangGraph's task) and
how a run waits (LangGraph's interrupt).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph.errors import GraphBubbleUp, GraphInterrupt, is_invalid_resume
from langgraph.runtime import get_runtime
from langgraph.types import Command, Interrupt, Overwrite
from pydantic_core import from_json, to_json

from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ToolUsageError,
)
from adapter.core.merge import UNSET
from adapter.core.outcomes import plain_reason
from adapter.core.store import CallRow
from adapter.core.types import CallContext, CallStatus, JsonObject, JsonValue
from adapter.flow.gates import Barrier, NotGranted
from adapter.flow.gating import gate_of, gate_state, grant_digest
from adapter.flow.kinds import Node
from adapter.flow.results import FlowProgress
from adapter.flow.visit import visit
from adapter.langgraph.approval import LangGraphApproval
from adapter.langgraph.flowchannels import COUNTS, FLOW, VISITS, Written
from adapter.langgraph.flowmeeting import Wiring
from adapter.langgraph.host import configurable, pause_id, task_answers
from adapter.langgraph.supersteps import Superstep
from adapter.langgraph.usedup import spend

__all__ = ["WAITING_TYPE", "Visit"]

WAITING_TYPE: Final = "agent_adapter.waiting"
"""Type of a pause that asks nothing: its gate is open and another one of its superstep is not."""

_NO: Final = (ApprovalDenied, ApprovalExpired)
_OPENED: Final = frozenset(
    {
        CallStatus.CLAIMED,
        CallStatus.SUSPENDED,
        CallStatus.SUCCEEDED,
        CallStatus.FAILED,
        CallStatus.IN_DOUBT,
    }
)
_SHUT: Final = frozenset({CallStatus.DENIED, CallStatus.EXPIRED})


@dataclass(slots=True, kw_only=True)
class Visit:
    """One run of one task.

    Attributes:
        passed: Whether all gates of the superstep are open, for this state.
        opened: Whether the own one is.
        earlier: What the superstep's others wrote that ended in an earlier run of it.
    """

    wiring: Wiring
    node: Node
    values: JsonObject
    given: Mapping[str, Any]
    ctx: CallContext
    step: Superstep
    wait: float
    earlier: Mapping[str, Mapping[str, Written]]
    passed: bool = False
    opened: bool = False
    _bound: str | None = field(default=None, init=False)

    async def run(self, pauses: Sequence[Interrupt]) -> Command[Any]:
        """Take up earlier progress, go through the gates, and work.

        Raises:
            GraphInterrupt: Somebody is waited for.
        """
        seal = self.wiring.seal
        before = await seal.open(configurable(), self.ctx, pauses)
        if before and before != self._state:
            raise self._changed("its gates")
        self.passed = bool(before)
        key = ""
        try:
            return await self._through()
        except GraphInterrupt as pause:
            raised = tuple(pause.args[0]) if pause.args else ()
        except ApprovalPending as pending:
            key = pending.key
            value = dict(pending.value or {"message": pending.message})
            raised = (Interrupt(value, id=pause_id(self.ctx.place.checkpoint_ns, 0)),)
        except NotGranted as shut:
            if shut.denied:
                return Command()
            raised = self._in_turn(shut) if self.opened else ()
        except Exception as error:
            spend(configurable(), pauses, error)
            raise
        if raised:
            passed = self._state if self.passed else ""
            raised = await seal.close(self.ctx, raised, passed=passed, key=key)
        raise GraphInterrupt(raised)

    def _in_turn(self, shut: NotGranted) -> tuple[Interrupt, ...]:
        """Return a pause in the place of this gate's own question, which is answered.

        LangGraph keeps a task's newest pause, and its answers only together with one.
        """
        ns = self.ctx.place.checkpoint_ns
        asked = task_answers(configurable()).asked
        value = {"type": WAITING_TYPE, "node": self.node.name, "for": shut.gate}
        return (Interrupt(value, id=pause_id(ns, asked)),)

    async def _through(self) -> Command[Any]:
        name, nodes = self.node.name, self.wiring.flow.nodes
        gates = {one for one in self.step.active if nodes[one].gated}
        gates |= {name} if self.node.gated else set()
        others = gates - {name}
        if not gates or (self.passed and not self.node.gated):
            return self._command(await self._worked(None))
        self._check_several(sorted(gates))
        meeting = self.wiring.enter(self.step, sorted(gates), self.wait)
        try:
            if others:
                await self._recall(meeting.barrier, others)
            if self.node.gated:
                return await self._gated(meeting.barrier)
            await meeting.barrier.wait(name)
        finally:
            self.wiring.leave(self.step, meeting)
        self.passed = True
        return self._command(await self._worked(None))

    async def _recall(self, barrier: Barrier, others: set[str]) -> None:
        """Note what became of the superstep's other gates in earlier runs."""
        if self.passed:
            for name in others:
                barrier.granted(name)
            return
        rows = await self.wiring.executor.store.of_message(self.ctx.thread_id, self._group)
        for row in rows:
            if row.kind == "gate" and row.tool in others:
                if row.status in _OPENED:
                    self._check_grant(row)
                    barrier.granted(row.tool)
                elif row.status in _SHUT:
                    barrier.closed(row.tool, denied=True)

    def _check_grant(self, row: CallRow) -> None:
        """Refuse to work beside a gate that was opened for another state.

        Raises:
            ApprovalAlreadyDecided: It was.
        """
        if row.policy_digest != grant_digest(self.wiring.flow, row.tool, self._state):
            raise self._changed(f"the gate before {row.tool}")

    def _changed(self, gate: str) -> ApprovalAlreadyDecided:
        return ApprovalAlreadyDecided(
            f"flow {self.wiring.flow.name!r}: the state was changed after {gate} opened for "
            f"another one (or for another version of the flow); {self.node.name}, in the same "
            "superstep, does not run. Fork the thread: it asks again."
        )

    async def _gated(self, barrier: Barrier) -> Command[Any]:
        name = self.node.name

        async def behind(edited: JsonObject | None) -> JsonValue:
            self.opened = True
            barrier.granted(name, edited)
            await barrier.wait(name)
            self.passed = True
            # As text: a state may hold numbers that the journal's canonical form does not keep.
            return to_json(await self._worked(edited)).decode()

        try:
            await barrier.turn(name)
            gate = await gate_of(
                self.wiring.flow, self.node, self.values, state=self._state, group=self._group
            )
            recorded = await self.wiring.executor.gate(gate, self.ctx, behind, is_pause=_is_pause)
        except _NO as no:
            barrier.closed(name, denied=True)
            return self._denied(plain_reason(no.message), ran=False)
        except BaseException:
            barrier.closed(name)
            raise
        made: JsonObject = from_json(recorded)
        barrier.granted(name, made["edited"])
        return self._command(made)

    async def _worked(self, edited: JsonObject | None) -> JsonObject:
        """Make the visit; return its JSON, as a gate records it."""
        try:
            made = await visit(
                self.wiring.flow,
                self.node,
                {**self.values, **self.wiring.flow.fields.given(edited or {})},
                executor=self.wiring.executor,
                number=self._number,
                run_id=self.ctx.run_id,
                counts=self.given.get(COUNTS) or {},
                is_pause=_is_pause,
                on_progress=_streamed,
            )
        except _NO as no:
            return {"denied": plain_reason(no.message), "edited": None}
        return {**made.to_json(), "edited": edited}

    def _command(self, made: JsonObject) -> Command[Any]:
        if made.get("denied") is not None:
            self.wiring.ended(self.step, self.node.name, {}, self.values, self.earlier)
            return self._denied(made["denied"], ran=True)
        name, writes, edits = self.node.name, made["writes"], made["edited"] or {}
        wrote = {one: (edits.get(one, UNSET), writes.get(one, ())) for one in {**edits, **writes}}
        self.wiring.ended(self.step, name, wrote, self.values, self.earlier)
        update: list[tuple[str, Any]] = [(one, Overwrite(value)) for one, value in edits.items()]
        update += [(one, write) for one, several in writes.items() for write in several]
        update += [(VISITS, {name: self._number}), (FLOW, {"node": name, "ran": True})]
        if made["counts"]:
            update.append((COUNTS, made["counts"]))
        # Static edges are the graph's own, so that update_state(as_node=…) follows them too.
        static = self.wiring.flow.static(name)
        return Command(
            update=update, goto=[target for target in made["targets"] if target not in static]
        )

    def _denied(self, reason: str, *, ran: bool) -> Command[Any]:
        no = self.wiring.told.denial(
            self.given[FLOW], self.ctx.thread_id, self.node.name, reason, ran=ran
        )
        return Command(update=[(FLOW, no)])

    @property
    def _state(self) -> str:
        """What the gates of this superstep are bound to."""
        if self._bound is None:
            told = {name: self.given.get(name) for name in (VISITS, COUNTS, FLOW)}
            self._bound = gate_state(self.wiring.flow, self.values, told)
        return self._bound

    @property
    def _number(self) -> int:
        return int((self.given.get(VISITS) or {}).get(self.node.name, 0)) + 1

    @property
    def _group(self) -> str:
        """Name the superstep: its gates' rows are found by it."""
        return f"{self.wiring.flow.name}:{self.step.namespace}:{self.step.checkpoint_id}"

    def _check_several(self, gates: Sequence[str]) -> None:
        asks_here = isinstance(self.wiring.executor.port, LangGraphApproval)
        if len(gates) > 1 and asks_here and not self.wiring.seal.durable:
            msg = (
                f"flow {self.wiring.flow.name!r}: the gates before {', '.join(gates)} are in one "
                "superstep, and the first one's approval has to be kept until the last one's "
                "comes. Give the executor a store that lasts (open_store), or DeferredApproval."
            )
            raise ToolUsageError(msg)


def _is_pause(error: BaseException) -> bool:
    return isinstance(error, GraphBubbleUp | ApprovalPending | NotGranted) or is_invalid_resume(
        error
    )


def _streamed(progress: FlowProgress) -> None:
    """Tell readers of the run's ``custom`` stream how far a Map is."""
    get_runtime().stream_writer(
        {
            "flow": progress.flow,
            "node": progress.node,
            "visit": progress.visit,
            "done": progress.done,
            "total": progress.total,
        }
    )
