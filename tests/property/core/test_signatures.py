"""A signature holds exactly as long as nothing was changed; only signed answers count."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.property.core.test_canonical import ANYTHING, JSON
from tests.support.bindings import BINDING, HEX, KEYS

from adapter.core.answers import AnswerCheck
from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import InvalidAnswer, ToolArgsInvalid
from adapter.core.keys import PURPOSES, Key, KeyRing, Purpose
from adapter.core.people import People
from adapter.core.signing import (
    Binding,
    answer_digest,
    check_answer,
    check_seal,
    sealed_value,
    sign_answer,
    to_iso,
)
from adapter.core.types import JsonObject

PAIR = Key(kid="own", alg="Ed25519", purpose="decision", secret=bytes(range(32)), reviewer="rita")
SEAL = Key(kid="seal2", alg="Ed25519", purpose="seal", secret=bytes(range(1, 33)))
ED = KeyRing([PAIR, SEAL])
RINGS = st.sampled_from([KEYS, ED])
NOW = 1_800_000_000_000
OTHER: dict[str, st.SearchStrategy[Any]] = {
    "allowed": st.sets(st.sampled_from(["approve", "edit", "reject", "respond"]), min_size=1).map(
        tuple
    ),
    "quorum": st.integers(1, 9),
    "issued_at": st.integers(0, 9),
    "expires_at": st.none() | st.integers(0, 9),
    "approval_id": st.none() | st.text(max_size=5),
}


@given(st.sampled_from([field.name for field in fields(Binding)]), st.data())
def test_a_binding_changes_with_every_field(name: str, data: st.DataObject) -> None:
    value = data.draw(OTHER.get(name, st.text(max_size=5)))
    before = getattr(BINDING, name)
    same = set(value) == set(before) if name == "allowed" else value == before
    assert (replace(BINDING, **{name: value}).hex() == HEX) is same


@given(st.binary(max_size=40), st.sampled_from(PURPOSES), st.sampled_from(PURPOSES))
def test_a_purpose_verifies_its_own_messages_only(
    message: bytes, mine: Purpose, other: Purpose
) -> None:
    signature = KEYS.sign(mine, message)
    assert KEYS.verify(other, message, signature) is (mine == other)
    # Not even when the kid is set to the other purpose's key.
    moved = signature | {"kid": KEYS.newest(other).kid}
    assert KEYS.verify(other, message, moved) is (mine == other)


@given(RINGS, st.binary(min_size=1, max_size=40), st.integers(0), st.integers(1, 255))
def test_a_flipped_byte_of_the_message_never_verifies(
    keys: KeyRing, message: bytes, place: int, flip: int
) -> None:
    altered = bytearray(message)
    altered[place % len(message)] ^= flip
    signature = keys.sign("decision", message)
    assert keys.verify("decision", message, signature)
    assert not keys.verify("decision", bytes(altered), signature)


@given(RINGS, st.binary(max_size=10), st.integers(0), st.characters())
def test_a_changed_character_of_the_signature_never_verifies(
    keys: KeyRing, message: bytes, place: int, char: str
) -> None:
    signature = keys.sign("decision", message)
    mac = signature["mac"]
    at = place % len(mac)
    assume(mac[at] != char)
    changed = signature | {"mac": mac[:at] + char + mac[at + 1 :]}
    assert not keys.verify("decision", message, changed)


@given(RINGS, st.sampled_from(["kid", "alg", "mac"]), ANYTHING)
def test_any_other_field_of_the_signature_never_verifies(
    keys: KeyRing, name: str, value: Any
) -> None:
    signature: dict[str, Any] = dict(keys.sign("decision", b"m"))
    assume(signature[name] != value)
    assert not keys.verify("decision", b"m", signature | {name: value})


@given(st.sampled_from(PURPOSES), st.binary(max_size=10), st.integers(0, 9))
def test_a_revoked_key_never_verifies(purpose: Purpose, message: bytes, when: int) -> None:
    signature = KEYS.sign(purpose, message)
    gone = KeyRing(
        replace(key, revoked_at=when) if key.purpose == purpose else key for key in KEYS.keys
    )
    assert not gone.verify(purpose, message, signature)


REQUESTS = st.dictionaries(st.text(max_size=5), JSON, max_size=4)


@given(RINGS, REQUESTS, st.text(max_size=5), JSON)
def test_a_seal_holds_until_the_request_changes(
    keys: KeyRing, request: JsonObject, name: str, value: Any
) -> None:
    sealed = sealed_value(keys, HEX, request)
    assert check_seal(keys, sealed) == sealed
    changed = {**request, name: value}
    assume(answer_digest(changed) != answer_digest(request))
    with pytest.raises(InvalidAnswer):
        check_seal(keys, sealed | {"request": changed})


DECISIONS = st.one_of(
    st.builds(ApprovalDecision, approved=st.booleans(), reason=st.none() | st.text(max_size=9)),
    st.builds(ApprovalDecision, response=st.text(max_size=9)),
    st.builds(
        ApprovalDecision,
        edited_args=st.dictionaries(st.sampled_from(["to", "n"]), st.integers(0, 9)),
    ),
)


def signed(decision: ApprovalDecision, keys: KeyRing = KEYS) -> JsonObject:
    return sign_answer(keys, HEX, decision.to_json(decided_at=NOW, reviewer="rita"))


def edit(arguments: JsonObject) -> JsonObject:
    if "to" not in arguments:
        raise ToolArgsInvalid("to: Field required")
    return {"n": 0} | arguments


CHECK = AnswerCheck(
    keys=KEYS,
    binding=HEX,
    allowed=("approve", "edit", "reject", "respond"),
    arguments={"to": 1, "card": 7, "n": 0},
    masks=("card",),
    known=(),
    people=People(),
    now=NOW,
    edit=edit,
)


@given(DECISIONS)
def test_a_signed_answer_counts_and_runs_what_was_signed(decision: ApprovalDecision) -> None:
    valid = decision.edited_args is None or "to" in decision.edited_args
    if not valid:
        with pytest.raises(InvalidAnswer):
            CHECK.check(signed(decision), saved=False)
        return
    answer = CHECK.check(signed(decision), saved=False)
    assert answer.approves is decision.approved
    expected = CHECK.arguments
    if decision.edited_args is not None:
        expected = {"n": 0} | decision.edited_args | {"card": 7}
    assert answer.arguments == expected


@given(RINGS, DECISIONS, st.data())
def test_an_answer_changed_anywhere_never_counts(
    keys: KeyRing, decision: ApprovalDecision, data: st.DataObject
) -> None:
    value = signed(decision, keys)
    assert check_answer(keys, HEX, value) == value["decision"]
    inside = data.draw(st.booleans())
    part = value["decision"] if inside else value
    name = data.draw(st.sampled_from(sorted(part)) | st.text(max_size=5))
    changed_part = {**part, name: data.draw(ANYTHING)}
    changed = {**value, "decision": changed_part} if inside else changed_part
    assume(changed != value)
    assume(answer_digest(changed) != answer_digest(value))
    assert check_answer(keys, HEX, changed) is None
    with pytest.raises(InvalidAnswer) as caught:
        replace(CHECK, keys=keys).check(changed, saved=False)
    assert value["mac"] not in str(caught.value)
    assert replace(CHECK, keys=keys).check(changed, saved=True).void


@given(ANYTHING)
def test_a_bare_value_never_counts(value: Any) -> None:
    with pytest.raises(InvalidAnswer):
        CHECK.check(value, saved=False)
    assert CHECK.check(value, saved=True).void


@given(st.sets(st.sampled_from(["approve", "edit", "reject", "respond"]), min_size=1), DECISIONS)
def test_only_an_offered_kind_counts(allowed: set[Any], decision: ApprovalDecision) -> None:
    assume(decision.edited_args is None or "to" in decision.edited_args)
    check = replace(CHECK, allowed=tuple(allowed))
    if decision.kind in allowed:
        assert check.check(signed(decision), saved=False).decision is not None
    else:
        with pytest.raises(InvalidAnswer):
            check.check(signed(decision), saved=False)


@given(st.integers(-5, 5))
def test_an_answer_counts_until_its_boundary_millisecond(left: int) -> None:
    value = signed(ApprovalDecision(approved=True, expires_at=to_iso(NOW + left)))
    if left > 0:
        assert CHECK.check(value, saved=False).approves
    else:
        with pytest.raises(InvalidAnswer):
            CHECK.check(value, saved=False)


@given(DECISIONS, st.booleans())
def test_an_accepted_answer_counts_for_ever(decision: ApprovalDecision, saved: bool) -> None:
    value = signed(decision)
    late = replace(CHECK, keys=KeyRing([]), known=(answer_digest(value),), now=NOW * 2)
    answer = late.check(value, saved=saved)
    assert answer.accepted_before
    assert answer.decision is not None
    assert answer.decision.kind == decision.kind


@given(st.dictionaries(st.sampled_from(["to", "card", "n"]), st.integers(0, 9), min_size=1))
def test_a_masked_field_cannot_be_edited(edited: dict[str, int]) -> None:
    value = signed(ApprovalDecision(edited_args=edited))
    if "card" in edited or "to" not in edited:
        with pytest.raises(InvalidAnswer):
            CHECK.check(value, saved=False)
    else:
        made = CHECK.check(value, saved=False).arguments
        assert made is not None
        assert made["card"] == 7
