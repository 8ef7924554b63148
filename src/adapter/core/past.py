"""What happens to a call whose row is no longer open: replay, refuse, take over.

The recorded outcome comes back, unless this very run tries to use its answer a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from adapter.core.answers import completed
from adapter.core.approvals import ApprovalPort, BoundRow
from adapter.core.budgets import exceeded
from adapter.core.errors import AdapterError, ApprovalExpired, PolicyDenied, StoreUnavailable
from adapter.core.journal import Journal
from adapter.core.once import Once, another
from adapter.core.outcomes import EXPIRED, error_outcome, raise_recorded, unusable
from adapter.core.store import CallRow
from adapter.core.types import CallStatus, JsonObject, JsonValue
from adapter.core.work import Work

__all__ = ["OPEN", "Past", "executed_before"]

OPEN = frozenset({CallStatus.REQUESTED, CallStatus.APPROVED, CallStatus.SUSPENDED})
"""States in which a question still waits for its claim."""


def _replayable(row: CallRow, outcome: JsonValue) -> bool:
    """Tell whether the row has an outcome to give back; a void one may record a refusal."""
    if row.status is CallStatus.EXPIRED:
        return True
    return isinstance(outcome, dict) and (
        row.status.settled or (row.status is CallStatus.VOID and "error" in outcome)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Deals with earlier runs of a call.

    Attributes:
        port: How people are asked, if anybody is.
        clock: Milliseconds since the epoch.
        once: Waits for other calls that have the same row.
        audience: Id of this installation inside every binding; None takes the store's.
    """

    journal: Journal
    port: ApprovalPort | None
    clock: Callable[[], int]
    once: Once
    audience: str | None = None
    _audience: list[str] = field(default_factory=list, init=False, repr=False)

    async def spent(self, work: Work, scope: str) -> NoReturn:
        """Close a call whose counter has nothing left.

        Raises:
            BudgetExceeded: Always.
        """
        error = exceeded(scope)
        await self.journal.close(work.ctx, work.subject, CallStatus.VOID, error_outcome(error))
        await self.refused(work, error)
        raise error

    async def earlier(self, work: Work, row: CallRow | None) -> Any:
        """Return the recorded outcome, unless this very run tries to use its answer again."""
        if row is None:
            msg = "The journal lost the row of this call; nothing ran."
            raise StoreUnavailable(msg)
        row = await self._noted(work, await self.once.latest(work, row))
        outcome = self.journal.outcome(row)
        # An answer to an expired question was never used: it comes too late, that is all.
        expired = row.status is CallStatus.EXPIRED
        if _replayable(row, outcome) and (expired or not await self.again(work, row)):
            await self.revisit(row)
            await self.journal.record(
                "replayed", work.ctx, work.subject, part=_reader(work), once=True
            )
            if row.status is CallStatus.EXPIRED:
                raise ApprovalExpired(EXPIRED)
            raise_recorded(outcome)
            return work.invocation.replay(outcome["result"])
        if another(work, row) and row.status is CallStatus.VOID:
            error: AdapterError = PolicyDenied(_OVERTAKEN)
        else:
            error = unusable(row, self._judged(work, row))
        await self.journal.record(
            "refused",
            work.ctx,
            work.subject,
            part=f"{error.code}:{work.ctx.run_token}",
            once=True,
            error=error.kind,
            code=error.code,
        )
        raise error

    def _judged(self, work: Work, row: CallRow) -> int:
        """Return the time by which a row is judged.

        A claim that ran out since ours was refused is as good as running still where another run
        may take it over: nothing about it is in doubt.
        """
        if row.status is CallStatus.CLAIMED and self.takeover(work, row):
            return (row.lease_until or 0) - 1
        return self.clock()

    async def _noted(self, work: Work, row: CallRow) -> CallRow:
        """Return the row; a claim whose lease ran out is in doubt from now on, with one event."""
        if self.takeover(work, row):
            return row
        if row.status is CallStatus.CLAIMED and (row.lease_until or 0) <= self.clock():
            _, now = await self.journal.doubt(work.ctx, work.subject, row)
            return now or row
        if row.status is CallStatus.IN_DOUBT and row.lease_until is not None:
            await self.journal.store.append([self.journal.ran_out(work.ctx, work.subject, row)])
        return row

    async def again(self, work: Work, row: CallRow) -> bool:
        """Tell whether this run, and not the one that claimed, answers the row's question by id."""
        if another(work, row) or row.run_id == work.ctx.run_token:
            return False
        return await self._answered(row)

    async def revisit(self, row: CallRow) -> None:
        """Take the saved answers to a row's question, and to no other."""
        if self.port is not None:
            self.port.revisit(await self.bound(row))

    async def _answered(self, row: CallRow) -> bool:
        """Tell whether this run brings an answer to this very question, whatever its id is now."""
        port = self.port
        if port is None or not port.answers_now(row):
            return False
        return port.answers_now(await self.bound(row))

    async def bound(self, row: CallRow) -> CallRow:
        """Return a row with its question's binding, if it asked in the host."""
        if row.request is None or row.interrupt_id is None:
            return row
        if not self._audience:
            stored = self.audience or await self.journal.store.audience(self.journal.ids())
            self._audience.append(stored)
        return BoundRow.of(row, row.request, self._audience[0])

    async def retried(self, row: CallRow) -> bool:
        """Tell whether a person let a call that was claimed before run again.

        A row that was never claimed is another matter: what a deferred port keeps there is yet to
        be verified.
        """
        return (
            row.status is CallStatus.APPROVED
            and row.fence > 0
            and row.decision is not None
            and not await self._answered(row)
        )

    def takeover(self, work: Work, row: CallRow) -> bool:
        """Tell whether a claim that ran out may be taken over: its effect can be repeated."""
        return (
            row.status in (CallStatus.CLAIMED, CallStatus.IN_DOUBT)
            and work.spec.effects.repeatable
            and row.lease_until is not None
            and row.lease_until <= self.clock()
        )

    async def refused(self, work: Work, error: AdapterError) -> None:
        """Audit a refusal."""
        await self.journal.record(
            "refused",
            work.ctx,
            work.subject,
            part=work.ctx.run_token,
            once=True,
            error=error.kind,
            code=error.code,
            reason=error.message,
            arguments=work.arguments,
        )


def _reader(work: Work) -> str:
    """Name who was given a recorded outcome: the run, and the call where several share it."""
    own = f":{work.call.id}" if work.spec.once_per_run else ""
    return work.ctx.run_token + own


_OVERTAKEN = (
    "Not executed: the same call was proposed before in this run, and nobody answered before the "
    "conversation went on. Do not retry unless the user asks again."
)


def executed_before(
    work: Work, row: CallRow, validate: Callable[[JsonObject], JsonObject]
) -> JsonObject:
    """Return the arguments an earlier claim ran with."""
    edited = (row.decision or {}).get("edited_args")
    if edited is None:
        return work.arguments
    return validate(completed(edited, work.arguments, work.spec.masks))
