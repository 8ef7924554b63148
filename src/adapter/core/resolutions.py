"""What a person says became of a call, and who may say which of it.

Rules over a row and a signature; nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from adapter.core.algorithms import folded
from adapter.core.canonical import canonical_bytes
from adapter.core.errors import InvalidAnswer, ToolError, ToolUsageError
from adapter.core.keys import KeyRing
from adapter.core.outcomes import error_outcome
from adapter.core.people import People
from adapter.core.store import CallRow
from adapter.core.types import JsonObject, JsonValue

__all__ = ["Resolution", "Verdict", "check_people", "check_verdict", "sign_statement"]

Verdict = Literal["succeeded", "failed", "retry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a person says became of one call.

    Attributes:
        verdict: It had its effect, it had not, or it may run again.
        by: Who says so.
        outcome: What the journal keeps and the thread gets: ``{"result": …}`` for a call that
            succeeded, the recorded error for one that failed, None for a retry.
        reason: Why, for the audit.
    """

    verdict: Verdict
    by: str
    outcome: JsonValue = None
    reason: str | None = None

    @classmethod
    def failed(cls, why: str, *, by: str) -> Resolution:
        """Return the resolution of a call that had no effect; the model reads why."""
        outcome = error_outcome(ToolError(why))
        return cls(verdict="failed", by=by, outcome=outcome, reason=why)


def sign_statement(keys: KeyRing, statement: JsonObject) -> JsonObject:
    """Sign what a person says about a call, with their decision key.

    Args:
        keys: The reviewer's ring, or the server's where decisions have a shared key.
        statement: As ``Operator.statement`` returns it.

    Returns:
        ``{"kid", "alg", "mac"}``.

    Raises:
        InvalidAnswer: The key may not sign in this person's name.
    """
    if not keys.speaks_for(keys.newest("decision").kid, statement["by"]):
        msg = (
            f"This key may not sign in the name of {statement['by']}: it is another person's, or "
            "that person has a key of their own. Sign with theirs (ADAPTER_REVIEWER_KEY)."
        )
        raise InvalidAnswer(msg)
    return dict(keys.sign("decision", canonical_bytes(statement)))


def check_people(
    keys: KeyRing,
    row: CallRow,
    resolution: Resolution,
    wanted: JsonObject | None,
    statement: JsonObject | None,
    signature: Mapping[str, Any] | None,
) -> None:
    """Judge who says what became of a gated call: somebody who might have approved it.

    Args:
        keys: The server's.
        row: The call.
        resolution: What is said.
        wanted: The statement that says exactly that.
        statement: What was signed.
        signature: Over it.

    Raises:
        InvalidAnswer: The requester, nobody the server knows, or somebody without the roles.
    """
    by = resolution.by
    if row.requester is not None and folded(row.requester) == folded(by):
        msg = f"{by} asked for this call and may not say what became of it: another reviewer must."
        raise InvalidAnswer(msg)
    if (
        statement is None
        or signature is None
        or statement != wanted
        or not keys.verify("decision", canonical_bytes(statement), signature)
        or not keys.speaks_for(signature["kid"], by)
    ):
        msg = (
            "This call needed an approval, so what became of it counts only under the signature "
            "of a reviewer whom the server knows (ADAPTER_REVIEWER_KEY, or the shared key in "
            "ADAPTER_KEY_FILE). Nothing was changed."
        )
        raise InvalidAnswer(msg)
    roles = tuple((row.request or {}).get("roles", ()))
    if not People(roles=roles).has_role(keys, by, str(signature["kid"])):
        msg = (
            f"Only somebody who might have approved this call says what became of it: {by} has "
            f"none of the roles {', '.join(roles)}. Nothing was changed."
        )
        raise InvalidAnswer(msg)


def check_verdict(row: CallRow, verdict: Verdict, now: int) -> None:
    """Refuse what would run a call without those who had to approve it, or deny a fact.

    Args:
        row: The call.
        verdict: What is said.
        now: Milliseconds since the epoch.

    Raises:
        ToolUsageError: Says what to say instead.
    """
    if row.kind == "gate":
        msg = (
            "This is a node of a flow behind its gate: what it came to is what its calls left, and "
            "those are resolved one by one. Continue its thread with a run without input."
        )
    elif row.kind == "budget" and verdict != "succeeded":
        msg = (
            "This raise of a budget counted when it was claimed, so it can neither be made again "
            "nor undone. Continue its thread, or say --succeeded."
        )
    elif verdict != "retry":
        return
    elif row.expires_at is not None and row.expires_at <= now:
        msg = (
            "The approval of this call has run out, so that no run could claim it again. Say what "
            "became of it with --succeeded or --failed; the model may then ask anew."
        )
    elif row.quorum_need > 1:
        msg = (
            f"This call needed {row.quorum_need} people, and one does not let it run a second "
            "time. Say what became of it with --succeeded or --failed; the model may then ask "
            "anew, and all of them decide."
        )
    else:
        return
    raise ToolUsageError(msg)
