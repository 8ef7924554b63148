"""Both clients over a fake server: the same behaviour with and without an event loop."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.unit.client.fakes import NOW, FakeServer, FakeThread, asked, ids, interrupt, ring, task

from adapter.client import ApprovalClient, PendingApproval, SyncApprovalClient
from adapter.core.approvals import ApprovalDecision
from adapter.core.errors import (
    AdapterError,
    ConfigurationError,
    InvalidAnswer,
    ToolUsageError,
)
from adapter.core.signing import check_answer
from adapter.keyfile import create_keys

KEYS = ring()
VALUE = asked(KEYS)
pytestmark = pytest.mark.anyio

Desk = Callable[..., Any]


@pytest.fixture(params=["async", "sync"])
def desk(request: pytest.FixtureRequest) -> Desk:
    """Makes a client on a fake server whose methods are awaited in both cases."""

    def make(server: FakeServer, **given: Any) -> Any:
        named: dict[str, Any] = {"keys": KEYS, "reviewer": "rita", "clock": lambda: NOW, **given}
        if request.param == "async":
            return ApprovalClient(client=server.async_client(), **named)
        return Awaited(SyncApprovalClient(client=server.sync_client(), **named))

    return make


class Awaited:
    """Gives a synchronous client's methods the asynchronous form."""

    def __init__(self, client: SyncApprovalClient) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.client, name)

        async def call(*args: Any, **named: Any) -> Any:
            return method(*args, **named)

        return call


def paused(*keys: str, **more: Any) -> FakeThread:
    return FakeThread(tasks=[task(interrupt(key, VALUE)) for key in keys], **more)


@pytest.mark.parametrize("given", ["x", '{"amount_cents": 250}', [("amount_cents", 250)], True])
async def test_edited_arguments_that_are_no_mapping_are_refused_before_anything_is_signed(
    desk: Desk, given: Any
) -> None:
    server = FakeServer({"t1": paused("i1")})
    made = desk(server)
    (waiting,) = await made.pending()
    with pytest.raises(ToolUsageError) as caught:
        await made.approve(waiting, edited_args=given)
    kind = type(given).__name__
    assert caught.value.message.startswith(f"edited_args is a dict and not a {kind}: of a tool's")
    assert "all of its arguments" in caught.value.message
    assert server.runs == []
    await made.approve(waiting, edited_args={"order_id": "A-1001", "amount_cents": 250})
    ((_, body),) = server.runs
    decision = check_answer(KEYS, VALUE["binding"], body["command"]["resume"]["i1"])
    assert decision is not None
    assert decision["edited_args"] == {"order_id": "A-1001", "amount_cents": 250}


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in vars(kind).items()
            if inspect.isfunction(member) and not name.startswith("_")
        }

    ours, twin = methods(ApprovalClient), methods(SyncApprovalClient)
    assert ours.pop("aclose") == twin.pop("close")
    assert ours == twin


