"""`adapter approvals` against a fake server: what is shown, signed, reported and returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.fakes import (
    NOW,
    FakeServer,
    FakeThread,
    asked,
    interrupt,
    messages,
    ring,
    task,
)
from typer.testing import CliRunner, Result

from adapter.cli import approvals
from adapter.cli.app import app
from adapter.client import SyncApprovalClient
from adapter.core.errors import AdapterError, ConfigurationError
from adapter.core.signing import check_answer

KEYS = ring()
VALUE = asked(KEYS)
DENIED = '{"error": {"kind": "ApprovalDenied", "message": "not late"}}'


class Shop:
    """A server with one paused thread whose call ends as ``outcome`` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = FakeServer({"thread-1": self.paused("abc123")})
        self.outcome: tuple[str, Any] | None = ("success", "paid 400")
        self.server.on_run = self.run
        self.keys = KEYS
        monkeypatch.setattr(approvals, "_desk", self.desk)
        monkeypatch.setattr(approvals, "_now", lambda: NOW)

    def paused(self, *keys: str, value: Any = VALUE) -> FakeThread:
        return FakeThread(tasks=[task(interrupt(key, value)) for key in keys])

    def desk(self) -> SyncApprovalClient:
        sdk = self.server.sync_client()
        return SyncApprovalClient(client=sdk, keys=self.keys, reviewer="rita", clock=lambda: NOW)

    def run(self, thread: FakeThread, body: dict[str, Any]) -> Any:
        if self.outcome is None:
            refused = {**VALUE, "refused": {"code": "invalid_answer", "message": "not signed"}}
            thread.tasks = [task(interrupt("abc123", refused))]
        else:
            thread.tasks = []
            thread.values = messages(("call-1", *self.outcome))
        return {}

    def decision(self) -> dict[str, Any]:
        ((_, body),) = self.server.runs
        ((_, value),) = body["command"]["resume"].items()
        decision = check_answer(KEYS, VALUE["binding"], value)
        assert decision is not None
        return decision


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    monkeypatch.chdir(tmp_path)  # no store of the person who runs the tests
    monkeypatch.setenv("COLUMNS", "120")
    return Shop(monkeypatch)


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["approvals", *arguments], input=text)


class TestList:
    def test_shows_what_a_reviewer_decides_on(self, shop: Shop) -> None:
        done = run("list")
        assert done.exit_code == 0
        for shown in ("abc123", "issue_refund", "A-1001", "refunds", "money leaves", "in 24 h"):
            assert shown in done.stdout
        assert "1 waiting" in done.stdout

    def test_says_when_there_is_nothing(self, shop: Shop) -> None:
        shop.server.threads = {}
        done = run("list")
        assert (done.exit_code, done.stdout.strip()) == (0, "no request waits for a decision")

    def test_json_is_one_array(self, shop: Shop) -> None:
        (row,) = json.loads(run("list", "--json").stdout)
        assert row == {
            "id": "abc123",
            "thread_id": "thread-1",
            "assistant_id": "assistant-1",
            "expired": False,
            "where": "thread",
            "value": VALUE,
        }

    def test_one_thread_only(self, shop: Shop) -> None:
        shop.server.threads["thread-2"] = shop.paused("def456")
        done = run("list", "--thread", "thread-2")
        assert "def456" in done.stdout
        assert "abc123" not in done.stdout

    def test_an_expired_request_is_marked(self, shop: Shop) -> None:
        value = asked(KEYS, expires_at=NOW - 7_200_000)
        shop.server.threads = {"thread-1": shop.paused("abc123", value=value)}
        done = run("list")
        assert "(expired)" in done.stdout
        assert "2 h ago" in done.stdout

    def test_a_refused_answer_is_shown(self, shop: Shop) -> None:
        value = {**VALUE, "refused": {"code": "invalid_answer", "message": "was no good"}}
        shop.server.threads = {"thread-1": shop.paused("abc123", value=value)}
        assert "refused: was no good" in run("list").stdout

    def test_hostile_text_cannot_disguise_itself(self, shop: Shop) -> None:
        value = asked(KEYS, arguments={"note": "\u202egnp.exe \x9b2J [bold]x[/bold]"})
        shop.server.threads = {"thread-1": shop.paused("abc123", value=value)}
        done = run("list").stdout
        assert "\u202e" not in done
        assert "\x9b" not in done
        assert "\\u202e" in done
        assert "[bold]x[/bold]" in done


