"""A key signs for one purpose; the algorithm comes from the key; revoked keys do nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adapter.core.errors import ConfigurationError
from adapter.core.keys import MIN_SECRET, PURPOSES, Key, KeyRing, new_document

SECRET = bytes(range(32))


def key(kid: str = "k1", **fields: Any) -> Key:
    return Key(kid=kid, **({"purpose": "decision", "secret": SECRET} | fields))


def test_a_signature_of_a_known_key_verifies() -> None:
    ring = KeyRing([key()])
    assert ring.verify("decision", b"m", ring.sign("decision", b"m"))


@pytest.mark.parametrize(
    "change",
    [
        {"kid": "other"},
        {"kid": None},
        {"kid": ["k1"]},
        {"alg": "none"},
        {"alg": None},
        {"mac": "0" * 64},
        {"mac": "z" * 64},
        {"mac": ""},
        {"mac": None},
        {"mac": b"0" * 64},
        {"mac": " " * 64},
    ],
)
def test_a_changed_signature_does_not_verify(change: dict[str, Any]) -> None:
    ring = KeyRing([key()])
    assert not ring.verify("decision", b"m", ring.sign("decision", b"m") | change)


def test_a_revoked_key_does_not_verify() -> None:
    signature = KeyRing([key()]).sign("decision", b"m")
    assert not KeyRing([key(revoked_at=1)]).verify("decision", b"m", signature)


def test_a_key_of_another_purpose_does_not_verify() -> None:
    ring = KeyRing([key(), key("s", purpose="seal")])
    assert not ring.verify("seal", b"m", ring.sign("decision", b"m"))


def test_the_newest_unrevoked_key_signs() -> None:
    ring = KeyRing([key("b", created_at=2), key("a", created_at=1), key("c", created_at=3, revoked_at=4)])
    assert ring.newest("decision").kid == "b"


def test_the_oldest_unrevoked_key_makes_digests() -> None:
    ring = KeyRing([key("b", created_at=2), key("a", created_at=1, revoked_at=3)])
    assert ring.oldest("decision").kid == "b"


@pytest.mark.parametrize("ask", ["newest", "oldest"])
def test_a_purpose_without_a_key_is_named(ask: str) -> None:
    with pytest.raises(ConfigurationError, match="'seal'"):
        getattr(KeyRing([key(), key("s", purpose="seal", revoked_at=1)]), ask)("seal")


def test_required_purposes_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="'audit'"):
        KeyRing([key()]).require("decision", "audit")


def test_a_derived_ring_has_every_purpose() -> None:
    KeyRing.from_secret(SECRET).require(*PURPOSES)


def test_a_shared_secret_gives_the_same_ring_everywhere() -> None:
    signature = KeyRing.from_secret(SECRET).sign("seal", b"m")
    assert KeyRing.from_secret(SECRET).verify("seal", b"m", signature)


def test_random_rings_do_not_know_each_other() -> None:
    assert not KeyRing.random().verify("seal", b"m", KeyRing.random().sign("seal", b"m"))


@pytest.mark.parametrize("secret", [SECRET[: MIN_SECRET - 1], b"a" * 32, b"abcd" * 8])
def test_a_short_or_placeholder_secret_is_refused(secret: bytes) -> None:
    with pytest.raises(ConfigurationError, match="too short or a placeholder") as caught:
        key(secret=secret)
    assert secret.decode(errors="replace") not in str(caught.value)


@pytest.mark.parametrize("change", [{"kid": ""}, {"purpose": "love"}, {"alg": "none"}])
def test_what_is_no_key_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="A key needs"):
        replace(key(), **change)


@pytest.mark.parametrize("purpose", ["decision", "seal"])
def test_two_keys_need_different_ids(purpose: Any) -> None:
    with pytest.raises(ConfigurationError, match="same kid"):
        KeyRing([key(), key(purpose=purpose)])


def test_a_ring_shows_ids_only() -> None:
    assert repr(KeyRing([key()])) == "KeyRing(['decision:k1'])"
    assert "secret" not in repr(key())


def test_a_new_document_is_a_complete_ring() -> None:
    KeyRing.from_document(new_document(5)).require(*PURPOSES)


def test_a_revoked_key_of_a_document_stays_revoked() -> None:
    document = new_document(5)
    document["keys"][0]["revoked_at"] = 6
    with pytest.raises(ConfigurationError, match="'seal'"):
        KeyRing.from_document(document).require("seal")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": 2, "keys": []},
        {"version": 1},
        {"version": 1, "keys": [{"kid": "x"}]},
        {"version": 1, "keys": 5},
        {"version": 1, "keys": ["x"]},
        {"version": 1, "keys": [{**new_document(1)["keys"][0], "secret": "a"}]},
        {"version": 1, "keys": [{**new_document(1)["keys"][0], "created_at": "soon"}]},
        [],
    ],
)
def test_another_document_is_refused_without_quoting_it(document: Any) -> None:
    with pytest.raises(ConfigurationError, match="not of the form"):
        KeyRing.from_document(document)
