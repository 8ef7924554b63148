"""Outcomes that are errors: recorded, raised again, and why a row has none to give.

What an earlier run came to is told to a later one in the same words.
"""

from __future__ import annotations

from adapter.core.errors import (
    AdapterError,
    ApprovalAlreadyDecided,
    ApprovalDenied,
    ApprovalExpired,
    BudgetExceeded,
    CallInDoubt,
    CallInProgress,
    PolicyDenied,
    RateLimited,
    ToolArgsInvalid,
    ToolError,
    ToolFailed,
    ToolTimeout,
    UnknownTool,
)
from adapter.core.store import CallRow
from adapter.core.types import CallStatus, JsonObject, JsonValue

__all__ = [
    "EXPIRED",
    "REASON",
    "REFUSED",
    "error_outcome",
    "plain_reason",
    "raise_recorded",
    "unusable",
]

_RECORDED: dict[str, type[AdapterError]] = {
    made.__name__: made
    for made in (
        ApprovalDenied,
        ApprovalExpired,
        BudgetExceeded,
        PolicyDenied,
        RateLimited,
        ToolArgsInvalid,
        ToolError,
        ToolFailed,
        ToolTimeout,
        UnknownTool,
    )
}

EXPIRED = (
    "Not executed: nobody answered the approval request in time. Do not retry unless the user asks "
    "again."
)


REFUSED = "Not executed: a person refused this call; do not retry it."
REASON = " Reason: "


def plain_reason(message: str) -> str:
    """Return why a person's no, or their silence, ended a call: in words for people.

    Args:
        message: As the model reads it.
    """
    if message == EXPIRED:
        return "Nobody answered in time."
    if message == REFUSED:
        return "A person refused it and gave no reason."
    return message.removeprefix(f"{REFUSED}{REASON}")


def error_outcome(error: AdapterError) -> JsonObject:
    """Return the recorded form of an error."""
    return {"error": {"kind": error.kind, "message": error.message}}


def raise_recorded(outcome: JsonValue) -> None:
    """Raise the error an outcome records, if it records one."""
    if isinstance(outcome, dict) and isinstance(error := outcome.get("error"), dict):
        raise _RECORDED.get(str(error.get("kind")), ToolFailed)(str(error.get("message", "")))


def unusable(row: CallRow, now: int) -> AdapterError:
    """Return the error for a row that can neither run nor be replayed."""
    if row.status is CallStatus.CLAIMED and (row.lease_until or 0) > now:
        msg = (
            "Another worker is running this call right now; it was not started again. Continue "
            "the thread without input later to get its result."
        )
        return CallInProgress(msg)
    if row.status in (CallStatus.CLAIMED, CallStatus.IN_DOUBT):
        msg = (
            "This call was started and its outcome is unknown; it was not started again. Look at "
            "its effect and say what became of it with `adapter calls resolve`; or fork the "
            "thread, or write the result with update_state."
        )
        return CallInDoubt(msg)
    if row.status.settled and row.outcome is None:
        msg = (
            "This call was decided and its outcome recorded, and retention has removed that "
            "record since; the call does not run again. Write the result with update_state, or "
            "go on with a new message."
        )
        return ApprovalAlreadyDecided(msg)
    msg = (
        "This approval was used before or the request is closed; the call does not run again. "
        "Continue the thread without input to go on with the recorded outcome."
    )
    return ApprovalAlreadyDecided(msg)
