"""Which task of a host the code here runs in, as the front end that started it says.

Set by front ends, read by ports and the executor. Nothing here decides anything.
"""

from __future__ import annotations

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


class scoped:  # noqa: N801 - used like a function; a generator costs more than its block
    """Run a block as part of a task."""

    __slots__ = ("_scope", "_token")

    def __init__(self, scope: TaskScope) -> None:
        """Take the scope."""
        self._scope = scope

    def __enter__(self) -> TaskScope:
        """Set it."""
        self._token = task_scope.set(self._scope)
        return self._scope

    def __exit__(self, *_error: object) -> None:
        """Set what was before."""
        task_scope.reset(self._token)