class TestDecide:
    @pytest.mark.parametrize(
        "command",
        [
            ["approve", "abc"],
            ["reject", "abc", "--reason", "no"],
            ["respond", "abc", "--text", "x"],
        ],
    )
    def test_without_anybody_to_ask_nothing_is_sent_and_yes_is_named(
        self, shop: Shop, command: list[str]
    ) -> None:
        done = run(*command)
        assert done.exit_code == 2
        assert "adapter: Nothing was done: this asks back" in done.stderr
        assert "--yes" in done.stderr
        assert shop.server.runs == []
        run(*command, "--yes")
        assert len(shop.server.runs) == 1

    def test_approve_shows_signs_and_tells_that_it_ran(self, shop: Shop) -> None:
        done = run("approve", "abc123", "--yes", "--reason", "fine")
        assert done.exit_code == 0, done.output
        assert "issue_refund" in done.stdout
        assert "The call ran: paid 400" in done.stdout
        decision = shop.decision()
        assert (decision["kind"], decision["reason"]) == ("approve", "fine")
        assert decision["reviewer"] == "rita"

    def test_an_approved_gate_is_told_as_one(self, shop: Shop) -> None:
        value = asked(KEYS, kind="gate", tool="place", call_id="gate:place")
        shop.server.threads = {"thread-1": shop.paused("abc123", value=value)}

        def on_run(thread: FakeThread, _body: Any) -> Any:
            thread.tasks, thread.values = [], {"aa_flow": {"steps": 2}}
            return {}

        shop.server.on_run = on_run
        done = run("approve", "abc123", "--yes")
        assert done.exit_code == 0, done.output
        assert "The gate is open: the flow went on" in done.stdout
        assert "The call ran" not in done.stdout

    def test_a_unique_beginning_of_the_id_is_enough(self, shop: Shop) -> None:
        assert run("approve", "ab", "-y").exit_code == 0

    def test_edited_arguments_are_shown_and_signed(self, shop: Shop) -> None:
        edit = {"order_id": "A-1001", "amount_cents": 250}
        done = run("approve", "abc123", "--yes", "--args", json.dumps(edit))
        assert done.exit_code == 0
        assert "runs instead" in done.stdout
        assert "250" in done.stdout
        assert shop.decision()["edited_args"] == edit

    def test_asks_back_and_goes_on_at_yes(self, shop: Shop) -> None:
        done = run("approve", "abc123", text="y\n")
        assert "Sign this decision: approve?" in done.stdout
        assert done.exit_code == 0
        assert len(shop.server.runs) == 1

    @pytest.mark.parametrize("reply", ["n\n", "\n"])
    def test_asks_back_and_signs_nothing_otherwise(self, shop: Shop, reply: str) -> None:
        assert run("approve", "abc123", text=reply).exit_code == 1
        assert shop.server.runs == []

    def test_reject_tells_so(self, shop: Shop) -> None:
        shop.outcome = ("error", DENIED)
        done = run("reject", "abc123", "--reason", "not late", "--yes")
        assert (done.exit_code, shop.decision()["kind"]) == (0, "reject")
        assert "Rejected: ApprovalDenied: not late" in done.stdout

    def test_a_reject_that_came_second_is_not_told_as_done(self, shop: Shop) -> None:
        shop.outcome = ("success", "refunded")
        done = run("reject", "abc123", "--reason", "not late", "--yes")
        assert done.exit_code == 1
        assert "Rejected" not in done.stdout
        assert "somebody else decided meanwhile" in done.stderr

    def test_respond_tells_so(self, shop: Shop) -> None:
        shop.outcome = ("success", "by hand")
        done = run("respond", "abc123", "--text", "by hand", "--yes")
        assert (done.exit_code, shop.decision()["response"]) == (0, "by hand")
        assert "Answered in the tool's place: by hand" in done.stdout

    def test_a_refused_answer_is_told_and_fails(self, shop: Shop) -> None:
        shop.outcome = None
        done = run("approve", "abc123", "--yes")
        assert done.exit_code == 1
        assert "refused, the request is still open: not signed" in done.stderr

    def test_a_node_that_failed_behind_the_answer_is_told_and_the_request_is_gone(
        self, shop: Shop
    ) -> None:
        def fail(thread: FakeThread, body: Any) -> Any:
            used = {**VALUE, "used": {"code": "failed", "message": "ValueError"}}
            thread.tasks = [task(interrupt("abc123", used), error="ValueError('one rate')")]
            return {"__error__": {"error": "ValueError", "message": "one rate for each item."}}

        shop.server.on_run = fail
        done = run("approve", "abc123", "--yes")
        assert done.exit_code == 1
        assert "used up: the node failed: the run ended with ValueError: one rate" in done.stderr
        assert "Start a new run, or fork" in done.stderr
        assert "still open" not in done.stderr
        assert "no request waits" in run("list").stdout

    def test_a_call_that_failed_is_told_and_fails(self, shop: Shop) -> None:
        shop.outcome = ("error", '{"error": {"kind": "ToolFailed", "message": "broke"}}')
        done = run("approve", "abc123", "--yes")
        assert done.exit_code == 1
        assert "ToolFailed: broke" in done.stderr

    def test_a_rejection_that_came_too_late_fails(self, shop: Shop) -> None:
        shop.outcome = ("error", '{"error": {"kind": "ApprovalExpired", "message": "late"}}')
        done = run("reject", "abc123", "--reason", "no", "--yes")
        assert done.exit_code == 1
        assert "ApprovalExpired" in done.stderr

    def test_one_vote_of_several_is_told(self, shop: Shop) -> None:
        def vote(thread: FakeThread, body: Any) -> Any:
            thread.tasks = [task(interrupt("next", VALUE))]
            return {}

        shop.server.on_run = vote
        done = run("approve", "abc123", "--yes")
        assert done.exit_code == 0
        assert "still waits for more" in done.stdout

    def test_a_thread_without_a_result_is_told_and_fails(self, shop: Shop) -> None:
        def lost(thread: FakeThread, body: Any) -> Any:
            thread.tasks = []
            return {"__error__": {"error": "CallInProgress", "message": "busy"}}

        shop.server.on_run = lost
        done = run("approve", "abc123", "--yes")
        assert done.exit_code == 1
        assert "no result of the call: the run ended with CallInProgress" in done.stderr

    def test_an_altered_request_is_refused_before_it_is_shown(self, shop: Shop) -> None:
        shop.keys = ring("other")
        done = run("approve", "abc123", "--yes")
        assert done.exit_code == 1
        assert "not signed" in done.stderr
        assert done.stdout == ""
        assert shop.server.runs == []


