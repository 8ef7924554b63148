"""Claims in the journal: who may run a call, once, and how it ended.

Each function is one operation inside the writer's transaction. Every change of a row is one
conditional statement with the deadline, the lease and the fence in its condition; what was read
before only decides which statement is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapter.core.store import CallRow, Claim, Claimed, Settle
from adapter.core.types import CallStatus
from adapter.stores.questions import get, insert_call
from adapter.stores.rows import call_row, milliseconds, with_answer
from adapter.stores.transaction import Transaction

__all__ = ["claim_call", "renew_claim", "settle_call"]


_WAITING = (CallStatus.REQUESTED, CallStatus.APPROVED, CallStatus.SUSPENDED)


def claim_call(
    tx: Transaction,
    now: int,
    *,
    claim: Claim,
    decision: str | None,
    values: Mapping[str, Any] | None,
) -> Claimed:
    """Claim a call, charge its counters and link its events, or do nothing.

    Args:
        tx: The open transaction.
        now: Its time, milliseconds.
        claim: The request.
        decision: Its decision, encoded.
        values: Columns of ``claim.new``, encoded; None without one.
    """
    if values is not None:
        made = _claim_new(tx, now, claim, decision, values)
        if made is not None:
            return made
    row = get(tx, claim.key)
    if row is None:
        return Claimed(state="missing", row=None)
    status = row.status
    if claim.new is not None and row.request is not None and status in _WAITING:
        return Claimed(state="asked", row=row)
    if status is CallStatus.CLAIMED or (claim.repeatable and _ran_out(row, now)):
        return _claim_claimed(tx, now, claim, decision, row)
    if status in _WAITING:
        return _claim_free(tx, now, claim, decision, row)
    return Claimed(state=_ended(status), row=row)


def _claim_new(
    tx: Transaction, now: int, claim: Claim, decision: str | None, values: Mapping[str, Any]
) -> Claimed | None:
    """Make the row as claimed; None when its key exists.

    The row is made first and taken back when the call is refused after all: the usual call then
    costs one statement less.
    """
    new = claim.new
    assert new is not None  # noqa: S101 - values are its columns
    row = insert_call(
        tx,
        now,
        {
            **values,
            "status": "claimed",
            "decision": decision,
            "answers": with_answer((), claim.answer) if claim.answer else "[]",
            "executed_digest": claim.executed_digest,
            "fence": 1,
            "owner": claim.owner,
            "lease_until": now + milliseconds(claim.lease),
            "run_id": claim.run_id,
        },
        ttl=new.ttl,
    )
    if row is None:
        return None
    refused = _twin(tx, now, claim, values) if claim.unique and new.message_id else None
    if refused is None:
        exceeded = tx.counters.charge(claim.charges)
        if exceeded is not None:
            refused = Claimed(state="exceeded", row=None, exceeded=exceeded)
    if refused is not None:
        tx.run(tx.sql.call_forget, {"at_key": row.key, "at_fence": 1, "at_run": row.run_id})
        return refused
    tx.chains.append(claim.events)
    return Claimed(state="claimed", row=row)


def _claim_free(
    tx: Transaction, now: int, claim: Claim, decision: str | None, row: CallRow
) -> Claimed:
    """Claim a question that was answered, or go on with a call that suspended itself."""
    late = row.expires_at is not None and row.expires_at <= now
    charges = () if late or row.status is CallStatus.SUSPENDED else claim.charges
    exceeded = tx.counters.peek(charges)
    if exceeded is not None:
        return Claimed(state="exceeded", row=row, exceeded=exceeded)
    claimed = tx.one(tx.sql.call_claim, _claim_values(now, claim, decision, row))
    if claimed is not None:
        tx.counters.charge(charges)  # fits: nothing came between in this transaction
        tx.chains.append(claim.events)
        return Claimed(state="claimed", row=call_row(claimed))
    expired = tx.one(tx.sql.call_expire, {"at_key": claim.key, "at_now": now})
    if expired is not None:
        return Claimed(state="expired", row=call_row(expired))
    return _taken(get(tx, claim.key), now)


def _claim_claimed(
    tx: Transaction, now: int, claim: Claim, decision: str | None, row: CallRow
) -> Claimed:
    """Take over a claim that ran out, or refuse."""
    if row.lease_until is not None and row.lease_until > now:
        return Claimed(state="in_progress", row=row)
    if not claim.repeatable:
        return _doubt(tx, now, row)
    values = {**_claim_values(now, claim, decision, row), "at_fence": row.fence}
    taken = tx.one(tx.sql.call_take_over, values)
    if taken is None:
        return _taken(get(tx, claim.key), now)
    tx.chains.append(claim.events)
    return Claimed(state="claimed", row=call_row(taken))


def _claim_values(now: int, claim: Claim, decision: str | None, row: CallRow) -> dict[str, Any]:
    return {
        "at_key": claim.key,
        "at_now": now,
        "owner": claim.owner,
        "lease_until": now + milliseconds(claim.lease),
        "run_id": claim.run_id,
        "decision": decision,
        "answers": with_answer(row.answers, claim.answer),
        "taken_at": claim.interrupt_id,
        "executed_digest": claim.executed_digest,
    }


def _doubt(tx: Transaction, now: int, row: CallRow) -> Claimed:
    doubted = tx.one(tx.sql.call_doubt, {"at_key": row.key, "at_now": now, "at_fence": row.fence})
    if doubted is None:
        return _taken(get(tx, row.key), now)
    return Claimed(state="in_doubt", row=call_row(doubted))


def _twin(tx: Transaction, now: int, claim: Claim, values: Mapping[str, Any]) -> Claimed | None:
    """Refuse a call that has run, or is running, under another key."""
    found = tx.one(
        tx.sql.call_twin,
        {
            "at_key": claim.key,
            "at_thread": values["thread_id"],
            "at_message": values["message_id"],
            "at_call": values["tool_call_id"],
            "at_arguments": values["arguments_digest"],
        },
    )
    if found is None:
        return None
    row = call_row(found)
    if _ran_out(row, now) and not claim.repeatable:
        return _doubt(tx, now, row)
    if _ran_out(row, now):
        # The task that claimed it may be lost with its checkpoint, so any other takes it over, in
        # the row it has: same idempotency key, same one effect.
        taken = tx.one(
            tx.sql.call_take_over,
            {**_claim_values(now, claim, None, row), "at_key": row.key, "at_fence": row.fence},
        )
        if taken is not None:
            tx.chains.append(claim.events)
            return Claimed(state="claimed", row=call_row(taken))
    return _taken(row, now)


def _ran_out(row: CallRow, now: int) -> bool:
    """Tell whether a claim's lease is over, noted as a doubt already or not."""
    if row.status is CallStatus.IN_DOUBT:  # one that a run or a person raised has no lease
        return row.lease_until is not None
    return row.status is CallStatus.CLAIMED and (row.lease_until or 0) <= now


