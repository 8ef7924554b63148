"""Reading and verifying audit chains from a store, in pages, without holding one whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from adapter.core.audit_faults import Fault
from adapter.core.audit_verify import ChainVerifier
from adapter.core.store import StoredEvent, ThreadHead

__all__ = ["Trail", "Verdict", "last_events", "new_events", "verify_thread"]

PAGE = 1_000
"""Events read at a time."""


class Trail(Protocol):
    """The part of a store that is read here."""

    async def events(
        self, thread_id: str, after: int = 0, limit: int = 1000
    ) -> Sequence[StoredEvent]:
        """Return links of a thread's chain with ``seq > after``, in order."""
        ...

    async def heads(self, thread_id: str | None = None) -> Sequence[ThreadHead]:
        """Return the newest link of every thread, or of one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What verifying one thread found.

    Attributes:
        count: Events read.
        head: The head they were compared with.
    """

    thread_id: str
    count: int
    head: ThreadHead | None
    faults: tuple[Fault, ...]


async def verify_thread(trail: Trail, thread_id: str) -> Verdict:
    """Verify one thread's chain while it may still grow.

    Args:
        trail: The store.
        thread_id: The thread.
    """
    verifier = ChainVerifier(thread_id)
    faults: list[Fault] = []
    cursor = 0
    while True:
        # The head first: links written after it was read are then simply read again below.
        heads = await trail.heads(thread_id)
        page = await trail.events(thread_id, after=cursor, limit=PAGE)
        if not page:
            head = heads[0] if heads else None
            faults += verifier.finish(head)
            return Verdict(
                thread_id=thread_id, count=verifier.count, head=head, faults=tuple(faults)
            )
        for event in page:
            faults += verifier.add(event)
        cursor = page[-1].seq


async def last_events(trail: Trail, thread_id: str | None, count: int) -> list[StoredEvent]:
    """Return the newest events of one thread, or of each thread.

    Args:
        trail: The store.
        thread_id: The thread, or None.
        count: How many of each thread.
    """
    found: list[StoredEvent] = []
    for head in await trail.heads(thread_id):
        after = max(0, head.seq - count)
        found += await trail.events(head.thread_id, after=after, limit=count)
    return found


async def new_events(
    trail: Trail, thread_id: str | None, seen: dict[str, int]
) -> AsyncIterator[StoredEvent]:
    """Yield the events written since the last look, and remember them in ``seen``.

    Args:
        trail: The store.
        thread_id: The thread, or None for all.
        seen: Highest sequence number shown, by thread; changed in place.
    """
    for head in await trail.heads(thread_id):
        after = seen.get(head.thread_id, 0)
        if head.seq > after:
            for event in await trail.events(head.thread_id, after=after, limit=PAGE):
                seen[head.thread_id] = event.seq
                yield event
