"""One gate: what the reviewer is asked, and the claim that uses the answer.

The question is a row of kind ``gate`` with a binding of its own. A grant is for one state; where a
visit was interrupted, the next run claims again under the same grant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from adapter.core.answers import Answer
from adapter.core.asking import Asker
from adapter.core.deciding import Decider
from adapter.core.errors import ApprovalAlreadyDecided, ConfigurationError, ModelVisibleError
from adapter.core.past import OPEN, Past
from adapter.core.rules import ApprovalRule
from adapter.core.spec import ToolSpec
from adapter.core.store import CallRow
from adapter.core.types import CallStatus, Effects, JsonObject, JsonValue
from adapter.core.work import Work

__all__ = ["Gate", "Leave", "Opening", "gate_spec"]

_SHUT = frozenset({CallStatus.DENIED, CallStatus.EXPIRED, CallStatus.VOID})
"""How a gate ends that let nothing through: that holds whatever became of the state."""


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


def gate_spec(flow: str, node: str, state: str, reason: str = "") -> ToolSpec:
    """Return what a gate's approval relies on; its digest is the row's ``policy_digest``."""
    rule = ApprovalRule(
        name=f"flow {flow}",
        reason=reason or f"The flow {flow} waits before {node}.",
        allowed=("approve", "edit", "reject"),
    )
    # Running a visit again is harmless: every call in it is in the journal.
    return ToolSpec(
        name=node, effects=Effects(idempotent=True), approval=rule, version=state or "1"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The gate is open: the claim that was made, and the reviewer's edit."""

    fence: int
    edited: JsonObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """One gate on the way to being open.

    Attributes:
        asker: Asks, in the gate's own words.
    """

    gate: Gate
    work: Work
    asker: Asker
    past: Past
    decider: Decider

    async def leave(self) -> Leave | JsonValue:
        """Return leave to run, or what an earlier run recorded."""
        work, rule, port = self.work, self.work.spec.approval, self.asker.port
        assert rule is not None  # noqa: S101 - made above
        try:
            row = await self.asker.open(work, rule, ())
            if row.status is CallStatus.SUSPENDED:
                port.discard_used(row)
                if await self.past.again(work, row):
                    return await self._over(row)
            if await self._granted(row):
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

    async def _granted(self, row: CallRow) -> bool:
        """Tell whether the row has its grant, and the visit behind it has not ended."""
        waits = row.status is CallStatus.SUSPENDED and row.fence > 0
        return waits or await self.past.retried(row) or self.past.takeover(self.work, row)

    def _check_state(self, row: CallRow) -> None:
        """Refuse to go on with a state that nobody approved.

        Raises:
            ApprovalAlreadyDecided: It was changed behind the gate.
        """
        if row.policy_digest != self.work.spec.policy_digest:
            msg = (
                f"The state was changed after the gate before {self.gate.node} was opened for "
                "another one (or for another version of the flow); nothing runs behind it. Fork "
                "the thread, or begin with another run_id: it asks again."
            )
            raise ApprovalAlreadyDecided(msg)

    async def _once_more(self, row: CallRow) -> Leave | JsonValue:
        """Go on behind a gate that was opened before."""
        port = self.asker.port
        port.discard_used(row)
        before = port.position()
        await self.past.revisit(row)
        taken_at = None
        if row.interrupt_id is not None and port.position() == before:
            # The host kept no answer to this question, so the first question behind the gate
            # gets its id; an answer to that one is no second answer to this one.
            taken_at = f"{row.key}:granted"
        return await self._claim(row, None, taken_at)

    async def _claim(
        self, row: CallRow, answer: Answer | None, taken_at: str | None = None
    ) -> Leave | JsonValue:
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
            return Leave(fence=claimed.row.fence, edited=edited)
        if claimed.state == "expired" and claimed.row is not None:
            await self.asker.expire(work, claimed.row)
        return await self._over(claimed.row)

    async def _over(self, row: CallRow | None) -> JsonValue:
        """Return what was recorded, unless it was a failure, or this run's answer was used before.

        Raises:
            ApprovalAlreadyDecided: The grant is spent.
        """
        if row is not None and row.status is CallStatus.FAILED:
            await self.past.revisit(row)
            msg = (
                f"The gate before {self.gate.node} was opened and the node failed; its approval is "
                "used up and the node does not run again. Begin a new run: it asks again. In a "
                "LangGraph thread you can also fork an earlier checkpoint, or write the node's "
                "result with update_state."
            )
            raise ApprovalAlreadyDecided(msg)
        if row is not None and row.status not in _SHUT:
            self._check_state(row)
        return await self.past.earlier(self.work, row)

    async def _row(self) -> CallRow | None:
        return await self.asker.journal.store.get(self.work.identity.key)
