"""The audit file: complete, private, mended, and never in the way."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from pathlib import Path

import pytest

from adapter.cli.auditfile import verify_file
from adapter.core.audit_faults import Fault
from adapter.core.chain import GENESIS, link
from adapter.core.errors import ConfigurationError
from adapter.core.sinks import Committed
from adapter.core.store import Anchor, StoredEvent
from adapter.sinks import JsonlSink


class Chain:
    """A thread's chain, and a reader of it as the store has it."""

    def __init__(self, *threads: str) -> None:
        self.links: dict[str, list[StoredEvent]] = {name: [] for name in threads}
        self.anchor: Anchor | None = None
        self.reads = 0

    def add(self, thread: str = "t1", count: int = 1) -> Committed:
        links = self.links.setdefault(thread, [])
        for _ in range(count):
            seq = len(links) + 1
            prev = links[-1].hash if links else GENESIS
            facts = {"id": f"e{seq}", "kind": "started", "run_id": "r", "thread_id": thread}
            body = json.dumps({"data": {}, **facts, "tool": "x"}, separators=(",", ":")).encode()
            line, hash_ = link(body=body, prev=prev, seq=seq, run_seq=seq)
            links.append(
                StoredEvent(
                    thread_id=thread,
                    seq=seq,
                    event_id=f"e{seq}",
                    kind="started",
                    line=line,
                    hash=hash_,
                )
            )
        return Committed(events=links[-count:])

    def backlog(
        self, thread_id: str, after: int, limit: int
    ) -> tuple[Anchor | None, list[StoredEvent]]:
        self.reads += 1
        first = 0 if self.anchor is None else self.anchor.seq
        found = [one for one in self.links[thread_id] if one.seq > max(after, first)]
        return self.anchor, found[:limit]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "audit.jsonl"


def seqs(path: Path, thread: str = "t1") -> list[int]:
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [row["seq"] for row in rows if row["thread_id"] == thread and "seq" in row]


def faults(path: Path) -> list[Fault]:
    return [fault for one in verify_file(path, None, None) for fault in one.faults]


def test_a_line_per_event_in_a_file_for_its_owner_only(path: Path) -> None:
    chain = Chain()
    sink = JsonlSink(path, backlog=chain.backlog)
    sink.write(chain.add(count=2))
    sink.write(chain.add("t2"))
    sink.write(chain.add())
    sink.close()
    assert seqs(path) == [1, 2, 3]
    assert seqs(path, "t2") == [1]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0
    assert faults(path) == []
    assert chain.reads == 0


def test_a_second_start_goes_on_and_fetches_what_was_missed(path: Path) -> None:
    chain = Chain()
    first = JsonlSink(path, backlog=chain.backlog)
    first.write(chain.add(count=2))
    first.close()
    chain.add(count=2_500)
    second = JsonlSink(path, backlog=chain.backlog)
    second.write(chain.add())
    second.close()
    assert seqs(path) == list(range(1, 2_504))
    assert faults(path) == []


def test_two_processes_share_a_file(path: Path) -> None:
    chain = Chain()
    one, two = (JsonlSink(path, backlog=chain.backlog) for _ in range(2))
    early, late = chain.add(), chain.add()
    two.write(late)
    one.write(early)
    one.write(chain.add())
    two.write(chain.add())
    one.close()
    two.close()
    assert seqs(path) == [1, 2, 3, 4]
    assert faults(path) == []


def test_a_pruned_thread_begins_at_its_anchor(path: Path) -> None:
    chain = Chain()
    chain.add(count=5)
    cut = chain.links["t1"][2]
    chain.anchor = Anchor(
        thread_id="t1", seq=3, hash=cut.hash, removed=3, at=1, by="ops", kid="k", signature="{}"
    )
    sink = JsonlSink(path, backlog=chain.backlog)
    sink.write(chain.add())
    sink.close()
    assert seqs(path) == [4, 5, 6]
    assert faults(path) == []


