"""The one store interface.

Everything that must stay true outside the graph's checkpoint lives behind it: calls, counters,
audit. Each method is one transaction. Implementations are in ``adapter.stores``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from adapter.core.counters import Charge
from adapter.core.errors import ConfigurationError
from adapter.core.links import Anchor, Event, StoredEvent, ThreadHead
from adapter.core.records import (
    CallRow,
    Claim,
    Claimed,
    Close,
    NewCall,
    Opened,
    Resolve,
    Settle,
    Turn,
    Vote,
)
from adapter.core.types import JsonObject

__all__ = [
    "Anchor",
    "CallRow",
    "Charge",
    "Claim",
    "Claimed",
    "Close",
    "Event",
    "NewCall",
    "Opened",
    "Resolve",
    "Settle",
    "Store",
    "StoredEvent",
    "ThreadHead",
    "Turn",
    "Vote",
    "check_store",
]


def check_store(store: object, taker: str) -> None:
    """Refuse what is no store before anything is asked of it.

    Args:
        store: What was given.
        taker: The call it was given to, as it is written.

    Raises:
        ConfigurationError: It is no store.
    """
    if not callable(getattr(store, "claim", None)):
        msg = (
            f"{taker} takes a store, not a {type(store).__name__}: give "
            "open_store('sqlite:///adapter.db'), or MemoryStore() for a trial."
        )
        raise ConfigurationError(msg)


class Store(Protocol):
    """Durable memory of the adapter. Every method raises StoreUnavailable when it cannot."""

    async def audience(self, proposed: str) -> str:
        """Return the stored audience id, storing ``proposed`` when there is none."""
        ...

    async def get(self, key: str) -> CallRow | None:
        """Return one row of the journal."""
        ...

    async def of_message(self, thread_id: str, message_id: str) -> Sequence[CallRow]:
        """Return the rows of one AI message's calls, in all tasks, oldest first."""
        ...

    async def export_rows(
        self, thread_id: str, checkpoint_ns: Sequence[str] | None = None
    ) -> list[JsonObject]:
        """Return the rows of a thread's tasks as JSON, outcomes as they are stored, with votes.

        For a store that ends with its process: the rows travel with a sealed checkpoint.

        Args:
            thread_id: The thread.
            checkpoint_ns: Namespaces of the tasks; None for all of the thread.
        """
        ...

    async def adopt_rows(self, rows: Sequence[JsonObject]) -> int:
        """Take in exported rows that are unknown here, or got further there; return how many.

        Only what was sealed by this adapter may be given: nothing is verified here.

        Raises:
            ToolUsageError: Another version exported them.
        """
        ...

    async def requested(self, thread_id: str | None = None, limit: int = 100) -> Sequence[CallRow]:
        """Return rows that wait for an answer, oldest first."""
        ...

    async def open(
        self, call: NewCall, events: Sequence[Event] = (), peek: Sequence[Charge] = ()
    ) -> Opened:
        """Make the row of a question unless it exists; look at counters, charging nothing.

        The events are written only when the row is made. ``peek`` is looked at only then too.
        A row that is still requested and whose policy or schema digest differs takes over the
        new digests and request, and the events are written then too: it will ask again under
        another binding.
        """
        ...

    async def claim(self, claim: Claim) -> Claimed:
        """Claim a call, charge its counters and write its events, or do nothing."""
        ...

    async def charge(
        self,
        charges: Sequence[Charge],
        events: Sequence[Event] = (),
        *,
        unless: str | None = None,
        show: Sequence[str] = (),
        recent: tuple[str, str, int] | None = None,
        refunds: Sequence[Charge] = (),
    ) -> Turn:
        r"""Charge counters (all or none) and write events if the charge succeeded.

        Args:
            charges: What to add.
            events: Written when nothing was exceeded.
            refunds: Given back first, whatever becomes of the charges: a reservation that is
                settled to what was really used.
            unless: ``thread_id + "\n" + event id``: charge nothing when that event exists
                (the work was counted before).
            show: Further scopes whose values are wanted. Values and the head are looked up only
                when this or ``recent`` is given.
            recent: ``(thread_id, turn_id, n)``: also return the newest n events of a turn.
        """
        ...

    async def settle(self, settle: Settle) -> bool:
        """Record how a claimed call ended; False when the fence was stale."""
        ...

    async def renew(self, key: str, fence: int, lease: float) -> bool:
        """Extend a live claim; False when it is no longer ours."""
        ...

    async def close_question(self, close: Close) -> tuple[bool, CallRow | None]:
        """End a question without a run; returns whether it changed, and the row."""
        ...

    async def vote(self, vote: Vote, events: Sequence[Event]) -> bool:
        """Keep one reviewer's vote and its answer's digest in the row, which stays requested.

        One vote per reviewer: a later one of the same reviewer replaces the earlier. Returns
        False, and writes nothing, when the row is no longer requested or past its deadline.
        """
        ...

    async def votes(self, key: str) -> Sequence[Vote]:
        """Return the votes of a question, in the order they came."""
        ...

    async def unsettled(self, limit: int = 100) -> Sequence[CallRow]:
        """Return rows that are in doubt, or claimed with a lease that ran out, oldest first."""
        ...

    async def resolve(self, resolve: Resolve) -> tuple[bool, CallRow | None]:
        """Settle a row that is in doubt (or claimed and run out); returns whether it changed.

        Only the claim that the resolution names is settled. ``approved`` lets the call run again
        under its old decision: the next claim takes it.
        """
        ...

    async def overdue(self, limit: int = 100) -> Sequence[CallRow]:
        """Return questions past their deadline that nobody closed or used, oldest first."""
        ...

    async def append(self, events: Sequence[Event]) -> int:
        """Append events to their threads' chains; returns how many were new."""
        ...

    def post(self, events: Sequence[Event]) -> None:
        """Append events without waiting for the commit.

        They are committed before, or together with, whatever is asked of the store after this; a
        failure is logged. For events that something awaited follows anyway.
        """
        ...

    async def events(
        self, thread_id: str, after: int = 0, limit: int = 1000
    ) -> Sequence[StoredEvent]:
        """Return links of a thread's chain with ``seq > after``, in order."""
        ...

    async def heads(self, thread_id: str | None = None) -> Sequence[ThreadHead]:
        """Return the newest link of every thread, or of one."""
        ...

    async def threads(self) -> Sequence[str]:
        """Return every thread that has a link, whether it has a head or not."""
        ...

    async def anchors(self, thread_id: str | None = None) -> Sequence[Anchor]:
        """Return where the pruned chains begin: all of them, or one thread's."""
        ...

    async def aclose(self) -> None:
        """Finish what is queued and release threads and connections."""
        ...
