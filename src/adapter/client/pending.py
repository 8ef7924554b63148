"""What a thread's state says: which approvals it waits for, and what became of one.

Pure functions over the JSON a LangGraph server returns. The state's tasks are read, never the
thread's status or its ``interrupts`` field, which may be partial or stale.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from adapter.core.errors import ToolUsageError
from adapter.core.signing import APPROVAL_TYPE, USED, from_iso
from adapter.core.types import JsonObject

__all__ = [
    "DEFAULT_ASSISTANT",
    "Asked",
    "Effect",
    "PendingApproval",
    "assistant_in",
    "effect_in",
    "pending_in",
    "unpack",
]

DEFAULT_ASSISTANT = "agent"
"""The graph that is meant when a thread does not say which one runs it."""

MAX_NESTING = 32

_FLOW = "aa_flow"
"""Where the state of a compiled flow says what became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """One approval request that a thread waits for.

    Attributes:
        thread_id: The paused thread.
        assistant_id: What its runs are created with.
        id: The interrupt's id, which an answer is addressed to.
        value: The interrupt's value: type, binding, request, seal and, after a refused answer,
            ``refused``. Not verified: signing does that.
        expired: Whether the request's time is over by this client's clock.
    """

    thread_id: str
    assistant_id: str
    id: str
    value: JsonObject
    expired: bool = False

    @property
    def request(self) -> JsonObject:
        """What the reviewer reads."""
        found = self.value.get("request")
        return found if isinstance(found, dict) else {}

    @property
    def refused(self) -> JsonObject | None:
        """Code and message of the newest answer that did not count, if any."""
        found = self.value.get("refused")
        return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An interrupt in whichever form the caller had it.

    Attributes:
        thread_id: None when that form does not say.
        assistant_id: None when that form does not say.
    """

    id: str
    value: Any
    thread_id: str | None = None
    assistant_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a thread's state shows after an answer.

    Attributes:
        kind: ``done``: the call has a result. ``error``: it has an error result. ``refused``: the
            answer did not count and the same request is still open. ``pending``: it counted, and
            more is asked about this call. ``used``: it counted, and the node failed behind it; the
            thread still lists the request, and no answer counts any more. ``unknown``: neither
            open nor with a result.
        message: The result, the error or the refusal as text.
    """

    kind: Literal["done", "error", "refused", "pending", "used", "unknown"]
    message: str = ""


def unpack(interrupt: object) -> Asked:
    """Read an interrupt given as langgraph_sdk's dict, langgraph's object or PendingApproval.

    Raises:
        ToolUsageError: It has no ``id`` and ``value``.
    """
    if isinstance(interrupt, PendingApproval):
        return Asked(
            id=interrupt.id,
            value=interrupt.value,
            thread_id=interrupt.thread_id,
            assistant_id=interrupt.assistant_id,
        )
    if isinstance(interrupt, Mapping):
        found, value = interrupt.get("id"), interrupt.get("value")
    else:
        found, value = getattr(interrupt, "id", None), getattr(interrupt, "value", None)
    if not isinstance(found, str) or value is None:
        raise ToolUsageError(
            "An interrupt is a PendingApproval, langgraph's Interrupt, or a dict with id and "
            "value as a thread's state shows it; take one from `pending()`."
        )
    return Asked(id=found, value=value)


def pending_in(
    state: Mapping[str, Any], thread_id: str, assistant_id: str | None, now: int
) -> list[PendingApproval]:
    """Return the approval requests a thread state shows, each once, in task order.

    Args:
        state: A thread state as the server returns it, with or without subgraph states.
        thread_id: The thread it is of.
        assistant_id: What the thread itself says; the state's own word wins.
        now: Milliseconds since the epoch.
    """
    assistant = assistant_in(state) or assistant_id or DEFAULT_ASSISTANT
    found: dict[str, PendingApproval] = {}
    for interrupt in _interrupts(state):
        value = interrupt.get("value")
        key = interrupt.get("id")
        if not isinstance(key, str) or not isinstance(value, dict):
            continue
        if value.get("type") == APPROVAL_TYPE and key not in found and USED not in value:
            found[key] = PendingApproval(
                thread_id=thread_id,
                assistant_id=assistant,
                id=key,
                value=value,
                expired=_expired(value, now),
            )
    return list(found.values())


