"""Checks a thread's audit chain: every link against its hash, its neighbours, its run and the head.

Pure and incremental: links are handed in as they are read, in the store's order, so a chain of any
length is checked in the memory its runs take. A whole link is judged by comparing bytes; only one
that is not what it should be is taken apart. Signatures are checked in ``audit_heads``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from adapter.core.audit_faults import Fault, FaultKind, Witness
from adapter.core.chain import DOMAIN, GENESIS, Link, link_hash, read_link
from adapter.core.store import Anchor, StoredEvent, ThreadHead

__all__ = ["ChainVerifier", "verify_chain"]


class ChainVerifier:
    """Takes the links of one thread in the order they are stored.

    Args:
        thread_id: The thread whose chain it is.
        anchor: Where the chain begins if it was pruned.
        witnesses: Heads kept elsewhere.

    Attributes:
        last: Highest sequence number seen; the anchor's, or 0, before the first link.
        count: Links seen.
        hash: The hash stored with the newest link.
    """

    def __init__(
        self, thread_id: str, *, anchor: Anchor | None = None, witnesses: Sequence[Witness] = ()
    ) -> None:
        self.thread_id = thread_id
        self.count = 0
        if anchor is not None and type(anchor.seq) is not int:
            anchor = None  # a database may hold anything: its signature is judged elsewhere
        self.last = 0 if anchor is None else anchor.seq
        self.hash = GENESIS if anchor is None else anchor.hash
        self._anchor = anchor
        self._witnesses: dict[int, list[Witness]] = {}
        for witness in witnesses:
            self._witnesses.setdefault(witness.seq, []).append(witness)
        # Whether a next link must name the newest link's hash.
        self._linked = True
        self._gaps: list[tuple[int, int]] = []
        self._gapped = False
        # By what follows "run_id": in a line: the run's id, and what comes after it.
        self._runs: dict[bytes, int] = {}
        self._run = self._turn = b""
        self._run_id: Any = None
        self._turn_id: Any = None
        # The newest link's run and its number there, as far as a store says it.
        self._newest: tuple[Any, int] | None = None
        name = json.dumps(thread_id, ensure_ascii=False)
        self._ending = f'","thread_id":{name},"tool":'.encode(errors="surrogatepass")

    def add(self, event: StoredEvent) -> list[Fault]:
        """Judge one link.

        Args:
            event: The next link as the store returns it.

        Returns:
            The faults found at this link; missing ones are only known at the end.
        """
        return self.add_row(
            (event.thread_id, event.seq, event.event_id, event.kind, event.line, event.hash)
        )

    def add_row(self, row: Sequence[Any]) -> list[Fault]:
        """Judge one link given as its columns, which is what most of them need no record for.

        Args:
            row: thread_id, seq, event_id, kind, line and hash; from a store also run_id, run_seq
                and turn_id.

        Returns:
            As ``add``.
        """
        self.count += 1
        thread_id, seq, event_id, kind, line, stored, *beside = row
        if seq == self.last + 1 and self._linked and seq not in self._witnesses:
            start = f',"id":"{event_id}","kind":"{kind}","run_id":"'.encode(errors="surrogatepass")
            # Only plain text follows in a canonical body, so the last place is the real one.
            at = line.rfind(start)
            cut = at + len(start)
            run = self._named_run(line, cut, beside)
            number = self._runs.get(run, 0) + 1
            end = b',"prev":"%b","run_seq":%d,"seq":%d}' % (self.hash.encode(), number, seq)
            if (
                at >= 0
                and run
                and (not beside or beside[1] == number)
                and line.endswith(end)
                and line.startswith(b'{"body":{')
                and sha256(DOMAIN + line).hexdigest() == stored
            ):
                self._runs[run] = number
                if beside:
                    self._newest = (beside[0], number)
                else:
                    self._run = run
                self.last, self.hash = seq, stored
                return []
        return self._judge(
            StoredEvent(
                thread_id=thread_id, seq=seq, event_id=event_id, kind=kind, line=line, hash=stored
            ),
            beside,
        )

    def _named_run(self, line: bytes, cut: int, beside: Sequence[Any]) -> bytes:
        """Return the run that a line names, and its thread; b"" if what is beside it differs.

        Args:
            line: The line.
            cut: Where the run's id begins in it.
            beside: The run's id, the number there and the turn as they are stored, or nothing.
        """
        run = self._run  # most links continue the run of the one before
        if not beside:
            if run and line.startswith(run, cut):
                return run
            found = line.find(self._ending, cut)
            return line[cut : found + len(self._ending)] if found >= cut else b""
        run_id, _, turn_id = beside
        if run_id != self._run_id or turn_id != self._turn_id:
            run = f"{run_id}".encode(errors="surrogatepass") + self._ending
            self._run, self._run_id, self._turn_id = run, run_id, turn_id
            # A quotation mark within a text is escaped, so only the turn's name looks like it.
            self._turn = f',"turn_id":"{turn_id}","user":'.encode(errors="surrogatepass")
        return run if line.startswith(run, cut) and line.find(self._turn, cut) > 0 else b""

    def finish(self, head: ThreadHead | None, run: tuple[Any, Any] | None = None) -> list[Fault]:
        """Compare with the heads and name what is missing.

        Args:
            head: The thread's head, read no earlier than its last link; None when it has none.
            run: The run of the newest link and its number there, as stored with the head.

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
        elif type(head.seq) is not int or type(head.count) not in (int, type(None)):
            text = "the head's number or count is no number."
            faults.append(Fault(seq=self.last, kind="head", message=text))
        else:
            faults += self._compared(head)
            if head.seq == self.last and None not in (run, self._newest) and run != self._newest:
                text = f"the run stored with the head is not the one that link {self.last} names."
                faults.append(Fault(seq=self.last, kind="head", message=text))
        return faults + self._unseen()

    def _compared(self, head: ThreadHead) -> list[Fault]:
        faults = []
        if head.seq > self.last:
            text = f"{_links(self.last + 1, head.seq)} missing at the end."
            faults.append(Fault(seq=self.last + 1, kind="truncated", message=text))
        elif head.seq < self.last:
            text = f"the head names link {head.seq}, older than the last link {self.last}."
            faults.append(Fault(seq=head.seq, kind="head", message=text))
        elif self._linked and head.hash != self.hash:
            text = f"the head does not name link {self.last} as it is stored."
            faults.append(Fault(seq=self.last, kind="edited", message=text))
        if head.count is not None and head.count != head.seq:
            text = f"the running count is {head.count}, and the head's link is {head.seq}."
            faults.append(Fault(seq=head.seq, kind="count", message=text))
        return faults

    def _unseen(self) -> list[Fault]:
        """Judge the witnesses whose link never came."""
        faults = []
        for seq, witnesses in sorted(self._witnesses.items()):
            for witness in witnesses:
                if seq > self.last:
                    text = f"{witness.source} names link {seq}, which is missing at the end."
                    faults.append(Fault(seq=seq, kind="truncated", message=text))
                elif (
                    self._anchor is not None
                    and seq == self._anchor.seq
                    and witness.hash != self._anchor.hash
                ):
                    text = f"{witness.source} names another link {seq} than the anchor does."
                    faults.append(Fault(seq=seq, kind="edited", message=text))
        return faults

    def _judge(self, event: StoredEvent, beside: Sequence[Any]) -> list[Fault]:
        """Take a link apart and say everything that is wrong with it."""
        found: list[tuple[int, FaultKind, str]] = []
        if link_hash(event.line) != event.hash:
            found.append((event.seq, "edited", "it is not what its hash was made of"))
        link, facts = _taken_apart(event.line)
        if link is None:
            found.append((event.seq, "malformed", "it has not the form of a link"))
            seq = event.seq if type(event.seq) is int else self.last + 1
            link = Link(body=b"", prev="", seq=seq, run_seq=0)
        if link.seq != event.seq:
            found.append((link.seq, "reordered", f"it is stored under the number {event.seq}"))
        if facts.get("thread_id", self.thread_id) != self.thread_id:
            found.append((link.seq, "foreign", "it belongs to another thread"))
        stored = {"id": event.event_id, "kind": event.kind}
        if beside:
            stored |= {"run_id": beside[0], "run_seq": beside[1], "turn_id": beside[2]}
        own = {**facts, "run_seq": link.run_seq} if link.prev else facts
        for name, kept in stored.items():
            if own.get(name, kept) != kept:
                found.append((link.seq, "edited", f"the {name} stored beside it is not its own"))
        faults = [_fault(seq, kind, what, event) for seq, kind, what in found]
        placed = self._place(link, event, facts)
        for witness in self._witnesses.pop(event.seq, ()):
            if witness.hash != event.hash:
                what = f"{witness.source} names another link of this number"
                placed.append(_fault(event.seq, "edited", what, event))
        return faults + placed

    def _place(self, link: Link, event: StoredEvent, facts: dict[str, Any]) -> list[Fault]:
        """Judge a link's position, its place in its run and its reference to the link before."""
        if link.seq <= self.last:
            return [self._late(link.seq, event)]
        faults = []
        if link.seq != self.last + 1:
            self._gaps.append((self.last + 1, link.seq - 1))
            self._gapped = True
        elif self._linked and link.prev and link.prev != self.hash:
            before = self.last
            faults.append(
                _fault(before, "edited", f"it is not the one that link {link.seq} continues")
                if before
                else _fault(link.seq, "edited", "the first link continues another chain", event)
            )
        if "run_id" in facts and not self._continues(str(facts["run_id"]), link.run_seq):
            what = f"it is number {link.run_seq} of its run, which does not follow"
            faults.append(_fault(link.seq, "run", what, event))
        self.last, self.hash = link.seq, event.hash
        self._newest = (facts["run_id"], link.run_seq) if "run_id" in facts else None
        # After a link that cannot be read there is nothing to compare the next one with.
        self._linked = bool(link.prev)
        return faults

    def _continues(self, run_id: str, run_seq: int) -> bool:
        """Tell whether a link has the number that is next in its run, and remember it."""
        text = json.dumps(run_id, ensure_ascii=False)[1:-1]
        run = text.encode(errors="surrogatepass") + self._ending
        seen = self._runs.get(run)
        self._runs[run] = run_seq
        if self._gapped or (seen is None and self._anchor is not None):
            return run_seq > (seen or 0)  # some of the run's links are not here
        return run_seq == (seen or 0) + 1

    def _late(self, seq: int, event: StoredEvent) -> Fault:
        """Judge a link whose number is not above the ones before it."""
        for at, (first, end) in enumerate(self._gaps):
            if first <= seq <= end:
                rest = [(first, seq - 1), (seq + 1, end)]
                self._gaps[at : at + 1] = [gap for gap in rest if gap[0] <= gap[1]]
                return _fault(seq, "reordered", f"it is stored after link {self.last}", event)
        if seq < 1:
            return _fault(seq, "doubled", "it stands before the first link", event)
        if self._anchor is not None and seq <= self._anchor.seq:
            return _fault(seq, "doubled", "it was pruned and is there again", event)
        return _fault(seq, "doubled", "there is more than one link of this number", event)


