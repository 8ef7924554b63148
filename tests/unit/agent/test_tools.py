"""The tools: strict arguments, effects in the books, failures the model can read."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ValidationError

from adapter.core.errors import ToolError
from agent import tools as tools_module
from agent.database import AcmeDatabase
from agent.policies import SPECS
from agent.tools import build_tools
from agent.weather import OpenMeteo

OWN = {
    "calculate",
    "create_ticket",
    "delete_customer",
    "get_weather",
    "issue_refund",
    "search_database",
}
"""The template's tools; yours may be beside them."""
REFUND = {"order_id": "A-1001", "amount_cents": 100, "reason": "late"}


def offline(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("no route", request=request)


@pytest.fixture
def acme(tmp_path: Path) -> AcmeDatabase:
    return AcmeDatabase(tmp_path / "acme.db")


@pytest.fixture
def tools(acme: AcmeDatabase) -> dict[str, BaseTool]:
    transport = httpx.MockTransport(offline)
    http = OpenMeteo(transport=transport, async_transport=transport)
    return {tool.name: tool for tool in build_tools(acme, http=http)}


def refunds(acme: AcmeDatabase) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(acme.path)) as db:
        return db.execute("SELECT amount_cents, idempotency_key FROM refunds").fetchall()


def test_the_tools_of_the_template_are_there(tools: dict[str, BaseTool]) -> None:
    assert set(tools) >= OWN


@pytest.mark.parametrize("name", sorted(OWN))
def test_every_tool_of_the_template_and_its_arguments_are_described(
    tools: dict[str, BaseTool], name: str
) -> None:
    function = convert_to_openai_tool(tools[name])["function"]
    assert function["description"]
    for argument in function["parameters"]["properties"].values():
        assert argument["description"]


def test_every_tool_is_governed_by_exactly_one_spec(tools: dict[str, BaseTool]) -> None:
    assert sorted(spec.name for spec in SPECS) == sorted(tools)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("get_weather", {"location": "Oslo"}),
        ("calculate", {"expression": "1+1"}),
        ("search_database", {"query": ""}),
        ("create_ticket", {"customer_name": "Alice", "subject": "Bill"}),
        ("issue_refund", REFUND),
        ("delete_customer", {"customer_id": 101}),
    ],
)
def test_good_arguments_pass_the_schema_and_extra_ones_do_not(
    tools: dict[str, BaseTool], name: str, args: dict[str, Any]
) -> None:
    schema = tools[name].args_schema
    assert isinstance(schema, type)
    assert issubclass(schema, BaseModel)
    schema.model_validate(args)
    with pytest.raises(ValidationError, match="Extra inputs"):
        schema.model_validate({**args, "force": True})


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("get_weather", {"location": " "}),
        ("get_weather", {"location": "Oslo", "unit": "kelvin"}),
        ("calculate", {"expression": 7}),
        ("calculate", {"expression": ""}),
        ("calculate", {"expression": "1" * 201}),
        ("search_database", {"query": "x", "table": "refunds"}),
        ("search_database", {"query": "\ud800"}),
        ("create_ticket", {"customer_name": "Alice", "subject": "Bill", "priority": "now"}),
        ("create_ticket", {"customer_name": "Alice"}),
        ("issue_refund", {**REFUND, "amount_cents": 0}),
        ("issue_refund", {**REFUND, "amount_cents": "many"}),
        ("issue_refund", {**REFUND, "amount_cents": "100"}),
        ("issue_refund", {**REFUND, "amount_cents": True}),
        ("issue_refund", {**REFUND, "amount_cents": 1.5}),
        ("issue_refund", {**REFUND, "amount_cents": 10**20}),
        ("issue_refund", {**REFUND, "reason": ""}),
        ("issue_refund", {**REFUND, "reason": "x" * 501}),
        ("delete_customer", {"customer_id": 0}),
        ("delete_customer", {"customer_id": 2**70}),
    ],
)
def test_bad_arguments_are_refused_unconverted(
    tools: dict[str, BaseTool], name: str, args: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError):
        tools[name].invoke(args)


def test_calculate_shows_a_rounded_sum(tools: dict[str, BaseTool]) -> None:
    result = json.loads(tools["calculate"].invoke({"expression": "5*49.99"}))
    assert result == {"expression": "5*49.99", "result": 249.95}
    assert json.loads(tools["calculate"].invoke({"expression": "6*7"}))["result"] == 42


