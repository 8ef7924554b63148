"""The frozen records that cross the store interface: calls, questions, claims and their ends.

Values only; no SQL and no work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from adapter.core.counters import Charge
from adapter.core.links import Event, StoredEvent, ThreadHead
from adapter.core.types import CallStatus, JsonObject, JsonValue

__all__ = [
    "CallRow",
    "Claim",
    "Claimed",
    "Close",
    "NewCall",
    "Opened",
    "Resolve",
    "Settle",
    "Turn",
    "Vote",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """What is known of a call when its row is made.

    Attributes:
        key: The call key, 64 hexadecimal digits; primary key.
        arguments_digest: Digest of the model's arguments.
        position: How many questions the task asked before this one.
        request: The masked approval request, as shown; None for ungated calls.
        ttl: Seconds until the request expires; None for ungated calls.
    """

    key: str
    thread_id: str
    checkpoint_ns: str
    task_id: str
    turn_id: str
    message_id: str
    tool_call_id: str
    tool: str
    kind: str = "tool"
    arguments_digest: str
    policy_digest: str = ""
    schema_digest: str = ""
    idempotency_key: str = ""
    interrupt_id: str | None = None
    position: int = 0
    run_id: str = ""
    requester: str | None = None
    request: JsonObject | None = None
    ttl: float | None = None
    approval_id: str | None = None
    quorum_need: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One row of the journal. Times are milliseconds since the epoch, by the store's clock."""

    key: str
    thread_id: str
    checkpoint_ns: str
    task_id: str
    turn_id: str
    message_id: str
    tool_call_id: str
    tool: str
    kind: str
    arguments_digest: str
    policy_digest: str
    schema_digest: str
    idempotency_key: str
    interrupt_id: str | None
    position: int
    requester: str | None
    request: JsonObject | None
    approval_id: str | None
    quorum_need: int
    status: CallStatus
    issued_at: int
    expires_at: int | None
    decision: JsonObject | None
    answers: tuple[str, ...]
    executed_digest: str | None
    fence: int
    owner: str | None
    lease_until: int | None
    run_id: str
    outcome: JsonValue
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Result of asking: the row that holds (first writer wins), or why nobody is asked.

    Attributes:
        exceeded: Scope of a counter that has nothing left; then no row was made.
        replaced: Policy and schema digest the row had before it took over the new ones.
        now: The store's clock, milliseconds.
    """

    row: CallRow | None
    created: bool
    now: int
    exceeded: str | None = None
    replaced: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A request to run a call, once.

    Attributes:
        key: The call key.
        new: Makes the row when there is none (ungated calls).
        run_id: The claiming run.
        owner: The claiming worker.
        lease: Seconds the claim is valid unless renewed.
        repeatable: A claim whose lease ran out may be taken over.
        decision: The decision that allows it, for gated calls.
        answer: Digest of the signed answer, for gated calls.
        interrupt_id: Where that answer was taken; kept in the row when given.
        executed_digest: Digest of the arguments that will run.
        charges: Counters to charge; all or none.
        events: Written only when the claim succeeds.
        unique: Also refuse when another row of the same message, tool call id and arguments
            has run or is running (ungated calls reached by another task).
    """

    key: str
    new: NewCall | None = None
    run_id: str
    owner: str
    lease: float
    repeatable: bool = False
    decision: JsonObject | None = None
    answer: str | None = None
    interrupt_id: str | None = None
    executed_digest: str
    charges: tuple[Charge, ...] = ()
    events: tuple[Event, ...] = ()
    unique: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What became of a claim.

    Attributes:
        state: ``claimed``: run it under ``row.fence``. ``settled``: ``row`` has the outcome.
            ``in_progress``: somebody's live claim. ``in_doubt``: a claim ran out (the row was
            set to in_doubt unless it was already). ``expired``: past its deadline (the row was
            set). ``void``: overtaken. ``exceeded``: a counter is spent, see ``exceeded``.
            ``missing``: no row and none to make. ``asked``: ``new`` was given, and a person was
            asked about the row's call.
        row: The row after the transaction.
    """

    state: Literal[
        "claimed",
        "settled",
        "in_progress",
        "in_doubt",
        "expired",
        "void",
        "exceeded",
        "missing",
        "asked",
    ]
    row: CallRow | None
    exceeded: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """The end of a claimed call; refused when the fence is not the row's newest.

    Attributes:
        status: ``succeeded``, ``failed``, ``in_doubt`` or ``suspended``.
        refunds: Counters to give back (amount is subtracted, never below 0).
    """

    key: str
    fence: int
    status: CallStatus
    outcome: JsonValue = None
    events: tuple[Event, ...] = ()
    refunds: tuple[Charge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """The end of a question that does not lead to a run: denied, responded, expired or void.

    A deferred port also keeps a question's decision with it: ``approved``, or still ``requested``.

    Only rows that are ``requested`` or ``approved`` change.

    Attributes:
        compare: Also require that the row's decision still is ``before``: who read it and adds to
            it loses nothing that came between.
    """

    key: str
    status: CallStatus
    run_id: str = ""
    decision: JsonObject | None = None
    answer: str | None = None
    interrupt_id: str | None = None
    outcome: JsonValue = None
    events: tuple[Event, ...] = ()
    compare: bool = False
    before: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One reviewer's approving answer to a question that needs several.

    Attributes:
        answer: Digest of the signed answer.
        kid: Key it was signed with, so that a vote by a key revoked since can be left out.
        executed_digest: Digest of the arguments it approves.
    """

    key: str
    reviewer: str
    kid: str
    answer: str
    executed_digest: str
    decision: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """What a person says became of a call that is in doubt, or that its lease ran out.

    Attributes:
        fence: The claim it is about; a row that was claimed again, or resolved, stays as it is.
        status: ``succeeded``, ``failed``, or ``approved`` to let it run again; ``in_doubt`` only
            notes that the lease ran out, and keeps the fence: a late outcome still counts.
    """

    key: str
    fence: int
    status: CallStatus
    outcome: JsonValue = None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The state of a turn's counters after a charge.

    Attributes:
        exceeded: Scope that had nothing left; then nothing was charged.
        used: Value of every scope asked about.
        recent: Lines of the newest events of this turn, oldest first.
        head: The newest link of the thread's chain, if any.
    """

    exceeded: str | None
    used: Mapping[str, int]
    recent: Sequence[StoredEvent] = ()
    head: ThreadHead | None = None
