"""`adapter approvals` for requests that wait in a SQLite store: listed, decided, run once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_approvals import Shop
from tests.unit.client.fakes import NOW, FakeServer, FakeThread, asked, interrupt, task
from tests.unit.core.kit import tool
from typer.testing import CliRunner, Result

from adapter.cli import approvals
from adapter.cli.app import app
from adapter.core.deferred import DeferredApproval
from adapter.core.errors import ApprovalDenied, ApprovalPending, ConfigurationError
from adapter.core.rules import ApprovalRule
from adapter.core.store import CallRow, Close
from adapter.keyfile import KeyFileSource, edit_keys, load_keys, write_keys
from adapter.reviewerfile import enrol_reviewer
from adapter.stores import SqlStore, open_store
from adapter.testing import FrozenClock, make_call, make_context, wired

ONE = tool("send", gated=True)
TWO = tool("send", approval=ApprovalRule(name="two", reason="grave", quorum=2, roles=("finance",)))
UNREACHABLE = ConfigurationError("The LangGraph server cannot be reached.")


class Cellar:
    """A program without a server: its executor asks in the store."""

    def __init__(self, folder: Path, spec: Any = ONE) -> None:
        self.file, self.spec = folder / "keys.json", spec
        self.uri = f"sqlite:///{folder / 'adapter.db'}"
        self.ran: list[Any] = []
        write_keys(self.file)

    def on(self, work: Callable[[SqlStore], Coroutine[Any, Any, Any]]) -> Any:
        async def opened() -> Any:
            store = open_store(self.uri, clock=lambda: NOW)
            try:
                return await work(store)
            finally:
                await store.aclose()

        return asyncio.run(opened())

    def run(self, number: int = 1) -> Any:
        """Run the call, as its thread does when it goes on without input."""
        call = make_call("send", id=f"call-{number}", to="bob", amount=5)

        async def work(store: SqlStore) -> Any:
            kit = wired(self.spec, store=store, clock=FrozenClock(NOW))
            port: Any = DeferredApproval(store, KeyFileSource(self.file), clock=lambda: NOW)
            kit.port = port
            kit = kit.restarted()
            kit.runs = self.ran
            place = make_context(task_id=f"task-{number}", run_id="run-9")
            return await kit.executor.run(call, place, kit.invocation(call))

        return self.on(work)

    def ask(self, number: int = 1) -> str:
        with pytest.raises(ApprovalPending):
            self.run(number)
        return str(self.row(number).approval_id)

    def row(self, number: int = 1) -> CallRow:
        async def work(store: SqlStore) -> Any:
            rows = await store.of_message("thread-1", "message-1")
            return next(row for row in rows if row.tool_call_id == f"call-{number}")

        found: CallRow = self.on(work)
        return found


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server runs; the store and the shared key file are on this machine."""

    def unreachable(*_args: Any) -> Any:
        raise UNREACHABLE

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("ADAPTER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("ADAPTER_REVIEWER", "olga")
    monkeypatch.setattr("adapter.client.blocking.SyncApprovalClient.pending", unreachable)
    monkeypatch.setattr(approvals, "_now", lambda: NOW)


@pytest.fixture
def cellar(away: None, tmp_path: Path) -> Cellar:
    return Cellar(tmp_path)


def run(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, ["approvals", *arguments], input=given)


def done(*arguments: str) -> Result:
    result = run(*arguments, "--store")
    assert result.exit_code == 0, result.output
    return result


class TestList:
    def test_shows_what_a_reviewer_decides_on_and_where_it_waits(self, cellar: Cellar) -> None:
        request = cellar.ask()
        shown = done("list").stdout
        for text in (request, "send", '"bob"', "it moves money", "the store; once it is decided"):
            assert text in shown
        assert shown.splitlines()[-1] == "1 waiting, 1 of them in the store"

    def test_json_says_where(self, cellar: Cellar) -> None:
        request = cellar.ask()
        (row,) = json.loads(done("list", "--json").stdout)
        assert (row["id"], row["where"], row["thread_id"]) == (request, "store", "thread-1")
        assert row["value"]["request"]["tool"] == "send"

    def test_one_thread_only(self, cellar: Cellar) -> None:
        cellar.ask()
        assert "no request waits" in done("list", "--thread", "thread-2").stdout
        assert "1 waiting" in done("list", "--thread", "thread-1").stdout

    def test_without_a_server_the_store_is_shown_and_that_is_said(self, cellar: Cellar) -> None:
        cellar.ask()
        result = run("list")
        assert result.exit_code == 0
        assert "1 waiting" in result.stdout
        assert "only the store is looked into: The LangGraph server" in result.stderr

    def test_with_neither_a_server_nor_a_request_the_servers_error_is_told(
        self, cellar: Cellar
    ) -> None:
        result = run("list")
        assert (result.exit_code, result.stderr) == (2, f"adapter: {UNREACHABLE.message}\n")

    @pytest.mark.usefixtures("away")
    def test_a_store_that_is_not_there_is_told_where_it_was_asked_for(self) -> None:
        result = run("list", "--store")
        assert result.exit_code == 2
        assert "There is no database" in result.stderr

    def test_a_question_of_a_thread_is_none_of_the_stores(self, cellar: Cellar) -> None:
        from tests.integration.stores.records import question

        cellar.on(lambda store: store.open(question()))
        assert "no request waits" in done("list").stdout


class TestDecide:
    def test_an_approval_is_recorded_and_runs_when_the_thread_goes_on(self, cellar: Cellar) -> None:
        request = cellar.ask()
        shown = done("approve", request[:10], "--yes", "--reason", "fine").stdout
        assert "Recorded: approve by olga." in shown
        assert "continue thread thread-1 with a run without input" in shown
        assert "(a run of flow.run: with its checkpoint)" in shown
        assert cellar.ran == []
        assert "no request waits" in done("list").stdout
        cellar.run()
        cellar.run()
        assert cellar.ran == [("call-1", {"to": "bob", "amount": 5, "card": None})]

    def test_edited_arguments_are_shown_signed_and_run(self, cellar: Cellar) -> None:
        request = cellar.ask()
        shown = done("approve", request, "-y", "--args", '{"to": "ann", "amount": 2}').stdout
        assert "runs instead" in shown
        cellar.run()
        assert cellar.ran == [("call-1", {"to": "ann", "amount": 2, "card": None})]

    def test_an_edit_that_does_not_fit_is_refused_before_it_is_signed(self, cellar: Cellar) -> None:
        request = cellar.ask()
        result = run("approve", request, "-y", "--store", "--args", '{"to": 7}')
        assert result.exit_code == 2
        assert "to: must be of type string" in result.stderr
        assert cellar.row().status == "requested"

    def test_a_rejection_keeps_its_reason(self, cellar: Cellar) -> None:
        assert "Recorded: reject" in done("reject", cellar.ask(), "--reason", "no", "-y").stdout
        with pytest.raises(ApprovalDenied, match="Reason: no"):
            cellar.run()
        assert cellar.ran == []

    def test_a_response_stands_in_for_the_tool(self, cellar: Cellar) -> None:
        done("respond", cellar.ask(), "--text", "by hand", "-y")
        assert cellar.run() == "by hand"
        assert cellar.ran == []

    def test_asks_back_and_records_at_yes_only(self, cellar: Cellar) -> None:
        request = cellar.ask()
        assert run("approve", request, "--store", given="n\n").exit_code == 1
        assert cellar.row().status == "requested"
        result = run("approve", request, "--store", given="y\n")
        assert "Sign this decision: approve?" in result.stdout
        assert cellar.row().status == "approved"

    def test_decided_once(self, cellar: Cellar) -> None:
        request = cellar.ask()
        done("approve", request, "-y")
        result = run("reject", request, "--reason", "no", "-y", "--store")
        assert result.exit_code == 2
        assert "It may have been answered already" in result.stderr

    def test_a_request_altered_in_the_store_is_not_signed(self, cellar: Cellar) -> None:
        request = cellar.ask()
        row = cellar.row()
        kept: Any = json.loads(json.dumps(row.decision))
        kept["sealed"]["request"]["arguments"]["amount"] = 1
        cellar.on(
            lambda store: store.close_question(Close(key=row.key, status=row.status, decision=kept))
        )
        result = run("approve", request, "-y", "--store")
        assert result.exit_code == 1
        assert "altered" in result.stderr
        assert result.stdout == ""
        assert cellar.row().decision == kept

    def test_a_late_decision_is_refused(
        self, cellar: Cellar, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request = cellar.ask()
        monkeypatch.setattr(approvals, "_now", lambda: NOW + 86_400_000)
        assert "(expired)" in done("list").stdout
        result = run("approve", request, "-y", "--store")
        assert result.exit_code == 1
        assert cellar.row().status == "requested"


@pytest.mark.usefixtures("away")
class TestPeople:
    def reviewer(
        self, cellar: Cellar, monkeypatch: pytest.MonkeyPatch, name: str, *roles: str
    ) -> None:
        """Sign as this person from now on."""
        path = cellar.file.parent / f"{name}.json"
        if not path.exists():
            enrol_reviewer(cellar.file, path, name, roles, now=NOW // 1000)
        monkeypatch.setenv("ADAPTER_REVIEWER_KEY", str(path))

    def test_two_of_finance_decide_with_keys_of_their_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cellar = Cellar(tmp_path, TWO)
        for name, role in (("ann", "finance"), ("bob", "finance"), ("tom", "support")):
            self.reviewer(cellar, monkeypatch, name, role)
        request = cellar.ask()
        self.reviewer(cellar, monkeypatch, "tom")
        refused = run("approve", request, "-y", "--store")
        assert refused.exit_code == 1
        assert "tom has none of the roles finance" in refused.stderr

        self.reviewer(cellar, monkeypatch, "ann")
        assert "It has 1 of 2 and waits for more" in done("approve", request, "-y").stdout
        assert "another one must" in run("approve", request, "-y", "--store").stderr
        assert "1 of 2: ann" in done("list").stdout
        with pytest.raises(ApprovalPending):
            cellar.run()
        assert cellar.ran == []

        self.reviewer(cellar, monkeypatch, "bob")
        assert "Nothing ran yet" in done("approve", request, "-y").stdout
        cellar.run()
        assert len(cellar.ran) == 1

    def test_a_revoked_key_is_told_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cellar = Cellar(tmp_path)
        self.reviewer(cellar, monkeypatch, "ann")
        request = cellar.ask()
        from dataclasses import replace

        def revoke(ring: Any) -> Any:
            (own,) = [key for key in ring.keys if key.reviewer == "ann"]
            return ring.changed([replace(own, revoked_at=1)]), None

        edit_keys(cellar.file, revoke)
        result = run("approve", request, "-y", "--store")
        assert result.exit_code == 1
        assert "does not know the key" in result.stderr
        assert cellar.row().status == "requested"


class TestBoth:
    """A server with a paused thread, and a request in the store beside it."""

    def test_both_kinds_are_listed_apart(self, cellar: Cellar, both: Shop) -> None:
        request = cellar.ask()
        result = run("list")
        assert result.exit_code == 0
        for text in ("abc123", request, "2 waiting, 1 of them in the store"):
            assert text in result.stdout
        assert [row["where"] for row in json.loads(run("list", "--json").stdout)] == [
            "thread",
            "store",
        ]

    def test_each_is_decided_where_it_waits(self, cellar: Cellar, both: Shop) -> None:
        request = cellar.ask()
        assert "The call ran: paid 400" in run("approve", "abc123", "-y").stdout
        assert cellar.row().status == "requested"
        assert "Recorded: approve by olga" in run("approve", request, "-y").stdout
        assert len(both.server.runs) == 1

    def test_a_thread_that_shows_a_stored_request_is_not_answered_itself(
        self, cellar: Cellar, both: Shop
    ) -> None:
        request = cellar.ask()
        shown = (cellar.row().decision or {})["sealed"]
        both.server.threads = {"thread-1": FakeThread(tasks=[task(interrupt("abc123", shown))])}
        (row,) = json.loads(run("list", "--json").stdout)
        assert (row["id"], row["where"]) == (request, "store")
        run("approve", request, "-y")
        assert both.server.runs == []
        assert cellar.row().status == "approved"

    def test_away_from_the_store_such_a_request_is_refused(self, shop: Shop) -> None:
        value = asked(shop.keys, approval_id="f" * 32)
        shop.server.threads = {"thread-1": FakeThread(tasks=[task(interrupt("abc123", value))])}
        result = run("approve", "abc123", "-y")
        assert result.exit_code == 2
        assert "decided in the server's store" in result.stderr
        assert shop.server.runs == []

    def test_a_store_that_cannot_be_read_hides_no_thread(
        self, cellar: Cellar, both: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path(cellar.uri.removeprefix("sqlite:///")).write_bytes(b"no database at all" * 99)
        result = run("list")
        assert result.exit_code == 0
        assert "abc123" in result.stdout
        assert "the store is not looked into" in result.stderr


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return Shop(monkeypatch)


@pytest.fixture
def both(cellar: Cellar, monkeypatch: pytest.MonkeyPatch) -> Shop:
    from adapter.client import SyncApprovalClient

    monkeypatch.undo()
    folder = cellar.file.parent
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("ADAPTER_DATA_DIR", str(folder))
    made = Shop(monkeypatch)
    made.keys = load_keys(cellar.file)
    value = asked(made.keys)
    made.server = FakeServer({"thread-0": FakeThread(tasks=[task(interrupt("abc123", value))])})
    made.server.on_run = made.run
    monkeypatch.setattr(
        approvals,
        "_desk",
        lambda: SyncApprovalClient(
            client=made.server.sync_client(), keys=made.keys, reviewer="olga", clock=lambda: NOW
        ),
    )
    return made