def verify_chain(
    events: Iterable[StoredEvent], head: ThreadHead | None, anchor: Anchor | None = None
) -> list[Fault]:
    """Check a whole chain.

    Args:
        events: All links of one thread, in the store's order.
        head: The thread's head.
        anchor: Where the chain begins if it was pruned.

    Returns:
        Every fault found; an empty list for a chain that is whole.
    """
    verifier: ChainVerifier | None = None
    faults: list[Fault] = []
    for event in events:
        verifier = verifier or ChainVerifier(event.thread_id, anchor=anchor)
        faults += verifier.add(event)
    verifier = verifier or ChainVerifier(head.thread_id if head else "", anchor=anchor)
    return faults + verifier.finish(head)


def _taken_apart(line: bytes) -> tuple[Link | None, dict[str, Any]]:
    """Return the link and the facts of its body, as far as they can be read."""
    try:
        link = read_link(line)
    except ValueError:
        return None, {}
    try:
        facts = json.loads(link.body)
    except (ValueError, RecursionError):
        return link, {}
    return link, facts if isinstance(facts, dict) else {}


def _fault(seq: int, kind: FaultKind, what: str, event: StoredEvent | None = None) -> Fault:
    name = "" if event is None else str(event.event_id)
    return Fault(seq=seq, kind=kind, message=f"link {seq}: {what}.", event_id=name)


def _links(first: int, end: int) -> str:
    return f"link {first} is" if first == end else f"links {first} to {end} are"
