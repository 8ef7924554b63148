"""The prompt and the per-run context."""

from __future__ import annotations

from dataclasses import fields

from agent.context import Context
from agent.prompts import SYSTEM_PROMPT
from agent.seed import ORDER_COUNT, orders


def test_the_prompt_names_the_gated_tools() -> None:
    assert "issue_refund" in SYSTEM_PROMPT
    assert "delete_customer" in SYSTEM_PROMPT


def test_every_context_field_has_a_default_and_a_description() -> None:
    assert Context() == Context(customer_name=None, language="English")
    assert all(field.metadata["description"] for field in fields(Context))


def test_the_seed_is_the_same_every_time() -> None:
    assert orders() == orders()
    assert len({row[0] for row in orders()}) == ORDER_COUNT
