"""`adapter audit` with signed heads: what verify compares, exports read elsewhere, pruning."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner, Result
from typing_extensions import override

from adapter.cli import pruning
from adapter.cli.app import app
from adapter.core.audit import Auditor, Subject
from adapter.core.store import Claim, NewCall, Settle
from adapter.core.types import CallStatus
from adapter.keyfile import create_keys, edit_keys
from adapter.sinks import JsonlSink, SinkFanout
from adapter.stores import SqlStore, open_store
from adapter.testing import make_context

NOW = 1_800_000_000_000
DAY = 86_400_000


class Books:
    """A signed store, its audit file and its keys, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = create_keys(folder / "keys.json")
        self.file = folder / "audit.jsonl"

    def open(self, *, signed: bool = True, sink: bool = True) -> SqlStore:
        file = JsonlSink(self.file)
        store = open_store(
            f"sqlite:///{self.folder / 'adapter.db'}",
            head_signer=(lambda message: self.keys.sign("audit", message)) if signed else None,
            outlet=SinkFanout([file] if sink else []),
            clock=lambda: NOW,
        )
        file.backlog = store.backlog
        if not sink:
            file.close()
        return store

    def write(self, thread: str, *days: int, turn: str = "turn-1", **options: bool) -> None:
        """Write an event per day, so many days before now."""

        async def append() -> None:
            store = self.open(**options)
            done = len(await store.events(thread))
            for number, day in enumerate(days, done):
                audit = Auditor(clock=lambda day=day: NOW - day * DAY)  # type: ignore[misc]
                event = audit.event(
                    "started",
                    make_context(thread, turn_id=turn),
                    Subject(tool="refund", call_id=f"c{number}", key=f"k{number}"),
                )
                await store.append([event])
            await store.aclose()

        asyncio.run(append())

    def call(self, thread: str, status: CallStatus, turn: str = "turn-1") -> None:
        async def settle() -> None:
            store = self.open()
            new = NewCall(
                key="k" * 64,
                thread_id=thread,
                checkpoint_ns="",
                task_id="t",
                turn_id=turn,
                message_id="m",
                tool_call_id="c",
                tool="refund",
                arguments_digest="d",
            )
            await store.claim(
                Claim(key=new.key, new=new, run_id="r", owner="o", lease=1, executed_digest="d")
            )
            await store.settle(Settle(key=new.key, fence=1, status=status, outcome={"result": "x"}))
            await store.aclose()

        asyncio.run(settle())

    def sql(self, statement: str, *values: Any) -> list[Any]:
        db = sqlite3.connect(self.folder / "adapter.db")
        with db:
            found = db.execute(statement, values).fetchall()
        db.close()
        return found

    def lines(self) -> list[bytes]:
        return self.file.read_bytes().splitlines(keepends=True)


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Books:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAPTER_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(pruning, "_now", lambda: NOW)
    made = Books(tmp_path)
    made.write("thread-a", 9, 8, 3, 2, 1)
    made.write("thread-b", 5)
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments])


def failed(*arguments: str) -> str:
    done = run(*arguments)
    assert done.exit_code == 1, done.output
    assert "FAILED" in done.stdout
    return done.stdout


