"""One real server for all tests that can share it, and the two sides that talk to it."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_client
from tests.support.server import Server

from adapter import ApprovalDecision
from adapter.client import ApprovalClient
from adapter.core.audit_verify import verify_chain
from adapter.keyfile import load_keys
from adapter.stores import open_store


class Lab:
    """A customer and a reviewer, over HTTP."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sdk: Any = get_client(url=server.url, api_key=None)
        self.keys = load_keys(server.data / "keys.json")
        self.desk = ApprovalClient(server.url, keys=self.keys, reviewer="ann", token="")

    async def close(self) -> None:
        await self.desk.aclose()
        await self.sdk.aclose()

    async def thread(self) -> str:
        return str((await self.sdk.threads.create())["thread_id"])

    async def run(self, thread: str, **named: Any) -> Any:
        return await self.sdk.runs.wait(thread, "agent", raise_error=False, **named)

    async def say(self, thread: str, *lines: str) -> Any:
        text = "\n".join(lines)
        return await self.run(thread, input={"messages": [{"role": "user", "content": text}]})

    async def resume(self, thread: str, answers: Any, **named: Any) -> Any:
        return await self.run(thread, command={"resume": answers}, **named)

    async def asked(self, thread: str) -> list[dict[str, Any]]:
        state = await self.sdk.threads.get_state(thread)
        tasks: Any = state["tasks"]
        return [asked for task in tasks for asked in task.get("interrupts", [])]

    async def messages(self, thread: str) -> list[dict[str, Any]]:
        state: Any = await self.sdk.threads.get_state(thread)
        found: list[dict[str, Any]] = state["values"].get("messages", [])
        return found

    async def results(self, thread: str) -> dict[str, dict[str, Any]]:
        """Results by call id; each call has exactly one."""
        messages = await self.messages(thread)
        calls = [c["id"] for m in messages if m["type"] == "ai" for c in m.get("tool_calls", [])]
        results = [m for m in messages if m["type"] == "tool"]
        assert sorted(calls) == sorted(m["tool_call_id"] for m in results)
        return {m["tool_call_id"]: m for m in results}

    async def status(self, thread: str) -> str:
        return str((await self.sdk.threads.get(thread))["status"])

    async def sign(self, asked: Any, kind: Any = "approve", **more: Any) -> dict[str, Any]:
        return await self.desk.sign(asked, ApprovalDecision(kind=kind, **more))

    async def paused(self, order: str, cents: int = 100) -> tuple[str, dict[str, Any]]:
        """A thread paused at one refund, and its question."""
        thread = await self.thread()
        await self.say(thread, refund(order, cents))
        (asked,) = await self.asked(thread)
        assert self.server.refunds(order) == []
        return thread, asked

    async def events(self, thread: str) -> list[dict[str, Any]]:
        """Bodies of the thread's audit events; the chain is whole."""
        store = open_store(f"sqlite:///{self.server.data / 'adapter.db'}")
        try:
            links = await store.events(thread)
            (head,) = await store.heads(thread)
        finally:
            await store.aclose()
        assert list(verify_chain(links, head)) == []
        return [json.loads(link.line)["body"] for link in links]


def refund(order: str, cents: int = 100) -> str:
    arguments = {"order_id": order, "amount_cents": cents, "reason": "late"}
    return f"/call issue_refund {json.dumps(arguments)}"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server")).start()
    yield made
    made.stop()
    assert "BlockingError" not in made.text


@pytest.fixture(scope="session")
def fresh(server: Server) -> Iterator[str]:
    """Orders nobody has used yet."""
    return iter(server.orders())


@pytest.fixture
def orders(fresh: Iterator[str]) -> list[str]:
    return list(itertools.islice(fresh, 3))


@pytest.fixture
def order(fresh: Iterator[str]) -> str:
    return next(fresh)


@pytest.fixture
async def lab(server: Server) -> AsyncIterator[Lab]:
    """The shared server; what it logged meanwhile shows no blocked event loop."""
    before = len(server.text)
    made = Lab(server)
    yield made
    await made.close()
    assert "BlockingError" not in server.text[before:]


@pytest.fixture(scope="session", autouse=True)
def clean_checkout() -> Iterator[None]:
    """No test here leaves anything new in the checkout."""
    root = Path(__file__).parents[2]
    absent = [root / name for name in (".langgraph_api", ".adapter") if not (root / name).exists()]
    yield
    assert [path for path in absent if path.exists()] == []
