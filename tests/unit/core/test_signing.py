"""What each signature covers: bindings, seals and answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.bindings import BINDING, HEX, KEYS

from adapter.core.errors import InvalidAnswer
from adapter.core.keys import KeyRing
from adapter.core.signing import (
    answer_digest,
    check_answer,
    check_seal,
    from_iso,
    sealed_value,
    sign_answer,
    to_iso,
)

OTHERS = KeyRing.from_secret(bytes(range(1, 33)))
REQUEST = {"tool": "send", "arguments": {"to": "bob"}, "allowed": ["approve"]}
DECISION = {"kind": "approve", "approved": True}


def test_a_binding_is_the_same_whatever_order_its_decisions_are_offered_in() -> None:
    assert replace(BINDING, allowed=("reject", "approve")).hex() == HEX


def test_a_sealed_request_passes_whole() -> None:
    value = sealed_value(KEYS, HEX, REQUEST)
    assert check_seal(KEYS, value) == value


@pytest.mark.parametrize(
    "change",
    [
        {"type": "other"},
        {"binding": "0" * 64},
        {"binding": None},
        {"request": {**REQUEST, "arguments": {"to": "eve"}}},
        {"request": {"n": float("nan")}},
        {"request": {"n": "\ud800"}},
        {"request": None},
        {"seal": None},
        {"seal": {}},
    ],
)
def test_an_altered_request_is_not_signed(change: dict[str, Any]) -> None:
    value = sealed_value(KEYS, HEX, REQUEST) | change
    with pytest.raises(InvalidAnswer, match="no approval request sealed by the server's key"):
        check_seal(KEYS, value)


@pytest.mark.parametrize("value", [None, "x", [], sealed_value(OTHERS, HEX, REQUEST)])
def test_what_this_server_did_not_seal_is_not_signed(value: object) -> None:
    with pytest.raises(InvalidAnswer):
        check_seal(KEYS, value)


def test_a_bound_and_signed_answer_gives_its_decision() -> None:
    assert check_answer(KEYS, HEX, sign_answer(KEYS, HEX, DECISION)) == DECISION


@pytest.mark.parametrize(
    "change",
    [
        {"binding": "0" * 64},
        {"binding": 5},
        {"decision": {**DECISION, "approved": False}},
        {"decision": None},
        {"decision": {"n": float("nan")}},
        {"decision": {"n": "\ud800"}},
        {"kid": "other"},
        {"alg": "Ed25519"},
        {"mac": "0" * 64},
        {"extra": 1},
    ],
)
def test_an_altered_answer_counts_for_nothing(change: dict[str, Any]) -> None:
    assert check_answer(KEYS, HEX, sign_answer(KEYS, HEX, DECISION) | change) is None


@pytest.mark.parametrize("value", [None, True, "approve", ["approve"], DECISION])
def test_a_bare_value_counts_for_nothing(value: object) -> None:
    assert check_answer(KEYS, HEX, value) is None


def test_an_answer_to_another_question_counts_for_nothing() -> None:
    other = replace(BINDING, tool_call_id="c2").hex()
    assert check_answer(KEYS, HEX, sign_answer(KEYS, other, DECISION)) is None


def test_an_answer_under_another_ring_counts_for_nothing() -> None:
    assert check_answer(KEYS, HEX, sign_answer(OTHERS, HEX, DECISION)) is None


def test_a_seal_is_no_answer() -> None:
    seal = KEYS.sign("seal", b"x")
    value = sign_answer(KEYS, HEX, DECISION) | {"mac": seal["mac"]}
    assert check_answer(KEYS, HEX, value) is None


@pytest.mark.parametrize("junk", ["\ud800", float("nan"), object(), {1: 2}])
def test_junk_has_a_digest_too(junk: object) -> None:
    assert len(answer_digest(junk)) == 64


def test_different_answers_have_different_digests() -> None:
    assert answer_digest({"a": 1}) != answer_digest({"a": 2})


def test_a_time_survives_its_text() -> None:
    assert to_iso(1_800_000_000_007) == "2027-01-15T08:00:00.007Z"
    assert from_iso(to_iso(1_800_000_000_007)) == 1_800_000_000_007


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    assert from_iso("2027-01-15T10:00:00+02:00") == from_iso("2027-01-15T08:00:00Z")


@pytest.mark.parametrize("text", ["2027-01-15T08:00:00", "soon", ""])
def test_a_time_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"zone|Invalid"):
        from_iso(text)
