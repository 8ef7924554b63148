"""Acme's books: one embedded SQLite file, read and written by the tools.

Synchronous, one connection per call, so any thread may use it. It knows nothing of models, tools
or approvals, and reads no setting.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from agent.ordering import enter_order, shipping_cents
from agent.search import search_rows
from agent.storage import AcmeError, AcmeStorage, AcmeUnavailableError

__all__ = ["AcmeDatabase", "AcmeError", "AcmeUnavailableError", "Priority", "Table"]

Table: TypeAlias = Literal["products", "customers", "orders"]
Priority: TypeAlias = Literal["low", "medium", "high", "critical"]


def _utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the default clock, replaced in tests


class AcmeDatabase:
    """The Acme database in one file, created and seeded when it does not exist.

    Args:
        path: The file; its directory is created.
        clock: Gives the time written into new rows.
        timeout: Seconds to wait for another writer.

    Raises:
        ConfigurationError: The file cannot be opened, written or is not an Acme database.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Callable[[], datetime] = _utc_now,
        timeout: float = 5.0,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._storage = AcmeStorage(self.path, timeout=timeout)

    def search(self, query: str, table: Table = "products", *, limit: int = 20) -> dict[str, Any]:
        """Find rows by their words; a query without a letter or digit lists the first rows.

        Args:
            query: Free text; never part of the SQL nor of the full-text query language.
            table: Which table.
            limit: Most rows returned.

        Returns:
            ``table``, ``query``, ``total`` (all that match), ``results`` (the best `limit`), and a
            ``hint`` where nothing matches or rows were left out.

        Raises:
            AcmeUnavailableError: The file cannot be read.
        """
        with self._storage.reading() as db:
            total, rows = search_rows(db, query, table, limit)
        found: dict[str, Any] = {"table": table, "query": query, "total": total, "results": rows}
        if not rows:
            found["hint"] = f"No match in {table}. Use fewer or other words, or another table."
        elif total > len(rows):
            found["hint"] = f"{total - len(rows)} more rows match: use more words."
        return found

    def refund(
        self, order_id: str, amount_cents: int, reason: str, *, idempotency_key: str
    ) -> dict[str, Any]:
        """Pay part or all of an order back, once per idempotency key.

        Args:
            order_id: Such as ``A-1001``.
            amount_cents: Above 0, at most what was paid less what was refunded before.
            reason: Free text for the books.
            idempotency_key: The same key again returns the same result and pays nothing.

        Returns:
            ``refund_id``, ``order_id``, ``amount_cents``, ``refunded_cents`` (of this order up to
            and with this refund) and ``remaining_cents``.

        Raises:
            AcmeError: Unknown order, too much, not above 0, or a key used for another refund.
            AcmeUnavailableError: The file cannot be written.
        """
        if isinstance(amount_cents, bool) or amount_cents <= 0:
            raise AcmeError("The amount must be above 0 cents.")
        with self._storage.writing() as db:
            order = db.execute(
                "SELECT paid_cents FROM orders WHERE order_id = ?", (order_id,)
            ).fetchone()
            if order is None:
                raise AcmeError(f"There is no order {order_id!r}. Order ids look like A-1001.")
            columns = (order_id, amount_cents, reason)
            refund_id = _earlier(
                db, "refunds", "order_id, amount_cents, reason", idempotency_key, columns
            )
            if refund_id is None:
                left = order["paid_cents"] - _refunded(db, order_id)
                if amount_cents > left:
                    raise AcmeError(
                        f"Order {order_id} has {left} cents left to refund, and "
                        f"{amount_cents} were asked for."
                    )
                refund_id = db.execute(
                    "INSERT INTO refunds (order_id, amount_cents, reason, idempotency_key,"
                    " created_at) VALUES (?, ?, ?, ?, ?)",
                    (*columns, idempotency_key, self._now()),
                ).lastrowid
            refunded = _refunded(db, order_id, upto=refund_id)
        return {
            "refund_id": refund_id,
            "order_id": order_id,
            "amount_cents": amount_cents,
            "refunded_cents": refunded,
            "remaining_cents": order["paid_cents"] - refunded,
        }

    def create_ticket(
        self,
        customer_name: str,
        subject: str,
        priority: Priority = "medium",
        description: str = "",
        *,
        idempotency_key: str,
    ) -> dict[str, Any]:
        """Open a support ticket, once per idempotency key.

        Returns:
            ``ticket_id`` (such as ``TKT-00001``), the ticket's own columns and its ``status``.

        Raises:
            AcmeError: The key was used for another ticket.
            AcmeUnavailableError: The file cannot be written.
        """
        names = "customer_name, subject, priority, description"
        columns = (customer_name, subject, priority, description)
        with self._storage.writing() as db:
            number = _earlier(db, "tickets", names, idempotency_key, columns)
            if number is None:
                number = db.execute(
                    f"INSERT INTO tickets ({names}, idempotency_key, created_at)"  # noqa: S608 - constant
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    (*columns, idempotency_key, self._now()),
                ).lastrowid
        return {
            "ticket_id": f"TKT-{number:05d}",
            "customer_name": customer_name,
            "subject": subject,
            "priority": priority,
            "status": "open",
        }

    def shipping_rate(self, product_id: int, quantity: int) -> int:
        """Return what one item costs to ship, in cents.

        Raises:
            AcmeError: Unknown product, or fewer in stock.
            AcmeUnavailableError: The file cannot be read.
        """
        with self._storage.reading() as db:
            return shipping_cents(db, product_id, quantity)

    def place_order(
        self, customer_id: int, items: Sequence[dict[str, int]], *, idempotency_key: str
    ) -> dict[str, Any]:
        """Enter an order of one or more items, once per idempotency key, as `enter_order` says.

        Raises:
            AcmeError: Unknown customer or product, too few in stock, or a key used otherwise.
            AcmeUnavailableError: The file cannot be written.
        """
        with self._storage.writing() as db:
            return enter_order(
                db, customer_id, items, idempotency_key=idempotency_key, now=self._now()
            )

    def delete_customer(self, customer_id: int) -> dict[str, Any]:
        """Delete a customer's record; orders and refunds stay, with the bare number.

        Returns:
            ``customer_id``, ``name``, ``deleted`` and ``orders_kept``.

        Raises:
            AcmeError: There is no such customer.
            AcmeUnavailableError: The file cannot be written.
        """
        with self._storage.writing() as db:
            row = db.execute(
                "DELETE FROM customers WHERE customer_id = ? RETURNING name", (customer_id,)
            ).fetchone()
            if row is None:
                raise AcmeError(f"There is no customer {customer_id}.")
            kept = db.execute(
                "SELECT count(*) FROM orders WHERE customer_id = ?", (customer_id,)
            ).fetchone()[0]
        return {
            "customer_id": customer_id,
            "name": row["name"],
            "deleted": True,
            "orders_kept": kept,
        }

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="milliseconds")


def _earlier(
    db: sqlite3.Connection, table: str, names: str, key: str, columns: tuple[Any, ...]
) -> int | None:
    """The id of the row this key made before, or None; another row's key is refused."""
    sql = f"SELECT id, {names} FROM {table} WHERE idempotency_key = ?"  # noqa: S608 - constants
    row = db.execute(sql, (key,)).fetchone()
    if row is None:
        return None
    if tuple(row)[1:] != columns:
        raise AcmeError("This idempotency key was used for a different request.")
    return int(row["id"])


def _refunded(db: sqlite3.Connection, order_id: str, *, upto: int | None = None) -> int:
    total: int = db.execute(
        "SELECT COALESCE(sum(amount_cents), 0) FROM refunds WHERE order_id = ?"
        " AND (? IS NULL OR id <= ?)",
        (order_id, upto, upto),
    ).fetchone()[0]
    return total