class TestHeads:
    def test_signed_heads_are_checked_and_what_was_compared_is_said(self, books: Books) -> None:
        done = run("verify", "--jsonl", str(books.file))
        assert done.exit_code == 0, done.output
        assert "signed by audit-" in done.stdout
        assert "verified: 2 threads, 6 events, no fault" in done.stdout
        last = done.stdout.splitlines()[-1]
        assert last.startswith("compared: signatures by the audit keys; the audit file ")
        assert last.endswith("; 2 heads in the store")

    def test_without_keys_it_says_that_signatures_were_not_checked(self, books: Books) -> None:
        (books.folder / "keys.json").unlink()
        done = run("verify")
        assert done.exit_code == 0
        assert "compared: signatures were not checked" in done.stdout

    def test_an_unsigned_head_is_a_fault(self, books: Books) -> None:
        books.write("thread-a", 0, signed=False)
        assert "signature: the head of link 6 is not signed." in failed("verify")

    def test_a_chain_rewritten_with_its_head_is_found_by_the_signature(self, books: Books) -> None:
        books.sql("DELETE FROM audit_events WHERE thread_id = 'thread-a' AND seq > 3")
        (row,) = books.sql("SELECT hash FROM audit_events WHERE thread_id='thread-a' AND seq=3")
        books.sql("UPDATE audit_heads SET seq=3, count=3, hash=? WHERE thread_id='thread-a'", *row)
        assert "does not match its signature" in failed("verify")

    def test_a_revoked_key_is_said_to_be_revoked(self, books: Books) -> None:
        from adapter.core.keychange import revoke, rotate

        def change(ring: Any) -> Any:
            kid = ring.newest("audit").kid
            ring = rotate(ring, ["audit"], now=9_999_999_999)[0]
            return revoke(ring, kid, now=9_999_999_999)

        edit_keys(books.folder / "keys.json", change)
        assert "which is revoked" in failed("verify")

    def test_events_without_a_head_and_heads_without_events(self, books: Books) -> None:
        books.sql("DELETE FROM audit_heads WHERE thread_id = 'thread-a'")
        books.sql("DELETE FROM audit_events WHERE thread_id = 'thread-b'")
        said = failed("verify")
        assert "head: the thread has links but no head: it was removed." in said
        assert "truncated: link 1 is missing at the end." in said

    def test_a_thread_removed_whole_is_found_by_the_file_which_names_the_event(
        self, books: Books
    ) -> None:
        for table in ("audit_events", "audit_heads"):
            books.sql(f"DELETE FROM {table} WHERE thread_id = 'thread-b'")
        assert run("verify").exit_code == 0
        said = failed("verify", "--jsonl", str(books.file))
        assert f"truncated: the audit file {books.file} names link 1" in said
        assert "(event k0:started)" in said

    def test_a_dropped_event_is_named_by_the_file(self, books: Books) -> None:
        books.sql("DELETE FROM audit_events WHERE thread_id = 'thread-a' AND seq = 3")
        said = failed("verify", "--jsonl", str(books.file))
        assert "dropped: link 3 is missing. (event k2:started)" in said

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("UPDATE audit_events SET turn_id = 'zz' WHERE seq = 2", "turn_id stored beside"),
            ("UPDATE audit_events SET run_id = 'zz' WHERE seq = 2", "run_id stored beside"),
            ("UPDATE audit_events SET run_seq = 9 WHERE seq = 2", "run_seq stored beside"),
            ("UPDATE audit_heads SET run_id = 'zz'", "the run stored with the head"),
            ("UPDATE audit_heads SET run_seq = 9", "the run stored with the head"),
            ("UPDATE audit_heads SET seq = 'abc'", "is no number"),
            ("UPDATE audit_heads SET hash = x'00'", "never writes"),
            (
                "INSERT INTO audit_events SELECT thread_id, -9223372036854775808, 'f', run_id, 1,"
                " turn_id, kind, line, hash FROM audit_events WHERE seq = 1",
                "stored under the number -9223372036854775808",
            ),
        ],
    )
    def test_what_is_stored_beside_the_lines_is_checked(
        self, books: Books, change: str, said: str
    ) -> None:
        books.sql(change)
        done = run("verify")
        assert done.exit_code == 1, done.output
        assert said in done.output
        pruned = run("prune", "--keep", "0")
        assert (pruned.exit_code, "left alone" in pruned.output) == (1, True)

    def test_a_line_turned_into_text_is_edited(self, books: Books) -> None:
        books.sql("UPDATE audit_events SET line = CAST(line AS TEXT) WHERE seq = 2")
        assert "edited: link 2: it is not what its hash was made of. (event k1:st" in failed(
            "verify"
        )


