"""Laws of signatures: nothing but the signed bytes, key, purpose and algorithm verifies."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.core.algorithms import Algorithm, Key, Purpose
from adapter.core.keychange import enrol, revoke, rotate
from adapter.core.keys import PURPOSES, KeyRing, new_document
from adapter.core.signing import check_answer, sign_answer

SIGNED: tuple[Purpose, ...] = ("seal", "decision", "audit")
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)

messages = st.binary(max_size=200)
secrets = st.binary(min_size=32, max_size=32).filter(lambda found: len(set(found)) > 4)
algorithms = st.sampled_from(ALGORITHMS)
purposes = st.sampled_from(SIGNED)
junk = st.none() | st.booleans() | st.integers() | st.text(max_size=140) | st.binary(max_size=64)


def key(alg: Algorithm, purpose: Purpose, secret: bytes, kid: str = "k") -> Key:
    return Key(kid=kid, alg=alg, purpose=purpose, secret=secret)


def ring(alg: Algorithm, purpose: Purpose, secret: bytes) -> KeyRing:
    return KeyRing([key(alg, purpose, secret)])


@given(algorithms, purposes, secrets, messages)
def test_what_a_key_signs_it_verifies(
    alg: Algorithm, purpose: Purpose, secret: bytes, message: bytes
) -> None:
    keys = ring(alg, purpose, secret)
    assert keys.verify(purpose, message, keys.sign(purpose, message))


@given(algorithms, purposes, secrets, messages, st.data())
def test_any_changed_byte_of_the_message_is_noticed(
    alg: Algorithm, purpose: Purpose, secret: bytes, message: bytes, data: st.DataObject
) -> None:
    keys = ring(alg, purpose, secret)
    signature = keys.sign(purpose, message)
    changed = bytearray(message + b"\0")
    place = data.draw(st.integers(0, len(message)))
    changed[place] ^= data.draw(st.integers(1, 255))
    assert not keys.verify(purpose, bytes(changed), signature)
    assert not keys.verify(purpose, message + b"\0", signature)


@given(algorithms, purposes, secrets, messages, st.data())
def test_any_changed_byte_of_the_signature_is_noticed(
    alg: Algorithm, purpose: Purpose, secret: bytes, message: bytes, data: st.DataObject
) -> None:
    keys = ring(alg, purpose, secret)
    signature = keys.sign(purpose, message)
    changed = bytearray(signature["mac"].encode())
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 127))
    assert not keys.verify(purpose, message, {**signature, "mac": changed.decode()})


@given(algorithms, algorithms, purposes, purposes, secrets, messages)
def test_no_purpose_or_algorithm_verifies_for_another(
    alg: Algorithm,
    other_alg: Algorithm,
    purpose: Purpose,
    other: Purpose,
    secret: bytes,
    message: bytes,
) -> None:
    signature = ring(alg, purpose, secret).sign(purpose, message)
    verifier = ring(other_alg, other, secret)
    for named in ALGORITHMS:
        good = verifier.verify(other, message, {**signature, "alg": named})
        assert good is ((alg, purpose) == (other_alg, other) and named == alg)


@given(purposes, secrets, messages)
def test_the_public_half_is_no_secret(purpose: Purpose, secret: bytes, message: bytes) -> None:
    own = key("Ed25519", purpose, secret)
    verifier = KeyRing([Key(kid="k", alg="Ed25519", purpose=purpose, public=own.public)])
    forged = key("HS256", purpose, own.public).mac(message)
    for alg in (*ALGORITHMS, "none", None):
        for mac in (forged, forged + forged, ""):
            assert not verifier.verify(purpose, message, {"kid": "k", "alg": alg, "mac": mac})
    assert verifier.verify(purpose, message, KeyRing([own]).sign(purpose, message))


@given(algorithms, secrets, messages, st.dictionaries(st.sampled_from(["kid", "alg", "mac"]), junk))
def test_junk_is_no_signature_and_no_error(
    alg: Algorithm, secret: bytes, message: bytes, given_: dict[str, Any]
) -> None:
    keys = ring(alg, "decision", secret)
    assert not keys.verify("decision", message, given_)
    assert not keys.verify("decision", message, {"kid": "k", "alg": alg, **given_, "mac": "ff"})


@given(st.lists(st.sampled_from(["rotate", "enrol", "revoke"]), max_size=6), st.data())
def test_whatever_was_done_to_a_ring_its_document_is_the_ring(
    steps: list[str], data: st.DataObject
) -> None:
    keys = KeyRing.from_document(new_document(1))
    for place, step in enumerate(steps):
        before = keys
        if step == "rotate":
            keys, _ = rotate(keys, [data.draw(st.sampled_from(PURPOSES))], now=place)
        elif step == "enrol":
            keys = enrol(keys, data.draw(st.sampled_from(["al", "bo"])), ["x"], now=place).ring
        elif left := [found.kid for found in keys.keys if found.revoked_at is None]:
            keys, _ = revoke(keys, data.draw(st.sampled_from(left)), now=place)
        # Nothing is ever lost, and nothing revoked comes back.
        after = {found.kid: found for found in keys.keys}
        for found in before.keys:
            assert found.kid in after
            assert found.revoked_at is None or after[found.kid].revoked_at is not None
    again = KeyRing.from_document(keys.to_document())
    assert (again.keys, again.reviewers) == (keys.keys, keys.reviewers)


@given(st.text(min_size=1, max_size=20), secrets)
def test_an_answer_under_a_persons_key_names_exactly_that_person(name: str, secret: bytes) -> None:
    own = Key(kid="a", alg="Ed25519", purpose="decision", secret=secret, reviewer="alice")
    shared = Key(kid="k", purpose="decision", secret=bytes(range(32)))
    server = KeyRing([shared, Key(
        kid="a", alg="Ed25519", purpose="decision", public=own.public, reviewer="alice"
    )])  # fmt: skip
    decision = {"reviewer": name}
    hers = check_answer(server, "b", sign_answer(KeyRing([own]), "b", decision))
    assert (hers is not None) is (name == "alice")
    theirs = check_answer(server, "b", sign_answer(KeyRing([shared]), "b", {"reviewer": "alice"}))
    assert theirs is None


@pytest.mark.parametrize("alg", ALGORITHMS)
def test_an_answer_may_leave_its_algorithm_to_nobody(alg: Algorithm) -> None:
    keys = ring(alg, "decision", bytes(range(32)))
    answer = sign_answer(keys, "b", {"reviewer": "r"})
    assert check_answer(keys, "b", answer) is not None
    for other in ("none", "", "HS512", *(set(ALGORITHMS) - {alg})):
        assert check_answer(keys, "b", {**answer, "alg": other}) is None
