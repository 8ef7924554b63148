"""Only an answer signed for exactly this question counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adapter.core.answers import Answer, AnswerCheck, completed
from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import InvalidAnswer, PolicyDenied
from adapter.core.keys import KeyRing
from adapter.core.people import People
from adapter.core.signing import answer_digest, sign_answer, to_iso
from adapter.core.types import JsonObject

KEYS = KeyRing.from_secret(bytes(range(32)))
REVOKED = KeyRing(replace(key, revoked_at=1) for key in KEYS._keys)
NOW = 1_800_000_000_000
ARGUMENTS = {"to": "bob", "note": "hi", "card": "4000", "parts": [{"name": "a", "size": 1}]}
YES = ApprovalDecision(approved=True)


def edit(arguments: JsonObject) -> JsonObject:
    if arguments["to"] == "eve":
        raise PolicyDenied("not to eve")
    filled = {"note": "hi", **arguments, "to": arguments["to"].strip()}
    return {**filled, "parts": [{"size": 1, **part} for part in arguments.get("parts", [])]}


CHECK = AnswerCheck(
    keys=KEYS,
    binding="b" * 64,
    allowed=("approve", "edit", "reject"),
    arguments=ARGUMENTS,
    masks=("card", "cvv"),
    known=(),
    people=People(),
    now=NOW,
    edit=edit,
)


def signed(decision: ApprovalDecision, binding: str = "b" * 64) -> JsonObject:
    return sign_answer(KEYS, binding, decision.to_json(decided_at=NOW, reviewer="rita"))


def refused(value: Any, check: AnswerCheck = CHECK) -> None:
    with pytest.raises(InvalidAnswer, match="not a valid signed answer"):
        check.check(value, saved=False)


def test_an_approval_runs_the_bound_arguments() -> None:
    answer = CHECK.check(signed(YES), saved=False)
    assert answer.approves
    assert answer.arguments == ARGUMENTS
    assert answer.raw is not None
    assert answer.raw["reviewer"] == "rita"
    assert answer.kid == "shared-decision"
    assert not answer.accepted_before


def test_a_rejection_counts_and_does_not_approve() -> None:
    answer = CHECK.check(signed(ApprovalDecision(approved=False)), saved=False)
    assert not answer.approves
    assert not answer.void


def test_an_answer_without_a_decision_does_not_approve() -> None:
    assert not Answer(digest="x").approves


@pytest.mark.parametrize("value", [None, True, "yes", {"approved": True}, [], 5, object()])
def test_a_bare_value_is_refused(value: Any) -> None:
    refused(value)


def test_an_answer_bound_elsewhere_is_refused() -> None:
    refused(signed(YES, binding="c" * 64))


def test_an_answer_under_a_revoked_key_is_refused() -> None:
    refused(signed(YES), replace(CHECK, keys=REVOKED))


def test_a_signed_contradiction_is_refused() -> None:
    decision = YES.to_json(decided_at=NOW, reviewer="rita") | {"kind": "reject"}
    refused(sign_answer(KEYS, "b" * 64, decision))


def test_a_kind_that_is_not_offered_is_refused() -> None:
    refused(signed(ApprovalDecision(response="I did it")))


@pytest.mark.parametrize("left", [0, -1])
def test_an_answer_past_its_own_time_is_refused(left: int) -> None:
    refused(signed(ApprovalDecision(approved=True, expires_at=to_iso(NOW + left))))


def test_an_answer_counts_until_its_last_millisecond() -> None:
    value = signed(ApprovalDecision(approved=True, expires_at=to_iso(NOW + 1)))
    assert CHECK.check(value, saved=False).approves


def test_an_edit_runs_as_validated_with_the_bound_masked_arguments() -> None:
    given: JsonObject = {"to": " ann", "note": "so", "parts": []}
    answer = CHECK.check(signed(ApprovalDecision(edited_args=given)), saved=False)
    assert answer.arguments == {"to": "ann", "note": "so", "card": "4000", "parts": []}


@pytest.mark.parametrize(
    "given",
    [
        {"to": "ann", "parts": []},
        {"to": "ann", "note": "so", "parts": [{"name": "b"}]},
        {"to": "ann", "note": "so", "parts": [{"name": "b"}, {"name": "c", "size": 2}]},
    ],
    ids=["an argument", "inside an item", "inside one of other items"],
)
def test_what_an_edit_leaves_out_may_not_run_with_a_value_nobody_was_shown(given: Any) -> None:
    check = replace(
        CHECK, arguments={**ARGUMENTS, "note": "bye", "parts": [{"name": "a", "size": 7}]}
    )
    refused(signed(ApprovalDecision(edited_args=given)), check)


@pytest.mark.parametrize(
    "given",
    [{"to": "ann", "parts": []}, {"to": "ann", "note": "so", "parts": [{"name": "b"}]}],
    ids=["an argument", "inside an item"],
)
def test_what_an_edit_leaves_out_may_run_as_it_was_shown(given: Any) -> None:
    answer = CHECK.check(signed(ApprovalDecision(edited_args=given)), saved=False)
    assert answer.arguments == edit(given | {"card": "4000"})


def test_only_what_is_given_back_exactly_as_it_was_shown_stands_for_the_real_value() -> None:
    bound: JsonObject = {"to": "ann", "login": {"dry": 0, "password": "s3cret"}}
    shown = {"dry": 0, "password": "***"}
    assert completed({"to": "ann", "login": shown}, bound, ()) == bound
    other = {"to": "ann", "login": {**shown, "dry": False}}
    assert repr(completed(other, bound, ())) == repr(other)


def test_a_number_without_a_canonical_form_is_not_what_was_shown() -> None:
    bound: JsonObject = {"to": "ann", "size": 2.0**60}
    assert repr(completed({"size": 2**60}, bound, ())) == repr({"size": 2**60})


def test_a_masked_argument_cannot_be_edited() -> None:
    refused(signed(ApprovalDecision(edited_args={"to": "ann", "card": "***"})))


def test_an_edit_the_policy_denies_is_refused() -> None:
    refused(signed(ApprovalDecision(edited_args={"to": "eve"})))


def known(decision: ApprovalDecision, **fields: Any) -> tuple[JsonObject, AnswerCheck]:
    value = signed(decision)
    return value, replace(CHECK, known=(answer_digest(value),), **fields)


@pytest.mark.parametrize("saved", [True, False])
def test_an_answer_accepted_before_counts_after_its_key_was_revoked(saved: bool) -> None:
    value, check = known(YES, keys=REVOKED)
    answer = check.check(value, saved=saved)
    assert answer.approves
    assert answer.accepted_before


def test_an_answer_accepted_before_counts_after_its_time() -> None:
    value, check = known(ApprovalDecision(approved=True, expires_at=to_iso(NOW)))
    assert check.check(value, saved=True).approves


def test_an_edit_accepted_before_is_not_judged_again() -> None:
    value, check = known(ApprovalDecision(edited_args={"to": "eve"}))
    assert check.check(value, saved=True).arguments == {"to": "eve", "card": "4000"}


def test_a_saved_answer_nobody_accepted_is_void() -> None:
    answer = replace(CHECK, keys=REVOKED).check(signed(YES), saved=True)
    assert answer.void
    assert not answer.approves


def test_a_saved_answer_that_counts_is_not_void() -> None:
    assert CHECK.check(signed(YES), saved=True).approves
