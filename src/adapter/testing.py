"""Test kit: an executor over an in-memory store, with a clock, a reviewer and tools you script.

For tests of graphs and tools built on the adapter. Nothing here reads a clock, sleeps or guesses:
time moves when a test says so, answers are signed with real keys and judged by the real checks.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from typing_extensions import override

from adapter.core.executor import Executor
from adapter.core.keys import KeyRing
from adapter.core.spec import ArgumentSchema, Registry, ToolSpec
from adapter.core.store import Store
from adapter.core.types import CallContext, JsonObject, Place, ToolCall
from adapter.scripted import FrozenClock, Paused, ScriptedInvocation, ScriptedPort
from adapter.selftest import assert_governed
from adapter.stores.memory import MemoryStore

__all__ = [
    "FrozenClock",
    "Paused",
    "ScriptedInvocation",
    "ScriptedPort",
    "Wired",
    "assert_governed",
    "make_call",
    "make_context",
    "wired",
]


def make_call(
    name: str = "send", *, id: str = "call-1", message_id: str = "message-1", **arguments: Any
) -> ToolCall:
    """Return a tool call as a model would write it; keywords are its arguments."""
    return ToolCall(name=name, arguments=arguments, id=id, message_id=message_id)


def make_context(
    thread_id: str = "thread-1",
    *,
    run_id: str = "run-1",
    task_id: str = "task-1",
    turn_id: str = "turn-1",
    durable: bool = True,
    user: str | None = None,
) -> CallContext:
    """Return where a call stands; the run's token is its id."""
    place = Place(thread_id=thread_id, task_id=task_id, turn_id=turn_id, durable=durable)
    return CallContext(place=place, run_id=run_id, run_token=run_id, user=user)


@dataclass(slots=True, kw_only=True)
class Wired(AbstractAsyncContextManager["Wired"]):
    """An executor and everything around it; ``async with`` closes its store.

    Attributes:
        runs: Arguments of every time a tool's body started, over restarts too.
    """

    executor: Executor
    registry: Registry
    store: Store
    port: ScriptedPort
    clock: FrozenClock
    options: dict[str, Any]
    runs: list[tuple[str, JsonObject]] = field(default_factory=list)

    async def run(
        self,
        call: ToolCall,
        ctx: CallContext | None = None,
        *answers: Any,
        **tool: Any,
    ) -> Any:
        """Run a call.

        Args:
            call: As the model wrote it.
            ctx: Where; the usual place when None.
            answers: What this run brings, as in ``ScriptedPort.resume``.
            tool: Behaviour of the tool, as in ``ScriptedInvocation``.
        """
        self.port.resume(*answers)
        return await self.executor.run(call, ctx or make_context(), self.invocation(call, **tool))

    def invocation(self, call: ToolCall, **tool: Any) -> ScriptedInvocation:
        """Return an invocation whose runs are counted in ``runs``."""
        return ScriptedInvocation(
            on_run=lambda arguments: self.runs.append((call.id, arguments)), **tool
        )

    def restarted(self, **options: Any) -> Wired:
        """Return a new executor over the same store, port and clock, as another process has."""
        merged = self.options | options
        executor = Executor(self.registry, store=self.store, approval=self.port, **merged)
        return replace(self, executor=executor, options=merged)

    @override
    async def __aexit__(self, *exc: object) -> None:
        """Close the store."""
        await self.store.aclose()


def wired(
    *tools: tuple[ToolSpec, ArgumentSchema],
    keys: KeyRing | None = None,
    clock: FrozenClock | None = None,
    store: Store | None = None,
    **options: Any,
) -> Wired:
    """Wire an executor over a store in memory with a scripted port and a frozen clock.

    Args:
        tools: Specs with their schemas, e.g. ``(spec, PydanticSchema(Model))``.
        keys: Keys of the port; random ones when None.
        clock: The clock of executor and store.
        store: Another store, e.g. one that fails.
        options: Further arguments of ``Executor``.
    """
    clock = clock or FrozenClock()
    store = store or _TestStore(clock=clock)
    port = ScriptedPort(keys or KeyRing.random(), clock=clock)
    registry = Registry([spec for spec, _ in tools], {spec.name: schema for spec, schema in tools})
    numbers = count(1)
    usual: dict[str, Any] = {
        "clock": clock,
        "ids": lambda: f"{next(numbers):032x}",
        "sleep": _no_wait,
    } | options
    executor = Executor(registry, store=store, approval=port, **usual)
    return Wired(
        executor=executor, registry=registry, store=store, port=port, clock=clock, options=usual
    )


class _TestStore(MemoryStore):
    """A ledger that lasts as long as the test, which is all that it has to."""

    durable = True


async def _no_wait(_seconds: float) -> None:
    await asyncio.sleep(0)
