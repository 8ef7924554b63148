"""MemoryStore: the same store on a SQLite database in memory, for tests and trials.

It is no second state machine: nothing of it survives the process, and nothing else differs.
"""

from __future__ import annotations

from adapter.stores.database import Clock
from adapter.stores.sql import SqlStore

__all__ = ["MemoryStore"]


class MemoryStore(SqlStore):
    """A store that lives until it is closed.

    Args:
        clock: Milliseconds since the epoch; by default this process's.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__("sqlite://", clock=clock)
