"""Questions in the journal: making the row of one, and ending one without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adapter.core.store import CallRow, Charge, Close, Event, Opened
from adapter.core.types import CallStatus
from adapter.stores.rows import call_row, inserted_row, milliseconds, with_answer
from adapter.stores.transaction import Transaction

__all__ = ["close_question", "get", "insert_call", "open_question"]


def get(tx: Transaction, key: str) -> CallRow | None:
    """Return one row of the journal."""
    row = tx.one(tx.sql.call_get, {"at_key": key})
    return None if row is None else call_row(row)


def insert_call(
    tx: Transaction, now: int, values: Mapping[str, Any], *, ttl: float | None
) -> CallRow | None:
    """Make a row; None when its key exists already.

    Args:
        tx: The open transaction.
        now: Its time, milliseconds.
        values: Every column but the times.
        ttl: Seconds until a question expires; None for never.
    """
    expires_at = None if ttl is None else now + milliseconds(ttl)
    row = {**values, "issued_at": now, "expires_at": expires_at, "updated_at": now}
    return inserted_row(row) if tx.run(tx.sql.call_insert, row) else None


def open_question(
    tx: Transaction,
    now: int,
    *,
    values: Mapping[str, Any],
    ttl: float | None,
    events: Sequence[Event],
    peek: Sequence[Charge],
) -> Opened:
    """Make the row of a question unless it exists or a counter has nothing left."""
    row = get(tx, values["key"])
    if row is not None:
        return _reworded(tx, now, row, values, events)
    exceeded = tx.counters.peek(peek)
    if exceeded is not None:
        return Opened(row=None, created=False, now=now, exceeded=exceeded)
    row = insert_call(tx, now, values, ttl=ttl)
    if row is None:  # only a writer that takes none of our locks can have made it meanwhile
        return Opened(row=get(tx, values["key"]), created=False, now=now)
    tx.chains.append(events)
    return Opened(row=row, created=True, now=now)


def _reworded(
    tx: Transaction, now: int, row: CallRow, values: Mapping[str, Any], events: Sequence[Event]
) -> Opened:
    """Return the row; a question under another policy or schema takes over the new wording."""
    before = (row.policy_digest, row.schema_digest)
    wanted = (values["policy_digest"], values["schema_digest"])
    if before == wanted or row.status is not CallStatus.REQUESTED:
        return Opened(row=row, created=False, now=now)
    reworded = tx.one(
        tx.sql.call_reword,
        {
            "at_key": row.key,
            "at_now": now,
            "request": values["request"],
            "policy_digest": wanted[0],
            "schema_digest": wanted[1],
            "quorum_need": values["quorum_need"],
        },
    )
    if reworded is None:
        return Opened(row=get(tx, row.key), created=False, now=now)
    tx.chains.append(events)
    return Opened(row=call_row(reworded), created=False, now=now, replaced=before)


def close_question(
    tx: Transaction,
    now: int,
    *,
    close: Close,
    decision: str | None,
    before: str | None,
    outcome: str | None,
) -> tuple[bool, CallRow | None]:
    """End a question that still waits; the events are written only then."""
    row = get(tx, close.key)
    if row is None:
        return False, None
    changed = tx.one(
        tx.sql.call_amend if close.compare else tx.sql.call_close,
        {
            "at_decision": before or "",
            "at_key": close.key,
            "at_now": now,
            "status": close.status.value,
            "run_id": close.run_id or None,
            "decision": decision,
            "answers": with_answer(row.answers, close.answer),
            "taken_at": close.interrupt_id,
            "outcome": outcome,
        },
    )
    if changed is None:
        return False, row
    tx.chains.append(close.events)
    return True, call_row(changed)
