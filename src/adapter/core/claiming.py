"""The claim of a call with its hooks around it, and what happens where it cannot be claimed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from adapter.core.answers import Answer
from adapter.core.asking import Asker
from adapter.core.deciding import Decider
from adapter.core.journal import Journal
from adapter.core.past import OPEN, Past
from adapter.core.reading import Reader
from adapter.core.ruling import Ruling
from adapter.core.running import Runner
from adapter.core.spec import ApprovalRule
from adapter.core.store import CallRow, Claimed
from adapter.core.types import CallContext, CallStatus, JsonObject, ToolCall
from adapter.core.work import Work

__all__ = ["Asked", "Claimer", "Hook"]

_BEGUN = (CallStatus.CLAIMED, CallStatus.IN_DOUBT, CallStatus.SUSPENDED)
Hook = Callable[[ToolCall, CallContext], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Nothing ran: there is an open question about the call, though no rule asks for one now."""

    row: CallRow

    @property
    def rule(self) -> ApprovalRule:
        """The rule under which it was asked."""
        said = self.row.request or {}
        return ApprovalRule(
            name=said["rule"],
            reason=said["reason"],
            allowed=tuple(said["allowed"]),
            quorum=self.row.quorum_need,
            roles=tuple(said["roles"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimer:
    """Starts calls.

    Attributes:
        asker: Closes questions that are overdue, if anybody is asked.
        before: Awaited before the claim.
        after: Awaited after the outcome is recorded.
    """

    journal: Journal
    runner: Runner
    reader: Reader
    ruling: Ruling
    past: Past
    decider: Decider
    asker: Asker | None
    before: Sequence[Hook]
    after: Sequence[Hook]

    async def read(self, work: Work, *, keep: bool) -> Any:
        """Run a read-only call, which leaves no row.

        Args:
            work: The call.
            keep: Whether the result may serve another call.

        Raises:
            BudgetExceeded: Nothing ran.
        """
        if self.before:
            await self._hooks(self.before, work)
        charges = self.ruling.charges(work, again=True)
        spent, result = await self.reader.read(work, charges)
        return await self._done(work, spent, result, keep=keep)

    async def read_beside(self, work: Work, *, keep: bool) -> Any:
        """Run a read-only call whose task runs again with each answer to other calls of it.

        Args:
            work: The call.
            keep: Whether the result may serve another call.

        Raises:
            BudgetExceeded: Nothing ran.
        """
        row = await self.journal.store.get(work.identity.key)
        if row is not None and self.reader.kept(row):
            return await self.past.earlier(work, row)
        if row is not None and row.status not in _BEGUN:
            return await self.read(work, keep=keep)
        if self.before:
            await self._hooks(self.before, work)
        if row is not None and row.status is CallStatus.SUSPENDED:  # its claim is counted no more
            charges = self.ruling.charges(work, again=True)
            turn = await self.journal.store.charge(charges)
            if turn.exceeded is not None:
                await self.past.spent(work, turn.exceeded)
        new = self.journal.new_call(work.call, work.ctx, work.identity)
        claim = self._claim(work, work.arguments, new=new)
        claimed, result = await self.reader.recorded(work, claim)
        if claimed.state not in ("claimed", "exceeded"):
            return await self.read(work, keep=keep)
        return await self._done(work, claimed.exceeded, result, keep=keep)

    async def _done(self, work: Work, spent: str | None, result: Any, *, keep: bool) -> Any:
        if spent is not None:
            await self.past.spent(work, spent)
        if keep:
            self.ruling.keep(work, result)
        if self.after:
            await self._hooks(self.after, work)
        return result

    async def free(self, work: Work) -> Any:
        """Run a call that no person has to be asked about, claimed together with its row.

        Returns:
            The host's result; or Asked, where a person was asked about it under other rules.
        """
        row = await self.past.once.begun(work)
        if row is not None and row.status.settled:
            return await self.past.earlier(work, row)
        await self._hooks(self.before, work)
        return await self._claimed(
            work,
            work.arguments,
            new=self.journal.new_call(work.call, work.ctx, work.identity),
            unique=not work.spec.effects.read_only,
        )

    async def asked(self, work: Work) -> CallRow | None:
        """Return the row of a read if a person was asked about it and an answer may be here."""
        port = None if self.asker is None else self.asker.port
        if port is None or not (port.deferred or port.has_answer()):
            return None
        row = await self.journal.store.get(work.identity.key)
        return row if row is not None and row.request is not None and row.status in OPEN else None

    async def approved(self, work: Work, answer: Answer | None, arguments: JsonObject) -> Any:
        """Run a call that a person approved, using the answer up in the claim.

        Args:
            work: The call.
            answer: None where an earlier claim used it.
            arguments: What was approved.
        """
        await self._hooks(self.before, work)
        fields: dict[str, Any] = {}
        if answer is not None:
            fields = {
                "events": [self.decider.event(work, answer)],
                "decision": answer.raw,
                "answer": answer.digest,
                "interrupt_id": answer.interrupt_id,
            }
        return await self._claimed(work, arguments, **fields)

    def _claim(
        self, work: Work, arguments: JsonObject, **claim: Any
    ) -> Callable[[], Awaitable[Claimed]]:
        return partial(
            self.journal.claim,
            work.ctx,
            work.subject,
            arguments=arguments,
            charges=self.ruling.charges(work),
            repeatable=work.spec.effects.repeatable,
            **claim,
        )

    async def _claimed(self, work: Work, arguments: JsonObject, **claim: Any) -> Any:
        make = self._claim(work, arguments, **claim)
        claimed, result = await self.runner.run(work, make, arguments)
        if claimed.state == "claimed":
            await self._hooks(self.after, work)
            return result
        if claimed.state == "asked" and claimed.row is not None:
            if self.asker is not None:
                return Asked(row=claimed.row)
            return await self._claimed(work, arguments)  # nobody can be asked any more
        if claimed.state == "exceeded":
            await self.past.spent(work, claimed.exceeded or "")
        if claimed.state == "expired" and claimed.row is not None and self.asker is not None:
            await self.asker.expire(work, claimed.row)
        return await self.past.earlier(work, claimed.row)

    async def _hooks(self, hooks: Sequence[Hook], work: Work) -> None:
        for hook in hooks:
            await hook(work.call, work.ctx)
