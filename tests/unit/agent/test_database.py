"""The Acme database: seeded once, searched safely, and never paying back too much."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapter.core.errors import ConfigurationError
from agent.database import AcmeDatabase, AcmeError, AcmeUnavailableError, Table

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture
def acme(tmp_path: Path) -> AcmeDatabase:
    return AcmeDatabase(tmp_path / "data" / "acme.db", clock=lambda: NOON, timeout=2)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> AcmeDatabase:
    """For properties that only read."""
    return AcmeDatabase(tmp_path_factory.mktemp("acme") / "acme.db")


def rows(acme: AcmeDatabase, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(acme.path)) as db:
        return db.execute(sql, values).fetchall()


@pytest.fixture
def locked(acme: AcmeDatabase) -> Iterator[None]:
    with closing(sqlite3.connect(acme.path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.rollback()


# ------------------------------------------------------------------------------- seeding


def test_the_first_start_seeds(acme: AcmeDatabase) -> None:
    assert rows(acme, "SELECT name, price_cents, stock FROM products WHERE product_id <= 3") == [
        ("Widget Pro", 4999, 150),
        ("Widget Lite", 1999, 300),
        ("Enterprise Suite", 29900, 50),
    ]
    assert rows(acme, "SELECT * FROM customers WHERE customer_id <= 102") == [
        (101, "Alice", "enterprise", "2023-01"),
        (102, "Bob", "pro", "2024-03"),
    ]
    count, cheapest = rows(acme, "SELECT count(*), min(paid_cents) FROM orders")[0]
    assert count >= 60
    assert cheapest >= 500
    assert rows(acme, "SELECT min(order_id) FROM orders") == [("A-1001",)]
    assert rows(acme, "PRAGMA journal_mode") == [("wal",)]


def test_orders_were_paid_at_the_price(acme: AcmeDatabase) -> None:
    sql = (
        "SELECT count(*) FROM orders JOIN products USING (product_id)"
        " WHERE paid_cents != price_cents * quantity"
    )
    assert rows(acme, sql) == [(0,)]


def test_a_second_start_keeps_what_happened(acme: AcmeDatabase) -> None:
    acme.refund("A-1001", 100, "late", idempotency_key="k")
    again = AcmeDatabase(acme.path)
    assert rows(again, "SELECT count(*) FROM refunds") == [(1,)]
    assert rows(again, "SELECT count(*) FROM orders") == [(120,)]


def test_processes_starting_at_once_seed_once(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    program = f"from agent.database import AcmeDatabase; AcmeDatabase({str(path)!r})"
    starts = [
        subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(2)
    ]
    failures = [start.communicate(timeout=60)[1] for start in starts]
    assert [start.returncode for start in starts] == [0, 0], failures
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM orders").fetchone() == (120,)


def test_threads_starting_at_once_seed_once(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: AcmeDatabase(path), range(16)))
    assert rows(opened[0], "SELECT count(*) FROM customers") == [(8,)]


# ------------------------------------------------------------------------------- bad files


def refusal(path: Path) -> str:
    with pytest.raises(ConfigurationError, match="AGENT_DATABASE") as caught:
        AcmeDatabase(path, timeout=0.05)
    return caught.value.message


def test_a_locked_file_is_refused_at_start(acme: AcmeDatabase, locked: None) -> None:
    assert "locked by another program" in refusal(acme.path)


def test_a_read_only_file_is_refused_at_start(
    acme: AcmeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not by file mode: the superuser, who runs tests in containers, may write anywhere.
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, **kw: connect(f"file:{path}?mode=ro", uri=True, **kw)
    )
    assert "read-only" in refusal(acme.path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    path.write_bytes(b"not a database at all" * 100)
    assert "not a sound SQLite database" in refusal(path)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "cannot be used" in refusal(tmp_path)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert "cannot be used" in refusal(tmp_path / "file" / "acme.db")


@pytest.mark.parametrize("statement", ["CREATE TABLE theirs (x)", "PRAGMA user_version = 7"])
def test_another_programs_database_is_refused_and_untouched(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
    assert "another program or version" in refusal(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] <= 1


def test_a_file_locked_later_is_a_clear_error(tmp_path: Path) -> None:
    acme = AcmeDatabase(tmp_path / "acme.db", timeout=0.05)
    with closing(sqlite3.connect(acme.path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(AcmeUnavailableError, match="locked by another program"):
            acme.refund("A-1001", 100, "late", idempotency_key="k")
        db.rollback()
    assert acme.refund("A-1001", 100, "late", idempotency_key="k")["refund_id"] == 1


# ------------------------------------------------------------------------------- search


def ids(acme: AcmeDatabase, query: str, table: Table = "products") -> list[Any]:
    return [row["id"] for row in acme.search(query, table)["results"]]


def test_search_ranks_rows_with_every_word(acme: AcmeDatabase) -> None:
    assert ids(acme, "widget pro") == [1]
    assert ids(acme, "WIDGET") == [1, 2]
    assert ids(acme, "wid") == [1, 2]


def test_search_falls_back_to_any_word(acme: AcmeDatabase) -> None:
    assert ids(acme, "price of the suite, please") == [3]


def test_orders_are_found_by_id_customer_and_product(acme: AcmeDatabase) -> None:
    assert ids(acme, "A-1001", "orders") == ["A-1001"]
    assert ids(acme, "a-1001", "orders") == ["A-1001"]
    alices = acme.search("alice", "orders")["results"]
    assert {row["customer"] for row in alices} == {"Alice"}
    assert acme.search("alice widget", "orders")["results"][0]["product"].startswith("Widget")


def test_an_order_shows_what_was_refunded(acme: AcmeDatabase) -> None:
    acme.refund("A-1001", 100, "late", idempotency_key="k")
    assert acme.search("A-1001", "orders")["results"][0]["refunded_cents"] == 100


def test_customers_are_found_by_number(acme: AcmeDatabase) -> None:
    assert ids(acme, "101", "customers") == [101]


@pytest.mark.parametrize("query", ["", "   ", '"', "*", "(-)", "';--", "_"])
def test_a_query_without_words_lists_the_first_rows(acme: AcmeDatabase, query: str) -> None:
    assert ids(acme, query, "products") == [1, 2, 3, 4, 5, 6, 7, 8]


def test_no_match_is_an_empty_list_and_a_hint(acme: AcmeDatabase) -> None:
    found = acme.search("zeppelin")
    assert (found["total"], found["results"]) == (0, [])
    assert "No match" in found["hint"]


def test_a_long_list_is_cut_and_says_so(acme: AcmeDatabase) -> None:
    found = acme.search("", "orders", limit=5)
    assert (len(found["results"]), found["total"]) == (5, 120)
    assert "115 more" in found["hint"]


@pytest.mark.parametrize(
    "query",
    [
        "' OR 1=1 --",
        '" OR body MATCH "',
        "body:alice",
        "NEAR(alice bob)",
        "alice NOT bob",
        "{body}: x",
        "^alice",
        'x"; DROP TABLE customers; --',
        "alice\x00bob",
        "\ud800",
        "AND",
        "OR OR OR",
        "\u00b2\u0301",
    ],
)
def test_query_language_in_the_query_is_only_words(acme: AcmeDatabase, query: str) -> None:
    found = acme.search(query, "customers")
    assert len(found["results"]) <= 8
    assert rows(acme, "SELECT count(*) FROM customers") == [(8,)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(query=st.text(max_size=60), table=st.sampled_from(["products", "customers", "orders"]))
def test_no_text_breaks_the_search(shared: AcmeDatabase, query: str, table: Table) -> None:
    found = shared.search(query, table)
    assert len(found["results"]) <= found["total"]


# ------------------------------------------------------------------------------- refunds


def test_a_refund_is_a_row(acme: AcmeDatabase) -> None:
    done = acme.refund("A-1001", 1250, "late", idempotency_key="k1")
    assert done == {
        "refund_id": 1,
        "order_id": "A-1001",
        "amount_cents": 1250,
        "refunded_cents": 1250,
        "remaining_cents": 4999 - 1250,
    }
    assert rows(acme, "SELECT * FROM refunds") == [
        (1, "A-1001", 1250, "late", "k1", "2026-11-30T12:00:00.000+00:00")
    ]


def test_the_same_key_refunds_once_and_answers_the_same(acme: AcmeDatabase) -> None:
    first = acme.refund("A-1001", 100, "late", idempotency_key="k")
    acme.refund("A-1001", 200, "later", idempotency_key="other")
    assert acme.refund("A-1001", 100, "late", idempotency_key="k") == first
    assert rows(acme, "SELECT amount_cents FROM refunds ORDER BY id") == [(100,), (200,)]


def test_the_same_key_again_works_when_all_is_refunded(acme: AcmeDatabase) -> None:
    first = acme.refund("A-1001", 4999, "late", idempotency_key="k")
    assert first["remaining_cents"] == 0
    assert acme.refund("A-1001", 4999, "late", idempotency_key="k") == first


def test_a_key_is_not_taken_for_another_refund(acme: AcmeDatabase) -> None:
    acme.refund("A-1001", 100, "late", idempotency_key="k")
    with pytest.raises(AcmeError, match="different request"):
        acme.refund("A-1002", 100, "late", idempotency_key="k")
    assert rows(acme, "SELECT count(*) FROM refunds") == [(1,)]


def test_earlier_refunds_count_against_what_was_paid(acme: AcmeDatabase) -> None:
    acme.refund("A-1001", 4000, "late", idempotency_key="k1")
    with pytest.raises(AcmeError, match="999 cents left"):
        acme.refund("A-1001", 1000, "late", idempotency_key="k2")
    assert acme.refund("A-1001", 999, "late", idempotency_key="k3")["remaining_cents"] == 0


@pytest.mark.parametrize("amount", [0, -1, True])
def test_an_amount_must_be_above_zero(acme: AcmeDatabase, amount: int) -> None:
    with pytest.raises(AcmeError, match="above 0"):
        acme.refund("A-1001", amount, "late", idempotency_key="k")
    assert rows(acme, "SELECT count(*) FROM refunds") == [(0,)]


def test_an_unknown_order_is_refused(acme: AcmeDatabase) -> None:
    with pytest.raises(AcmeError, match="no order 'A-9999'"):
        acme.refund("A-9999", 1, "late", idempotency_key="k")


def test_refunds_at_once_never_pay_more_than_was_paid(acme: AcmeDatabase) -> None:
    def attempt(number: int) -> bool:
        try:
            acme.refund("A-1001", 1000, "late", idempotency_key=f"k{number}")
        except AcmeError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        paid = sum(pool.map(attempt, range(16)))
    assert paid == 4
    assert rows(acme, "SELECT sum(amount_cents) FROM refunds") == [(4000,)]


# ------------------------------------------------------------------------------- other writes


def test_a_ticket_is_a_row(acme: AcmeDatabase) -> None:
    done = acme.create_ticket("Alice", "Bill", "high", "Wrong sum", idempotency_key="k")
    assert done["ticket_id"] == "TKT-00001"
    assert done["status"] == "open"
    assert rows(acme, "SELECT customer_name, subject, priority, description FROM tickets") == [
        ("Alice", "Bill", "high", "Wrong sum")
    ]


def test_the_same_key_opens_one_ticket(acme: AcmeDatabase) -> None:
    first = acme.create_ticket("Alice", "Bill", idempotency_key="k")
    assert acme.create_ticket("Alice", "Bill", idempotency_key="k") == first
    assert acme.create_ticket("Alice", "Bill", idempotency_key="k2")["ticket_id"] == "TKT-00002"
    with pytest.raises(AcmeError, match="different request"):
        acme.create_ticket("Bob", "Bill", idempotency_key="k")


def test_a_deleted_customer_leaves_orders_without_the_name(acme: AcmeDatabase) -> None:
    done = acme.delete_customer(101)
    assert done == {"customer_id": 101, "name": "Alice", "deleted": True, "orders_kept": 15}
    assert ids(acme, "alice", "customers") == []
    assert ids(acme, "alice", "orders") == []
    order = acme.search("A-1001", "orders")["results"][0]
    assert (order["customer_id"], order["customer"]) == (101, None)


def test_an_unknown_customer_is_refused(acme: AcmeDatabase) -> None:
    with pytest.raises(AcmeError, match="no customer 999"):
        acme.delete_customer(999)
