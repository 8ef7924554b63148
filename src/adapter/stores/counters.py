"""Counters: one row per scope, added to by a conditional statement, never counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from adapter.core.store import Charge
from adapter.stores.statements import UNLIMITED
from adapter.stores.transaction import Transaction

__all__ = ["charge", "peek", "refund", "used"]


def charge(tx: Transaction, now: int, charges: Sequence[Charge]) -> str | None:
    """Add every amount, or none.

    Args:
        tx: The open transaction.
        now: Its time, milliseconds.
        charges: What to add. Scopes are taken in sorted order.

    Returns:
        The scope that had nothing left (then nothing was added), or None.
    """
    if len(charges) > 1:
        charges = sorted(charges, key=_scope)
    for done, one in enumerate(charges):
        if not _fits(one, 0) or not _add(tx, now, one):
            refund(tx, now, charges[:done])
            return one.scope
    return None


def peek(tx: Transaction, charges: Iterable[Charge]) -> str | None:
    """Return the first scope whose charge would be refused, changing nothing."""
    for one in charges:
        if one.limit is None:
            continue
        row = tx.one(tx.sql.counter_get, {"at_scope": one.scope})
        if not _fits(one, 0 if row is None else row[0]):
            return one.scope
    return None


def refund(tx: Transaction, now: int, charges: Iterable[Charge]) -> None:
    """Subtract every amount, never below 0."""
    for one in charges:
        tx.run(tx.sql.counter_take, {"at_scope": one.scope, "at_amount": one.amount, "at_now": now})


def used(tx: Transaction, scopes: Iterable[str]) -> dict[str, int]:
    """Return the value of each scope; 0 for one never charged."""
    found: dict[str, int] = {}
    for scope in scopes:
        row = tx.one(tx.sql.counter_get, {"at_scope": scope})
        found[scope] = 0 if row is None else int(row[0])
    return found


def _scope(one: Charge) -> str:
    return one.scope


def _fits(one: Charge, value: int) -> bool:
    return one.limit is None or (one.limit > 0 and value + one.amount <= one.limit)


def _add(tx: Transaction, now: int, one: Charge) -> bool:
    limit = UNLIMITED if one.limit is None else one.limit
    row = tx.one(
        tx.sql.counter_add,
        {"scope": one.scope, "used": one.amount, "updated_at": now, "at_limit": limit},
    )
    return row is not None
