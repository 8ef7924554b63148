"""Asking a person to raise a spent budget: a signed approval like any other, used once.

The question has a row in the journal and a binding; the claim that uses the answer adds to the
counter ``raise:<scope>`` in its own transaction. So a replay raises nothing twice, and a crash
after the claim loses nothing: the raise is the claim.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from adapter.core.answers import Answer
from adapter.core.approvals import ApprovalPort
from adapter.core.asking import Asker
from adapter.core.budgets import Budgets
from adapter.core.deciding import Decider
from adapter.core.errors import ApprovalDenied, ApprovalExpired, ConfigurationError
from adapter.core.journal import Journal, identify
from adapter.core.outcomes import unusable
from adapter.core.past import OPEN, Past
from adapter.core.rules import ApprovalRule
from adapter.core.spec import Registry, ToolSpec
from adapter.core.store import CallRow, Charge
from adapter.core.types import CallContext, CallStatus, Effects, JsonObject, ToolCall
from adapter.core.work import Work

__all__ = ["Raises"]

NAME: Final = "raise_budget"
"""Shown where a request of kind ``tool`` shows the tool."""

_RULE: Final = ApprovalRule(
    name="budget",
    reason="A budget is used up. Approving raises it once by its own size.",
    allowed=("approve", "reject"),
)
_SPEC: Final = ToolSpec(name=NAME, effects=Effects(), approval=_RULE)
_UNITS: Final = {
    "model_calls": "model calls",
    "tool_calls": "tool calls",
    "tokens": "tokens",
    "cost": "millionths of a dollar",
}
_RAISED = frozenset({CallStatus.CLAIMED, CallStatus.SUCCEEDED, CallStatus.IN_DOUBT})


class _Arguments:
    """What a raise says. Nobody edits it, so nothing else has to be validated."""

    json_schema: JsonObject = {  # noqa: RUF012 - the protocol's attribute, never written
        "type": "object",
        "additionalProperties": False,
        "required": ["budget", "limit", "raise_by", "unit"],
        "properties": {
            "budget": {"type": "string"},
            "limit": {"type": "integer"},
            "raise_by": {"type": "integer"},
            "unit": {"type": "string"},
        },
    }

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Return them as they are."""
        return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Raises:
    """Questions about raises of one executor."""

    asker: Asker
    past: Past
    decider: Decider
    budgets: Budgets

    @classmethod
    def over(cls, asker: Asker, *, past: Past, decider: Decider, budgets: Budgets) -> Raises:
        """Ask through the same port, journal and rules about people as an asker of tool calls."""
        registry = Registry([_SPEC], {NAME: _Arguments()})
        own = asker.about("budget", registry)
        return cls(asker=own, past=past, decider=decider, budgets=budgets)

    @property
    def _port(self) -> ApprovalPort:
        return self.asker.port

    @property
    def _journal(self) -> Journal:
        return self.asker.journal

    async def earlier(self, ctx: CallContext) -> str | None:
        """Take the questions this task asked before once more, in order, open ones included.

        Returns:
            The scope of one that was refused or expired; then the turn ends.
        """
        asked = await self._journal.store.of_message(ctx.thread_id, _message(ctx))
        for row in asked:
            call = ToolCall(
                name=NAME,
                arguments=dict((row.request or {})["arguments"]),
                id=row.tool_call_id,
                message_id=row.message_id,
            )
            if not await self._decided(ctx, call):
                return _scope(call)
        return None

    async def overtaken(self, ctx: CallContext, turns: Collection[str | None]) -> None:
        """Close the questions of earlier turns of this branch: a later message overtook them.

        Args:
            ctx: Where, in the newest turn.
            turns: Every turn of this branch. A question of no turn in it is another branch's, and
                stays open.
        """
        earlier = {*turns} - {ctx.place.turn_id}
        if not earlier:
            return
        for row in await self._journal.store.requested(ctx.thread_id):
            if row.kind == self.asker.words.kind and row.turn_id in earlier:
                await self._journal.overtake(ctx, row)

    async def ask(self, ctx: CallContext, scope: str) -> bool:
        """Ask for a raise of a spent budget, or leave by the port's way of pausing.

        Args:
            ctx: Where.
            scope: Counter of one of the budgets.

        Returns:
            Whether it was raised.

        Raises:
            ConfigurationError: This graph cannot pause.
        """
        if not ctx.place.durable:
            msg = (
                "Budgets(on_exceeded='ask') needs a graph that can pause: compile it with a "
                "checkpointer and give a thread_id (a LangGraph server does both)."
            )
            raise ConfigurationError(msg)
        budget, size = self.budgets.named(ctx)[scope]
        counter = f"raise:{scope}"
        raised = (await self._journal.store.charge([], show=[counter])).used[counter]
        call = ToolCall(
            name=NAME,
            arguments={
                "budget": budget,
                "limit": size + raised,
                "raise_by": size,
                "unit": _UNITS[budget.rpartition("_per_")[0]],
            },
            id=f"budget:{scope}:{raised // size + 1}",
            message_id=_message(ctx),
        )
        return await self._decided(ctx, call)

    async def _decided(self, ctx: CallContext, call: ToolCall) -> bool:
        work = self._work(ctx, call)
        async with self._port.turn():
            row = await self.asker.open(work, _RULE, ())
            if row.status not in OPEN:
                return await self._over(work, row)
            try:
                answer = await self.asker.ask(work, _RULE, row)
                if answer.approves:
                    return await self._claim(work, row, answer)
                await self.decider.close(work, answer)
            except (ApprovalDenied, ApprovalExpired):
                return False
            # somebody else was quicker
            return await self._over(work, await self._journal.store.get(row.key) or row)

    async def _claim(self, work: Work, row: CallRow, answer: Answer) -> bool:
        raised = Charge(scope=f"raise:{_scope(work.call)}", amount=work.arguments["raise_by"])
        claimed = await self._journal.claim(
            work.ctx,
            work.subject,
            arguments=work.arguments,
            charges=[raised],
            repeatable=False,
            events=[self.decider.event(work, answer)],
            decision=answer.raw,
            answer=answer.digest,
            interrupt_id=answer.interrupt_id,
        )
        row = claimed.row or row
        if claimed.state == "expired":
            await self.asker.expire(work, row)
        if claimed.state != "claimed":
            return await self._over(work, row)
        await self._settle(work, row)
        return True

    async def _over(self, work: Work, row: CallRow) -> bool:
        """Return how a question ended; this run's own answer to it was used before."""
        if await self.past.again(work, row):
            raise unusable(row, self.past.clock())
        await self.past.revisit(row)
        if row.status in (CallStatus.CLAIMED, CallStatus.IN_DOUBT):
            await self._settle(work, row)
        return row.status in _RAISED

    async def _settle(self, work: Work, row: CallRow) -> None:
        outcome = {"result": {"raised_by": work.arguments["raise_by"]}}
        await self._journal.settle(work.ctx, work.subject, row.fence, CallStatus.SUCCEEDED, outcome)

    def _work(self, ctx: CallContext, call: ToolCall) -> Work:
        identity = identify(call, ctx)
        return Work(
            spec=_SPEC,
            call=call,
            ctx=replace(ctx, call_id=call.id, idempotency_key=identity.idempotency_key),
            identity=identity,
            subject=self._journal.subject(call, identity, _SPEC),
            arguments=call.arguments,
            invocation=cast("Any", None),  # nothing is run, and nobody may answer in its place
        )


def _message(ctx: CallContext) -> str:
    """Stand in for the AI message of a call: rows of one task are found by it."""
    return f"budget:{ctx.place.task_id}"


def _scope(call: ToolCall) -> str:
    return call.id.removeprefix("budget:").rpartition(":")[0]
