"""The newest events of turns this process is at: shown without reading what it just wrote.

What is kept counts only while the chain's head is where this process left it. Whoever else
appended, or pruned, has moved the head, and then the database is read.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from adapter.core.store import StoredEvent
from adapter.stores.rows import stored_event

if TYPE_CHECKING:
    from adapter.stores.transaction import Transaction

__all__ = ["Recent"]

_REMEMBERED = 256
"""Threads remembered."""

_Head: TypeAlias = tuple[int, str]


class _Turn:
    """A turn's newest events, as of one head of its chain."""

    __slots__ = ("head", "links", "turn_id")

    def __init__(self, turn_id: str, links: Iterable[StoredEvent], most: int, head: _Head) -> None:
        self.turn_id = turn_id
        self.links = deque(links, most)
        self.head = head


class Recent:
    """What the writer's thread knows of turns; nobody else uses it."""

    def __init__(self) -> None:
        """Know nothing."""
        self._turns: OrderedDict[str, _Turn] = OrderedDict()

    def of_turn(
        self, tx: Transaction, thread_id: str, turn_id: str, most: int
    ) -> Sequence[StoredEvent]:
        """Return a turn's newest events, oldest first, with those this transaction links."""
        begun, now = tx.chains.heads(thread_id)
        known = self._turns.get(thread_id)
        if (
            known is not None
            and known.head == begun
            and known.turn_id == turn_id
            and known.links.maxlen == most
        ):
            return (*known.links, *_linked(tx, thread_id, turn_id, begun))[-most:]
        tx.chains.flush_links()
        rows = tx.all(
            tx.sql.events_of_turn, {"at_thread": thread_id, "at_turn": turn_id, "at_limit": most}
        )
        found = tuple(stored_event(row) for row in reversed(rows))
        tx.read[thread_id] = _Turn(turn_id, found, most, now)
        return found

    def committed(self, tx: Transaction) -> None:
        """Take over what a transaction read and linked."""
        for thread_id in tx.chains.threads():
            begun, now = tx.chains.heads(thread_id)
            turn = tx.read.get(thread_id)
            if turn is None:
                turn = self._turns.get(thread_id)
                if turn is None or (begun == now and turn.head == begun):
                    continue
                if turn.head != begun:
                    del self._turns[thread_id]
                    continue
            turn.links.extend(_linked(tx, thread_id, turn.turn_id, turn.head))
            turn.head = now
            self._turns[thread_id] = turn
            self._turns.move_to_end(thread_id)
            if len(self._turns) > _REMEMBERED:
                self._turns.popitem(last=False)

    def forget(self, tx: Transaction, thread_id: str) -> None:
        """Drop a thread whose links are being removed."""
        self._turns.pop(thread_id, None)
        tx.read.pop(thread_id, None)


def _linked(tx: Transaction, thread_id: str, turn_id: str, after: _Head) -> Iterable[StoredEvent]:
    """Return what the transaction linked to a turn, after one of the chain's heads."""
    return [
        stored_event((thread_id, row[1], row[2], *row[6:]))
        for row in tx.chains.linked()
        if row[0] == thread_id and row[5] == turn_id and row[1] > after[0]
    ]
