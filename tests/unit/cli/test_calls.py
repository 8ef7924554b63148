"""`adapter calls` and `adapter approvals expire` over a real SQLite store and key file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.integration.stores.records import claim, event, question, ungated
from typer.testing import CliRunner, Result

from adapter.cli import calls
from adapter.cli.app import app
from adapter.core.canonical import canonical_bytes
from adapter.core.keys import KeyRing
from adapter.core.sealing import Sealer
from adapter.core.store import CallRow
from adapter.keyfile import load_keys, write_keys
from adapter.reviewerfile import enrol_reviewer
from adapter.stores import SqlStore, open_store


def key(letter: str) -> str:
    return letter * 64


class Place:
    """A store with one gated call in doubt, one ungated, and one open question."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "keys.json"
        write_keys(self.file)
        self.on(self.fill)

    def on(self, work: Callable[[SqlStore], Coroutine[Any, Any, Any]]) -> Any:
        async def opened() -> Any:
            store = open_store(f"sqlite:///{self.folder / 'adapter.db'}")
            try:
                return await work(store)
            finally:
                await store.aclose()

        return asyncio.run(opened())

    async def fill(self, store: SqlStore) -> None:
        await store.open(question(1, key=key("a"), requester="ann"))
        await store.claim(claim(1, key=key("a"), lease=0, owner="worker-a"))
        body = {"data": {"arguments": {"note": "hi"}}, "kind": "started"}
        started = event(f"{key('b')}:started", body=canonical_bytes(body))
        await store.claim(
            ungated(2, key=key("b"), lease=0, events=(started,), call={"key": key("b")})
        )
        await store.open(question(3, key=key("c")))

    def row(self, letter: str) -> CallRow:
        found: CallRow = self.on(lambda store: store.get(key(letter)))
        return found

    def outcome(self, letter: str, keys: KeyRing | None = None) -> Any:
        row = self.row(letter)
        ring = keys or load_keys(self.file)
        return Sealer(keys=lambda: ring).open(row.outcome, row.key, row.thread_id)

    def events(self, kind: str) -> list[dict[str, Any]]:
        found = self.on(lambda store: store.events("thread-1"))
        return [json.loads(one.line)["body"]["data"] for one in found if one.kind == kind]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAPTER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("ADAPTER_REVIEWER", "olga")
    return Place(tmp_path)


def run(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=given)


def test_list_shows_what_is_known_of_each(place: Place) -> None:
    done = run("calls", "list")
    assert done.exit_code == 0, done.output
    assert "2 in doubt, 1 waiting" in done.stdout
    assert key("a")[:16] in done.stdout
    assert "worker-a, claim 1" in done.stdout
    assert '"note": "hi"' in done.stdout


def test_list_of_calls_in_doubt_as_json(place: Place) -> None:
    done = run("calls", "list", "--in-doubt", "--json")
    (gated, free) = json.loads(done.stdout)
    assert (gated["key"], free["key"]) == (key("a"), key("b"))
    assert gated["gated"]
    assert gated["arguments"] == {"amount_cents": 500, "note": "grüß"}
    assert gated["requester"] == "ann"
    assert gated["fence"] == 1
    assert not free["gated"]
    assert free["arguments"] == {"note": "hi"}


def test_a_success_is_recorded_as_the_tools_message(place: Place) -> None:
    done = run("calls", "resolve", "a", "--succeeded", "sent 5", "--yes")
    assert done.exit_code == 0, done.output
    assert "thread thread-1" in done.stdout
    assert place.row("a").status == "succeeded"
    message = place.outcome("a")["result"]["message"]
    assert message["type"] == "tool"
    assert message["data"]["content"] == "sent 5"
    assert message["data"]["tool_call_id"] == "call-1"
    (data,) = place.events("resolved")
    assert (data["by"], data["verdict"]) == ("olga", "succeeded")
    ring = load_keys(place.file)
    assert ring.verify("decision", canonical_bytes(data["statement"]), data["signature"])


def test_without_anybody_to_ask_nothing_is_recorded_and_yes_is_named(place: Place) -> None:
    done = run("calls", "resolve", "a", "--succeeded", "sent 5")
    assert done.exit_code == 2
    assert "Give --yes" in done.stderr
    assert place.row("a").status == "claimed"


def test_a_result_in_json_is_written_as_a_tools_own(place: Place) -> None:
    run("calls", "resolve", "a", "--succeeded", '{"ok":true,"name":"grüß"}', "--yes")
    assert place.outcome("a")["result"]["message"]["data"]["content"] == (
        '{"ok": true, "name": "grüß"}'
    )