class TestPending:
    async def test_of_one_thread_is_read_from_its_state_with_subgraphs(self, desk: Desk) -> None:
        server = FakeServer({"t1": paused("i1", "i2", status="error")})
        found = await desk(server).pending("t1")
        assert ids(found) == ["i1", "i2"]
        assert found[0].assistant_id == "assistant-1"
        assert server.paths() == ["/threads/t1/state"]
        assert server.requests[0].url.params["subgraphs"] == "true"

    @pytest.mark.parametrize("status", ["interrupted", "error", "busy", "idle"])
    async def test_of_all_threads_does_not_trust_the_status(self, desk: Desk, status: str) -> None:
        server = FakeServer({"t1": paused("i1", status=status)})
        assert ids(await desk(server).pending()) == ["i1"]

    async def test_a_copied_thread_is_looked_into(self, desk: Desk) -> None:
        copied = paused("i1", status="idle", row_interrupts={}, ran=False)
        assert ids(await desk(FakeServer({"t1": copied})).pending()) == ["i1"]

    async def test_a_thread_whose_row_lists_too_little_is_looked_into(self, desk: Desk) -> None:
        stale = paused("i1", status="interrupted", row_interrupts={})
        assert ids(await desk(FakeServer({"t1": stale})).pending()) == ["i1"]

    async def test_a_plainly_finished_thread_is_not_read(self, desk: Desk) -> None:
        finished = FakeThread(status="idle", row_interrupts={})
        server = FakeServer({"done": finished, "t1": paused("i1")})
        assert ids(await desk(server).pending()) == ["i1"]
        assert "/threads/done/state" not in server.paths()

    async def test_every_page_of_threads_is_read_once(self, desk: Desk) -> None:
        server = FakeServer({f"t{n:03}": paused(f"i{n:03}") for n in range(250)})
        assert ids(await desk(server).pending()) == [f"i{n:03}" for n in range(250)]
        assert server.paths().count("/threads/search") == 4
        fields = json.loads(server.requests[0].content)["select"]
        assert "values" not in fields

    async def test_a_server_that_ignores_the_offset_does_not_loop(self, desk: Desk) -> None:
        server = FakeServer({"t1": paused("i1")})
        server._search = lambda body: [server._row("t1", server.threads["t1"])]  # type: ignore[method-assign]
        assert ids(await desk(server).pending()) == ["i1"]

    async def test_a_thread_deleted_meanwhile_is_left_out(self, desk: Desk) -> None:
        server = FakeServer({"t1": paused("i1"), "t2": paused("i2")})
        server.gone = {"t1"}
        assert ids(await desk(server).pending()) == ["i2"]

    async def test_the_row_names_the_assistant_when_the_state_does_not(self, desk: Desk) -> None:
        server = FakeServer({"t1": paused("i1", state_metadata={})})
        assert (await desk(server).pending())[0].assistant_id == "row-assistant"


class TestSign:
    @pytest.mark.parametrize(
        "form",
        [
            {"id": "i", "value": VALUE},
            SimpleNamespace(id="i", value=VALUE),
            PendingApproval(thread_id="t", assistant_id="a", id="i", value=VALUE),
        ],
    )
    async def test_takes_every_form_of_interrupt(self, desk: Desk, form: Any) -> None:
        value = await desk(FakeServer()).sign(form, ApprovalDecision(kind="approve"))
        decision = check_answer(KEYS, VALUE["binding"], value)
        assert decision is not None
        assert decision["reviewer"] == "rita"
        assert decision["decided_at"] == "2027-01-15T08:00:00.000Z"

    @pytest.mark.parametrize(
        "altered",
        [
            {**VALUE, "request": {**VALUE["request"], "arguments": {"amount_cents": 1}}},
            {**VALUE, "binding": "cd" * 32},
            {**VALUE, "seal": {**VALUE["seal"], "mac": "0" * 64}},
            asked(ring("stranger")),
            {"type": "agent_adapter.approval"},
            "text",
        ],
    )
    async def test_an_altered_request_is_not_signed(self, desk: Desk, altered: Any) -> None:
        with pytest.raises(InvalidAnswer, match="not signed"):
            await desk(FakeServer()).sign(
                {"id": "i", "value": altered}, ApprovalDecision(kind="approve")
            )

    async def test_a_kind_that_is_not_offered_is_not_signed(self, desk: Desk) -> None:
        only = {"id": "i", "value": asked(KEYS, allowed=["approve"])}
        with pytest.raises(InvalidAnswer, match="allows approve"):
            await desk(FakeServer()).sign(only, ApprovalDecision(kind="reject", reason="no"))