def _taken(row: CallRow | None, now: int) -> Claimed:
    """Say why a row that somebody else holds is not ours."""
    if row is None:
        return Claimed(state="missing", row=None)
    if row.status is CallStatus.CLAIMED and (row.lease_until or 0) <= now:
        return Claimed(state="in_doubt", row=row)
    return Claimed(state=_ended(row.status), row=row)


def _ended(status: CallStatus) -> Any:
    """Return the claim's state for a row whose status never leads to a run."""
    if status.settled:
        return "settled"
    if status in (CallStatus.IN_DOUBT, CallStatus.VOID):
        return status.value
    return "in_progress"


def settle_call(tx: Transaction, now: int, *, settle: Settle, outcome: str | None) -> bool:
    """Record how a claimed call ended; nothing changes when the fence is not the newest."""
    changed = tx.run(
        tx.sql.call_settle,
        {
            "at_key": settle.key,
            "at_fence": settle.fence,
            "at_now": now,
            "status": settle.status.value,
            "outcome": outcome,
        },
    )
    if not changed:
        return False
    tx.counters.refund(settle.refunds)
    tx.chains.append(settle.events)
    return True


def renew_claim(tx: Transaction, now: int, *, key: str, fence: int, lease: float) -> bool:
    """Extend a claim that nobody has taken over or given up."""
    until = now + milliseconds(lease)
    changed = tx.run(
        tx.sql.call_renew,
        {"at_key": key, "at_fence": fence, "at_now": now, "lease_until": until},
    )
    return changed > 0
