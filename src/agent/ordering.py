"""What shipping costs, and new orders in Acme's books.

Functions over an open connection, as `agent.search`: no tool, approval or flow is known here.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from agent.storage import AcmeError

__all__ = ["enter_order", "shipping_cents"]

_BASE_CENTS: Final = 490
_PER_PIECE_CENTS: Final = 120
_FREE_FROM_CENTS: Final = 20_000


def shipping_cents(db: sqlite3.Connection, product_id: int, quantity: int) -> int:
    """What one item costs to ship, in cents; from 200.00 on it is free.

    Args:
        db: An open connection with `sqlite3.Row` rows.
        product_id: The product.
        quantity: How many of it.

    Raises:
        AcmeError: Unknown product, or fewer in stock.
    """
    price = _in_stock(db, product_id, quantity)
    if price * quantity >= _FREE_FROM_CENTS:
        return 0
    return _BASE_CENTS + _PER_PIECE_CENTS * quantity


def enter_order(
    db: sqlite3.Connection,
    customer_id: int,
    items: Sequence[dict[str, int]],
    *,
    idempotency_key: str,
    now: str,
) -> dict[str, Any]:
    """Write one row of `orders` for each item and take it from stock, once per idempotency key.

    Args:
        db: A connection inside a write transaction.
        customer_id: Who orders.
        items: Each with ``product_id``, ``quantity`` and ``shipping_cents``.
        idempotency_key: The same key again returns the same result and orders nothing.
        now: The time written beside the key.

    Returns:
        ``order_ids`` in the order of the items, and ``paid_cents`` for all of them.

    Raises:
        AcmeError: Unknown customer or product, too few in stock, or a key used for another order.
    """
    asked = json.dumps([customer_id, list(items)], sort_keys=True)
    earlier = db.execute(
        "SELECT request, result FROM placements WHERE idempotency_key = ?", (idempotency_key,)
    ).fetchone()
    if earlier is not None:
        if earlier["request"] != asked:
            raise AcmeError("This idempotency key was used for a different request.")
        known: dict[str, Any] = json.loads(earlier["result"])
        return known
    if not items:
        raise AcmeError("An order needs at least one item.")
    if not db.execute("SELECT 1 FROM customers WHERE customer_id = ?", (customer_id,)).fetchone():
        raise AcmeError(f"There is no customer {customer_id}.")
    placed: dict[str, Any] = {"order_ids": [], "paid_cents": 0}
    for item in items:
        order_id, paid = _enter_item(db, customer_id, item)
        placed["order_ids"].append(order_id)
        placed["paid_cents"] += paid
    db.execute(
        "INSERT INTO placements (request, result, idempotency_key, created_at) VALUES (?, ?, ?, ?)",
        (asked, json.dumps(placed), idempotency_key, now),
    )
    return placed


def _enter_item(db: sqlite3.Connection, customer_id: int, item: dict[str, int]) -> tuple[str, int]:
    product_id, quantity = item["product_id"], item["quantity"]
    paid = _in_stock(db, product_id, quantity) * quantity + item["shipping_cents"]
    db.execute("UPDATE products SET stock = stock - ? WHERE product_id = ?", (quantity, product_id))
    newest = db.execute("SELECT max(CAST(substr(order_id, 3) AS INTEGER)) FROM orders").fetchone()
    order_id = f"A-{(newest[0] or 1000) + 1}"
    db.execute(
        "INSERT INTO orders (order_id, customer_id, product_id, quantity, paid_cents)"
        " VALUES (?, ?, ?, ?, ?)",
        (order_id, customer_id, product_id, quantity, paid),
    )
    return order_id, paid


def _in_stock(db: sqlite3.Connection, product_id: int, quantity: int) -> int:
    """The product's price, if there is enough of it."""
    if isinstance(quantity, bool) or quantity <= 0:
        raise AcmeError("The quantity must be above 0.")
    row = db.execute(
        "SELECT price_cents, stock FROM products WHERE product_id = ?", (product_id,)
    ).fetchone()
    if row is None:
        raise AcmeError(f"There is no product {product_id}.")
    if row["stock"] < quantity:
        raise AcmeError(f"Product {product_id} has {row['stock']} in stock, not {quantity}.")
    return int(row["price_cents"])
