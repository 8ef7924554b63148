"""Where audit events go besides the store: the interface of a sink. No I/O here.

The store is the truth. A sink is told of events after the store committed them; what becomes of
them there changes no call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from adapter.core.store import Anchor, StoredEvent, ThreadHead

__all__ = ["AuditSink", "Backlog", "Committed", "Outlet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What one transaction added to the chains.

    Attributes:
        events: The links, each thread's in order.
        heads: The newest link of each thread that was moved.
    """

    events: Sequence[StoredEvent]
    heads: Sequence[ThreadHead] = ()


class AuditSink(Protocol):
    """Takes committed events. Its methods block and are called from one thread, never a loop's.

    Attributes:
        name: What the log calls it.
    """

    name: str

    def write(self, committed: Committed) -> None:
        """Take what one transaction added; whatever this raises is logged and counted."""
        ...

    def close(self) -> None:
        """Finish what is held back."""
        ...


class Outlet(Protocol):
    """What a store is given, to pass on what it committed."""

    def put(self, committed: Committed) -> None:
        """Take what one transaction added; neither blocks nor raises."""
        ...

    def close(self) -> None:
        """Deliver what waits, and take no more; may block."""
        ...


class Backlog(Protocol):
    """Reads earlier links of a thread; blocks."""

    def __call__(
        self, thread_id: str, after: int, limit: int
    ) -> tuple[Anchor | None, Sequence[StoredEvent]]:
        """Return the thread's anchor, if it was pruned, and links with ``seq > after``."""
        ...
