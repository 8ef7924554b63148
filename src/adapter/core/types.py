"""Frozen value objects that every stage passes on: calls, contexts, effects, outcomes.

Nothing here does any work; nothing here imports more than the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, make_dataclass
from enum import StrEnum
from typing import Any, TypeAlias

__all__ = [
    "CallContext",
    "CallStatus",
    "Effects",
    "JsonObject",
    "JsonValue",
    "Outcome",
    "Place",
    "ToolCall",
    "current_context",
    "opened",
    "running_call",
]

JsonValue: TypeAlias = Any
"""A value that survives JSON: None, bool, int, float, str, list or dict of these."""

JsonObject: TypeAlias = dict[str, Any]


def opened(record: type[Any]) -> Any:
    """Return a class with a record's fields, in their order, that is not frozen.

    The constructor of a frozen record sets each field through a call. Where many are made, one is
    filled as an open one, all fields given, and then made what it is by its ``__class__``.
    """
    return make_dataclass("_Open", [field.name for field in fields(record)], slots=True)


class CallStatus(StrEnum):
    """Where a call stands in the journal; the terminal ones are never claimed."""

    REQUESTED = "requested"
    APPROVED = "approved"
    CLAIMED = "claimed"
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    DENIED = "denied"
    RESPONDED = "responded"
    EXPIRED = "expired"
    VOID = "void"

    @property
    def settled(self) -> bool:
        """Whether the row holds an outcome that is returned instead of running."""
        return self in _SETTLED


_SETTLED = frozenset(
    {
        CallStatus.SUCCEEDED,
        CallStatus.FAILED,
        CallStatus.DENIED,
        CallStatus.RESPONDED,
        CallStatus.EXPIRED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Declared side effects of a tool, in the words of MCP's tool annotations.

    Attributes:
        read_only: Changes nothing; such calls have no journal row.
        destructive: May remove or overwrite.
        idempotent: Running twice with one idempotency key has one effect.
        open_world: Reaches beyond this system.
    """

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether running it again is harmless."""
        return self.read_only or self.idempotent


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One request of the model to run a tool, as the model wrote it."""

    name: str
    arguments: JsonObject
    id: str
    message_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a call stands in the host: stable between the pausing and the resuming run.

    Attributes:
        thread_id: Canonical text form of the thread's id.
        checkpoint_ns: Namespace of the task with all parent task ids.
        task_id: The host's id of the task.
        turn_id: Id of the newest human message before the call.
        durable: Whether the host can pause and resume here (it has a checkpointer).
        turnless: A program's own call, in no user's turn: budgets of a turn do not hold for it.
    """

    thread_id: str
    checkpoint_ns: str = ""
    task_id: str = ""
    turn_id: str = ""
    durable: bool = True
    turnless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What a run of a call knows of its surroundings.

    Attributes:
        call_id: The tool call id.
        run_id: Id of the run for display and ledger; never part of a binding.
        run_token: Tells this run from every other one: the platform's run id, which a re-queued
            run keeps, or a text of this attempt alone.
        thread_id: Same as ``place.thread_id``.
        idempotency_key: Names the one effect of this call; stable over retries and resumes.
        user: The authenticated user, if the server has authentication.
        context: What the run's caller set, for limits that it may lower. Never trusted further.
    """

    place: Place
    run_id: str
    run_token: str = ""
    call_id: str = ""
    idempotency_key: str = ""
    user: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def thread_id(self) -> str:
        """The thread this call belongs to."""
        return self.place.thread_id

    def of_call(self, call_id: str, idempotency_key: str) -> CallContext:
        """Return the same surroundings as those of one call."""
        made = _OpenContext(
            self.place,
            self.run_id,
            self.run_token,
            call_id,
            idempotency_key,
            self.user,
            self.metadata,
            self.context,
        )
        made.__class__ = CallContext
        return made  # type: ignore[no-any-return]


_OpenContext = opened(CallContext)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended, as the journal keeps it.

    Attributes:
        status: One of the settled states, or ``in_doubt``.
        result: JSON form of what the front end returns (its codec's business).
        error_kind: Name of the error shown, for calls that did not succeed.
        message: Text of that error, safe for the model.
        replayed: Whether this outcome came from the journal instead of a run.
    """

    status: CallStatus
    result: JsonValue = None
    error_kind: str | None = None
    message: str | None = None
    replayed: bool = False


running_call: ContextVar[CallContext | None] = ContextVar("adapter_running_call", default=None)


def current_context() -> CallContext | None:
    """Return the context of the tool call that is running here, or None outside one.

    Returns:
        The context, with ``idempotency_key``, ``call_id``, ``run_id`` and ``thread_id``.
    """
    return running_call.get()
