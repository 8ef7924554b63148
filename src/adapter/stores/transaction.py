"""What an operation of the store is given: statements on an open connection, and the chains.

It begins and ends no transaction; the writer does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from adapter.stores.chains import Chains, HeadSigner
from adapter.stores.counters import Counters
from adapter.stores.recent import Recent
from adapter.stores.statement import Statement
from adapter.stores.statements import Statements

__all__ = ["Operation", "Transaction"]

T = TypeVar("T")


class Transaction:
    """One open transaction (or, for readers, one borrowed connection).

    Args:
        cursor: Cursor of the driver.
        sql: The statements in the connection's dialect.
        careful: Look every event id up before linking it; see ``Chains``.
        sign: Signs the heads that move.
        now: Its time, milliseconds.
        recent: What the writer knows of turns.

    Attributes:
        read: What ``recent`` read, by thread.
    """

    __slots__ = ("_cursor", "chains", "counters", "now", "read", "recent", "sql")

    def __init__(
        self,
        cursor: Any,
        sql: Statements,
        *,
        careful: bool = False,
        now: int = 0,
        sign: HeadSigner | None = None,
        recent: Recent | None = None,
    ) -> None:
        self._cursor = cursor
        self.recent = recent or Recent()
        self.read: dict[str, Any] = {}
        self.sql = sql
        self.now = now
        self.chains = Chains(self, careful=careful, sign=sign)
        self.counters = Counters(self)

    def flush(self, now: int) -> None:
        """Write what the chains and counters hold back until the end."""
        self.chains.flush()
        self.counters.flush(now)

    def one(self, statement: Statement, parameters: Mapping[str, Any]) -> Sequence[Any] | None:
        """Run a statement and return its first row, if any."""
        cursor = self._cursor
        cursor.execute(statement.text, statement.arrange(parameters))
        row: Sequence[Any] | None = cursor.fetchone()
        return row

    def all(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Sequence[Any]]:
        """Run a statement and return its rows."""
        cursor = self._cursor
        cursor.execute(statement.text, statement.arrange(parameters))
        rows: list[Sequence[Any]] = cursor.fetchall()
        return rows

    def found(self, statement: Statement, parameters: Sequence[Any]) -> list[Sequence[Any]]:
        """Run a statement whose parameters are in its order already, and return its rows."""
        cursor = self._cursor
        cursor.execute(statement.text, parameters)
        rows: list[Sequence[Any]] = cursor.fetchall()
        return rows

    def run(self, statement: Statement, parameters: Mapping[str, Any]) -> int:
        """Run a statement that returns no rows; return how many it changed."""
        cursor = self._cursor
        cursor.execute(statement.text, statement.arrange(parameters))
        count: int = cursor.rowcount
        return count

    def many(self, statement: Statement, parameters: Sequence[Mapping[str, Any]]) -> int:
        """Run a statement once for each set of parameters; return how many rows changed."""
        cursor = self._cursor
        cursor.executemany(statement.text, [statement.arrange(one) for one in parameters])
        count: int = cursor.rowcount
        return count

    def rows(self, statement: Statement, parameters: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each set of parameters that is in the statement's order."""
        self._cursor.executemany(statement.text, parameters)


Operation: TypeAlias = Callable[[Transaction, int], T]
"""Work inside a transaction; the second argument is its time in milliseconds."""
