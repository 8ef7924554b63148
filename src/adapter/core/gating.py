"""Gates: a person decides whether a node of a flow runs, by an approval like any other.

The question is a row of kind ``gate`` with a binding of its own; the claim that uses the answer
covers the whole visit of the node. What the node calls inside has rows of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from adapter.core.answers import Answer
from adapter.core.approvals import ApprovalPort
from adapter.core.asking import Asker
from adapter.core.canonical import digest
from adapter.core.deciding import Decider
from adapter.core.errors import (
    AdapterError,
    ApprovalAlreadyDecided,
    ApprovalPending,
    CallInProgress,
    ConfigurationError,
    ModelVisibleError,
    StoreUnavailable,
    ToolFailed,
)
from adapter.core.functions import FunctionInvocation
from adapter.core.invoke import held
from adapter.core.journal import Identity, Journal, arguments_digest
from adapter.core.leases import Lease
from adapter.core.outcomes import error_outcome
from adapter.core.past import OPEN, Past
from adapter.core.rules import ApprovalRule
from adapter.core.spec import Registry, ToolSpec
from adapter.core.store import CallRow
from adapter.core.types import CallContext, CallStatus, Effects, JsonObject, JsonValue, ToolCall
from adapter.core.work import Work

__all__ = ["Gate", "GateRun", "Gating"]

_log = logging.getLogger(__name__)

GateRun = Callable[[JsonObject | None], Awaitable[JsonValue]]
"""What a gate lets through: given the reviewer's edit, or None, it returns what is recorded."""

