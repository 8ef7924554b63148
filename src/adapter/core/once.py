"""once_per_run: of the same calls in a run one runs, and the others get its result.

They share one row of the journal, so whatever makes a row run once makes them run once. What is
left to do here is to wait for the call that has the row, and not to ask a second time about it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from adapter.core.approvals import ApprovalPort
from adapter.core.journal import Journal
from adapter.core.store import CallRow
from adapter.core.types import CallStatus
from adapter.core.work import Work

__all__ = ["Once", "another"]

_OPEN = frozenset({CallStatus.REQUESTED, CallStatus.APPROVED, CallStatus.SUSPENDED})
_PAUSE = 0.02
_PAUSES = 250
"""How often to look whether the call that this run's answer is for has taken it: five seconds."""

_FIRST = 15
"""How often a call lets another one of its own task be the first to pause: a third of a second."""


def another(work: Work, row: CallRow) -> bool:
    """Tell whether a row that this call shares was made by another call."""
    place = work.ctx.place
    return work.spec.once_per_run and (row.checkpoint_ns, row.task_id, row.tool_call_id) != (
        place.checkpoint_ns,
        place.task_id,
        work.call.id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """Waits for other calls.

    Attributes:
        port: How people are asked, if anybody is.
        clock: Milliseconds since the epoch.
        sleep: How to wait.
    """

    journal: Journal
    port: ApprovalPort | None
    clock: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]]
    _alone: dict[str, object] = field(default_factory=dict, init=False, repr=False)

    @asynccontextmanager
    async def alone(self, work: Work) -> AsyncIterator[None]:
        """Let the same calls go one at a time in this process, while no row says that one began."""
        mine, key = object(), work.identity.key
        while work.spec.once_per_run and self._alone.setdefault(key, mine) is not mine:
            await self.sleep(_PAUSE)
        try:
            yield
        finally:
            if self._alone.get(key) is mine:
                del self._alone[key]

    async def begun(self, work: Work) -> CallRow | None:
        """Return the row of a call that may run once in a run, if one of its like made it."""
        if not work.spec.once_per_run:
            return None
        row = await self.journal.store.get(work.identity.key)
        return None if row is None else await self.latest(work, row)

    async def latest(self, work: Work, row: CallRow) -> CallRow:
        """Return a call's row, once another call that has it no longer runs or waits beside it.

        Leaves by the port's way of pausing while the other one waits for a person: its question
        is this call's too.
        """
        pauses = 0
        while another(work, row):
            if row.status is CallStatus.CLAIMED and (row.lease_until or 0) > self.clock():
                await self.sleep(_PAUSE)
            elif row.status in _OPEN and (
                (pauses < _PAUSES and self._answered(row)) or self._first(work, row, pauses)
            ):
                pauses += 1
                await self.sleep(_PAUSE)
            elif row.status in _OPEN and _beside(work, row):
                self._pause()
                return row
            else:
                return row
            row = await self.journal.store.get(row.key) or row
        return row

    def _answered(self, row: CallRow) -> bool:
        """Tell whether this run brings an answer that the other call is about to take."""
        port = self.port
        if port is None:
            return False
        if row.status is CallStatus.SUSPENDED and port.resuming():
            return True  # the tool's own question: the row does not know its id
        return port.answers_now(row) or port.has_answer()

    def _first(self, work: Work, row: CallRow, pauses: int) -> bool:
        """Tell whether to let the other call pause first: one task ends with its first pause."""
        here = row.task_id == work.ctx.place.task_id
        return here and _beside(work, row) and pauses < _FIRST

    def _pause(self) -> None:
        if self.port is not None:
            self.port.pause()


def _beside(work: Work, row: CallRow) -> bool:
    """Tell whether the other call runs in the same step; in a fork it does not, and never will."""
    return row.message_id != "" and (
        row.message_id == work.call.message_id and row.tool_call_id != work.call.id
    )
