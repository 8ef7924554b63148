"""The store's methods about calls: questions, claims, votes, doubts; part of ``SqlStore``.

Encoding happens here, before an operation is queued; see ``adapter.stores.rows``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from adapter.core.store import (
    CallRow,
    Charge,
    Claim,
    Claimed,
    Close,
    Event,
    NewCall,
    Opened,
    Resolve,
    Settle,
    Vote,
)
from adapter.core.types import JsonObject
from adapter.stores import desk, reads, travel
from adapter.stores.claims import claim_call, renew_claim, settle_call
from adapter.stores.questions import close_question, open_question
from adapter.stores.rows import encoded, new_call_values
from adapter.stores.transaction import Operation
from adapter.stores.writer import Writer

__all__ = ["Calls", "scopes_of", "threads_of"]


class Calls(ABC):
    """The journal."""

    _writer: Writer

    @abstractmethod
    async def _read(self, operation: Operation[Any]) -> Any: ...

    async def open(
        self, call: NewCall, events: Sequence[Event] = (), peek: Sequence[Charge] = ()
    ) -> Opened:
        """Make the row of a question unless it exists; look at counters, charging nothing."""
        operation = partial(
            open_question,
            values=new_call_values(call),
            ttl=call.ttl,
            events=events,
            peek=peek,
        )
        made: Opened = await self._writer.run(
            operation, (call.key, *threads_of(events), *scopes_of(peek))
        )
        return made

    async def claim(self, claim: Claim) -> Claimed:
        """Claim a call, charge its counters and write its events, or do nothing."""
        new = claim.new
        operation = partial(
            claim_call,
            claim=claim,
            decision=encoded(claim.decision),
            values=None if new is None else new_call_values(new),
        )
        # the thread's lock keeps two tasks' rows of one call from being made at once
        thread = () if new is None else (new.thread_id,)
        made: Claimed = await self._writer.run(
            operation, (claim.key, *thread, *threads_of(claim.events), *scopes_of(claim.charges))
        )
        return made

    async def settle(self, settle: Settle) -> bool:
        """Record how a claimed call ended; False when the fence was stale."""
        operation = partial(settle_call, settle=settle, outcome=encoded(settle.outcome))
        locks = (settle.key, *threads_of(settle.events), *scopes_of(settle.refunds))
        changed: bool = await self._writer.run(operation, locks)
        return changed

    async def renew(self, key: str, fence: int, lease: float) -> bool:
        """Extend a live claim; False when it is no longer ours."""
        operation = partial(renew_claim, key=key, fence=fence, lease=lease)
        ours: bool = await self._writer.run(operation, (key,))
        return ours

    async def close_question(self, close: Close) -> tuple[bool, CallRow | None]:
        """End a question without a run; returns whether it changed, and the row."""
        operation = partial(
            close_question,
            close=close,
            decision=encoded(close.decision),
            before=encoded(close.before),
            outcome=encoded(close.outcome),
        )
        ended: tuple[bool, CallRow | None] = await self._writer.run(
            operation, (close.key, *threads_of(close.events))
        )
        return ended

    async def vote(self, vote: Vote, events: Sequence[Event]) -> bool:
        """Keep one reviewer's vote; False when the question is no longer open."""
        operation = partial(desk.cast_vote, vote=vote, events=events)
        kept: bool = await self._writer.run(operation, (vote.key, *threads_of(events)))
        return kept

    async def votes(self, key: str) -> Sequence[Vote]:
        """Return the votes of a question, in the order they came."""
        found: Sequence[Vote] = await self._read(partial(desk.votes_of, key=key))
        return found

    async def unsettled(self, limit: int = 100) -> Sequence[CallRow]:
        """Return rows that are in doubt, or claimed with a lease that ran out."""
        rows: Sequence[CallRow] = await self._writer.run(partial(desk.unsettled, limit=limit))
        return rows

    async def overdue(self, limit: int = 100) -> Sequence[CallRow]:
        """Return questions past their deadline that nobody closed."""
        rows: Sequence[CallRow] = await self._writer.run(partial(desk.overdue, limit=limit))
        return rows

    async def resolve(self, resolve: Resolve) -> tuple[bool, CallRow | None]:
        """Settle a row that is in doubt as a person says."""
        operation = partial(desk.resolve_call, resolve=resolve, outcome=encoded(resolve.outcome))
        ended: tuple[bool, CallRow | None] = await self._writer.run(
            operation, (resolve.key, *threads_of(resolve.events))
        )
        return ended

    async def get(self, key: str) -> CallRow | None:
        """Return one row of the journal."""
        # through the writer: eight calls resumed together share one look, without a thread each
        row: CallRow | None = await self._writer.run(partial(reads.get, key=key))
        return row

    async def of_message(self, thread_id: str, message_id: str) -> Sequence[CallRow]:
        """Return the rows of one AI message's calls, in all tasks, oldest first."""
        operation = partial(reads.of_message, thread_id=thread_id, message_id=message_id)
        rows: Sequence[CallRow] = await self._read(operation)
        return rows

    async def export_rows(
        self, thread_id: str, checkpoint_ns: Sequence[str] | None = None
    ) -> list[JsonObject]:
        """Return the rows of a thread's tasks as JSON, outcomes as they are stored."""
        operation = partial(travel.export, thread_id=thread_id, namespaces=checkpoint_ns)
        rows: list[JsonObject] = await self._read(operation)
        return rows

    async def adopt_rows(self, rows: Sequence[JsonObject]) -> int:
        """Take in rows that are unknown here, or got further elsewhere; return how many."""
        keys = tuple(str(row.get("key")) for row in rows)
        taken: int = await self._writer.run(partial(travel.adopt, rows=rows), keys)
        return taken

    async def requested(self, thread_id: str | None = None, limit: int = 100) -> Sequence[CallRow]:
        """Return rows that wait for an answer, oldest first."""
        operation = partial(reads.requested, thread_id=thread_id, limit=limit)
        rows: Sequence[CallRow] = await self._read(operation)
        return rows


def threads_of(events: Iterable[Event]) -> list[str]:
    """Return the names of the chains that events go to, to lock them."""
    return [event.thread_id for event in events]


def scopes_of(charges: Iterable[Charge]) -> list[str]:
    """Return the names of the counters that are charged, to lock them."""
    return [charge.scope for charge in charges]
