"""The store's methods about the audit trail; part of ``SqlStore``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from adapter.core.store import Anchor, Event, StoredEvent, ThreadHead
from adapter.stores import reads, retention
from adapter.stores.database import Database
from adapter.stores.transaction import Operation
from adapter.stores.writer import Writer

__all__ = ["Trail"]


class Trail(ABC):
    """Reading and pruning chains."""

    _database: Database
    _writer: Writer
    _in_memory: bool

    @abstractmethod
    async def _read(self, operation: Operation[Any]) -> Any: ...

    async def events(
        self, thread_id: str, after: int = 0, limit: int = 1000
    ) -> Sequence[StoredEvent]:
        """Return links of a thread's chain with ``seq > after``, in order."""
        operation = partial(retention.events, thread_id=thread_id, after=after, limit=limit)
        links: Sequence[StoredEvent] = await self._read(operation)
        return links

    async def link_rows(
        self, thread_id: str, after: int | None = None, limit: int = 1000
    ) -> Sequence[Sequence[Any]]:
        """Return links as columns, which is much quicker, and all that is stored beside a line.

        Args:
            thread_id: The chain.
            after: Number of the link before; None begins with the first row there is.
            limit: How many.

        Returns:
            thread_id, seq, event_id, kind, line, hash, run_id, run_seq, turn_id.
        """
        operation = partial(retention.link_rows, thread_id=thread_id, after=after, limit=limit)
        rows: Sequence[Sequence[Any]] = await self._read(operation)
        return rows

    async def heads(self, thread_id: str | None = None) -> Sequence[ThreadHead]:
        """Return the newest link of every thread, or of one."""
        found: Sequence[ThreadHead] = await self._read(
            partial(retention.heads, thread_id=thread_id)
        )
        return found

    async def head_run(self, thread_id: str) -> tuple[Any, Any] | None:
        """Return the run that a head goes on with and its number there; None without a head."""
        found: tuple[Any, Any] | None = await self._read(
            partial(retention.head_run, thread_id=thread_id)
        )
        return found

    async def threads(self) -> Sequence[str]:
        """Return every thread that has a link, whether it has a head or not."""
        found: Sequence[str] = await self._read(retention.threads)
        return found

    async def anchors(self, thread_id: str | None = None) -> Sequence[Anchor]:
        """Return where the pruned chains begin: all of them, or one thread's."""
        found: Sequence[Anchor] = await self._read(partial(retention.anchors, thread_id=thread_id))
        return found

    async def first_kept(self, thread_id: str) -> int | None:
        """Return the first link of a turn whose calls are open, running or in doubt."""
        found: int | None = await self._read(partial(retention.first_kept, thread_id=thread_id))
        return found

    async def prune(self, anchor: Anchor, event: Event) -> int:
        """Remove a chain's links up to an anchor, keep the anchor, and link the event.

        Args:
            anchor: The last link to remove.
            event: Written in the same transaction.

        Returns:
            How many links were removed; 0, and nothing written, when the chain changed meanwhile.
        """
        operation = partial(retention.prune_chain, anchor=anchor, event=event)
        removed: int = await self._writer.run(operation, (anchor.thread_id,))
        return removed

    async def old_outcomes(self, before: int) -> Sequence[tuple[str, int]]:
        """Return how many recorded outcomes of each thread are older than ``before``, in ms."""
        found: Sequence[tuple[str, int]] = await self._read(
            partial(retention.old_outcomes, before=before)
        )
        return found

    async def clear_outcomes(self, thread_id: str, before: int, event: Event) -> int:
        """Remove recorded outcomes older than ``before``; their rows stay settled.

        Returns:
            How many were removed; the event is written only then.
        """
        operation = partial(
            retention.clear_outcomes, thread_id=thread_id, before=before, event=event
        )
        cleared: int = await self._writer.run(operation, (thread_id,))
        return cleared

    def backlog(
        self, thread_id: str, after: int, limit: int
    ) -> tuple[Anchor | None, Sequence[StoredEvent]]:
        """Read earlier links, for a sink that missed them; blocks, so never on an event loop.

        A store in memory has nothing to give: it does not outlive its sinks.
        """
        if self._in_memory:
            return None, ()
        anchor, links = (
            reads.run(self._database, self._writer, operation)
            for operation in (
                partial(retention.anchors, thread_id=thread_id),
                partial(retention.events, thread_id=thread_id, after=after, limit=limit),
            )
        )
        return (anchor[0] if anchor else None), links
