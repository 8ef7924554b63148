"""What a run gives back."""

from __future__ import annotations

from tests.unit.flow.kit import Order

from adapter.flow import FlowResult, Pending


def test_a_question_is_read_from_the_value_of_a_pause() -> None:
    request = {"kind": "gate", "tool": "place", "arguments": {"n": 1}}
    value = {"type": "agent_adapter.approval", "request": request}
    asked = Pending.of_value(value, "place", "id-1")
    assert (asked.kind, asked.node, asked.tool) == ("gate", "place", "place")
    assert (asked.arguments, asked.interrupt_id, asked.value) == ({"n": 1}, "id-1", value)


def test_a_foreign_value_is_a_question_about_nothing() -> None:
    asked = Pending.of_value({"mine": 1}, "place")
    assert (asked.kind, asked.tool, asked.arguments) == ("tool", "", {})


def test_the_first_question_is_the_pending_one() -> None:
    first = Pending.of_value({}, "a")
    result = FlowResult(status="paused", state=Order(), pendings=(first, Pending.of_value({}, "b")))
    assert result.pending is first
