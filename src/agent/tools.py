"""The agent's tools: what each takes, and what it does.

Add a tool here, and its rules in policies.py. A tool raises `ToolError` to tell the model what to
do differently; whether, when and how often a tool runs is decided elsewhere.

Annotations must stay resolvable at run time here: LangChain reads them.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from adapter import current_context
from adapter.core.errors import ToolError
from agent.arithmetic import MAX_CHARS, ExpressionError, evaluate
from agent.database import AcmeDatabase, AcmeError, Priority, Table
from agent.weather import OpenMeteo, Unit

__all__ = ["build_order_tools", "build_tools"]


class _Arguments(BaseModel):
    """Nothing is converted and nothing extra is taken: what was reviewed is what runs."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


def _text(longest: int) -> StringConstraints:
    """Some text that is not blank."""
    return StringConstraints(min_length=1, max_length=longest, pattern=r"\S")


class GetWeather(_Arguments):
    """Arguments of get_weather."""

    location: Annotated[str, _text(100)] = Field(description="A city, such as 'New York'.")
    unit: Unit = Field(default="celsius", description="Unit of the temperature.")


class Calculate(_Arguments):
    """Arguments of calculate."""

    expression: str = Field(
        min_length=1,
        max_length=MAX_CHARS,
        description="Numbers with + - * / and parentheses, such as '(5*49.99)+3'.",
    )


class SearchDatabase(_Arguments):
    """Arguments of search_database."""

    query: str = Field(
        max_length=200,
        description="Words to look for, such as a name or an order id; empty lists the first rows.",
    )
    table: Table = Field(default="products", description="Where to look.")


class CreateTicket(_Arguments):
    """Arguments of create_ticket."""

    customer_name: Annotated[str, _text(100)] = Field(description="Name of the customer.")
    subject: Annotated[str, _text(200)] = Field(description="The problem in one line.")
    priority: Priority = Field(default="medium", description="How urgent it is.")
    description: str = Field(default="", max_length=4_000, description="The problem in full.")


class IssueRefund(_Arguments):
    """Arguments of issue_refund."""

    order_id: Annotated[str, _text(40)] = Field(description="The order, such as 'A-1001'.")
    amount_cents: int = Field(
        gt=0, le=100_000_000, description="Whole cents to pay back; 1250 means 12.50."
    )
    reason: Annotated[str, _text(500)] = Field(description="Why, for the books.")


class DeleteCustomer(_Arguments):
    """Arguments of delete_customer."""

    customer_id: int = Field(ge=1, le=2**53, description="The customer's number, such as 101.")


class ShippingRate(_Arguments):
    """Arguments of shipping_rate."""

    product_id: int = Field(ge=1, le=2**53, description="The product's number, such as 1.")
    quantity: int = Field(gt=0, le=10_000, description="How many of it.")


class OrderLine(ShippingRate):
    """One item of place_order."""

    shipping_cents: int = Field(ge=0, le=100_000_000, description="What its shipping costs.")


class PlaceOrder(_Arguments):
    """Arguments of place_order."""

    customer_id: int = Field(ge=1, le=2**53, description="The customer's number, such as 101.")
    items: list[OrderLine] = Field(min_length=1, max_length=100, description="What is ordered.")


def build_tools(
    database: AcmeDatabase,
    *,
    delay_ms: int = 0,
    sleep: Callable[[float], None] = time.sleep,  # noqa: TID251 - default; runs in tool threads
    http: OpenMeteo | None = None,
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
) -> list[BaseTool]:
    """Make the agent's tools over one database.

    Args:
        database: Acme's books.
        delay_ms: Milliseconds a gated tool takes after its effect, for trying what happens then.
        sleep: Waits for so many seconds.
        http: The weather's client.
        new_id: Gives an idempotency key to a call that runs outside the adapter.

    Returns:
        The tools; every result is JSON text.
    """
    key, dawdle = _key(new_id), _dawdle(delay_ms, sleep)
    return [
        _weather_tool(http or OpenMeteo()),
        StructuredTool.from_function(calculate, args_schema=Calculate),
        *_book_tools(database, key),
        *_gated_tools(database, key, dawdle),
    ]


