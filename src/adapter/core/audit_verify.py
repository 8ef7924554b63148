"""Checks a thread's audit chain: every link against its hash, its neighbours and the head.

Pure and incremental: links are handed in as they are read, in the store's order, so a chain of any
length is checked in constant memory. Bodies are not parsed; a line is judged by its bytes. Without
a signed head a chain shows tampering by those who cannot rewrite all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from adapter.core.chain import GENESIS, Link, link_hash, read_link
from adapter.core.store import StoredEvent, ThreadHead

__all__ = ["ChainVerifier", "Fault", "FaultKind", "verify_chain"]

FaultKind = Literal[
    "malformed", "edited", "reordered", "dropped", "truncated", "doubled", "foreign", "head"
]
"""What is wrong with a link; ``head`` is a head that does not belong to the links."""

_THREAD = b'"thread_id":'


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a chain.

    Attributes:
        seq: The link it concerns; the first one when several are missing.
        kind: What is wrong.
        message: One sentence for a person, without the event's content.
    """

    seq: int
    kind: FaultKind
    message: str


class ChainVerifier:
    """Takes the links of one thread in the order they are stored.

    Attributes:
        thread_id: The thread whose chain it is.
        last: Highest sequence number seen, 0 before the first link.
        count: Links seen.
    """

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.last = 0
        self.count = 0
        # The hash stored with the newest link, and whether a next link must name it.
        self._hash = GENESIS
        self._linked = True
        self._gaps: list[tuple[int, int]] = []
        self._thread = json.dumps(thread_id, ensure_ascii=False).encode()

    def add(self, event: StoredEvent) -> list[Fault]:
        """Judge one link.

        Args:
            event: The next link as the store returns it.

        Returns:
            The faults found at this link; missing ones are only known at the end.
        """
        self.count += 1
        faults = []
        if link_hash(event.line) != event.hash:
            faults.append(_fault(event.seq, "edited", "it is not what its hash was made of"))
        try:
            link = read_link(event.line)
        except ValueError:
            faults.append(_fault(event.seq, "malformed", "it has not the form of a link"))
            link = Link(body=b"", prev="", seq=event.seq, run_seq=0)
        if link.seq != event.seq:
            faults.append(
                _fault(link.seq, "reordered", f"it is stored under the number {event.seq}")
            )
        if self._is_foreign(link.body):
            faults.append(_fault(link.seq, "foreign", "it belongs to another thread"))
        return faults + self._place(link, event.hash)

    def finish(self, head: ThreadHead | None) -> list[Fault]:
        """Compare with the head and name what is missing.

        Args:
            head: The thread's head, read no earlier than its last link; None when it has none.

        Returns:
            The faults that only the end shows.
        """
        faults = [
            Fault(seq=first, kind="dropped", message=f"{_links(first, end)} missing.")
            for first, end in self._gaps
        ]
        if head is None:
            if self.last:
                text = "the thread has links but no head: it was removed."
                faults.append(Fault(seq=self.last, kind="head", message=text))
        elif head.seq > self.last:
            text = f"{_links(self.last + 1, head.seq)} missing at the end."
            faults.append(Fault(seq=self.last + 1, kind="truncated", message=text))
        elif head.seq < self.last:
            text = f"the head names link {head.seq}, older than the last link {self.last}."
            faults.append(Fault(seq=head.seq, kind="head", message=text))
        elif self._linked and head.hash != self._hash:
            text = f"the head does not name link {self.last} as it is stored."
            faults.append(Fault(seq=self.last, kind="edited", message=text))
        return faults

    def _place(self, link: Link, stored: str) -> list[Fault]:
        """Judge a link's position and its reference to the link before."""
        if link.seq <= self.last:
            return [self._late(link.seq)]
        adjacent = link.seq == self.last + 1
        faults = []
        if not adjacent:
            self._gaps.append((self.last + 1, link.seq - 1))
        elif self._linked and link.prev and link.prev != self._hash:
            before = self.last
            faults.append(
                _fault(before, "edited", f"it is not the one that link {link.seq} continues")
                if before
                else _fault(link.seq, "edited", "the first link continues another chain")
            )
        self.last = link.seq
        self._hash = stored
        # After a link that cannot be read there is nothing to compare the next one with.
        self._linked = bool(link.prev)
        return faults

    def _late(self, seq: int) -> Fault:
        """Judge a link whose number is not above the ones before it."""
        for at, (first, end) in enumerate(self._gaps):
            if first <= seq <= end:
                rest = [(first, seq - 1), (seq + 1, end)]
                self._gaps[at : at + 1] = [gap for gap in rest if gap[0] <= gap[1]]
                return _fault(seq, "reordered", f"it is stored after link {self.last}")
        return _fault(seq, "doubled", "there is more than one link of this number")

    def _is_foreign(self, body: bytes) -> bool:
        # The event's own thread_id is the last one in its canonical body: the keys after it hold
        # plain text, whose quotes are escaped.
        at = body.rfind(_THREAD)
        return at >= 0 and not body.startswith(self._thread, at + len(_THREAD))


def verify_chain(events: Iterable[StoredEvent], head: ThreadHead | None) -> list[Fault]:
    """Check a whole chain.

    Args:
        events: All links of one thread, in the store's order.
        head: The thread's head.

    Returns:
        Every fault found; an empty list for a chain that is whole.
    """
    verifier: ChainVerifier | None = None
    faults: list[Fault] = []
    for event in events:
        verifier = verifier or ChainVerifier(event.thread_id)
        faults += verifier.add(event)
    verifier = verifier or ChainVerifier(head.thread_id if head else "")
    return faults + verifier.finish(head)


def _fault(seq: int, kind: FaultKind, what: str) -> Fault:
    return Fault(seq=seq, kind=kind, message=f"link {seq}: {what}.")


def _links(first: int, end: int) -> str:
    return f"link {first} is" if first == end else f"links {first} to {end} are"
