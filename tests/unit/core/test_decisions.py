"""A decision says one thing, and is read as strictly as it is made."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.core.decisions import MAX_TEXT, ApprovalDecision
from adapter.core.errors import InvalidAnswer, ToolUsageError


@pytest.mark.parametrize(
    ("fields", "kind", "approved"),
    [
        ({"approved": True}, "approve", True),
        ({"approved": False}, "reject", False),
        ({"edited_args": {}}, "edit", True),
        ({"response": ""}, "respond", False),
        ({"kind": "reject"}, "reject", False),
        ({"kind": "approve", "approved": True}, "approve", True),
    ],
)
def test_the_kind_is_derived_and_agrees(fields: dict[str, Any], kind: str, approved: bool) -> None:
    decision = ApprovalDecision(**fields)
    assert (decision.kind, decision.approved) == (kind, approved)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "needs a kind"),
        ({"kind": "maybe"}, "not 'maybe'"),
        ({"kind": "approve", "approved": False}, "contradict"),
        ({"kind": "reject", "approved": True}, "contradict"),
        ({"kind": "edit"}, "edited_args is missing"),
        ({"kind": "approve", "edited_args": {}}, "contradict"),
        ({"kind": "respond"}, "response is missing"),
        ({"kind": "reject", "response": "x"}, "contradict"),
        ({"approved": True, "expires_at": "tomorrow"}, "RFC 3339"),
        ({"approved": True, "expires_at": "2027-01-15T08:00:00"}, "RFC 3339"),
        ({"approved": True, "expires_at": 5}, "RFC 3339"),
    ],
)
def test_a_contradiction_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolUsageError, match=words):
        ApprovalDecision(**fields)


@pytest.mark.parametrize(
    "decision",
    [
        ApprovalDecision(approved=True, expires_at="2027-01-15T08:00:00Z"),
        ApprovalDecision(edited_args={"to": "bob"}),
        ApprovalDecision(response="no need", reason="x", reviewer="sam"),
    ],
)
def test_a_decision_survives_its_signed_form(decision: ApprovalDecision) -> None:
    again = ApprovalDecision.from_json(decision.to_json(decided_at=5, reviewer="rita"))
    assert again.kind == decision.kind
    assert again.reviewer == (decision.reviewer or "rita")


GOOD = ApprovalDecision(approved=True).to_json(decided_at=5, reviewer="rita")


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"approved": 1},
        {"approved": None},
        {"approved": False},
        {"kind": None},
        {"kind": "edit"},
        {"kind": "maybe"},
        {"reason": 5},
        {"reason": "x" * (MAX_TEXT + 1)},
        {"response": {}},
        {"expires_at": 5},
        {"expires_at": "soon"},
        {"reviewer": None},
        {"reviewer": ""},
        {"reviewer": "x" * (MAX_TEXT + 1)},
        {"decided_at": None},
        {"decided_at": "soon"},
        {"edited_args": []},
    ],
)
def test_a_signed_form_is_read_strictly(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidAnswer, match="not a valid signed answer"):
        ApprovalDecision.from_json(GOOD | change)


def test_a_signed_form_without_a_field_is_refused() -> None:
    with pytest.raises(InvalidAnswer):
        ApprovalDecision.from_json({k: v for k, v in GOOD.items() if k != "reason"})


def test_the_longest_reason_is_accepted() -> None:
    assert ApprovalDecision.from_json(GOOD | {"reason": "x" * MAX_TEXT}).reason


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"edited_args": "x"}, "edited_args is of type str"),
        ({"response": 5}, "response is of type int"),
    ],
)
def test_a_field_of_another_type_is_refused_when_the_decision_is_made(
    given: Any, said: str
) -> None:
    with pytest.raises(ToolUsageError, match=said):
        ApprovalDecision(**given)
