"""Reading and verifying audit chains from a store, in pages, without holding one whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from adapter.core.audit_faults import Fault, Witness
from adapter.core.audit_heads import judged_anchor, judged_head
from adapter.core.audit_verify import ChainVerifier
from adapter.core.store import Anchor, StoredEvent, ThreadHead

if TYPE_CHECKING:
    from adapter.core.keys import KeyRing

__all__ = ["Trail", "Verdict", "all_threads", "last_events", "new_events", "verify_thread"]

PAGE = 2_000
"""Events read at a time."""

Witnesses = Mapping[str, Sequence[Witness]]


class Trail(Protocol):
    """The part of a store that is read here."""

    async def events(
        self, thread_id: str, after: int = 0, limit: int = 1000
    ) -> Sequence[StoredEvent]:
        """Return links of a thread's chain with ``seq > after``, in order."""
        ...

    async def link_rows(
        self, thread_id: str, after: int | None = None, limit: int = 1000
    ) -> Sequence[Sequence[Any]]:
        """Return links as columns, from the first row on."""
        ...

    async def head_run(self, thread_id: str) -> tuple[Any, Any] | None:
        """Return the run that a head goes on with and its number there."""
        ...

    async def heads(self, thread_id: str | None = None) -> Sequence[ThreadHead]:
        """Return the newest link of every thread, or of one."""
        ...

    async def threads(self) -> Sequence[str]:
        """Return every thread that has a link."""
        ...

    async def anchors(self, thread_id: str | None = None) -> Sequence[Anchor]:
        """Return where the pruned chains begin."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What verifying one thread found.

    Attributes:
        count: Events read.
        head: The head they were compared with.
        anchor: Where the chain begins if it was pruned.
    """

    thread_id: str
    count: int
    head: ThreadHead | None
    faults: tuple[Fault, ...]
    anchor: Anchor | None = None


async def all_threads(trail: Trail, witnesses: Witnesses) -> list[str]:
    """Return every thread that has links, a head, an anchor, or a head kept elsewhere."""
    heads, anchors = await trail.heads(), await trail.anchors()
    named = {one.thread_id for one in heads} | {one.thread_id for one in anchors}
    return sorted({*named, *await trail.threads(), *witnesses})


async def verify_thread(
    trail: Trail,
    thread_id: str,
    *,
    keys: KeyRing | None = None,
    witnesses: Sequence[Witness] = (),
) -> Verdict:
    """Verify one thread's chain while it may still grow, or be pruned.

    Args:
        trail: The store.
        thread_id: The thread.
        keys: The ring whose audit keys sign heads; None leaves signatures unchecked.
        witnesses: Heads of this thread that were kept elsewhere, read before.
    """
    while True:
        anchors = await trail.anchors(thread_id)
        anchor = anchors[0] if anchors else None
        verdict = await _verify(trail, thread_id, anchor, keys, witnesses)
        if not verdict.faults or await trail.anchors(thread_id) == anchors:
            return verdict


async def _verify(
    trail: Trail,
    thread_id: str,
    anchor: Anchor | None,
    keys: KeyRing | None,
    witnesses: Sequence[Witness],
) -> Verdict:
    verifier = ChainVerifier(thread_id, anchor=anchor, witnesses=witnesses)
    faults: list[Fault] = []
    # Not from the anchor on: links that were pruned and are there again would go unseen.
    cursor: Any = None
    heads: Sequence[ThreadHead] | None = None
    run: tuple[Any, Any] | None = None
    while True:
        page = await trail.link_rows(thread_id, after=cursor, limit=PAGE)
        if not page:
            if heads is not None:
                break
            # The head, then once more the end: what was written meanwhile is read before judging.
            heads, run = await trail.heads(thread_id), await trail.head_run(thread_id)
            continue
        heads = None
        for row in page:
            if found := verifier.add_row(row):
                faults += found
        cursor = page[-1][1]
    head = heads[0] if heads else None
    faults += verifier.finish(head, run)
    if keys is not None:
        judged = (
            None if anchor is None else judged_anchor(anchor, keys),
            None if head is None else judged_head(head, keys),
        )
        faults += [fault for fault in judged if fault is not None]
    return Verdict(
        thread_id=thread_id, count=verifier.count, head=head, faults=tuple(faults), anchor=anchor
    )


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