class TestAnswers:
    async def answer(self, server: FakeServer) -> tuple[str, dict[str, Any]]:
        ((thread, body),) = server.runs
        ((key, value),) = body["command"]["resume"].items()
        decision = check_answer(KEYS, VALUE["binding"], value)
        assert decision is not None
        assert (thread, key, body["assistant_id"]) == ("t1", "i1", "assistant-1")
        assert "input" not in body
        return key, decision

    @pytest.fixture
    def server(self) -> FakeServer:
        made = FakeServer({"t1": paused("i1")})
        made.on_run = lambda thread, body: {"done": True}
        return made

    async def test_approve_signs_and_resumes_by_id(self, desk: Desk, server: FakeServer) -> None:
        client = desk(server)
        (found,) = await client.pending("t1")
        assert await client.approve(found, reason="fine") == {"done": True}
        _, decision = await self.answer(server)
        assert (decision["kind"], decision["reason"]) == ("approve", "fine")

    async def test_edited_arguments_make_it_an_edit(self, desk: Desk, server: FakeServer) -> None:
        client = desk(server)
        (found,) = await client.pending("t1")
        await client.approve(found, edited_args={"amount_cents": 1})
        _, decision = await self.answer(server)
        assert (decision["kind"], decision["edited_args"]) == ("edit", {"amount_cents": 1})

    @pytest.mark.parametrize(
        ("edit", "fault"),
        [({"rates": ["a"]}, r"rates\.0: must be of type integer"), ({"rate": 1}, "rate: the tool")],
    )
    async def test_an_edit_that_does_not_fit_is_not_sent(
        self, desk: Desk, server: FakeServer, edit: dict[str, Any], fault: str
    ) -> None:
        rates = {"type": "array", "items": {"type": "integer"}}
        value = asked(KEYS, schema={"properties": {"rates": rates}})
        server.threads["t1"] = FakeThread(tasks=[task(interrupt("i1", value))])
        client = desk(server)
        (found,) = await client.pending("t1")
        with pytest.raises(InvalidAnswer, match=fault):
            await client.approve(found, edited_args=edit)
        assert server.runs == []
        await client.approve(found, edited_args={"rates": [1]})
        assert len(server.runs) == 1

    async def test_reject_carries_the_reason(self, desk: Desk, server: FakeServer) -> None:
        client = desk(server)
        (found,) = await client.pending("t1")
        await client.reject(found, "not late")
        _, decision = await self.answer(server)
        assert (decision["kind"], decision["reason"]) == ("reject", "not late")

    async def test_respond_carries_the_text(self, desk: Desk, server: FakeServer) -> None:
        client = desk(server)
        (found,) = await client.pending("t1")
        await client.respond(found, "done by hand")
        _, decision = await self.answer(server)
        assert (decision["kind"], decision["response"]) == ("respond", "done by hand")

    async def test_a_runs_error_is_returned(self, desk: Desk, server: FakeServer) -> None:
        failed = {"__error__": {"error": "ApprovalAlreadyDecided", "message": "used"}}
        server.on_run = lambda thread, body: failed
        client = desk(server)
        assert await client.approve((await client.pending("t1"))[0]) == failed

    async def test_an_altered_request_is_not_answered(self, desk: Desk, server: FakeServer) -> None:
        bad = {"id": "i1", "value": {**VALUE, "binding": "cd" * 32}}
        with pytest.raises(InvalidAnswer):
            await desk(server).approve(bad, thread_id="t1")
        assert server.runs == []

    async def test_a_bare_interrupt_needs_its_thread(self, desk: Desk, server: FakeServer) -> None:
        bare = {"id": "i1", "value": VALUE}
        with pytest.raises(ToolUsageError, match="thread_id="):
            await desk(server).approve(bare)
        await desk(server).approve(bare, thread_id="t1")
        assert server.runs[0][1]["assistant_id"] == "row-assistant"

    async def test_a_contradicting_thread_is_refused(self, desk: Desk, server: FakeServer) -> None:
        client = desk(server)
        (found,) = await client.pending("t1")
        with pytest.raises(ToolUsageError, match="another thread"):
            await client.approve(found, thread_id="t2")
        await client.approve(found, thread_id="t1")

    @pytest.mark.parametrize(
        ("metadata", "runs", "wanted"),
        [
            ({"graph_id": "g"}, [], "g"),
            ({}, [{"assistant_id": "from-run"}], "from-run"),
            ({}, [], "agent"),
        ],
    )
    async def test_resume_finds_the_assistant(
        self, desk: Desk, metadata: dict[str, Any], runs: list[Any], wanted: str
    ) -> None:
        server = FakeServer({"t1": paused("i1", metadata=metadata, runs=runs)})
        await desk(server).resume("t1", {"i1": "signed"})
        ((_, body),) = server.runs
        assert body["assistant_id"] == wanted
        assert body["command"] == {"resume": {"i1": "signed"}}

    async def test_effect_reads_the_state(self, desk: Desk, server: FakeServer) -> None:
        client = desk(server)
        (found,) = await client.pending("t1")
        assert (await client.effect(found)).kind == "refused"


