"""The turns of one task's calls: its gated ones go one at a time, and only one of them pauses."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from langgraph.errors import GraphInterrupt

from adapter.core.errors import ToolUsageError
from adapter.core.scope import task_scope
from adapter.langgraph.host import running_task

__all__ = ["TaskTurns"]

_REMEMBERED = 256


@dataclass(slots=True)
class _Task:
    """One run of one task: its gated calls go one at a time, and only one of them pauses."""

    scratchpad: Any
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    paused: GraphInterrupt | None = None
    waiting: int = 0
    running: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)


OUTSIDE = (
    "LangGraphApproval works inside a running LangGraph task only. Elsewhere, as in flow.run, give "
    "the Executor approval=DeferredApproval(store, keys)."
)


class TaskTurns:
    """The tasks that one approval port is used in, while they run."""

    def __init__(self) -> None:
        """Begin with none."""
        self._tasks: OrderedDict[int, _Task] = OrderedDict()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Let the gated calls of one task go one at a time; after a pause, none.

        Raises:
            ToolUsageError: Before anything is asked: no front end of the adapter runs this task.
        """
        task = self._task()
        scope = task_scope.get()
        if scope is None or scope.task is not task.scratchpad:
            msg = (
                "LangGraphApproval was reached in a node of your own that is not wrapped: "
                "add_node(one_use(node)), so that each answer is used once."
            )
            raise ToolUsageError(msg)
        task.waiting += 1
        try:
            async with self._turn(task):
                yield
        finally:
            task.waiting -= 1
            self._forget(task)

    @asynccontextmanager
    async def _turn(self, task: _Task) -> AsyncIterator[None]:
        async with task.lock:
            if task.paused is not None:
                # Another call of this task holds the one pending question; this one asks in a
                # later run, in the same order. It shows that question too: whichever call a node
                # leaves with, the question is what LangGraph keeps.
                raise GraphInterrupt(*task.paused.args)
            try:
                yield
            except GraphInterrupt as pause:
                task.paused = pause
                # A node that runs several calls ends at the first pause: what still runs beside
                # this call must be settled by then, or its result would come too late.
                await self.quiet(task)
                raise

    def contended(self) -> bool:
        """Tell whether several gated calls of the running task have come, and not gone."""
        return self._task().waiting > 1

    def pause(self) -> NoReturn:
        """Pause without a question of one's own; that of this task, if it has one, is shown.

        Raises:
            GraphInterrupt: Always.
        """
        shown = None if running_task() is None else self._task().paused
        raise GraphInterrupt(*(shown.args if shown else ()))

    def enter(self) -> object:
        """Note that a call that asks nobody runs in this task; returns what ``leave`` takes."""
        if running_task() is None:
            return None
        task = self._task()
        task.running += 1
        return task

    def leave(self, token: object) -> None:
        """Note that such a call is over."""
        if isinstance(token, _Task):
            token.running -= 1
            token.idle.set()
            self._forget(token)

    async def quiet(self, token: object) -> None:
        """Wait until no call that asks nobody runs in a task any more."""
        while isinstance(token, _Task) and token.running:
            token.idle.clear()
            await token.idle.wait()

    def _forget(self, task: _Task) -> None:
        """Let go of a task that is over; one that paused is kept for siblings that come late."""
        if not (task.paused is not None or task.waiting or task.running):
            self._tasks.pop(id(task.scratchpad), None)

    def _task(self) -> _Task:
        pad = running_task()
        if pad is None:
            raise ToolUsageError(OUTSIDE)
        known = self._tasks.get(id(pad))
        if known is None or known.scratchpad is not pad:
            known = self._tasks[id(pad)] = _Task(pad)
            while len(self._tasks) > _REMEMBERED:
                self._tasks.popitem(last=False)
        return known