class TestUsage:
    def test_an_unknown_id(self, shop: Shop) -> None:
        done = run("approve", "zzz", "--yes")
        assert done.exit_code == 2
        assert "begins with 'zzz'" in done.stderr
        assert "Traceback" not in done.output

    def test_an_ambiguous_id_names_the_threads(self, shop: Shop) -> None:
        shop.server.threads["thread-2"] = shop.paused("abc123")
        done = run("approve", "abc", "--yes")
        assert done.exit_code == 2
        assert "thread-1, thread-2" in done.stderr
        assert run("approve", "abc", "--yes", "--thread", "thread-1").exit_code == 0

    @pytest.mark.parametrize("args", ["{", "[1]", '"x"', '{"a": 1, "a": 2}', '{"a": NaN}'])
    def test_arguments_must_be_one_json_object(self, shop: Shop, args: str) -> None:
        done = run("approve", "abc123", "--yes", "--args", args)
        assert done.exit_code == 2
        assert "--args" in done.stderr
        assert shop.server.runs == []

    def test_reject_needs_a_reason(self, shop: Shop) -> None:
        assert run("reject", "abc123", "--yes").exit_code == 2

    @pytest.mark.parametrize(
        ("error", "code"), [(ConfigurationError("set X"), 2), (AdapterError("HTTP 500"), 1)]
    )
    def test_errors_are_one_line_on_standard_error(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch, error: AdapterError, code: int
    ) -> None:
        def fails() -> SyncApprovalClient:
            raise error

        monkeypatch.setattr(approvals, "_desk", fails)
        done = run("list")
        assert (done.exit_code, done.stderr) == (code, f"adapter: {error.message}\n")


def test_the_client_is_made_from_the_settings() -> None:
    assert isinstance(approvals._desk(), SyncApprovalClient)
    assert approvals._now() > NOW / 2