_RESUMABLE = (ApprovalAlreadyDecided, ApprovalPending, CallInProgress, StoreUnavailable)
"""Errors of a call inside a node that say nothing against the node: a later run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a reviewer is asked before a node runs.

    Attributes:
        flow: The flow's name.
        node: The node's name; shown where a request of kind ``tool`` shows the tool.
        arguments: What the node's ``pause`` function says of the state, JSON.
        schema: JSON schema of the state's fields, for an edit form.
        validate: Returns a canonical edit of the state, or raises ToolArgsInvalid.
        reason: Shown to the reviewer.
        state: Digest of all that the node works on. A grant is for exactly that: with another
            state the question is asked anew.
        group: Id by which the rows of one superstep's gates are found
            (``store.of_message(thread_id, group)``).
    """

    flow: str
    node: str
    arguments: JsonObject
    schema: JsonObject = field(repr=False)
    validate: Callable[[JsonObject], JsonObject] = field(repr=False)
    reason: str = ""
    state: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class _Edits:
    """A gate's edits as an argument schema."""

    json_schema: JsonObject
    validate: Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gating:
    """The gates of one executor.

    Attributes:
        grace: Seconds that recording how a cancelled visit ended may take.
    """

    asker: Asker
    past: Past
    decider: Decider
    grace: float

    @property
    def _port(self) -> ApprovalPort:
        return self.asker.port

    @property
    def _journal(self) -> Journal:
        return self.asker.journal

    async def run(
        self,
        gate: Gate,
        ctx: CallContext,
        run: GateRun,
        is_pause: Callable[[BaseException], bool],
    ) -> JsonValue:
        """Ask, and run what is behind the gate once; see ``Executor.gate``."""
        if not ctx.place.durable:
            msg = (
                f"Node {gate.node!r} of flow {gate.flow!r} has a gate, and this graph cannot pause:"
                " compile it with a checkpointer and give a thread_id (a LangGraph server does"
                " both)."
            )
            raise ConfigurationError(msg)
        work = await self._work(gate, ctx)
        one = self._of(gate, work)
        async with self._port.turn():
            # The turn ends with the claim: calls behind the gate take turns of their own.
            said = await one.leave()
        if isinstance(said, _Leave):
            return await self._behind(work, said, run, is_pause)
        return said

    def _of(self, gate: Gate, work: Work) -> _Gating:
        registry = Registry([work.spec], {gate.node: _Edits(gate.schema, gate.validate)})
        words = replace(self.asker.words, registry=registry, policy=None, kind="gate")
        asker = replace(self.asker, registry=registry, words=words)
        return _Gating(gate=gate, work=work, asker=asker, past=self.past, decider=self.decider)

    async def _work(self, gate: Gate, ctx: CallContext) -> Work:
        place = ctx.place
        facts = [place.thread_id, place.checkpoint_ns, place.task_id, gate.flow, gate.node]
        key = digest("gate-key/v1", facts)
        rule = ApprovalRule(
            name=f"flow {gate.flow}",
            reason=gate.reason or f"The flow {gate.flow} waits before {gate.node}.",
            allowed=("approve", "edit", "reject"),
        )
        # Running a visit again is harmless: every call in it is in the journal.
        spec = ToolSpec(
            name=gate.node,
            effects=Effects(idempotent=True),
            approval=rule,
            version=gate.state or "1",
        )
        row = await self._journal.store.get(key)
        shown = gate.arguments
        if row is not None and row.request is not None and row.policy_digest == spec.policy_digest:
            # A pause function that shows the time of day must not ask another question each time
            # the task runs.
            shown = dict(row.request["arguments"])
        call = ToolCall(
            name=gate.node, arguments=shown, id=f"gate:{gate.node}", message_id=gate.group
        )
        identity = Identity(
            key=key,
            arguments_digest=arguments_digest(shown, None),
            idempotency_key=digest("idempotency/v1", key),
        )
        return Work(
            spec=spec,
            call=call,
            ctx=replace(ctx, call_id=call.id, idempotency_key=identity.idempotency_key),
            identity=identity,
            subject=self._journal.subject(call, identity, spec),
            arguments=shown,
            invocation=FunctionInvocation(_nothing),
        )

    async def _behind(
        self,
        work: Work,
        leave: _Leave,
        run: GateRun,
        is_pause: Callable[[BaseException], bool],
    ) -> JsonValue:
        keeper = Lease(self._journal, work.subject.key, leave.fence)
        settle = partial(self._settle, work, leave.fence)
        try:
            result = work.invocation.record(await run(leave.edited))
        except BaseException as error:
            if not isinstance(error, Exception) or isinstance(error, _RESUMABLE) or is_pause(error):
                status, outcome = CallStatus.SUSPENDED, None
            else:
                status, outcome = CallStatus.FAILED, error_outcome(_shown(work, error))
            try:
                await settle(status, outcome)
            except StoreUnavailable:
                _log.warning("how a gated node ended could not be recorded; its lease will run out")
            raise
        finally:
            keeper.stop()
        await settle(CallStatus.SUCCEEDED, {"result": result})
        return result

    async def _settle(self, work: Work, fence: int, status: CallStatus, outcome: JsonValue) -> None:
        settling = self._journal.settle(work.ctx, work.subject, fence, status, outcome)
        await held(settling, self.grace, _nothing, stop=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leave:
    """The gate is open: the claim that was made, and the reviewer's edit."""

    fence: int
    edited: JsonObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gating:
    """One gate with its wording."""

    gate: Gate
    work: Work
    asker: Asker
    past: Past
    decider: Decider

    async def leave(self) -> _Leave | JsonValue:
        """Return leave to run, or what an earlier run recorded."""
        work, rule, port = self.work, self.work.spec.approval, self.asker.port
        assert rule is not None  # noqa: S101 - made above
        try:
            row = await self.asker.open(work, rule, ())
            if row.status is CallStatus.SUSPENDED:
                port.discard_used(row)
                if self.past.again(work, row):
                    return await self._over(row)
            if self._granted(row):
                self._check_state(row)
                return await self._once_more(row)
            if row.status not in OPEN:
                return await self._over(row)
            answer = await self.asker.ask(work, rule, row)
        except ModelVisibleError as error:
            await self.past.refused(work, error)
            raise
        if answer.approves:
            return await self._claim(row, answer)
        if answer.decision is None:
            msg = "The approval port returned an answer without a decision; nothing ran."
            raise ConfigurationError(msg)
        await self.decider.close(work, answer)
        return await self._over(await self._row() or row)  # somebody else was quicker

    def _granted(self, row: CallRow) -> bool:
        """Tell whether the row has its grant, and the visit behind it has not ended."""
        waits = row.status is CallStatus.SUSPENDED and row.fence > 0
        return waits or self.past.retried(row) or self.past.takeover(self.work, row)

    def _check_state(self, row: CallRow) -> None:
        """Refuse to go on with a state that nobody approved.

        Raises:
            ApprovalAlreadyDecided: It was changed behind the gate.
        """
        if row.policy_digest != self.work.spec.policy_digest:
            msg = (
                f"The state was changed after the gate before {self.gate.node} was opened for "
                "another one; the node does not run with it. Fork the thread: it asks again."
            )
            raise ApprovalAlreadyDecided(msg)

    async def _once_more(self, row: CallRow) -> _Leave | JsonValue:
        """Go on behind a gate that was opened before."""
        port = self.asker.port
        port.discard_used(row)
        before = port.position()
        port.revisit(row)
        taken_at = None
        if row.interrupt_id is not None and port.position() == before:
            # The host kept no answer to this question, so the first question behind the gate
            # gets its id; an answer to that one is no second answer to this one.
            taken_at = f"{row.key}:granted"
        return await self._claim(row, None, taken_at)

    async def _claim(
        self, row: CallRow, answer: Answer | None, taken_at: str | None = None
    ) -> _Leave | JsonValue:
        work, decision = self.work, row.decision or {}
        fields: dict[str, Any] = {"interrupt_id": taken_at}
        if answer is not None:
            decision = answer.raw or {}
            fields = {
                "events": [self.decider.event(work, answer)],
                "decision": answer.raw,
                "answer": answer.digest,
                "interrupt_id": answer.interrupt_id,
            }
        edited = decision.get("edited_args")
        if edited is not None:
            edited = self.gate.validate(edited)
        claiming = asyncio.ensure_future(
            self.asker.journal.claim(
                work.ctx,
                work.subject,
                arguments=work.arguments if edited is None else edited,
                charges=(),
                repeatable=True,
                **fields,
            )
        )
        try:
            claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            made = await claiming
            if made.state == "claimed" and made.row is not None:
                await self.asker.journal.settle(
                    work.ctx, work.subject, made.row.fence, CallStatus.SUSPENDED, None
                )
            raise
        if claimed.state == "claimed" and claimed.row is not None:
            return _Leave(fence=claimed.row.fence, edited=edited)
        if claimed.state == "expired" and claimed.row is not None:
            await self.asker.expire(work, claimed.row)
        return await self._over(claimed.row)

    async def _over(self, row: CallRow | None) -> JsonValue:
        """Return what was recorded, unless it was a failure, or this run's answer was used before.

        Raises:
            ApprovalAlreadyDecided: The grant is spent.
        """
        if row is not None and row.status is CallStatus.FAILED:
            self.asker.port.revisit(row)
            msg = (
                f"The gate before {self.gate.node} was opened and the node failed; its approval is "
                "used up and the node does not run again. To go on, fork the thread at an earlier "
                "checkpoint (it asks again), or write the node's result with update_state."
            )
            raise ApprovalAlreadyDecided(msg)
        return await self.past.earlier(self.work, row)

    async def _row(self) -> CallRow | None:
        return await self.asker.journal.store.get(self.work.identity.key)


async def _nothing(**_arguments: Any) -> None:
    """Stand for a tool that is never called, and for nothing to abandon."""


def _shown(work: Work, error: Exception) -> AdapterError:
    if isinstance(error, AdapterError):
        return error
    return ToolFailed(f"{work.spec.name} failed: {type(error).__name__}.")
