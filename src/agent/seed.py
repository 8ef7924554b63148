"""The Acme database's schema and first rows. Data only: nothing here opens a file."""

from __future__ import annotations

from typing import Final

__all__ = ["CUSTOMERS", "PRODUCTS", "SCHEMA", "UPGRADES", "orders"]

PRODUCTS: Final[tuple[tuple[int, str, int, int], ...]] = (
    (1, "Widget Pro", 4_999, 150),
    (2, "Widget Lite", 1_999, 300),
    (3, "Enterprise Suite", 29_900, 50),
    (4, "Gadget Mini", 1_250, 420),
    (5, "Gadget Max", 8_900, 75),
    (6, "Sprocket Set", 3_450, 210),
    (7, "Cable Kit", 990, 800),
    (8, "Travel Case", 2_795, 130),
)
"""product_id, name, price_cents, stock."""

CUSTOMERS: Final[tuple[tuple[int, str, str, str], ...]] = (
    (101, "Alice", "enterprise", "2023-01"),
    (102, "Bob", "pro", "2024-03"),
    (103, "Chidi", "free", "2024-07"),
    (104, "Dolores", "pro", "2022-11"),
    (105, "Emeka", "enterprise", "2025-02"),
    (106, "Freya", "free", "2025-06"),
    (107, "Gustavo", "pro", "2023-09"),
    (108, "Hana", "enterprise", "2021-05"),
)
"""customer_id, name, plan, customer_since (year and month)."""

ORDER_COUNT: Final = 120


def orders() -> list[tuple[str, int, int, int, int]]:
    """The first orders: order_id, customer_id, product_id, quantity, paid_cents."""
    rows = []
    for number in range(ORDER_COUNT):
        customer_id = CUSTOMERS[number % len(CUSTOMERS)][0]
        # Steps that share no factor with the lengths, so that everyone buys everything in time.
        product_id, _, price, _ = PRODUCTS[(number * 3 + number // 8) % len(PRODUCTS)]
        quantity = 1 + number % 3
        rows.append((f"A-{1001 + number}", customer_id, product_id, quantity, price * quantity))
    return rows


# Deleting a customer keeps the orders, because refunds and books refer to them: customer_id is a
# plain number there, and the triggers take the name out of the search index.
_PLACEMENTS: Final = """CREATE TABLE placements (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        request TEXT NOT NULL,
        result TEXT NOT NULL,
        idempotency_key TEXT NOT NULL UNIQUE,
        created_at TEXT NOT NULL)"""

UPGRADES: Final[dict[int, tuple[str, ...]]] = {1: (_PLACEMENTS,)}
"""What brings a file of an earlier version to the next one."""

SCHEMA: Final[tuple[str, ...]] = (
    """CREATE TABLE products (
        product_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        price_cents INTEGER NOT NULL CHECK (price_cents >= 0),
        stock INTEGER NOT NULL CHECK (stock >= 0))""",
    """CREATE TABLE customers (
        customer_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        plan TEXT NOT NULL,
        customer_since TEXT NOT NULL)""",
    """CREATE TABLE orders (
        order_id TEXT PRIMARY KEY,
        customer_id INTEGER NOT NULL,
        product_id INTEGER NOT NULL REFERENCES products (product_id),
        quantity INTEGER NOT NULL CHECK (quantity > 0),
        paid_cents INTEGER NOT NULL CHECK (paid_cents >= 0))""",
    """CREATE TABLE refunds (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        order_id TEXT NOT NULL REFERENCES orders (order_id),
        amount_cents INTEGER NOT NULL CHECK (amount_cents > 0),
        reason TEXT NOT NULL,
        idempotency_key TEXT NOT NULL UNIQUE,
        created_at TEXT NOT NULL)""",
    "CREATE INDEX refunds_by_order ON refunds (order_id)",
    """CREATE TABLE tickets (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        customer_name TEXT NOT NULL,
        subject TEXT NOT NULL,
        priority TEXT NOT NULL CHECK (priority IN ('low', 'medium', 'high', 'critical')),
        description TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'open',
        idempotency_key TEXT NOT NULL UNIQUE,
        created_at TEXT NOT NULL)""",
    _PLACEMENTS,
    "CREATE VIRTUAL TABLE products_text USING fts5(body)",
    "CREATE VIRTUAL TABLE customers_text USING fts5(body)",
    "CREATE VIRTUAL TABLE orders_text USING fts5(body)",
    """CREATE TRIGGER products_added AFTER INSERT ON products BEGIN
        INSERT INTO products_text (rowid, body) VALUES (new.product_id, new.name);
    END""",
    """CREATE TRIGGER products_changed AFTER UPDATE ON products BEGIN
        UPDATE products_text SET body = new.name WHERE rowid = new.product_id;
    END""",
    """CREATE TRIGGER products_removed AFTER DELETE ON products BEGIN
        DELETE FROM products_text WHERE rowid = old.product_id;
    END""",
    """CREATE TRIGGER customers_added AFTER INSERT ON customers BEGIN
        INSERT INTO customers_text (rowid, body)
        VALUES (new.customer_id, new.customer_id || ' ' || new.name || ' ' || new.plan);
    END""",
    """CREATE TRIGGER customers_changed AFTER UPDATE ON customers BEGIN
        UPDATE customers_text SET body = new.customer_id || ' ' || new.name || ' ' || new.plan
        WHERE rowid = new.customer_id;
    END""",
    """CREATE TRIGGER customers_removed AFTER DELETE ON customers BEGIN
        DELETE FROM customers_text WHERE rowid = old.customer_id;
        UPDATE orders_text SET body =
            (SELECT o.order_id || ' ' || p.name FROM orders o JOIN products p USING (product_id)
             WHERE o.rowid = orders_text.rowid)
        WHERE rowid IN (SELECT rowid FROM orders WHERE customer_id = old.customer_id);
    END""",
    """CREATE TRIGGER orders_added AFTER INSERT ON orders BEGIN
        INSERT INTO orders_text (rowid, body)
        SELECT new.rowid, new.order_id || ' ' || p.name || ' ' || COALESCE(c.name, '')
        FROM products p LEFT JOIN customers c ON c.customer_id = new.customer_id
        WHERE p.product_id = new.product_id;
    END""",
    """CREATE TRIGGER orders_removed AFTER DELETE ON orders BEGIN
        DELETE FROM orders_text WHERE rowid = old.rowid;
    END""",
)