def test_a_failure_keeps_its_reason(place: Place) -> None:
    done = run("calls", "resolve", "b", "--failed", "the bank never got it", "-y")
    assert done.exit_code == 0, done.output
    assert place.outcome("b") == {
        "error": {"kind": "ToolError", "message": "the bank never got it"}
    }
    (data,) = place.events("resolved")
    assert data["reason"] == "the bank never got it"
    assert "signature" not in data


def test_a_retry_asks_back_and_approves(place: Place) -> None:
    refused = run("calls", "resolve", "a", "--retry", given="n\n")
    assert refused.exit_code == 1
    assert "second effect" in refused.stdout
    assert place.row("a").status == "claimed"
    assert run("calls", "resolve", "a", "--retry", given="y\n").exit_code == 0
    assert place.row("a").status == "approved"
    assert place.row("a").outcome is None


@pytest.mark.parametrize(
    "arguments",
    [[], ["--retry", "--failed", "x"], ["--succeeded", "x", "--failed", "y"], ["--failed", " "]],
)
def test_exactly_one_thing_is_said(place: Place, arguments: list[str]) -> None:
    done = run("calls", "resolve", "a", "-y", *arguments)
    assert done.exit_code == 2
    assert place.row("a").status == "claimed"


@pytest.mark.parametrize(("prefix", "code"), [("", 2), ("d", 2), (key("c"), 1)])
def test_only_one_call_in_doubt_is_resolved(place: Place, prefix: str, code: int) -> None:
    done = run("calls", "resolve", prefix, "--retry", "-y")
    assert done.exit_code == code, done.output
    assert done.stderr.startswith("adapter: ")


def test_the_requester_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAPTER_REVIEWER", "ann")
    done = run("calls", "resolve", "a", "--succeeded", "x", "-y")
    assert done.exit_code == 1
    assert "ann asked" in done.stderr
    assert place.row("a").status == "claimed"


def test_a_reviewer_signs_with_their_own_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    own = place.folder / "rita.json"
    enrol_reviewer(place.file, own, "rita", now=1)
    monkeypatch.setenv("ADAPTER_REVIEWER_KEY", str(own))
    done = run("calls", "resolve", "a", "--succeeded", "x", "-y")
    assert done.exit_code == 0, done.output
    (data,) = place.events("resolved")
    assert data["by"] == "rita"
    assert data["signature"]["alg"] == "Ed25519"


def test_without_a_key_file_calls_are_shown_and_not_resolved(place: Place) -> None:
    place.file.unlink()
    assert "2 in doubt" in run("calls", "list").stdout
    for letter in ("a", "b"):
        done = run("calls", "resolve", letter, "--failed", "never sent", "-y")
        assert done.exit_code == 2, done.output
        assert place.row(letter).status == "claimed"


def test_no_database_is_a_clear_refusal(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAPTER_DATABASE_URI", f"sqlite:///{place.folder / 'none.db'}")
    done = run("calls", "list")
    assert done.exit_code == 2
    assert "There is no database at" in done.stderr
    assert not (place.folder / "none.db").exists()


def test_overdue_questions_are_closed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(store: SqlStore) -> None:
        await store.open(question(4, key=key("d"), ttl=0.0, tool_call_id="c-late"))

    place.on(late)
    done = run("approvals", "expire")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1].startswith("1 expired, 2 in doubt")
    assert "c-late in thread thread-1" in done.stdout
    assert place.row("d").status == "expired"
    assert place.outcome("d")["error"]["kind"] == "ApprovalExpired"
    assert place.row("c").status == "requested"
    assert len(place.events("expired")) == 1
    assert json.loads(run("approvals", "expire", "--json").stdout) == []
    assert run("approvals", "expire").stdout == "0 expired\n"


def test_a_claim_that_ran_out_is_noted_once_and_shown_the_same_before_and_after(
    place: Place,
) -> None:
    before = run("calls", "list", "--in-doubt").stdout
    assert "in_doubt" in before
    assert place.row("a").status == "claimed"
    done = run("approvals", "expire")
    assert "in doubt: issue_refund call-1 in thread thread-1" in done.stdout
    assert {place.row("a").status, place.row("b").status} == {"in_doubt"}
    run("approvals", "expire")
    assert len(place.events("in_doubt")) == 2
    assert run("calls", "list", "--in-doubt").stdout == before
    assert run("calls", "resolve", "a", "--succeeded", "sent 5", "-y").exit_code == 0
    assert place.row("a").status == "succeeded"
    assert place.events("resolved")[0]["before"] == "in_doubt"


def test_the_clock_is_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls._now() > 1_700_000_000_000
