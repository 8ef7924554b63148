"""Audit files on the command line: verifying one by itself, and writing an export."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from adapter.cli.trail import PAGE, Trail, Verdict
from adapter.core.audit_faults import Fault, Witness
from adapter.core.audit_heads import judged_anchor, judged_head
from adapter.core.audit_lines import anchor_line, event_line, read_line
from adapter.core.audit_verify import ChainVerifier
from adapter.core.errors import ConfigurationError
from adapter.core.store import Anchor, StoredEvent, ThreadHead

if TYPE_CHECKING:
    from adapter.core.keys import KeyRing

__all__ = ["export_thread", "heads_of", "names_of", "verify_file", "written", "written_at"]


class _Chain:
    """One thread's lines of a file, as they come."""

    def __init__(self, thread_id: str, anchor: Anchor | None) -> None:
        self.verifier = ChainVerifier(thread_id, anchor=anchor)
        self.anchor = anchor
        self.head: ThreadHead | None = None
        self.faults: list[Fault] = []

    def add(self, event: StoredEvent, head: ThreadHead | None) -> None:
        if found := self.verifier.add(event):
            self.faults += found
        self.head = head

    def begin_again(self, anchor: Anchor) -> None:
        """Go on at an anchor: what lies between was pruned before it came into the file."""
        # One that is not signed may stand at the beginning only: an export that was shortened.
        if anchor.kid is not None and anchor.seq > self.verifier.last:
            count = self.verifier.count
            self.verifier = ChainVerifier(anchor.thread_id, anchor=anchor)
            self.verifier.count = count
            self.anchor = anchor

    def verdict(self, keys: KeyRing | None) -> Verdict:
        verifier = self.verifier
        # The file ends somewhere; only the signature can say that a head stood there.
        end = ThreadHead(thread_id=verifier.thread_id, seq=verifier.last, hash=verifier.hash)
        faults = [*self.faults, *verifier.finish(end)]
        if keys is not None:
            if self.anchor is not None and self.anchor.kid is not None:
                faults += [fault for fault in (judged_anchor(self.anchor, keys),) if fault]
            faults += [fault for fault in (judged_head(self.head or end, keys),) if fault]
        return Verdict(
            thread_id=verifier.thread_id,
            count=verifier.count,
            head=self.head or end,
            faults=tuple(faults),
            anchor=self.anchor,
        )


def verify_file(path: Path, keys: KeyRing | None, thread: str | None) -> list[Verdict]:
    """Verify an audit file by itself; blocks.

    Args:
        path: The file.
        keys: The ring whose audit keys sign heads; None leaves signatures unchecked.
        thread: Only this thread's lines.

    Returns:
        One verdict per thread; a line that is none of an audit file is a fault of the thread "".

    Raises:
        ConfigurationError: The file cannot be read.
    """
    chains: dict[str, _Chain] = {}
    torn: list[Fault] = []
    for number, line in _lines(path):
        try:
            found, head = read_line(line)
        except ValueError:
            text = f"line {number} of the file is not one of an audit file."
            torn.append(Fault(seq=number, kind="malformed", message=text))
            continue
        if thread is not None and found.thread_id != thread:
            continue
        chain = chains.get(found.thread_id)
        if chain is None:
            first = found if isinstance(found, Anchor) else None
            chain = chains[found.thread_id] = _Chain(found.thread_id, first)
        if isinstance(found, Anchor):
            chain.begin_again(found)
        else:
            chain.add(found, head)
    verdicts = [chains[name].verdict(keys) for name in sorted(chains)]
    if torn:
        verdicts.append(Verdict(thread_id="", count=0, head=None, faults=tuple(torn)))
    return verdicts


def heads_of(verdicts: Sequence[Verdict], source: str) -> dict[str, list[Witness]]:
    """Return the last line of each thread in a file, as heads to compare the store with."""
    return {
        one.thread_id: [Witness(seq=one.head.seq, hash=one.head.hash, source=source)]
        for one in verdicts
        if one.head is not None
    }


def names_of(path: Path, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Return the event ids that a file has for links missing elsewhere; blocks.

    Args:
        path: The file.
        wanted: Thread and number of each.
    """
    found: dict[tuple[str, int], str] = {}
    for _number, line in _lines(path):
        try:
            event, _head = read_line(line)
        except ValueError:
            continue
        if isinstance(event, StoredEvent) and (event.thread_id, event.seq) in wanted:
            found[event.thread_id, event.seq] = event.event_id
    return found


@contextmanager
def written(path: Path | None, stdout: IO[Any]) -> Iterator[IO[Any]]:
    """Open a new file of mode 0600 for an export, or standard output.

    Raises:
        ConfigurationError: There is such a file already, or it cannot be made.
    """
    if path is None:
        yield stdout
        stdout.flush()
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        reason = "it exists" if error.errno == errno.EEXIST else error.strerror
        raise ConfigurationError(
            f"The export cannot be written to {path} ({reason}): name a new file."
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


async def export_thread(trail: Trail, thread_id: str, since: int | None, file: IO[Any]) -> int:
    """Write one thread's chain, or its end, to a file.

    Args:
        trail: The store.
        thread_id: The thread.
        since: Milliseconds since the epoch: leave out what is older, with an unsigned anchor.
        file: Takes bytes.

    Returns:
        How many events were written.
    """
    heads = await trail.heads(thread_id)
    end = heads[0] if heads else None
    anchors = await trail.anchors(thread_id)
    start = anchors[0] if anchors else None
    count = after = 0
    waiting = since is not None
    while page := await trail.events(thread_id, after=after, limit=PAGE):
        lines, after = [], page[-1].seq
        for event in page:
            if end is not None and event.seq > end.seq:
                break  # written since the head was read
            if waiting and (written_at(event) or 0) < (since or 0):
                start = _unsigned(event)
                continue
            waiting = False
            if count == 0 and start is not None:
                lines.append(anchor_line(start))
            count += 1
            signed = end if end is not None and event.seq == end.seq else None
            lines.append(event_line(event, signed))
        file.write(b"".join(lines))
    return count


def written_at(event: StoredEvent) -> int | None:
    """Return when an event was made, milliseconds since the epoch; None if it does not say."""
    try:
        at = json.loads(event.line)["body"]["at"]
    except (ValueError, KeyError, TypeError):
        return None
    return at if isinstance(at, int) else None


def _unsigned(event: StoredEvent) -> Anchor:
    return Anchor(
        thread_id=event.thread_id, seq=event.seq, hash=event.hash, removed=0, at=0, by="export"
    )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            yield from enumerate(file, 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(f"The audit file {path} cannot be read ({reason}).") from None