def test_calculate_says_why_not(tools: dict[str, BaseTool]) -> None:
    with pytest.raises(ToolError, match="Cannot calculate this: division by zero"):
        tools["calculate"].invoke({"expression": "1/0"})


def test_search_returns_rows(tools: dict[str, BaseTool]) -> None:
    found = json.loads(tools["search_database"].invoke({"query": "widget pro"}))
    assert found["results"] == [{"id": 1, "name": "Widget Pro", "price_cents": 4999, "stock": 150}]


def test_a_ticket_is_opened(tools: dict[str, BaseTool]) -> None:
    done = tools["create_ticket"].invoke({"customer_name": "Alice", "subject": "Bill"})
    assert json.loads(done)["ticket_id"] == "TKT-00001"


def test_a_refund_is_paid(tools: dict[str, BaseTool], acme: AcmeDatabase) -> None:
    assert json.loads(tools["issue_refund"].invoke(REFUND))["remaining_cents"] == 4899
    assert [amount for amount, _ in refunds(acme)] == [100]


@pytest.mark.anyio
async def test_the_tools_work_from_an_event_loop(
    tools: dict[str, BaseTool], acme: AcmeDatabase
) -> None:
    await tools["issue_refund"].ainvoke(REFUND)
    assert [amount for amount, _ in refunds(acme)] == [100]


def test_what_the_books_refuse_is_told_to_the_model(tools: dict[str, BaseTool]) -> None:
    with pytest.raises(ToolError, match="4999 cents left"):
        tools["issue_refund"].invoke({**REFUND, "amount_cents": 5000})
    with pytest.raises(ToolError, match="no customer 999"):
        tools["delete_customer"].invoke({"customer_id": 999})


def test_a_customer_is_deleted(tools: dict[str, BaseTool]) -> None:
    assert json.loads(tools["delete_customer"].invoke({"customer_id": 101}))["deleted"] is True


def test_inside_the_adapter_its_idempotency_key_is_used(
    tools: dict[str, BaseTool], acme: AcmeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Context:
        idempotency_key = "the-call"

    monkeypatch.setattr(tools_module, "current_context", Context)
    for _ in range(2):
        tools["issue_refund"].invoke(REFUND)
    assert refunds(acme) == [(100, "the-call")]


def test_outside_the_adapter_every_call_has_a_key_of_its_own(acme: AcmeDatabase) -> None:
    keys = iter(["k1", "k2"])
    refund = {tool.name: tool for tool in build_tools(acme, new_id=lambda: next(keys))}
    for _ in range(2):
        refund["issue_refund"].invoke(REFUND)
    assert refunds(acme) == [(100, "k1"), (100, "k2")]


def test_gated_tools_are_slow_after_their_effect(acme: AcmeDatabase) -> None:
    slept: list[tuple[float, int]] = []
    made = build_tools(
        acme, delay_ms=1500, sleep=lambda seconds: slept.append((seconds, len(refunds(acme))))
    )
    tools = {tool.name: tool for tool in made}
    tools["issue_refund"].invoke(REFUND)
    assert slept == [(1.5, 1)]
    tools["delete_customer"].invoke({"customer_id": 101})
    assert len(slept) == 2
    tools["create_ticket"].invoke({"customer_name": "Alice", "subject": "Bill"})
    tools["search_database"].invoke({"query": ""})
    assert len(slept) == 2


def test_gated_tools_are_quick_by_default(acme: AcmeDatabase) -> None:
    def never(seconds: float) -> None:
        raise AssertionError(seconds)

    tools = {tool.name: tool for tool in build_tools(acme, sleep=never)}
    tools["issue_refund"].invoke(REFUND)


def test_the_weather_offline_is_a_clear_error(tools: dict[str, BaseTool]) -> None:
    with pytest.raises(ToolError, match="may be offline"):
        tools["get_weather"].invoke({"location": "Oslo"})


@pytest.mark.anyio
async def test_the_weather_offline_is_a_clear_error_from_an_event_loop(
    tools: dict[str, BaseTool],
) -> None:
    with pytest.raises(ToolError, match="may be offline"):
        await tools["get_weather"].ainvoke({"location": "Oslo"})