class TestHeal:
    async def test_a_thread_in_error_is_run_without_input(self, desk: Desk) -> None:
        server = FakeServer({"t1": paused("i1", status="error")})

        def on_run(thread: FakeThread, body: dict[str, Any]) -> Any:
            thread.status = "interrupted"
            return {}

        server.on_run = on_run
        assert ids(await desk(server).heal("t1")) == ["i1"]
        ((_, body),) = server.runs
        assert not body.keys() & {"input", "command"}
        assert body["assistant_id"] == "assistant-1"

    @pytest.mark.parametrize("status", ["interrupted", "idle", "busy"])
    async def test_a_thread_not_in_error_is_left_alone(self, desk: Desk, status: str) -> None:
        server = FakeServer({"t1": paused("i1", status=status)})
        assert ids(await desk(server).heal("t1")) == ["i1"]
        assert server.runs == []

    async def test_a_used_question_is_not_run_again(self, desk: Desk) -> None:
        server = FakeServer({"t1": paused("i1", status="error")})
        (listed,) = server.threads["t1"].tasks
        listed["interrupts"][0]["value"] = {**listed["interrupts"][0]["value"], "used": {}}
        assert await desk(server).heal("t1") == []
        assert await desk(server).pending() == []
        assert server.runs == []

    async def test_an_error_without_a_pause_is_not_repeated(self, desk: Desk) -> None:
        server = FakeServer({"t1": FakeThread(status="error")})
        assert await desk(server).heal("t1") == []
        assert server.runs == []


class TestFailures:
    @pytest.mark.parametrize(
        ("failure", "kind", "said"),
        [
            (httpx.ConnectError("refused"), ConfigurationError, "cannot be reached.*ADAPTER_URL"),
            (httpx.ReadTimeout("slow"), AdapterError, "did not answer in time"),
            ((401, ""), ConfigurationError, "ADAPTER_TOKEN"),
            ((403, ""), ConfigurationError, "not allow"),
            ((404, ""), ConfigurationError, "ADAPTER_URL"),
            ((500, "secret"), AdapterError, "HTTP 500"),
            ((200, "<html>secret"), ConfigurationError, "not a LangGraph"),
        ],
    )
    async def test_each_names_its_cure(
        self, desk: Desk, failure: Any, kind: type[AdapterError], said: str
    ) -> None:
        server = FakeServer()
        server.failure = failure
        with pytest.raises(kind, match=said) as caught:
            await desk(server).pending()
        assert "secret" not in caught.value.message

    async def test_an_unknown_thread_is_named(self, desk: Desk) -> None:
        with pytest.raises(ToolUsageError, match=r"no thread t9.*ADAPTER_URL") as caught:
            await desk(FakeServer()).pending("t9")
        assert "secret" not in caught.value.message

    async def test_a_busy_thread_says_so(self, desk: Desk) -> None:
        server = FakeServer()
        server.failure = (409, "")
        with pytest.raises(ToolUsageError, match="busy"):
            await desk(server).heal("t1")

    async def test_a_failing_state_ends_the_scan(self, desk: Desk) -> None:
        server = FakeServer({"t1": paused("i1")})
        found = server._about

        def failing(parts: list[str], thread: FakeThread, body: Any) -> Any:
            server.failure = (500, "")
            return found(parts, thread, body)

        server._about = failing  # type: ignore[method-assign]
        server.threads["t2"] = paused("i2")
        with pytest.raises(AdapterError, match="HTTP 500"):
            await desk(server).pending()

    @pytest.mark.parametrize("status", [400, 500])
    async def test_a_thread_that_cannot_be_read_hides_no_other_and_is_shown_by_its_row(
        self, desk: Desk, caplog: pytest.LogCaptureFixture, status: int
    ) -> None:
        server = FakeServer({name: paused(f"i-{name}") for name in ("t1", "t2", "t3")})
        server.threads["t2"].row_interrupts = {"task": server.threads["t2"].tasks[0]["interrupts"]}
        server.broken["t2"] = status
        open_now = await desk(server).pending()
        assert [(one.thread_id, one.id) for one in open_now] == [
            (name, f"i-{name}") for name in ("t1", "t2", "t3")
        ]
        assert "thread t2: The server at" in caplog.text
        assert f"failed this request (HTTP {status})" in caplog.text
        assert "secret" not in caplog.text

    async def test_errors_that_are_not_the_transports_pass_unchanged(self, desk: Desk) -> None:
        server = FakeServer()
        server.failure = ZeroDivisionError()
        with pytest.raises(ZeroDivisionError):
            await desk(server).pending()

    async def test_errors_in_local_work_pass_unchanged(self, desk: Desk) -> None:
        def broken() -> int:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await desk(FakeServer(), clock=broken).sign(
                {"id": "i", "value": VALUE}, ApprovalDecision(kind="approve")
            )


