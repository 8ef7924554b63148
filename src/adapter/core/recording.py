"""Decisions recorded in the store, beside the requests they are about.

A decision counts by its signature: what is written here is judged when the call runs. What can be
said to a reviewer at once is said here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from adapter.core.approvals import ApprovalDecision, sign_decision
from adapter.core.editing import check_edit
from adapter.core.errors import ApprovalAlreadyDecided, ApprovalExpired, InvalidAnswer
from adapter.core.keys import KeyRing
from adapter.core.outcomes import EXPIRED
from adapter.core.people import People
from adapter.core.signing import check_answer
from adapter.core.store import CallRow, Close, Store
from adapter.core.types import CallStatus, JsonObject

__all__ = [
    "LISTED",
    "SEALED",
    "SIGNED",
    "is_decided",
    "record_answer",
    "record_decision",
    "sealed_request",
    "votes_in",
    "waiting_in",
]

SEALED: Final = "sealed"
"""Key of the request under the server's seal, in a row's decision."""

LISTED: Final = 1_000
"""Most requests that are listed at once."""

SIGNED: Final = "signed"
"""Key of the answers recorded so far."""


async def record_decision(
    store: Store,
    keys: KeyRing,
    row: CallRow,
    decision: ApprovalDecision,
    *,
    decided_at: int,
    reviewer: str,
    judge: KeyRing | None = None,
) -> CallRow:
    """Sign a decision and put it beside its request. Nothing runs: go on with ``None``.

    Args:
        store: Where the request waits.
        keys: Ring with the server's seal key and the reviewer's decision key.
        row: The request, as ``store.requested`` lists it.
        decision: What was decided.
        decided_at: Milliseconds since the epoch.
        reviewer: Who decides, unless the decision says so.
        judge: As for ``record_answer``.

    Returns:
        The row, ``approved`` when it is decided and waits for its run; with a quorum ``requested``.

    Raises:
        InvalidAnswer: The request is not under the server's seal, does not offer this kind, the
            edit does not fit its schema, the key may not sign in this reviewer's name, or they
            voted before.
        ApprovalExpired: Past its deadline.
        ApprovalAlreadyDecided: Decided, used or closed already.
    """
    _check_open(row, decided_at)
    sealed = (row.decision or {}).get(SEALED)
    check_edit(sealed, decision)
    signed = sign_decision(keys, sealed, decision, decided_at=decided_at, reviewer=reviewer)
    return await record_answer(store, row, signed, now=decided_at, judge=judge)


async def record_answer(
    store: Store, row: CallRow, signed: JsonObject, *, now: int, judge: KeyRing | None = None
) -> CallRow:
    """Put an answer that is signed already beside its request.

    Of several recorded at the same time none is lost: each is added to what the row holds then.

    Args:
        store: Where the request waits.
        row: The request.
        signed: The answer, as a reviewer's tool signs it.
        now: Milliseconds since the epoch.
        judge: The server's keys, where they are at hand: what the run would refuse for its
            signature or the reviewer's roles is then refused here. The run judges again.

    Raises:
        InvalidAnswer: They voted before, or it would be refused; or the request is asked anew.
        ApprovalExpired: Past its deadline.
        ApprovalAlreadyDecided: Decided, used or closed already.
    """
    while True:
        _check_open(row, now)
        kept = dict(row.decision or {})
        sealed, given = kept.get(SEALED) or {}, list(kept.get(SIGNED, []))
        if sealed.get("binding") != signed["binding"]:
            msg = "This request is asked in other words since: look at it and decide again."
            raise InvalidAnswer(msg)
        if judge is not None:
            _check_people(judge, sealed, signed)
        decision = signed["decision"]
        if decision["approved"] and any(
            one["decision"]["reviewer"] == decision["reviewer"] for one in given
        ):
            msg = "This reviewer has decided about the request already; another one must."
            raise InvalidAnswer(msg)
        given.append(signed)
        decided = len(given) >= row.quorum_need or not decision["approved"]
        status = CallStatus.APPROVED if decided and row.quorum_need == 1 else CallStatus.REQUESTED
        changed, after = await store.close_question(
            Close(
                key=row.key,
                status=status,
                decision={**kept, SIGNED: given},
                compare=True,
                before=row.decision,
            )
        )
        if after is None or (not changed and after.status is not CallStatus.REQUESTED):
            msg = "This request was used or closed meanwhile; nothing was changed."
            raise ApprovalAlreadyDecided(msg)
        if changed:
            return after
        row = after  # another reviewer was quicker


def _check_open(row: CallRow, now: int) -> None:
    if is_decided(row) or row.status is not CallStatus.REQUESTED:
        msg = f"This request is {row.status} and decided already; nothing was changed."
        raise ApprovalAlreadyDecided(msg)
    if row.expires_at is not None and row.expires_at <= now:
        raise ApprovalExpired(EXPIRED)


def _check_people(judge: KeyRing, sealed: JsonObject, signed: JsonObject) -> None:
    reviewer, kid = signed["decision"]["reviewer"], signed["kid"]
    if check_answer(judge, signed["binding"], signed) is None:
        msg = (
            f"The server would refuse this: it does not know the key, or it is not {reviewer}'s, "
            "or it was revoked. See `adapter keys list`."
        )
        raise InvalidAnswer(msg)
    roles = tuple(sealed.get("request", {}).get("roles", ()))
    if not People(roles=roles).has_role(judge, reviewer, kid):
        msg = f"The server would refuse this: {reviewer} has none of the roles {', '.join(roles)}."
        raise InvalidAnswer(msg)


def is_decided(row: CallRow) -> bool:
    """Tell whether a request has all the decisions it needs and only waits for its run."""
    given = (row.decision or {}).get(SIGNED, [])
    return len(given) >= row.quorum_need or any(
        not one["decision"].get("approved") for one in given
    )


def waiting_in(rows: Sequence[CallRow]) -> list[CallRow]:
    """Return those of some requests that wait for a decision in the store."""
    return [
        row
        for row in rows
        if row.approval_id is not None
        and (row.decision or {}).get(SEALED) is not None
        and not is_decided(row)
    ]


def sealed_request(row: CallRow) -> JsonObject:
    """Return what a reviewer reads and signs for; not verified: signing does that."""
    return dict((row.decision or {}).get(SEALED) or {})


def votes_in(row: CallRow) -> list[str]:
    """Return who decided so far, in order."""
    return [str(one["decision"]["reviewer"]) for one in (row.decision or {}).get(SIGNED, [])]
