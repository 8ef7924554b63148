"""What the tests of the core share: tools of every kind of effect, a store that fails on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import StoreUnavailable, ToolTimeout
from adapter.core.invoke import Fence
from adapter.core.rules import ApprovalRule
from adapter.core.spec import Retry, ToolSpec
from adapter.core.store import CallRow
from adapter.core.types import Effects, JsonObject, ToolCall
from adapter.core.validation import PydanticSchema
from adapter.stores.memory import MemoryStore
from adapter.testing import FrozenClock, ScriptedInvocation, Wired, wired

YES = ApprovalDecision(approved=True)
NO = ApprovalDecision(approved=False, reason="too much")
CARD = "4000-secret-card"


class Payment(BaseModel):
    to: str
    amount: int = 1
    card: str | None = None


class Query(BaseModel):
    model_config = ConfigDict(title="Query")

    text: str = ""


def tool(
    name: str, *, gated: bool = False, model: type[BaseModel] = Payment, **fields: Any
) -> tuple[ToolSpec, PydanticSchema]:
    rule = ApprovalRule(name="money", reason="it moves money") if gated else None
    defaults: dict[str, Any] = {"effects": Effects(destructive=True), "approval": rule}
    return ToolSpec(name=name, **(defaults | fields)), PydanticSchema(model)


SEND = tool("send", gated=True)
PAY = tool("pay", gated=True, masks=("card",))
WRITE = tool("write")
PUT = tool(
    "put",
    effects=Effects(idempotent=True),
    retries=Retry(max_attempts=3, initial_interval=0.001, jitter=False),
)
LOOK = tool("look", model=Query, effects=Effects(read_only=True))
GATED_PUT = tool("gated_put", gated=True, effects=Effects(idempotent=True))
ALL = (SEND, PAY, WRITE, PUT, LOOK, GATED_PUT)


class FlakyStore:
    """A store in memory that can be told to fail, to wait, or to say that it was called."""

    def __init__(self, clock: FrozenClock) -> None:
        self.inner = MemoryStore(clock=clock)
        self.failures: dict[str, int] = {}
        self.before: dict[str, Callable[[], Awaitable[object]]] = {}
        self.called: dict[str, asyncio.Event] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if name in self.before:
                await self.before[name]()
            if self.failures.get(name, 0) > 0:
                self.failures[name] -= 1
                raise StoreUnavailable("the store is down")
            result = await method(*args, **kwargs)
            if name in self.called:
                self.called[name].set()
            return result

        return call


def flaky(*tools: Any, **options: Any) -> tuple[Wired, FlakyStore]:
    clock = FrozenClock()
    store: Any = FlakyStore(clock)
    return wired(*(tools or ALL), clock=clock, store=store, **options), store


@dataclass(slots=True, kw_only=True)
class Mischief(ScriptedInvocation):
    """Middleware inside the adapter that does what it should not."""

    times: int = 1
    altered: Callable[[JsonObject], JsonObject] = field(default=lambda arguments: arguments)
    bypass: bool = False
    swallow: bool = False

    @override
    async def invoke(self, arguments: JsonObject, fence: Fence | None) -> Any:
        result: Any = None
        for _ in range(self.times):
            inner = ScriptedInvocation.invoke(
                self, self.altered(arguments), None if self.bypass else fence
            )
            try:
                result = await inner
            except Exception as error:
                if not self.swallow:
                    raise
                result = {"swallowed": type(error).__name__}
        return result


async def events(kit: Wired, thread_id: str = "thread-1") -> list[dict[str, Any]]:
    await kit.store.append([])  # whatever was posted without waiting is committed after this
    return [json.loads(one.line)["body"] for one in await kit.store.events(thread_id)]


async def kinds(kit: Wired, thread_id: str = "thread-1") -> list[str]:
    return [event["kind"] for event in await events(kit, thread_id)]


async def row_of(kit: Wired, message_id: str = "message-1") -> CallRow:
    (row,) = await kit.store.of_message("thread-1", message_id)
    return row


async def used(kit: Wired, scope: str = "turn:thread-1:turn-1:tool_calls") -> int:
    return (await kit.store.charge([], show=[scope])).used[scope]


async def hang(_arguments: JsonObject) -> None:
    await asyncio.Event().wait()


async def unrecorded(kit: Wired, store: FlakyStore, call: ToolCall, *given: Any) -> None:
    """Run a call whose outcome cannot be recorded, and let its lease run out."""
    store.failures["settle"] = 99
    with pytest.raises(StoreUnavailable):
        await kit.run(call, *given)
    store.failures.clear()
    kit.clock.advance(30)


async def outlived(kit: Wired, store: FlakyStore, call: ToolCall, gate: Gate) -> None:
    """Run a call past its time limit; then its tool ends, and that is recorded."""
    with pytest.raises(ToolTimeout):
        await kit.run(call, body=gate, cancellable=False)
    store.called["settle"] = asyncio.Event()
    gate.go.set()
    await store.called["settle"].wait()


class Gate:
    """A tool body that says when it started and waits until it may end."""

    def __init__(self, result: Any = "done") -> None:
        self.started, self.go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._result = result

    async def __call__(self, _arguments: Any) -> Any:
        self.started.set()
        try:
            await self.go.wait()
        finally:
            self.ended.set()
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result
