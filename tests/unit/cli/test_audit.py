"""`adapter audit` over a real SQLite store: what it shows, and every tampering it reports."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from adapter.cli import audit
from adapter.cli.app import app
from adapter.core.store import Event, StoredEvent
from adapter.stores import open_store


class Books:
    """A store in a file, written by the store's own code and tampered with by SQL."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, thread: str, count: int, *, start: int = 0) -> None:
        async def append() -> None:
            store = open_store(f"sqlite:///{self.path}")
            events = [event(thread, start + n) for n in range(count)]
            await store.append(events)
            await store.aclose()

        asyncio.run(append())

    def sql(self, statement: str, *values: Any) -> None:
        db = sqlite3.connect(self.path)
        with db:
            db.execute(statement, values)
        db.close()


def event(thread: str, number: int) -> Event:
    body = {
        "at": 1_800_000_000_000 + number,
        "call_id": f"call-{number}",
        "data": {"amount": number},
        "kind": "started",
        "thread_id": thread,
        "tool": "issue_refund",
    }
    text = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    return Event(
        id=f"e{number}", thread_id=thread, run_id="r", turn_id="u", kind="started", body=text
    )


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Books:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAPTER_DATABASE_URI", f"sqlite:///{tmp_path / 'adapter.db'}")
    made = Books(tmp_path / "adapter.db")
    made.write("thread-a", 5)
    made.write("thread-b", 3, start=100)
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments])


class TestTail:
    def test_shows_the_newest_of_all_threads_oldest_first(self, books: Books) -> None:
        done = run("tail", "-n", "4")
        assert done.exit_code == 0, done.output
        lines = done.stdout.splitlines()
        assert [line.split()[4:6] for line in lines] == [
            ["issue_refund", "call-4"],
            ["issue_refund", "call-100"],
            ["issue_refund", "call-101"],
            ["issue_refund", "call-102"],
        ]
        assert "2027-01-15T08:00:00.102Z" in lines[-1]
        assert '{"amount": 102}' in lines[-1]

    def test_of_one_thread(self, books: Books) -> None:
        done = run("tail", "--thread", "thread-a", "-n", "2")
        assert [line.split()[2] for line in done.stdout.splitlines()] == ["4", "5"]

    def test_json_is_one_object_per_line(self, books: Books) -> None:
        rows = [json.loads(line) for line in run("tail", "--json").stdout.splitlines()]
        assert len(rows) == 8
        assert rows[0]["event"]["call_id"] == "call-0"
        assert {"thread_id", "seq", "hash", "event"} == rows[0].keys()

    def test_no_lines_asked_for_none_shown(self, books: Books) -> None:
        assert run("tail", "-n", "0").stdout == ""

    def test_a_line_that_cannot_be_read_is_shown_as_such(self, books: Books) -> None:
        books.sql(
            "UPDATE audit_events SET line = CAST('junk' AS BLOB) WHERE thread_id = 'thread-a'"
        )
        done = run("tail", "--thread", "thread-a")
        assert done.exit_code == 0
        assert "unreadable" in done.stdout

    def test_follow_goes_on_with_new_events_until_interrupted(
        self, books: Books, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        naps: list[float] = []

        async def nap(seconds: float) -> None:
            naps.append(seconds)
            if len(naps) == 3:
                raise KeyboardInterrupt
            await asyncio.to_thread(books.write, "thread-c", 1, start=200 + len(naps))

        monkeypatch.setattr(audit, "_nap", nap)
        done = run("tail", "-n", "1", "--follow")
        assert done.exit_code == 0
        shown = [line.split()[5] for line in done.stdout.splitlines()]
        assert shown == ["call-102", "call-201", "call-202"]
        assert naps == [audit.POLL] * 3


class TestVerify:
    def test_whole_chains_are_ok(self, books: Books) -> None:
        done = run("verify")
        assert done.exit_code == 0
        lines = done.stdout.splitlines()
        assert lines[0].startswith("thread-a  ok: 5 events, head ")
        assert lines[1].startswith("thread-b  ok: 3 events, head ")
        assert lines[2] == "verified: 2 threads, 8 events, no fault"

    def test_one_thread(self, books: Books) -> None:
        books.sql("DELETE FROM audit_events WHERE thread_id = 'thread-b'")
        done = run("verify", "--thread", "thread-a")
        assert done.exit_code == 0
        assert "\nverified: 1 thread, 5 events, no fault\n" in done.stdout

    def test_an_edited_event(self, books: Books) -> None:
        books.sql(
            "UPDATE audit_events"
            " SET line = CAST(replace(line, 'issue_refund', 'issue_refuse') AS BLOB)"
            " WHERE thread_id = 'thread-a' AND seq = 2"
        )
        done = run("verify")
        assert done.exit_code == 1
        assert "thread-a  FAILED: " in done.stdout
        assert "link 2" in done.stdout
        assert "thread-b  ok: 3 events" in done.stdout
        assert "FAILED: 2 threads, 8 events" in done.stdout.splitlines()[-2]

    def test_a_dropped_event(self, books: Books) -> None:
        books.sql("DELETE FROM audit_events WHERE thread_id = 'thread-a' AND seq = 3")
        done = run("verify")
        assert done.exit_code == 1
        assert "dropped: link 3 is missing." in done.stdout
        assert "\nFAILED: 2 threads, 7 events, 1 fault in 1 thread\n" in done.stdout

    def test_a_cut_off_end(self, books: Books) -> None:
        books.sql("DELETE FROM audit_events WHERE thread_id = 'thread-a' AND seq > 3")
        done = run("verify")
        assert done.exit_code == 1
        assert "truncated: links 4 to 5 are missing at the end." in done.stdout

    def test_more_than_a_page(self, books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("adapter.cli.trail.PAGE", 2)
        assert run("verify").exit_code == 0

    def test_an_unknown_thread_is_a_usage_error(self, books: Books) -> None:
        done = run("verify", "--thread", "thread-z")
        assert done.exit_code == 2
        assert "no event of thread thread-z" in done.stderr


class TestStore:
    def test_a_missing_file_is_not_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("ADAPTER_DATABASE_URI", f"sqlite:///{tmp_path / 'no.db'}")
        done = run("verify")
        assert done.exit_code == 2
        assert "ADAPTER_DATABASE_URI" in done.stderr
        assert not (tmp_path / "no.db").exists()

    def test_a_file_that_is_no_database_is_one_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "x.db").write_text("no database " * 100)
        monkeypatch.setenv("ADAPTER_DATABASE_URI", f"sqlite:///{tmp_path / 'x.db'}")
        done = run("verify")
        assert done.exit_code == 2
        assert done.stderr.startswith("adapter: ")
        assert "Traceback" not in done.output


def test_a_body_that_is_no_object_is_unreadable() -> None:
    odd = StoredEvent(thread_id="t", seq=1, event_id="e", kind="k", line=b'{"body":3}', hash="")
    assert audit._body(odd) == {"kind": "unreadable"}
