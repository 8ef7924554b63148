"""How each tool is governed: its effects, its approval rule, its limits. Edit this with tools.py.

Every tool needs exactly one ToolSpec; a tool without one fails at start-up.
"""

from __future__ import annotations

from typing import Final

from adapter import ApprovalRule, Effects, Policy, Retry, ToolSpec

__all__ = ["ORDER_SPECS", "POLICY", "SPECS"]

SPECS: Final = (
    ToolSpec(
        name="get_weather",
        effects=Effects(read_only=True, open_world=True),
        approval=None,
        timeout=15.0,
        retries=Retry(max_attempts=2),
    ),
    ToolSpec(name="calculate", effects=Effects(read_only=True), approval=None, timeout=5.0),
    ToolSpec(name="search_database", effects=Effects(read_only=True), approval=None),
    ToolSpec(name="create_ticket", effects=Effects(idempotent=True), approval=None),
    ToolSpec(
        name="issue_refund",
        effects=Effects(destructive=True),
        # To ask only above an amount, give the rule a condition (from adapter import Condition):
        # when=Condition(argument="amount_cents", op="gt", value=…)
        approval=ApprovalRule(name="refunds", reason="A refund pays money out."),
    ),
    ToolSpec(
        name="delete_customer",
        effects=Effects(destructive=True),
        approval=ApprovalRule(
            name="deletions",
            reason="A deleted customer cannot be brought back.",
        ),
    ),
)

ORDER_SPECS: Final = (
    ToolSpec(name="shipping_rate", effects=Effects(read_only=True), approval=None, timeout=5.0),
    ToolSpec(
        name="place_order",
        effects=Effects(idempotent=True),
        approval=ApprovalRule(name="orders", reason="An order takes goods and money."),
    ),
)
"""The tools of the flow in flows.py."""

POLICY: Final = Policy()
