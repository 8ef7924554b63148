"""A LangGraph server as the reviewer's client sees it: HTTP in, JSON out, no graph behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient

from adapter.core.keys import KeyRing
from adapter.core.signing import sealed_value
from adapter.core.types import JsonObject

URL = "http://server.test"
NOW = 1_800_000_000_000


def ring(name: str = "server") -> KeyRing:
    """The same keys for the same name."""
    return KeyRing.from_secret(f"{name} 0123456789abcdefghijklmnop".encode())


def asked(keys: KeyRing, **request: Any) -> JsonObject:
    """A sealed interrupt value."""
    facts = {
        "tool": "issue_refund",
        "arguments": {"order_id": "A-1001", "amount_cents": 400},
        "kind": "tool",
        "rule": "refunds",
        "reason": "money leaves",
        "call_id": "call-1",
        "allowed": ["approve", "edit", "reject", "respond"],
        "issued_at": NOW - 1000,
        "expires_at": NOW + 86_400_000,
        **request,
    }
    return sealed_value(keys, "ab" * 32, facts)


def interrupt(key: str, value: Any) -> JsonObject:
    return {"id": key, "value": value}


def task(*interrupts: JsonObject, **more: Any) -> JsonObject:
    found = {"id": "t", "name": "tools", "interrupts": list(interrupts)}
    return {**found, "result": None, "error": None, "state": None, **more}


@dataclass
class FakeThread:
    """One thread; ``state`` is what the client must believe, the rest is the row."""

    tasks: list[JsonObject] = field(default_factory=list)
    values: JsonObject = field(default_factory=dict)
    status: str = "interrupted"
    row_interrupts: Any = None
    metadata: JsonObject = field(default_factory=lambda: {"assistant_id": "row-assistant"})
    state_metadata: JsonObject = field(default_factory=lambda: {"assistant_id": "assistant-1"})
    runs: list[JsonObject] = field(default_factory=list)
    ran: bool = True


class FakeServer:
    """Answers the routes the client uses, and remembers what was asked.

    Attributes:
        on_run: Called with the thread and the run's body; its result is the run's.
    """

    def __init__(self, threads: dict[str, FakeThread] | None = None) -> None:
        self.threads = threads or {}
        self.requests: list[httpx.Request] = []
        self.runs: list[tuple[str, JsonObject]] = []
        self.on_run: Callable[[FakeThread, JsonObject], Any] = lambda thread, body: {}
        self.failure: tuple[int, str] | Exception | None = None
        self.gone: set[str] = set()
        self.broken: dict[str, int] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if isinstance(self.failure, Exception):
            raise self.failure
        if self.failure is not None:
            return httpx.Response(self.failure[0], text=self.failure[1])
        body = json.loads(request.content) if request.content else {}
        parts = request.url.path.strip("/").split("/")
        if parts == ["threads", "search"]:
            return httpx.Response(200, json=self._search(body))
        thread = self.threads.get(parts[1])
        if thread is None or (parts[1] in self.gone and len(parts) > 2):
            return httpx.Response(404, json={"detail": "no such thread: secret detail"})
        if parts[1] in self.broken:
            return httpx.Response(self.broken[parts[1]], text="secret")
        return httpx.Response(200, json=self._about(parts, thread, body))

    async def handle(self, request: httpx.Request) -> httpx.Response:
        return self(request)

    def paths(self) -> list[str]:
        return [request.url.path for request in self.requests]

    def async_client(self) -> LangGraphClient:
        client = get_client(url=URL, api_key=None)
        client.http.client = httpx.AsyncClient(
            base_url=URL, transport=httpx.MockTransport(self.handle)
        )
        return client

    def sync_client(self) -> SyncLangGraphClient:
        client = get_sync_client(url=URL, api_key=None)
        client.http.client = httpx.Client(base_url=URL, transport=httpx.MockTransport(self))
        return client

    def _search(self, body: JsonObject) -> list[JsonObject]:
        rows = [self._row(key, thread) for key, thread in self.threads.items()]
        return rows[body["offset"] : body["offset"] + body["limit"]]

    def _row(self, key: str, thread: FakeThread) -> JsonObject:
        row: JsonObject = {
            "thread_id": key,
            "status": thread.status,
            "metadata": thread.metadata,
            "created_at": "2026-11-30T10:00:00Z",
            "updated_at": "2026-11-30T10:00:01Z" if thread.ran else "2026-11-30T10:00:00Z",
        }
        if thread.row_interrupts is not None:
            row["interrupts"] = thread.row_interrupts
        return row

    def _about(self, parts: list[str], thread: FakeThread, body: JsonObject) -> Any:
        match parts[2:]:
            case []:
                return self._row(parts[1], thread)
            case ["state"]:
                return {
                    "tasks": thread.tasks,
                    "values": thread.values,
                    "metadata": thread.state_metadata,
                    "next": [item["name"] for item in thread.tasks],
                }
            case ["runs"]:
                return thread.runs
            case ["runs", "wait"]:
                self.runs.append((parts[1], body))
                return self.on_run(thread, body)
            case _:
                raise AssertionError(f"an unexpected request: {parts}")


def messages(*results: tuple[str, str, Any]) -> JsonObject:
    """State values with one tool message per (call id, status, content)."""
    found = [
        {"type": "tool", "tool_call_id": call, "status": status, "content": content}
        for call, status, content in results
    ]
    return {"messages": [{"type": "ai", "content": ""}, *found]}


def ids(found: Iterable[Any]) -> list[str]:
    return [item.id for item in found]
