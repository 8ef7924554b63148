"""Full-text search over Acme's tables: a person's words in, rows out.

The words become quoted terms of SQLite's FTS5, and the terms a bound parameter: no text of the
user is ever read as SQL or as FTS5 syntax.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any, Final

__all__ = ["search_rows"]

_WORD: Final = re.compile(r"[^\W_]+")
_SHORTEST_LONE_WORD: Final = 3
_MOST_WORDS: Final = 30

# table -> (columns and joins, column of the index's rowid)
_SELECT: Final = {
    "products": (
        "SELECT t.product_id AS id, t.name, t.price_cents, t.stock FROM products t",
        "t.product_id",
    ),
    "customers": (
        "SELECT t.customer_id AS id, t.name, t.plan, t.customer_since AS since FROM customers t",
        "t.customer_id",
    ),
    "orders": (
        "SELECT t.order_id AS id, t.customer_id, c.name AS customer, p.name AS product,"
        " t.quantity, t.paid_cents, (SELECT COALESCE(sum(amount_cents), 0) FROM refunds r"
        " WHERE r.order_id = t.order_id) AS refunded_cents FROM orders t"
        " JOIN products p USING (product_id)"
        " LEFT JOIN customers c ON c.customer_id = t.customer_id",
        "t.rowid",
    ),
}


def search_rows(
    db: sqlite3.Connection, query: str, table: str, limit: int
) -> tuple[int, list[dict[str, Any]]]:
    """Rows whose text has every word of the query, else any of its longer words.

    Args:
        db: An open connection with `sqlite3.Row` rows.
        query: Free text. Words joined by a hyphen, as in ``A-1001``, stay together.
        table: ``products``, ``customers`` or ``orders``.
        limit: Most rows returned.

    Returns:
        How many rows match, and the best of them.
    """
    every, any_of = _terms(query)
    for terms in (every, any_of):
        if terms is None:
            continue
        total, rows = _matching(db, table, terms, limit)
        if rows:
            return total, rows
    if every is not None:
        return 0, []
    select, key = _SELECT[table]
    total = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - a constant
    return total, _plain(db.execute(f"{select} ORDER BY {key} LIMIT ?", (limit,)))


def _terms(query: str) -> tuple[str | None, str | None]:
    """The query as FTS5 terms: all of them, and any of the longer ones."""
    phrases = [_WORD.findall(word) for word in query.split()]
    phrases = [words for words in phrases if words][:_MOST_WORDS]
    if not phrases:
        return None, None
    # Only letters and digits are left, so a phrase cannot close its own quotes.
    quoted = {'"' + " ".join(words) + '"*': len("".join(words)) for words in phrases}
    longer = [term for term, length in quoted.items() if length >= _SHORTEST_LONE_WORD]
    return " AND ".join(quoted), " OR ".join(longer) or None


def _matching(
    db: sqlite3.Connection, table: str, terms: str, limit: int
) -> tuple[int, list[dict[str, Any]]]:
    select, key = _SELECT[table]
    index = f"{table}_text"
    total = db.execute(
        f"SELECT count(*) FROM {index} WHERE {index} MATCH ?",  # noqa: S608 - constants
        (terms,),
    ).fetchone()[0]
    rows = db.execute(
        f"{select} JOIN {index} ON {index}.rowid = {key} WHERE {index} MATCH ?"
        f" ORDER BY {index}.rank, {key} LIMIT ?",
        (terms, limit),
    )
    return total, _plain(rows)


def _plain(rows: sqlite3.Cursor) -> list[dict[str, Any]]:
    return [dict(row) for row in rows]
