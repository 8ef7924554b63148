"""Which task of a host the code here runs in, as the front end that started it says.

Set by front ends, read by ports and the executor. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from adapter.core.types import CallContext

__all__ = ["TaskScope", "scoped", "task_scope"]


@dataclass(slots=True, kw_only=True)
class TaskScope:
    """One run of one task of the host.

    Attributes:
        task: The host's own notes on the task; another task started inside has others.
        context: Where calls stand that name no place themselves.
        state: What the task was given, for tools that take it.
        journaled: Read-only calls are recorded too, because the task's own code runs again.
        unjournaled: Ids of calls that ran and cannot be recognised when the task runs again.
    """

    task: object
    context: CallContext | None = None
    state: Any = None
    journaled: bool = False
    unjournaled: list[str] = field(default_factory=list)


task_scope: ContextVar[TaskScope | None] = ContextVar("adapter_task_scope", default=None)


@contextmanager
def scoped(scope: TaskScope) -> Iterator[TaskScope]:
    """Run a block as part of a task."""
    token = task_scope.set(scope)
    try:
        yield scope
    finally:
        task_scope.reset(token)
