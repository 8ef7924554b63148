"""Counters: one row per scope, read once per transaction and raised by one conditional statement.

The transaction holds the scopes' locks, so what was read stays true until it ends; the limit is in
the statement's condition all the same, and a statement that raises nothing fails the transaction.
Charges with a window go to the rates instead, all or none together with the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from adapter.core.store import Charge
from adapter.stores.rates import Rates
from adapter.stores.statements import SLOTS, UNLIMITED

if TYPE_CHECKING:
    from adapter.stores.transaction import Transaction

__all__ = ["Counters"]


class _Counter:
    """One counter as this transaction sees it."""

    __slots__ = ("delta", "limit", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.delta = 0
        self.limit = UNLIMITED


class Counters:
    """The counters that one transaction looks at and charges.

    Args:
        transaction: The open transaction.
    """

    __slots__ = ("_counters", "_rates", "_transaction")

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._counters: dict[str, _Counter] = {}
        self._rates: Rates | None = None

    def charge(self, charges: Sequence[Charge]) -> str | None:
        """Add every amount, or none.

        Returns:
            The scope that had nothing left (then nothing was added), or None.
        """
        exceeded = self.peek(charges)
        if exceeded is None:
            for one in charges:
                if one.window is not None:
                    self._windows().add(one)
                    continue
                counter = self._counters.get(one.scope) or self._counter(one.scope)
                counter.value += one.amount
                counter.delta += one.amount
                # what was added last decides: it fitted, or had no limit to fit in
                limit = one.limit if not one.raisable else self._limit(one)
                counter.limit = UNLIMITED if limit is None else limit
        return exceeded

    def look_for(self, scopes: Iterable[str]) -> None:
        """Read several counters at once, for operations that will ask for them one by one."""
        unread = [scope for scope in scopes if scope not in self._counters]
        if len(unread) < 2:
            return
        sql, most = self._transaction.sql, SLOTS[-1]
        for start in range(0, len(unread), most):
            part = unread[start : start + most]
            slots = next(size for size in SLOTS if size >= len(part))
            asked = [*part, *part[-1:] * (slots - len(part))]
            rows = self._transaction.found(sql.counters_get[slots], asked)
            used = {row[0]: int(row[1]) for row in rows}
            for scope in part:
                self._counters[scope] = _Counter(used.get(scope, 0))

    def peek(self, charges: Iterable[Charge]) -> str | None:
        """Return the first scope whose charge would be refused, changing nothing."""
        wanted: dict[str, int] = {}
        for one in charges:
            scope, amount = one.scope, one.amount
            before = wanted.get(scope, 0)
            wanted[scope] = before + amount
            if one.window is not None:
                if not self._windows().room(one, before):
                    return scope
                continue
            limit = one.limit if not one.raisable else self._limit(one)
            if limit is not None:
                counter = self._counters.get(scope) or self._counter(scope)
                if limit <= 0 or counter.value + before + amount > limit:
                    return scope
        return None

    def refund(self, charges: Iterable[Charge]) -> None:
        """Subtract every amount, never below 0."""
        for one in charges:
            if one.window is not None:
                self._windows().take(one)
                continue
            counter = self._counter(one.scope)
            back = min(one.amount, counter.value)
            counter.value -= back
            counter.delta -= back

    def used(self, scopes: Iterable[str]) -> dict[str, int]:
        """Return the value of each scope; 0 for one never charged."""
        return {scope: self._counter(scope).value for scope in scopes}

    def flush(self, now: int) -> None:
        """Write what changed.

        Raises:
            RuntimeError: A counter passed its limit although this transaction holds its lock.
        """
        if self._rates is not None:
            self._rates.flush(now)
        sql, changed = self._transaction.sql, sorted(self._counters.items())
        raised = [
            {"scope": scope, "used": one.delta, "updated_at": now, "at_limit": one.limit}
            for scope, one in changed
            if one.delta > 0
        ]
        if raised and self._transaction.many(sql.counter_add, raised) != len(raised):
            msg = "a counter passed its limit under its lock"
            raise RuntimeError(msg)
        for scope, one in changed:
            if one.delta < 0:
                self._transaction.run(
                    sql.counter_take, {"at_scope": scope, "at_amount": -one.delta, "at_now": now}
                )
            one.delta = 0

    def _limit(self, charge: Charge) -> int | None:
        if charge.limit is None or not charge.raisable:
            return charge.limit
        return charge.limit + self._counter(f"raise:{charge.scope}").value

    def _windows(self) -> Rates:
        if self._rates is None:
            self._rates = Rates(self._transaction)
        return self._rates

    def _counter(self, scope: str) -> _Counter:
        counter = self._counters.get(scope)
        if counter is None:
            sql = self._transaction.sql
            row = self._transaction.one(sql.counter_get, {"at_scope": scope})
            counter = self._counters[scope] = _Counter(0 if row is None else int(row[0]))
        return counter
