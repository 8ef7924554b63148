"""Questions that LangGraph goes on listing though their answers are used up.

A task that fails keeps its newest pause, and the error beside it may be an older one. So the task
itself says in that pause, as it fails, that the answer was taken; whoever reads the state sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.types import Interrupt

from adapter.core.errors import (
    AdapterError,
    ApprovalAlreadyDecided,
    CallInProgress,
    ConfigurationError,
    StoreUnavailable,
)
from adapter.core.signing import APPROVAL_TYPE, USED
from adapter.core.types import JsonObject
from adapter.langgraph.host import configurable, pause_id, running_task, task_answers
from adapter.langgraph.supersteps import last_pause, pauses_at, replace_pauses

__all__ = ["aspent", "spend", "spent"]

_UNUSED = (GraphBubbleUp, CallInProgress, ConfigurationError, StoreUnavailable)
"""What a task may leave with while its answer still waits for its claim."""


def spent(error: Exception) -> None:
    """Say it in the running task's pause, from a synchronous graph's thread."""
    at = _place(error)
    if at is not None:
        with suppress(Exception):  # the task's own error must not be lost
            spend(configurable(), last_pause(configurable(), at[0].get_tuple(at[1])), error)


async def aspent(error: Exception) -> None:
    """Say it in the running task's pause."""
    at = _place(error)
    if at is not None:
        with suppress(Exception):
            found = await at[0].aget_tuple(at[1])
            spend(configurable(), last_pause(configurable(), found), error)


def spend(conf: Mapping[str, Any], pauses: Sequence[Interrupt], error: Exception) -> None:
    """Say in a failing task's pauses which of their questions were answered.

    Args:
        conf: The configurable part of the task's config.
        pauses: Its last ones.
        error: What the task fails with.
    """
    taken = _taken(conf, error)
    said = {"code": getattr(error, "code", "failed"), "message": _told(error)}
    marked = [
        _marked(pause, said) if (pause.id, _binding(pause.value)) in taken else pause
        for pause in pauses
    ]
    if marked != list(pauses):
        replace_pauses(conf, marked)


def _place(error: Exception) -> tuple[Any, dict[str, Any]] | None:
    """Return where the running task's pause is, if it may have to be marked."""
    if running_task() is None or not _taken(configurable(), error):
        return None
    return pauses_at(configurable())


def _taken(conf: Mapping[str, Any], error: Exception) -> set[tuple[str, str]]:
    """Return the questions whose answers this run of the task took, by id and binding.

    An id alone may be a later question's too, where LangGraph lost the answer of the first.
    """
    if isinstance(error, _UNUSED) or is_invalid_resume(error):
        return set()
    answers = task_answers(conf)
    # An answer that is refused because its call used it before is not taken a second time.
    refused = type(error) is ApprovalAlreadyDecided
    given = answers.values if refused else answers.values[: answers.asked]
    return {
        (pause_id(answers.namespace, number), _binding(value)) for number, value in enumerate(given)
    }


def _binding(value: object) -> str:
    """Return what question a request or an answer is about; empty where it does not say."""
    named = value.get("binding") if isinstance(value, Mapping) else None
    return named if isinstance(named, str) else ""


def _marked(pause: Interrupt, said: JsonObject) -> Interrupt:
    """Return a pause whose answer is used; what failed first stays the reason."""
    value = pause.value
    if not isinstance(value, Mapping) or value.get("type") != APPROVAL_TYPE or USED in value:
        return pause
    return Interrupt({**value, USED: said}, id=pause.id, response_schema=pause.response_schema)


def _told(error: Exception) -> str:
    """Return what every reader of the thread may see of an error."""
    name = type(error).__name__
    return f"{name}: {error.message}" if isinstance(error, AdapterError) else name
