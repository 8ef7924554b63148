"""Orders in Acme's books: what shipping costs, and one order for each idempotency key."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from pydantic import ValidationError

from adapter import Registry
from adapter.core.errors import ToolError
from adapter.langgraph import registry_of
from agent.database import AcmeDatabase, AcmeError
from agent.policies import ORDER_SPECS
from agent.seed import ORDER_COUNT
from agent.tools import build_order_tools

LINE = {"product_id": 1, "quantity": 2, "shipping_cents": 730}


@pytest.fixture
def acme(tmp_path: Path) -> AcmeDatabase:
    return AcmeDatabase(tmp_path / "acme.db")


@pytest.fixture
def tools(acme: AcmeDatabase) -> dict[str, BaseTool]:
    return {tool.name: tool for tool in build_order_tools(acme, new_id=lambda: "key")}


def rows(acme: AcmeDatabase, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(acme.path)) as db:
        return db.execute(sql).fetchall()


def test_shipping_is_a_base_and_something_for_each_piece(acme: AcmeDatabase) -> None:
    assert acme.shipping_rate(1, 1) == 610
    assert acme.shipping_rate(1, 2) == 730


def test_shipping_is_free_from_two_hundred_on(acme: AcmeDatabase) -> None:
    assert acme.shipping_rate(3, 1) == 0


@pytest.mark.parametrize(
    ("product_id", "quantity", "said"),
    [(99, 1, "no product 99"), (1, 151, "150 in stock"), (1, 0, "above 0"), (1, True, "above 0")],
)
def test_what_cannot_be_shipped_has_no_rate(
    acme: AcmeDatabase, product_id: int, quantity: int, said: str
) -> None:
    with pytest.raises(AcmeError, match=said):
        acme.shipping_rate(product_id, quantity)


def test_an_order_has_a_row_for_each_item_and_takes_it_from_stock(acme: AcmeDatabase) -> None:
    second = {"product_id": 4, "quantity": 1, "shipping_cents": 0}
    placed = acme.place_order(101, [LINE, second], idempotency_key="k")
    first_id = 1001 + ORDER_COUNT
    assert placed == {"order_ids": [f"A-{first_id}", f"A-{first_id + 1}"], "paid_cents": 11_978}
    assert rows(acme, "SELECT * FROM orders ORDER BY rowid DESC LIMIT 2") == [
        (f"A-{first_id + 1}", 101, 4, 1, 1250),
        (f"A-{first_id}", 101, 1, 2, 10_728),
    ]
    assert rows(acme, "SELECT stock FROM products WHERE product_id IN (1, 4)") == [(148,), (419,)]
    assert acme.search(f"A-{first_id}", "orders")["total"] == 1


def test_the_same_key_orders_once(acme: AcmeDatabase) -> None:
    placed = acme.place_order(101, [LINE], idempotency_key="k")
    assert acme.place_order(101, [LINE], idempotency_key="k") == placed
    assert rows(acme, "SELECT count(*) FROM orders") == [(ORDER_COUNT + 1,)]
    assert acme.place_order(101, [LINE], idempotency_key="other") != placed


def test_a_key_of_another_order_is_refused(acme: AcmeDatabase) -> None:
    acme.place_order(101, [LINE], idempotency_key="k")
    with pytest.raises(AcmeError, match="different request"):
        acme.place_order(102, [LINE], idempotency_key="k")


@pytest.mark.parametrize(
    ("customer_id", "items", "said"),
    [
        (999, [LINE], "no customer 999"),
        (101, [], "at least one item"),
        (101, [LINE, {**LINE, "product_id": 99}], "no product 99"),
        (101, [{**LINE, "quantity": 151}], "150 in stock"),
        (101, [{**LINE, "quantity": 100}, {**LINE, "quantity": 51}], "50 in stock"),
    ],
)
def test_a_refused_order_leaves_nothing(
    acme: AcmeDatabase, customer_id: int, items: list[dict[str, int]], said: str
) -> None:
    with pytest.raises(AcmeError, match=said):
        acme.place_order(customer_id, items, idempotency_key="k")
    assert rows(acme, "SELECT count(*) FROM orders") == [(ORDER_COUNT,)]
    assert rows(acme, "SELECT stock FROM products WHERE product_id = 1") == [(150,)]
    assert rows(acme, "SELECT count(*) FROM placements") == [(0,)]


def test_a_file_of_the_first_version_is_brought_up_to_date(acme: AcmeDatabase) -> None:
    acme.refund("A-1001", 100, "late", idempotency_key="r")
    with closing(sqlite3.connect(acme.path)) as db:
        db.execute("DROP TABLE placements")
        db.execute("PRAGMA user_version = 1")
    again = AcmeDatabase(acme.path)
    assert again.place_order(101, [LINE], idempotency_key="k")["order_ids"] == ["A-1121"]
    assert rows(again, "SELECT count(*) FROM refunds") == [(1,)]


# --------------------------------------------------------------------------------- the tools


def test_every_order_tool_has_a_spec(tools: dict[str, BaseTool]) -> None:
    assert isinstance(registry_of(list(tools.values()), ORDER_SPECS), Registry)


def test_the_tools_return_values(tools: dict[str, BaseTool]) -> None:
    assert tools["shipping_rate"].invoke({"product_id": 1, "quantity": 1}) == 610
    placed = tools["place_order"].invoke({"customer_id": 101, "items": [LINE]})
    assert placed == {"order_ids": ["A-1121"], "paid_cents": 10_728}


@pytest.mark.parametrize(
    "arguments",
    [
        {"customer_id": "101", "items": [LINE]},
        {"customer_id": 101, "items": []},
        {"customer_id": 101, "items": [{**LINE, "note": "x"}]},
        {"customer_id": 101, "items": [{**LINE, "shipping_cents": -1}]},
    ],
)
def test_loose_arguments_are_refused(tools: dict[str, BaseTool], arguments: Any) -> None:
    with pytest.raises(ValidationError):
        tools["place_order"].invoke(arguments)


def test_what_the_books_refuse_is_the_tools_own_message(tools: dict[str, BaseTool]) -> None:
    with pytest.raises(ToolError, match="no product 99"):
        tools["shipping_rate"].invoke({"product_id": 99, "quantity": 1})


def test_a_slow_order_has_its_effect_first(acme: AcmeDatabase) -> None:
    seen: list[Any] = []

    def sleep(seconds: float) -> None:
        seen.append((seconds, rows(acme, "SELECT count(*) FROM placements")))

    made = {tool.name: tool for tool in build_order_tools(acme, delay_ms=1500, sleep=sleep)}
    made["place_order"].invoke({"customer_id": 101, "items": [LINE]})
    assert seen == [(1.5, [(1,)])]
