"""The demo model's keywords: which words lead to which call."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.demo_rules import (
    HELP,
    BadCall,
    Finding,
    Proposal,
    explicit_calls,
    propose,
    report,
)

ALL = {
    "calculate",
    "create_ticket",
    "delete_customer",
    "get_weather",
    "issue_refund",
    "search_database",
}


def routed(text: str) -> list[tuple[str, dict[str, Any]]]:
    chosen = propose(text, ALL)
    assert not isinstance(chosen, str), chosen
    return [(call.tool, call.args) for call in chosen]


def search(query: str, table: str) -> tuple[str, dict[str, Any]]:
    return "search_database", {"query": query, "table": table}


def weather(place: str) -> tuple[str, dict[str, Any]]:
    return "get_weather", {"location": place}


def total(expression: str) -> tuple[str, dict[str, Any]]:
    return "calculate", {"expression": expression}


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("What products do you have and how much do they cost?", [search("", "products")]),
        ("Never mind. What products do you have?", [search("", "products")]),
        ("How much is a Widget Pro?", [search("Widget Pro", "products")]),
        (
            "If I buy 5 Widget Pros and 10 Widget Lites, what is my total?",
            [search("Widget Pro", "products"), search("Widget Lite", "products")],
        ),
        ("Can you look up Alice's account details?", [search("Alice", "customers")]),
        ("Find customer Bob", [search("Bob", "customers")]),
        ("Find customer 102", [search("102", "customers")]),
        ("Who are our customers?", [search("", "customers")]),
        ("Show me Bob's orders", [search("Bob", "orders")]),
        ("Where is order a-1001?", [search("A-1001", "orders")]),
        ("What is 6*7?", [total("6*7")]),
        ("Work out (5 * 49.99) + 3", [total("(5 * 49.99) + 3")]),
        ("What is the weather in Tokyo right now?", [weather("Tokyo")]),
        ("weather in New York", [weather("New York")]),
        (
            "What's the price of the Widget Pro and the weather in Tokyo and 2+2?",
            [weather("Tokyo"), total("2+2"), search("Widget Pro", "products")],
        ),
    ],
)
def test_questions_lead_to_look_ups(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert routed(text) == calls


@pytest.mark.parametrize(
    ("text", "order", "cents", "reason"),
    [
        ("refund A-1001 12.50 because it came late.", "A-1001", 1250, "it came late"),
        ("Please refund order A-1001 by $5", "A-1001", 500, "asked for by the customer"),
        ("Can you refund 19.9 for a-1002?", "A-1002", 1990, "asked for by the customer"),
        ("refund A-1003 150 cents", "A-1003", 150, "asked for by the customer"),
    ],
)
def test_a_refund_request_is_understood(text: str, order: str, cents: int, reason: str) -> None:
    args = {"order_id": order, "amount_cents": cents, "reason": reason}
    assert routed(text) == [("issue_refund", args)]


@pytest.mark.parametrize(
    "text", ["I want a refund", "refund A-1001", "refund A-1001, it was 3 days late"]
)
def test_a_refund_without_an_amount_is_asked_back(text: str) -> None:
    chosen = propose(text, ALL)
    assert isinstance(chosen, str)
    assert "refund A-1001 12.50" in chosen


def test_a_ticket_request_is_understood() -> None:
    text = "Create a ticket for customer Alice about a billing discrepancy, high priority."
    assert routed(text) == [
        (
            "create_ticket",
            {
                "customer_name": "Alice",
                "subject": "a billing discrepancy",
                "priority": "high",
                "description": text,
            },
        )
    ]


def test_a_deletion_request_is_understood() -> None:
    assert routed("Please delete customer 102") == [("delete_customer", {"customer_id": 102})]


@pytest.mark.parametrize("text", ["", "hello again", "What's up?", "\n"])
def test_anything_else_gets_honest_help(text: str) -> None:
    assert propose(text, ALL) == HELP
    assert "not a language model" in HELP


@pytest.mark.parametrize("text", ["weather in Oslo", "refund A-1001 5", "What is 1+1?"])
def test_a_tool_that_is_not_offered_is_not_proposed(text: str) -> None:
    assert propose(text, {"search_database"}) == HELP


@given(st.text(max_size=200))
def test_any_text_has_an_answer(text: str) -> None:
    assert propose(text, ALL)
    explicit_calls(text)


@pytest.mark.parametrize(
    "text",
    ["refund " * 40_000, "9+" * 40_000, "weather in " * 40_000, " " * 80_000, "/call x " * 9_000],
)
def test_long_text_takes_no_long_time(text: str) -> None:
    start = time.perf_counter()
    propose(text, ALL)
    explicit_calls(text)
    assert time.perf_counter() - start < 2


# ------------------------------------------------------------------------------- /call lines


def test_each_line_is_one_call() -> None:
    text = 'please\n/call calculate {"expression": "6*7"}\r\n  /call no_such_tool {"a": [1, null]} '
    assert explicit_calls(text) == [
        Proposal(tool="calculate", args={"expression": "6*7"}),
        Proposal(tool="no_such_tool", args={"a": [1, None]}),
    ]


@pytest.mark.parametrize("text", ["", "call x {}", "see /call x {}", "/call", "/calls x {}"])
def test_other_lines_are_no_calls(text: str) -> None:
    assert explicit_calls(text) == []


@pytest.mark.parametrize(
    "json_text", ["", "{", '{"a": 1', "[1]", "7", "{'a': 1}", '{"a": NaN}', '{"a": 1e999}', "{} x"]
)
def test_bad_json_is_kept_as_a_bad_call(json_text: str) -> None:
    (bad,) = explicit_calls(f"/call calculate {json_text}")
    assert isinstance(bad, BadCall)
    assert (bad.tool, bad.text) == ("calculate", json_text)
    assert bad.error


# ------------------------------------------------------------------------------- the reply


def test_rows_are_told_with_money_in_units() -> None:
    rows = '{"results": [{"name": "Widget Pro", "price_cents": 4999}], "hint": "more"}'
    said = report([Finding(tool="search_database", content=rows)])
    assert said == "search_database: name Widget Pro, price 49.99 (more)"


def test_a_plain_result_is_told() -> None:
    said = report([Finding(tool="calculate", content='{"expression": "6*7", "result": 42}')])
    assert said == "calculate: expression 6*7, result 42"
    assert report([Finding(tool="x", content="just text")]) == "x: just text"
    assert report([Finding(tool="x", content="")]) == "x: (nothing)"
    assert report([Finding(tool="x", content="[1, 2]")]) == "x: [1, 2]"


def test_a_failure_is_told() -> None:
    content = '{"error": {"kind": "ToolError", "message": "There is no order."}}'
    said = report([Finding(tool="issue_refund", content=content, failed=True)])
    assert said == "issue_refund did not work: There is no order."


def test_a_refusal_is_told_and_not_tried_again() -> None:
    content = '{"error": {"kind": "ApprovalDenied", "message": "not late"}}'
    said = report([Finding(tool="issue_refund", content=content, failed=True)])
    assert said == "issue_refund was refused and is not tried again: not late"


def test_a_missing_result_is_told() -> None:
    assert "no result came back" in report([Finding(tool="issue_refund", content=None)])


def test_a_long_result_is_cut() -> None:
    assert len(report([Finding(tool="x", content="y" * 10_000)])) < 1_000
