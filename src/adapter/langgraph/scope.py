"""Marking the tasks that the adapter's front ends run, so that no other task can ask.

Reads where a task stands; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from langgraph.runtime import get_runtime

from adapter.core.errors import ToolUsageError
from adapter.core.scope import TaskScope, scoped
from adapter.core.types import CallContext
from adapter.langgraph import history
from adapter.langgraph.host import running_task
from adapter.langgraph.surroundings import surroundings

__all__ = ["front_end", "here", "own_task"]


def front_end() -> AbstractContextManager[TaskScope]:
    """Mark what runs inside as the work of one of the adapter's front ends."""
    return scoped(TaskScope(task=running_task()))


@contextmanager
def own_task(state: Any, *, journaled: bool = False, key: str = "messages") -> Iterator[TaskScope]:
    """Give calls inside a place and the task's state.

    Args:
        state: What the task was given.
        journaled: Reads are recorded too.
        key: Where the state's messages are.

    Raises:
        ToolUsageError: No LangGraph task runs here.
    """
    scope = TaskScope(
        task=running_task(), context=here(state, key), state=state, journaled=journaled
    )
    with scoped(scope):
        yield scope


def here(state: Any = None, key: str = "messages") -> CallContext:
    """Return where a call made by the running task stands.

    Raises:
        ToolUsageError: No LangGraph task runs here.
    """
    if running_task() is None:
        msg = "This works inside a running LangGraph task only."
        raise ToolUsageError(msg)
    try:
        messages = history.messages_of(state, key)
    except TypeError:
        messages = []
    return surroundings(get_runtime(), history.turn_of(messages))
