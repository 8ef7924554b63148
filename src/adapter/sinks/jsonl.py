"""The audit file: one JSON line per event, appended after the store committed it.

Each thread's chain is in the file from its first link (or its anchor) on, without gaps: what was
missed (a crash between commit and line, a full disk, another process, a new file) is fetched from
the store at that thread's next event. Several processes may share a file. Lines are not flushed to
disk one by one: the store is the truth, and what a power cut takes is fetched again.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adapter.core.audit_lines import anchor_line, event_line
from adapter.core.errors import ConfigurationError
from adapter.core.sinks import Backlog, Committed
from adapter.core.store import StoredEvent

__all__ = ["JsonlSink"]

_log = logging.getLogger(__name__)

SETTING = "ADAPTER_AUDIT_FILE"
PAGE = 1_000
CHUNK = 1 << 20
_OTHERS_WRITE = 0o022
_START = re.compile(rb'\{"thread_id":("(?:[^"\\]|\\.)*"),"(?:seq":|anchor":\{"seq":)(\d+),')
_FLAGS = (
    os.O_RDWR
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


class JsonlSink:
    """Appends events to a file of mode 0600.

    Args:
        path: The file; made, with its folder, when there is none.
        backlog: Reads what the file misses; None leaves gaps.

    Raises:
        ConfigurationError: A symbolic link, no regular file, writable by others, or unwritable.
    """

    name = "jsonl"

    def __init__(self, path: Path, *, backlog: Backlog | None = None) -> None:
        self._path = Path(path).absolute()
        self.backlog = backlog
        self._last: dict[str, int] = {}
        self._offset = 0
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = self._opened()
            with self._locked():
                self._mend()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if error.errno == errno.ELOOP:
                reason = "it is a symbolic link"
            problem = (
                f"The audit file {self._path} ({SETTING}) cannot be written ({reason}): name a "
                "regular file in a folder this process may write, or unset it."
            )
        else:
            return
        raise ConfigurationError(problem)

    def write(self, committed: Committed) -> None:
        """Append the events, and before them what the file misses of their threads.

        Raises:
            OSError: Nothing was appended; the next event of each thread brings these along.
            StoreUnavailable: The same, where the store could not be read.
        """
        heads = {(head.thread_id, head.seq): head for head in committed.heads}
        with self._locked():
            self._follow()
            self._read_on()
            last: dict[str, int] = {}
            lines: list[bytes] = []
            for event in committed.events:
                thread = event.thread_id
                before = last.get(thread, self._last.get(thread, 0))
                if event.seq <= before:
                    continue  # another process brought it along
                if event.seq > before + 1:
                    lines += self._missed(event, before)
                lines.append(event_line(event, heads.get((thread, event.seq))))
                last[thread] = event.seq
            self._append(b"".join(lines))
            self._last |= last

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _missed(self, event: StoredEvent, after: int) -> Iterator[bytes]:
        """Yield the lines of a thread between the last one here and an event."""
        while self.backlog is not None and after < event.seq - 1:
            limit = min(PAGE, event.seq - 1 - after)
            anchor, links = self.backlog(event.thread_id, after, limit)
            if anchor is not None and anchor.seq > after:
                yield anchor_line(anchor)
            for link in links:
                if link.seq < event.seq:
                    yield event_line(link)
            if not links:
                return
            after = links[-1].seq

    def _append(self, data: bytes) -> None:
        """Write all of it or nothing."""
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self._offset)
            raise
        self._offset += len(data)

    def _opened(self) -> int:
        if self._path.is_symlink():  # also where the system cannot refuse to follow one
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        file = os.open(self._path, _FLAGS, 0o600)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            reason = "it is not a regular file"
        elif os.name == "posix" and stat.S_IMODE(found.st_mode) & _OTHERS_WRITE:
            reason = "other users may write it; chmod 600"
        else:
            return file
        os.close(file)
        raise OSError(errno.EINVAL, reason)

    def _follow(self) -> None:
        """Open the path again if its file was moved away, removed or cut."""
        here = os.fstat(self._file)
        try:
            there: os.stat_result | None = self._path.lstat()
        except FileNotFoundError:
            there = None
        moved = there is None or (there.st_ino, there.st_dev) != (here.st_ino, here.st_dev)
        if not moved and here.st_size >= self._offset:
            return
        _log.warning("the audit file %s was moved or cut; its chains are written anew", self._path)
        if moved:
            file = self._opened()
            os.close(self._file)  # with it the lock, which covered the old file only
            self._file = file
            _lock(file)
        self._last, self._offset = {}, 0

    def _read_on(self) -> None:
        """Learn which links the file has, from where it was last read to its end."""
        self._mend()
        rest = b""
        while chunk := _read_at(self._file, self._offset + len(rest)):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._offset += len(line) + 1
                if found := _START.match(line):
                    thread = json.loads(found[1])
                    self._last[thread] = max(self._last.get(thread, 0), int(found[2]))

    def _mend(self) -> None:
        """Cut off a last line that was not written whole; its event is in the store."""
        size = os.fstat(self._file).st_size
        if size == 0 or _read_at(self._file, size - 1, 1) == b"\n":
            return
        end = size
        while end > 0:
            start = max(0, end - CHUNK)
            at = _read_at(self._file, start, end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        os.ftruncate(self._file, end)
        _log.warning(
            "the last line of the audit file %s was torn: %d bytes of it were cut off; its event "
            "is in the store",
            self._path,
            size - end,
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file against other processes that append to it."""
        _lock(self._file)
        try:
            yield
        finally:
            _unlock(self._file)


def _read_at(file: int, offset: int, size: int = CHUNK) -> bytes:
    os.lseek(file, offset, os.SEEK_SET)  # appending ignores the position
    return os.read(file, size)


if sys.platform == "win32":  # pragma: no cover - the tests run where fcntl is

    def _lock(file: int) -> None:
        """Lock nothing: a process has a file of its own here."""

    def _unlock(file: int) -> None:
        """Unlock nothing."""

else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _unlock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
