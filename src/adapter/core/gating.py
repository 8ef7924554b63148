"""Gates: a person decides whether a node of a flow runs, by an approval like any other.

The question is a row of kind ``gate`` with a binding of its own; the claim that uses the answer
covers the whole visit of the node. What the node calls inside has rows of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
    StoreUnavailable,
    ToolFailed,
)
from adapter.core.functions import FunctionInvocation
from adapter.core.gates import Gate, Leave, Opening, gate_spec
from adapter.core.invoke import held
from adapter.core.journal import Identity, Journal, arguments_digest
from adapter.core.leases import Lease
from adapter.core.outcomes import error_outcome
from adapter.core.past import Past
from adapter.core.spec import Registry
from adapter.core.types import CallContext, CallStatus, JsonObject, JsonValue, ToolCall
from adapter.core.work import Work

__all__ = ["Gate", "GateRun", "Gating"]

_log = logging.getLogger(__name__)

GateRun = Callable[[JsonObject | None], Awaitable[JsonValue]]
"""What a gate lets through: given the reviewer's edit, or None, it returns what is recorded."""

_RESUMABLE = (ApprovalAlreadyDecided, ApprovalPending, CallInProgress, StoreUnavailable)
"""Errors of a call inside a node that say nothing against the node: a later run goes on."""


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
        if isinstance(said, Leave):
            return await self._behind(work, said, run, is_pause)
        return said

    def _of(self, gate: Gate, work: Work) -> Opening:
        registry = Registry([work.spec], {gate.node: _Edits(gate.schema, gate.validate)})
        asker = self.asker.about("gate", registry)
        return Opening(gate=gate, work=work, asker=asker, past=self.past, decider=self.decider)

    async def _work(self, gate: Gate, ctx: CallContext) -> Work:
        place = ctx.place
        facts = [place.thread_id, place.checkpoint_ns, place.task_id, gate.flow, gate.node]
        key = digest("gate-key/v1", facts)
        spec = gate_spec(gate.flow, gate.node, gate.state, gate.reason)
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
        leave: Leave,
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


async def _nothing(**_arguments: Any) -> None:
    """Stand for a tool that is never called, and for nothing to abandon."""


def _shown(work: Work, error: Exception) -> AdapterError:
    if isinstance(error, AdapterError):
        return error
    return ToolFailed(f"{work.spec.name} failed: {type(error).__name__}.")
