"""Operations of the reviewer's and the operator's side: votes, doubts, overdue questions."""

from __future__ import annotations

import json
from collections.abc import Sequence

from adapter.core.canonical import canonical_bytes
from adapter.core.store import CallRow, Event, Resolve, Vote
from adapter.core.types import CallStatus
from adapter.stores.questions import get
from adapter.stores.rows import call_row, with_answer
from adapter.stores.transaction import Transaction

__all__ = ["cast_vote", "overdue", "resolve_call", "unsettled", "votes_of"]


def cast_vote(tx: Transaction, now: int, *, vote: Vote, events: Sequence[Event]) -> bool:
    """Keep a vote and note its answer in the row; False when the question is no longer open."""
    row = get(tx, vote.key)
    if row is None:
        return False
    answers = with_answer(row.answers, vote.answer)
    if not tx.run(tx.sql.call_note_vote, {"at_key": vote.key, "at_now": now, "answers": answers}):
        return False
    tx.run(
        tx.sql.vote_put,
        {
            "call_key": vote.key,
            "reviewer": vote.reviewer,
            "kid": vote.kid,
            "answer": vote.answer,
            "executed_digest": vote.executed_digest,
            "decision": canonical_bytes(vote.decision).decode(),
            "created_at": now,
        },
    )
    tx.chains.append(events)
    return True


def votes_of(tx: Transaction, _now: int, *, key: str) -> Sequence[Vote]:
    """Return the votes of a question, in the order they came."""
    return tuple(
        Vote(
            key=row[0],
            reviewer=row[1],
            kid=row[2],
            answer=row[3],
            executed_digest=row[4],
            decision=json.loads(row[5]),
        )
        for row in tx.all(tx.sql.votes_of, {"at_key": key})
    )


def unsettled(tx: Transaction, now: int, *, limit: int) -> Sequence[CallRow]:
    """Return rows in doubt, or claimed with a lease that ran out, oldest first."""
    rows = tx.all(tx.sql.calls_unsettled, {"at_now": now, "at_limit": limit})
    return tuple(call_row(row) for row in rows)


def overdue(tx: Transaction, now: int, *, limit: int) -> Sequence[CallRow]:
    """Return questions past their deadline, oldest first."""
    rows = tx.all(tx.sql.calls_overdue, {"at_now": now, "at_limit": limit})
    return tuple(call_row(row) for row in rows)


def resolve_call(
    tx: Transaction, now: int, *, resolve: Resolve, outcome: str | None
) -> tuple[bool, CallRow | None]:
    """Settle a row that is in doubt as a person says; the events are written only then."""
    at = {"at_key": resolve.key, "at_now": now, "at_fence": resolve.fence}
    if resolve.status is CallStatus.IN_DOUBT:
        changed = tx.one(tx.sql.call_doubt, at)
    elif resolve.status in (CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.APPROVED):
        said = {"status": resolve.status.value, "outcome": outcome}
        changed = tx.one(tx.sql.call_resolve, {**at, **said})
    else:
        msg = "a call in doubt is resolved as succeeded, failed or approved, or stays in doubt"
        raise ValueError(msg)
    if changed is None:
        return False, get(tx, resolve.key)
    tx.chains.append(resolve.events)
    return True, call_row(changed)