class TestSettings:
    @pytest.fixture(autouse=True)
    def _alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("ADAPTER_URL", "ADAPTER_KEY_FILE", "ADAPTER_REVIEWER", "ADAPTER_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(tmp_path)

    def test_making_a_client_reads_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADAPTER_URL", "not an address")
        ApprovalClient()
        client = SyncApprovalClient()
        with pytest.raises(ConfigurationError, match="ADAPTER_URL"):
            client.pending()

    async def test_address_token_keys_and_reviewer_come_from_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = create_keys(tmp_path / "own.json", now=1)
        monkeypatch.setenv("ADAPTER_URL", "http://desk.test:99/")
        monkeypatch.setenv("ADAPTER_KEY_FILE", str(tmp_path / "own.json"))
        monkeypatch.setenv("ADAPTER_REVIEWER", "rosa")
        monkeypatch.setenv("ADAPTER_TOKEN", "tok-123")
        async with ApprovalClient() as client:
            found = await client.sign(
                {"id": "i", "value": asked(keys)}, ApprovalDecision(kind="approve")
            )
            assert found["decision"]["reviewer"] == "rosa"
            sdk = client._connect()
            assert str(sdk.http.client.base_url) == "http://desk.test:99"
            assert sdk.http.client.headers["authorization"] == "Bearer tok-123"
            assert "tok-123" not in repr(client)

    def test_what_is_given_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADAPTER_URL", "http://desk.test")
        monkeypatch.setenv("ADAPTER_TOKEN", "tok-123")
        with SyncApprovalClient("http://other.test/", token="given") as client:
            sdk = client._connect()
            assert str(sdk.http.client.base_url) == "http://other.test"
            assert sdk.http.client.headers["authorization"] == "Bearer given"
        assert client._sdk is None

    def test_without_a_token_no_credential_is_sent(self) -> None:
        with SyncApprovalClient("http://other.test") as client:
            assert "authorization" not in client._connect().http.client.headers

    def test_a_missing_key_file_names_the_setting(self) -> None:
        client = SyncApprovalClient("http://other.test")
        with pytest.raises(ConfigurationError, match="ADAPTER_KEY_FILE"):
            client.sign({"id": "i", "value": VALUE}, ApprovalDecision(kind="approve"))

    async def test_a_given_client_is_its_owners_to_close(self) -> None:
        server = FakeServer()
        sdk = server.async_client()
        async with ApprovalClient(client=sdk):
            pass
        assert not sdk.http.client.is_closed
        plain = server.sync_client()
        with SyncApprovalClient(client=plain):
            pass
        assert not plain.http.client.is_closed

    async def test_without_the_sdk_the_pip_command_is_named(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(__import__("sys").modules, "langgraph_sdk", None)
        with pytest.raises(ConfigurationError, match=r"pip install 'agent-adapter\[langgraph\]'"):
            SyncApprovalClient("http://other.test", token="x").pending()
        with pytest.raises(ConfigurationError, match="pip install"):
            await ApprovalClient("http://other.test", token="x").pending()
