"""A reviewer's tool signs only what the server sealed and offers."""

from __future__ import annotations

import pytest

from adapter.core.approvals import ApprovalDecision, sign_decision
from adapter.core.errors import InvalidAnswer
from adapter.core.keys import KeyRing
from adapter.core.signing import check_answer, sealed_value

KEYS = KeyRing.from_secret(bytes(range(32)))
VALUE = sealed_value(KEYS, "b" * 64, {"tool": "send", "allowed": ["approve", "reject"]})


def test_a_sealed_request_is_signed_for_the_reviewer() -> None:
    value = sign_decision(
        KEYS, VALUE, ApprovalDecision(approved=True), decided_at=5, reviewer="rita"
    )
    decision = check_answer(KEYS, "b" * 64, value)
    assert decision is not None
    assert decision["reviewer"] == "rita"


def test_the_decision_may_name_its_reviewer() -> None:
    decision = ApprovalDecision(approved=True, reviewer="sam")
    value = sign_decision(KEYS, VALUE, decision, decided_at=5, reviewer="rita")
    assert value["decision"]["reviewer"] == "sam"


def test_a_decision_that_is_not_offered_is_not_signed() -> None:
    with pytest.raises(InvalidAnswer, match="allows approve, reject; a decision of kind edit"):
        sign_decision(KEYS, VALUE, ApprovalDecision(edited_args={}), decided_at=5, reviewer="rita")


def test_an_unsealed_request_is_not_signed() -> None:
    with pytest.raises(InvalidAnswer, match="sealed by the server's key"):
        sign_decision(
            KEYS,
            {**VALUE, "binding": "c"},
            ApprovalDecision(approved=True),
            decided_at=5,
            reviewer="rita",
        )
