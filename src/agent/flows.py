"""The flow `order`: rate each item, let a person look at the rates, place the order.

Which of its tools ask a person is said in policies.py. Run it here with `flow.run`, or compiled as
the graph `order` of langgraph.json.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from adapter.flow import Call, Flow, Map

__all__ = ["Order", "order_flow"]


class Item(BaseModel):
    """What is wanted, and how much of it."""

    model_config = ConfigDict(extra="forbid")

    product_id: int = Field(ge=1)
    quantity: int = Field(default=1, ge=1)


class Order(BaseModel):
    """The state of one order.

    Attributes:
        customer_id: Who orders.
        items: What is ordered.
        rates: What shipping costs in cents, for each item in its order.
        shipping_cents: All of it.
        receipt: The ids of the new orders, and what was paid.
    """

    customer_id: int = Field(ge=1)
    items: list[Item] = Field(min_length=1, max_length=100)
    rates: list[int] = Field(default_factory=list)
    shipping_cents: int = 0
    receipt: dict[str, Any] = Field(default_factory=dict)


def order_flow() -> Flow:
    """Return the flow."""
    return (
        Flow("order", state=Order)
        .node("rate", Map("items", tool="shipping_rate", into="rates"))
        .node("review", add_up, pause=what_it_costs)
        .node("place", Call("place_order", arguments=order_lines, into="receipt"))
        .edge("rate", "review")
        .edge("review", "place")
        .end("place")
    )


def what_it_costs(order: Order) -> dict[str, Any]:
    """What the reviewer reads, and may edit."""
    return {"items": order.items, "rates": order.rates}


def add_up(order: Order) -> dict[str, Any]:
    """Take the rates that were let through, one for each item.

    Raises:
        ValueError: An edit left an item without a rate.
    """
    if len(order.rates) != len(order.items):
        raise ValueError("There must be one rate for each item.")
    return {"shipping_cents": sum(order.rates)}


def order_lines(order: Order) -> dict[str, Any]:
    """Arguments of place_order."""
    lines = [
        {**item.model_dump(), "shipping_cents": rate}
        for item, rate in zip(order.items, order.rates, strict=True)
    ]
    return {"customer_id": order.customer_id, "items": lines}