def assistant_in(holder: Mapping[str, Any]) -> str | None:
    """Return the assistant that a state's, thread's or run's own metadata names."""
    for place in (holder, holder.get("metadata")):
        if isinstance(place, Mapping):
            for name in ("assistant_id", "graph_id"):
                if isinstance(place.get(name), str) and place[name]:
                    return str(place[name])
    return None


def effect_in(state: Mapping[str, Any], approval: PendingApproval, result: object = None) -> Effect:
    """Tell what an answer led to.

    Args:
        state: The thread's state after the run, with values.
        approval: The request that was answered.
        result: What the run returned.
    """
    call_id = approval.request.get("call_id")
    if (used := _used(state, approval)) is not None:
        return Effect(kind="used", message=_run_error(result) or used)
    open_now = pending_in(state, approval.thread_id, approval.assistant_id, 0)
    for still in open_now:
        # An answer that counts ends this interrupt; one vote of several leads to a new id.
        if still.id == approval.id:
            said = (still.refused or {}).get("message") or _run_error(result)
            return Effect(kind="refused", message=str(said or "the answer did not count"))
    for message in reversed(list(_messages(state))):
        if message.get("type") == "tool" and message.get("tool_call_id") == call_id:
            failed_call = message.get("status") == "error"
            text = _text(message.get("content"))
            return Effect(kind="error" if failed_call else "done", message=text)
    if any(still.request.get("call_id") == call_id for still in open_now):
        return Effect(kind="pending")
    failed = _run_error(result)
    told = (state.get("values") or {}).get(_FLOW)
    if isinstance(told, Mapping) and not failed:
        # A flow keeps no message of a call; what it came to is in its state.
        denied = told.get("denied")
        if denied is not None:
            return Effect(kind="error", message=str(denied))
        return Effect(kind="done", message="the flow went on")
    return Effect(kind="unknown", message=failed)


def _used(state: Mapping[str, Any], approval: PendingApproval) -> str | None:
    """Return what failed behind a request whose answer is used up; None where nothing did."""
    for interrupt in _interrupts(state):
        value = interrupt.get("value")
        if interrupt.get("id") == approval.id and isinstance(value, Mapping) and USED in value:
            said = value[USED]
            return str(said.get("message", "")) if isinstance(said, Mapping) else ""
    return None


def _interrupts(state: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the interrupts of unfinished tasks, a task's own before its subgraph's."""
    for task in _mappings(state.get("tasks")):
        # A task with a result has had its questions answered, whatever is still listed.
        if task.get("result") is None:
            yield from _mappings(task.get("interrupts"))
            inner = task.get("state")
            if isinstance(inner, Mapping) and depth < MAX_NESTING:
                yield from _interrupts(inner, depth + 1)


def _messages(state: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of a state and its subgraphs' states."""
    values = state.get("values")
    if isinstance(values, Mapping):
        yield from _mappings(values.get("messages"))
    for task in _mappings(state.get("tasks")):
        # The result of a finished task whose siblings still wait is not in the values yet.
        result, inner = task.get("result"), task.get("state")
        if isinstance(result, Mapping):
            yield from _mappings(result.get("messages"))
        if isinstance(inner, Mapping) and depth < MAX_NESTING:
            yield from _messages(inner, depth + 1)


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value:
            if isinstance(item, Mapping):
                yield item


def _expired(value: Mapping[str, Any], now: int) -> bool:
    request = value.get("request")
    moment = request.get("expires_at") if isinstance(request, Mapping) else None
    if isinstance(moment, str):
        try:
            moment = from_iso(moment)
        except ValueError:
            return False
    return isinstance(moment, int | float) and not isinstance(moment, bool) and moment <= now


def _run_error(result: object) -> str:
    error = result.get("__error__") if isinstance(result, Mapping) else None
    if not isinstance(error, Mapping):
        return ""
    return f"the run ended with {error.get('error')}: {error.get('message')}"


def _text(content: object) -> str:
    """Return a tool message's text; of the adapter's error form, its message."""
    if not isinstance(content, str):
        return json.dumps(content, ensure_ascii=False)
    try:
        error = json.loads(content)["error"]
        return f"{error['kind']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        return content
