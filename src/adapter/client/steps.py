"""What the reviewer's client does, without doing it: generators that yield work and take replies.

Each function is written once; `adapter.client.approvals` drives it with or without an event loop.
A step is a request to the server or a blocking local function; a batch of steps may run at once.
No input or output happens in this room.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from adapter.client.failures import ServerFailed
from adapter.client.pending import (
    DEFAULT_ASSISTANT,
    Effect,
    PendingApproval,
    assistant_in,
    effect_in,
    pending_in,
    unpack,
)
from adapter.core.approvals import ApprovalDecision
from adapter.core.editing import check_edit
from adapter.core.errors import AdapterError, ToolUsageError
from adapter.core.types import JsonObject

__all__ = ["Call", "Clock", "Signer", "Step", "Steps", "Work", "answer", "effect", "heal"]
__all__ += ["pending", "resume", "sign"]

_log = logging.getLogger(__name__)

PAGE = 100
"""Threads read per page of a search."""

WIDTH = 8
"""Thread states read at once."""

_FIELDS = ["thread_id", "status", "interrupts", "metadata", "created_at", "updated_at"]
_STATE_FIELDS = ["tasks", "metadata"]

T = TypeVar("T")
Clock: TypeAlias = Callable[[], int]
"""Milliseconds since the epoch."""

Signer: TypeAlias = Callable[[Any, ApprovalDecision], JsonObject]
"""Verifies the seal of an interrupt value and signs; may read the key file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request to the server.

    Attributes:
        name: The langgraph-sdk method, e.g. ``threads.get_state``.
        thread_id: Its first argument, for those that have one.
        positional: Further positional arguments.
        named: Keyword arguments.
    """

    name: str
    thread_id: str | None = None
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Every positional argument."""
        return self.positional if self.thread_id is None else (self.thread_id, *self.positional)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A local function that may block."""

    run: Callable[[], Any]


Step: TypeAlias = Call | Work
Steps: TypeAlias = Generator[Sequence[Step], list[Any], T]
"""Yields batches; receives for each step its result, or the AdapterError it ended with."""


def pending(thread_id: str | None, clock: Clock) -> Steps[list[PendingApproval]]:
    """Find the approval requests of one thread, or of all.

    For all, threads are paged in the order they were made, and the state of each one is read
    unless the server's row shows that it is plainly finished.
    """
    if thread_id is not None:
        state = yield from _one(_state(thread_id))
        return pending_in(state, thread_id, None, clock())
    found: list[PendingApproval] = []
    seen: set[str] = set()
    read = 0
    failed: list[ServerFailed] = []
    while True:
        page = yield from _one(_search(len(seen)))
        rows = {row["thread_id"]: row for row in page if row["thread_id"] not in seen}
        if not rows:
            break
        seen |= rows.keys()
        waiting = [row for row in rows.values() if not _finished(row)]
        read += len(waiting)
        for start in range(0, len(waiting), WIDTH):
            found += yield from _read_all(waiting[start : start + WIDTH], clock, failed)
    if len(failed) == read > 1:  # it is the server, and not a thread
        raise failed[0]
    return found


def sign(interrupt: object, decision: ApprovalDecision, signer: Signer) -> Steps[JsonObject]:
    """Verify an interrupt's seal and sign a decision about it, unless its edit does not fit."""
    asked = unpack(interrupt)
    signed: JsonObject = yield from _one(Work(run=lambda: signer(asked.value, decision)))
    # After the seal: what is wrong with an altered request is that it was altered.
    check_edit(asked.value, decision)
    return signed


def answer(
    interrupt: object, decision: ApprovalDecision, thread_id: str | None, signer: Signer
) -> Steps[Any]:
    """Sign a decision and resume the thread with it."""
    asked = unpack(interrupt)
    if asked.thread_id is None and thread_id is None:
        raise ToolUsageError(
            "This interrupt does not say which thread it belongs to: give thread_id=, or pass a "
            "PendingApproval from `pending()`."
        )
    if None not in (asked.thread_id, thread_id) and asked.thread_id != thread_id:
        raise ToolUsageError(
            "thread_id= names another thread than the PendingApproval does: leave it out."
        )
    value = yield from sign(interrupt, decision, signer)
    thread = asked.thread_id or thread_id or ""
    return (yield from resume(thread, {asked.id: value}, asked.assistant_id))