def test_links_that_are_gone_leave_a_gap_that_verifying_finds(path: Path) -> None:
    chain = Chain()
    sink = JsonlSink(path)
    sink.write(chain.add())
    chain.add()
    sink.write(chain.add())
    sink.backlog = lambda thread, after, limit: (None, [])
    chain.add()
    sink.write(chain.add())
    sink.close()
    assert seqs(path) == [1, 3, 5]
    assert [(one.seq, one.kind) for one in faults(path)] == [(2, "dropped"), (4, "dropped")]


@pytest.mark.parametrize("torn", [b'{"thread_id":"t1","se', b"x" * 3_000_000])
def test_a_torn_last_line_is_cut_off_said_and_fetched_again(
    path: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    chain = Chain()
    first = JsonlSink(path, backlog=chain.backlog)
    first.write(chain.add(count=2))
    first.close()
    chain.add()
    with path.open("ab") as file:
        file.write(torn)
    with caplog.at_level(logging.WARNING):
        second = JsonlSink(path, backlog=chain.backlog)
    assert f"{len(torn)} bytes" in caplog.text
    second.write(chain.add())
    second.close()
    assert seqs(path) == [1, 2, 3, 4]
    assert faults(path) == []


def test_a_file_that_is_one_torn_line_is_emptied(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"torn")
    path.chmod(0o600)
    JsonlSink(path).close()
    assert path.read_bytes() == b""


def test_a_full_disk_leaves_no_half_line_and_costs_no_event(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain()
    sink = JsonlSink(path, backlog=chain.backlog)
    sink.write(chain.add())
    real = os.write
    calls = []

    def full(file: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return real(file, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            sink.write(chain.add())
    assert seqs(path) == [1]
    sink.write(chain.add())
    sink.close()
    assert seqs(path) == [1, 2, 3]


@pytest.mark.parametrize("how", ["removed", "moved", "cut"])
def test_a_file_that_is_taken_away_is_written_anew(
    path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    chain = Chain()
    sink = JsonlSink(path, backlog=chain.backlog)
    sink.write(chain.add(count=2))
    if how == "removed":
        path.unlink()
    elif how == "moved":
        path.rename(path.with_suffix(".1"))
    else:
        os.truncate(path, 0)
    with caplog.at_level(logging.WARNING):
        sink.write(chain.add())
    sink.close()
    assert "moved or cut" in caplog.text
    assert seqs(path) == [1, 2, 3]


def test_a_link_put_in_the_files_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    chain = Chain()
    sink = JsonlSink(path, backlog=chain.backlog)
    sink.write(chain.add())
    target = tmp_path / "target"
    target.write_bytes(b"")
    path.unlink()
    path.symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        sink.write(chain.add())
    assert target.read_bytes() == b""
    path.unlink()
    sink.write(chain.add())
    sink.close()
    assert seqs(path) == [1, 2, 3]


class TestRefusedAtTheStart:
    def refused(self, path: Path) -> str:
        with pytest.raises(ConfigurationError) as caught:
            JsonlSink(path)
        assert "ADAPTER_AUDIT_FILE" in caught.value.message
        return caught.value.message

    def test_a_symbolic_link(self, tmp_path: Path) -> None:
        (tmp_path / "target").write_bytes(b"")
        (tmp_path / "link").symlink_to(tmp_path / "target")
        assert "it is a symbolic link" in self.refused(tmp_path / "link")

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "cannot be written" in self.refused(tmp_path)

    def test_a_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe", 0o600)
        assert "not a regular file" in self.refused(tmp_path / "pipe")

    def test_a_file_that_others_may_write(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"")
        (tmp_path / "x").chmod(0o622)
        assert "chmod 600" in self.refused(tmp_path / "x")

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        assert "cannot be written" in self.refused(tmp_path / "file" / "audit.jsonl")