def build_order_tools(
    database: AcmeDatabase,
    *,
    delay_ms: int = 0,
    sleep: Callable[[float], None] = time.sleep,  # noqa: TID251 - default; runs in tool threads
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
) -> list[BaseTool]:
    """Make the tools of the flow `order`; its nodes take their results as values, not as text.

    Args:
        database: Acme's books.
        delay_ms: As for `build_tools`.
        sleep: Waits for so many seconds.
        new_id: As for `build_tools`.
    """
    key, dawdle = _key(new_id), _dawdle(delay_ms, sleep)

    def shipping_rate(product_id: int, quantity: int) -> int:
        """Get what it costs to ship so many of a product, in cents."""
        with _books():
            return database.shipping_rate(product_id, quantity)

    def place_order(customer_id: int, items: list[OrderLine]) -> dict[str, Any]:
        """Order items for a customer and take them from stock."""
        lines = [item.model_dump() for item in items]
        with _books():
            placed = database.place_order(customer_id, lines, idempotency_key=key())
        dawdle()
        return placed

    return [
        StructuredTool.from_function(shipping_rate, args_schema=ShippingRate),
        StructuredTool.from_function(place_order, args_schema=PlaceOrder),
    ]


def _key(new_id: Callable[[], str]) -> Callable[[], str]:
    def key() -> str:
        context = current_context()
        return context.idempotency_key if context is not None else new_id()

    return key


def _dawdle(delay_ms: int, sleep: Callable[[float], None]) -> Callable[[], None]:
    def dawdle() -> None:
        if delay_ms > 0:
            sleep(delay_ms / 1000)

    return dawdle


def calculate(expression: str) -> str:
    """Do a sum with + - * / and parentheses, exactly as written."""
    try:
        value = evaluate(expression)
    except ExpressionError as error:
        raise ToolError(f"Cannot calculate this: {error}.") from error
    # 5*49.99 is 249.95 to a customer, not 249.95000000000002.
    shown = round(value, 10) if isinstance(value, float) else value
    return _json({"expression": expression, "result": shown})


def _weather_tool(weather: OpenMeteo) -> BaseTool:
    def get_weather(location: str, unit: Unit = "celsius") -> str:
        """Get the weather of a place now: temperature, condition and humidity."""
        return _json(weather.now(location, unit))

    async def aget_weather(location: str, unit: Unit = "celsius") -> str:
        return _json(await weather.anow(location, unit))

    return StructuredTool.from_function(get_weather, coroutine=aget_weather, args_schema=GetWeather)


def _book_tools(database: AcmeDatabase, key: Callable[[], str]) -> list[BaseTool]:
    def search_database(query: str, table: Table = "products") -> str:
        """Search Acme's products, customers or orders by words. Money is in cents."""
        with _books():
            return _json(database.search(query, table))

    def create_ticket(
        customer_name: str, subject: str, priority: Priority = "medium", description: str = ""
    ) -> str:
        """Open a support ticket and get its id."""
        with _books():
            return _json(
                database.create_ticket(
                    customer_name, subject, priority, description, idempotency_key=key()
                )
            )

    return [
        StructuredTool.from_function(search_database, args_schema=SearchDatabase),
        StructuredTool.from_function(create_ticket, args_schema=CreateTicket),
    ]


def _gated_tools(
    database: AcmeDatabase, key: Callable[[], str], dawdle: Callable[[], None]
) -> list[BaseTool]:
    def issue_refund(order_id: str, amount_cents: int, reason: str) -> str:
        """Pay part or all of an order back, never more than was paid."""
        with _books():
            done = database.refund(order_id, amount_cents, reason, idempotency_key=key())
        dawdle()
        return _json(done)

    def delete_customer(customer_id: int) -> str:
        """Delete a customer's record for good; their orders stay."""
        with _books():
            done = database.delete_customer(customer_id)
        dawdle()
        return _json(done)

    return [
        StructuredTool.from_function(issue_refund, args_schema=IssueRefund),
        StructuredTool.from_function(delete_customer, args_schema=DeleteCustomer),
    ]


@contextmanager
def _books() -> Iterator[None]:
    """What the books refuse is told to the model."""
    try:
        yield
    except AcmeError as error:
        raise ToolError(str(error)) from error


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
