"""Sliding windows: one mark per thing charged, under the same locks as the counters.

What was charged a whole window ago or longer does not count. A mark that is charged again costs
nothing, so that a call pays one token however often it comes by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapter.core.store import Charge
from adapter.stores.rows import milliseconds

if TYPE_CHECKING:
    from adapter.stores.transaction import Transaction

__all__ = ["Rates"]


class Rates:
    """The windows that one transaction looks at and charges.

    Args:
        transaction: The open transaction; its time is the end of every window.
    """

    __slots__ = ("_made", "_marked", "_totals", "_transaction", "_widest")

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._totals: dict[tuple[str, int], int] = {}
        self._marked: dict[tuple[str, str], bool] = {}
        self._made: dict[tuple[str, str], int] = {}
        self._widest: dict[str, int] = {}

    def room(self, charge: Charge, more: int) -> bool:
        """Tell whether a charge fits into its window.

        Args:
            charge: A charge with a window, a limit and a mark.
            more: What else the same batch of charges adds to the scope.

        Raises:
            ValueError: It has no limit or no mark.
        """
        if charge.limit is None or not charge.mark:
            msg = "a charge with a window needs a limit and a mark"
            raise ValueError(msg)
        return self.marked(charge) or self._used(charge) + more + charge.amount <= charge.limit

    def marked(self, charge: Charge) -> bool:
        """Tell whether the mark was charged before."""
        at = (charge.scope, charge.mark)
        if at not in self._marked:
            found = self._transaction.one(
                self._transaction.sql.rate_marked, {"at_scope": at[0], "at_mark": at[1]}
            )
            self._marked[at] = found is not None
        return self._marked[at]

    def add(self, charge: Charge) -> None:
        """Make the mark, unless it is there."""
        if self.marked(charge):
            return
        at = (charge.scope, charge.mark)
        self._marked[at] = True
        self._made[at] = charge.amount
        self._widest[charge.scope] = max(self._widest.get(charge.scope, 0), _window(charge))

    def take(self, charge: Charge) -> None:
        """Take a mark away: its work did not happen."""
        at = (charge.scope, charge.mark)
        if self._made.pop(at, None) is None and self.marked(charge):
            self._transaction.run(
                self._transaction.sql.rate_take, {"at_scope": at[0], "at_mark": at[1]}
            )
            self._totals.clear()
        self._marked[at] = False

    def flush(self, now: int) -> None:
        """Write the new marks, and forget those of their scopes that will never count again."""
        sql, made = self._transaction.sql, sorted(self._made.items())
        if not made:
            return
        for scope, window in sorted(self._widest.items()):
            self._transaction.run(sql.rate_prune, {"at_scope": scope, "at_time": now - window})
        self._transaction.many(
            sql.rate_add,
            [
                {"scope": scope, "mark": mark, "at": now, "amount": amount}
                for (scope, mark), amount in made
            ],
        )
        self._made.clear()
        self._widest.clear()
        self._totals.clear()

    def _used(self, charge: Charge) -> int:
        at = (charge.scope, _window(charge))
        if at not in self._totals:
            row = self._transaction.one(
                self._transaction.sql.rate_used,
                {"at_scope": at[0], "at_time": self._transaction.now - at[1]},
            )
            self._totals[at] = int(row[0]) if row is not None else 0
        fresh = sum(amount for (scope, _), amount in self._made.items() if scope == charge.scope)
        return self._totals[at] + fresh


def _window(charge: Charge) -> int:
    return milliseconds(charge.window or 0)