class TestFile:
    def verified(self, books: Books) -> Result:
        (books.folder / "adapter.db").unlink()
        return run("verify", "--jsonl", str(books.file), "--no-store")

    def test_a_file_is_verified_without_a_store(self, books: Books) -> None:
        done = self.verified(books)
        assert done.exit_code == 0, done.output
        assert "verified: 2 threads, 6 events, no fault" in done.stdout

    @pytest.mark.parametrize(
        ("how", "said"),
        [
            ("edit", "edited: link 2: it is not what its hash was made of. (event k1:started)"),
            ("drop", "dropped: link 2 is missing."),
            ("swap", "reordered: link 2: it is stored after link 3. (event k1:started)"),
            ("double", "doubled: link 2: there is more than one link of this number."),
            ("tear", "malformed: line 6 of the file"),
            ("junk", "malformed: line 1 of the file"),
        ],
    )
    def test_every_tampering_is_found(self, books: Books, how: str, said: str) -> None:
        lines = books.lines()
        if how == "edit":
            lines[1] = lines[1].replace(b"refund", b"refuse")
        elif how == "drop":
            del lines[1]
        elif how == "swap":
            lines[1], lines[2] = lines[2], lines[1]
        elif how == "double":
            lines.insert(1, lines[1])
        elif how == "tear":
            lines[5] = lines[5][:50]
        else:
            lines.insert(0, b"junk\n")
        books.file.write_bytes(b"".join(lines))
        done = self.verified(books)
        assert done.exit_code == 1
        assert said in done.stdout

    def test_a_cut_off_end_is_found_beside_the_store(self, books: Books) -> None:
        books.write("thread-a", 0, sink=False)
        done = run("verify", "--jsonl", str(books.file))
        assert done.exit_code == 0  # a file that lags is whole as far as it goes
        books.file.write_bytes(b"".join(books.lines()[:-3]))
        assert run("verify", "--jsonl", str(books.file)).exit_code == 0

    def test_an_end_without_its_signed_head_is_a_fault(self, books: Books) -> None:
        lines = books.lines()
        cut = json.loads(lines[4])
        del cut["head"]
        start, event = lines[4].split(b',"event":', 1)
        facts = json.dumps({name: cut[name] for name in cut if name != "event"})
        assert start
        lines[4] = facts[:-1].encode() + b',"event":' + event
        books.file.write_bytes(b"".join(lines))
        done = self.verified(books)
        assert "signature: the head of link 5 is not signed." in done.stdout

    def test_the_settings_file_is_compared_by_itself(
        self, books: Books, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ADAPTER_AUDIT_FILE", str(books.file))
        assert f"the audit file {books.file};" in run("verify").stdout
        books.file.unlink()
        assert "there is none yet" in run("verify").stdout

    def test_nothing_to_verify_and_no_such_file_are_usage_errors(self, books: Books) -> None:
        assert run("verify", "--no-store").exit_code == 2
        done = run("verify", "--jsonl", "none.jsonl")
        assert done.exit_code == 2
        assert "none.jsonl cannot be read" in done.stderr

    def test_a_file_without_an_event_is_not_verified(self, books: Books) -> None:
        empty = books.folder / "empty.jsonl"
        empty.touch()
        done = run("verify", "--no-store", "--jsonl", str(empty))
        assert done.exit_code == 2
        assert "nothing to verify" in done.output

    def test_one_thread_of_a_file(self, books: Books) -> None:
        arguments = ("verify", "--jsonl", str(books.file), "--no-store", "--thread")
        assert "1 thread, 1 event," in run(*arguments, "thread-b").stdout
        done = run(*arguments, "thread-z")
        assert done.exit_code == 2
        assert "has no event of thread thread-z" in done.stderr


class TestExport:
    def test_an_export_is_verified_anywhere(self, books: Books) -> None:
        done = run("export", "--out", "all.jsonl")
        assert done.exit_code == 0, done.output
        assert done.stderr == "6 events exported\n"
        assert (books.folder / "all.jsonl").stat().st_mode & 0o077 == 0
        checked = run("verify", "--jsonl", "all.jsonl", "--no-store")
        assert checked.exit_code == 0, checked.output
        assert "2 threads, 6 events" in checked.stdout

    def test_one_thread_to_standard_output(self, books: Books) -> None:
        done = run("export", "--thread", "thread-b")
        (row,) = [json.loads(line) for line in done.stdout.splitlines()]
        assert row["event"]["body"]["call_id"] == "c0"
        assert row["head"]["kid"].startswith("audit-")

    def test_a_part_begins_at_an_anchor_that_says_it_is_shortened(self, books: Books) -> None:
        run("export", "--since", "2027-01-11T00:00Z", "--out", "part.jsonl")
        checked = run("verify", "--jsonl", "part.jsonl", "--no-store")
        assert checked.exit_code == 0, checked.output
        assert "shortened up to link 2" in checked.stdout

    def test_an_anchor_in_the_middle_hides_no_gap(self, books: Books) -> None:
        run("export", "--thread", "thread-a", "--out", "x.jsonl")
        lines = (books.folder / "x.jsonl").read_bytes().splitlines(keepends=True)
        second = json.loads(lines[1])
        fake = {"seq": 2, "hash": second["hash"], "removed": 0, "at": 0, "by": "eve"}
        line = json.dumps(
            {"thread_id": "thread-a", "anchor": {**fake, "kid": None, "signature": None}}
        )
        (books.folder / "x.jsonl").write_bytes(
            b"".join([lines[0], line.encode() + b"\n", *lines[2:]])
        )
        assert "dropped: link 2 is missing." in failed("verify", "--jsonl", "x.jsonl", "--no-store")

    def test_a_file_that_exists_is_not_overwritten(self, books: Books) -> None:
        done = run("export", "--out", str(books.file))
        assert done.exit_code == 2
        assert "it exists" in done.stderr

    def test_what_was_tampered_with_is_exported_and_found_there(self, books: Books) -> None:
        books.sql("UPDATE audit_events SET line = CAST('junk' AS BLOB) WHERE seq = 2")
        run("export", "--out", "all.jsonl")
        assert "malformed: link 2" in failed("verify", "--jsonl", "all.jsonl", "--no-store")
        assert run("export", "--since", "2020-01-01", "--out", "part.jsonl").exit_code == 0

    def test_a_date_that_is_none(self, books: Books) -> None:
        assert run("export", "--since", "yesterday").exit_code == 2


class TestPrune:
    def test_old_events_go_and_the_rest_verifies(self, books: Books) -> None:
        done = run("prune", "--keep", "4")
        assert done.stdout == "removed 3 events of 2 threads, and 0 recorded outcomes\n"
        checked = run("verify", "--jsonl", str(books.file))
        assert checked.exit_code == 0, checked.output
        assert "pruned up to link 2" in checked.stdout
        assert books.sql("SELECT by, removed FROM audit_anchors WHERE seq = 2")[0][1] == 2
        kinds = books.sql("SELECT kind FROM audit_events WHERE thread_id='thread-a' ORDER BY seq")
        assert [kind for (kind,) in kinds] == ["started"] * 3 + ["pruned"]
        # The next event of the thread brings the file along, the removed links stay in it.
        books.write("thread-a", 0)
        checked = run("verify", "--jsonl", str(books.file))
        assert checked.exit_code == 0, checked.output

    def test_pruning_again_changes_nothing(self, books: Books) -> None:
        run("prune", "--keep", "0.5")
        assert "removed 0 events of 0 threads" in run("prune", "--keep", "0.5").stdout
        assert run("verify").exit_code == 0

    def test_a_dry_run_changes_nothing(self, books: Books) -> None:
        books.call("thread-b", CallStatus.SUCCEEDED)
        done = run("prune", "--before", "2027-01-16", "--dry-run")
        assert done.stdout == "would remove 6 events of 2 threads, and 1 recorded outcomes\n"
        assert books.sql("SELECT count(*) FROM audit_events") == [(6,)]
        assert books.sql("SELECT count(outcome) FROM calls") == [(1,)]

    def test_outcomes_go_and_their_rows_stay(self, books: Books) -> None:
        books.call("thread-b", CallStatus.SUCCEEDED)
        assert "and 0 recorded" in run("prune", "--before", "2027-01-16", "--thread", "x").stdout
        assert "and 1 recorded" in run("prune", "--before", "2027-01-16").stdout
        assert books.sql("SELECT status, outcome FROM calls") == [("succeeded", None)]
        assert run("verify").exit_code == 0

    def test_turns_in_doubt_are_kept(self, books: Books) -> None:
        books.call("thread-a", CallStatus.IN_DOUBT)
        done = run("prune", "--before", "2027-01-16", "--thread", "thread-a")
        assert "removed 0 events" in done.stdout

    def test_a_faulty_chain_is_left_alone(self, books: Books) -> None:
        books.sql("DELETE FROM audit_events WHERE thread_id = 'thread-a' AND seq = 2")
        done = run("prune", "--keep", "1")
        assert done.exit_code == 1
        assert "does not verify: thread-a" in done.stdout
        assert "removed 1 events of 1 threads" in done.stdout

    def test_an_anchor_that_was_moved_is_found(self, books: Books) -> None:
        run("prune", "--keep", "4")
        (row,) = books.sql("SELECT hash FROM audit_events WHERE thread_id='thread-a' AND seq=4")
        books.sql("DELETE FROM audit_events WHERE thread_id='thread-a' AND seq <= 4")
        books.sql("UPDATE audit_anchors SET seq=4, hash=? WHERE thread_id='thread-a'", *row)
        assert "the anchor at link 4 does not match" in failed("verify")

    def test_the_time_to_keep_comes_from_the_settings(
        self, books: Books, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert run("prune").exit_code == 2
        monkeypatch.setenv("ADAPTER_RETENTION", "4")
        assert "removed 3 events" in run("prune").stdout
        assert run("prune", "--keep", "1", "--before", "2027-01-01").exit_code == 2

    def test_without_keys_nothing_is_pruned(self, books: Books) -> None:
        (books.folder / "keys.json").unlink()
        done = run("prune", "--keep", "1")
        assert done.exit_code == 2
        assert "ADAPTER_KEY_FILE" in done.stderr

    def test_a_user_without_a_name_is_unknown(
        self, books: Books, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def nobody() -> str:
            raise KeyError("uid")

        monkeypatch.setattr("getpass.getuser", nobody)
        run("prune", "--keep", "4")
        assert books.sql("SELECT DISTINCT by FROM audit_anchors") == [("unknown",)]


class Threads(BaseHTTPRequestHandler):
    """A server's threads, as far as verify asks for them."""

    heads: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        name = self.path.split("/")[2]
        status = 200 if name in self.heads else 404
        body = json.dumps({"values": {"audit_head": self.heads.get(name)}}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Threads)
    monkeypatch.setenv("ADAPTER_URL", f"http://127.0.0.1:{made.server_port}")
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield
    made.shutdown()
    thread.join()
    made.server_close()


class TestState:
    def head(self, books: Books, seq: int) -> dict[str, Any]:
        ((hash_,),) = books.sql(
            "SELECT hash FROM audit_events WHERE thread_id='thread-a' AND seq=?", seq
        )
        return {"thread_id": "thread-a", "seq": seq, "hash": hash_}

    def test_heads_in_the_state_are_compared(self, books: Books, server: None) -> None:
        Threads.heads = {"thread-a": self.head(books, 3), "thread-b": "odd"}
        done = run("verify")
        assert done.exit_code == 0, done.output
        assert "; 1 heads in the threads' state at http://127.0.0.1" in done.stdout

    def test_a_chain_cut_off_with_its_head_is_found(self, books: Books, server: None) -> None:
        Threads.heads = {"thread-a": {**self.head(books, 5), "seq": 6}}
        assert "truncated: the thread's state names link 6" in failed("verify")
        Threads.heads = {"thread-a": {**self.head(books, 5), "hash": "0" * 64}}
        assert "edited: link 5: the thread's state names another" in failed("verify")

    def test_a_head_of_another_form_or_thread_is_none(self, books: Books, server: None) -> None:
        Threads.heads = {
            "thread-a": {"thread_id": "thread-b", "seq": 99, "hash": "x"},
            "thread-b": {"seq": "1", "hash": None},
        }
        assert "; 0 heads in the threads' state" in run("verify").stdout

    def test_a_server_that_is_down_is_said(
        self, books: Books, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ADAPTER_URL", "http://127.0.0.1:9")
        assert "the server at http://127.0.0.1:9 does not answer" in run("verify").stdout
        assert "state" not in run("verify", "--no-state").stdout