def resume(
    thread_id: str, answers: Mapping[str, Any], assistant_id: str | None = None
) -> Steps[Any]:
    """Resume a thread with signed answers by interrupt id; returns the run's result."""
    assistant = assistant_id or (yield from _assistant(thread_id))
    return (yield from _one(_run(thread_id, assistant, command={"resume": dict(answers)})))


def heal(thread_id: str, clock: Clock) -> Steps[list[PendingApproval]]:
    """Bring a thread that a bad answer left in ``error`` back to its pause.

    Only a thread that is in error AND still shows approval requests is run; anything else would
    repeat work that nobody asked to repeat.
    """
    row = yield from _one(Call(name="threads.get", thread_id=thread_id))
    waiting = yield from pending(thread_id, clock)
    if row.get("status") != "error" or not waiting:
        return waiting
    yield from _one(_run(thread_id, waiting[0].assistant_id))
    return (yield from pending(thread_id, clock))


def effect(approval: PendingApproval, result: object) -> Steps[Effect]:
    """Read from the state what an answer led to."""
    state = yield from _one(
        Call(name="threads.get_state", thread_id=approval.thread_id, named={"subgraphs": True})
    )
    return effect_in(state, approval, result)


def _one(step: Step) -> Steps[Any]:
    (reply,) = yield [step]
    if isinstance(reply, AdapterError):
        raise reply
    return reply


def _read_all(
    rows: Sequence[Mapping[str, Any]], clock: Clock, failed: list[ServerFailed]
) -> Steps[list[PendingApproval]]:
    """Read the states of some threads at once; a thread deleted meanwhile has no requests.

    Whoever may write to a thread can leave it in a state that the server cannot read. Its requests
    are then those of its row, so that nobody hides what other threads wait for.
    """
    replies = yield [_state(row["thread_id"]) for row in rows]
    found = []
    for row, reply in zip(rows, replies, strict=True):
        if isinstance(reply, ToolUsageError):
            continue
        if isinstance(reply, ServerFailed):
            failed.append(reply)
            _log.warning("thread %s: %s", row["thread_id"], reply.message)
            reply = _row_state(row)  # noqa: PLW2901 - in its place
        if isinstance(reply, AdapterError):
            raise reply
        found += pending_in(reply, row["thread_id"], assistant_in(row), clock())
    return found


def _row_state(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a thread's row says of its pauses, in the form of a state."""
    shown = row.get("interrupts")
    paused = shown.values() if isinstance(shown, Mapping) else ()
    return {"tasks": [{"interrupts": interrupts} for interrupts in paused]}


def _assistant(thread_id: str) -> Steps[str]:
    """Find what a thread's runs are created with."""
    row = yield from _one(Call(name="threads.get", thread_id=thread_id))
    if named := assistant_in(row):
        return named
    runs = yield from _one(Call(name="runs.list", thread_id=thread_id, named={"limit": 1}))
    return (assistant_in(runs[0]) if runs else None) or DEFAULT_ASSISTANT


def _finished(row: Mapping[str, Any]) -> bool:
    """Tell whether a thread's row shows that nothing waits in it.

    A row is trusted only if a run has written it since the thread was made: a copied thread is
    ``idle`` and lists no interrupts, yet its state holds those of the original.
    """
    return (
        row.get("status") == "idle"
        and row.get("interrupts") == {}
        and row.get("created_at") != row.get("updated_at")
    )


def _search(offset: int) -> Call:
    return Call(
        name="threads.search",
        named={
            "limit": PAGE,
            "offset": offset,
            "sort_by": "created_at",
            "sort_order": "asc",
            "select": _FIELDS,
        },
    )


def _state(thread_id: str) -> Call:
    return Call(
        name="threads.get_state",
        thread_id=thread_id,
        named={"subgraphs": True, "select": _STATE_FIELDS},
    )


def _run(thread_id: str, assistant_id: str, **named: Any) -> Call:
    return Call(
        name="runs.wait",
        thread_id=thread_id,
        positional=(assistant_id,),
        named={"raise_error": False, "multitask_strategy": "enqueue", **named},
    )
