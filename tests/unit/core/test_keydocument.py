"""keys.json: old files load, new ones round-trip, and nothing unknown is passed over."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.core.errors import ConfigurationError
from adapter.core.keydocument import decoded, encoded, written
from adapter.core.keys import PURPOSES, Key, KeyRing, new_document

SEED = bytes(range(100, 132))
OWN = Key(
    kid="a1", alg="Ed25519", purpose="decision", secret=SEED, reviewer="alice", roles=("finance",)
)


def document(**change: Any) -> dict[str, Any]:
    made = new_document(5)
    made["keys"][0] |= change
    return made


def test_a_new_document_is_a_complete_ring() -> None:
    KeyRing.from_document(new_document(5)).require(*PURPOSES)


def test_a_document_of_the_first_version_loads() -> None:
    old = {
        "version": 1,
        "keys": [
            {
                "kid": "seal-1",
                "alg": "HS256",
                "purpose": "seal",
                "secret": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
                "created_at": 1,
                "revoked_at": None,
            }
        ],
    }
    ring = KeyRing.from_document(old)
    assert ring.newest("seal").secret == bytes(range(32))
    assert ring.to_document() == old


def test_a_document_comes_back_as_it_was() -> None:
    ring = KeyRing.from_document(new_document(5)).changed(
        [OWN, Key(kid="gone", purpose="seal", secret=SEED, revoked_at=9)],
        {"bob": ["support", "finance"]},
    )
    made = ring.to_document()
    again = KeyRing.from_document(made)
    assert again.keys == ring.keys
    assert again.reviewers == ring.reviewers
    assert again.to_document() == made
    assert made["reviewers"] == {"bob": {"roles": ["finance", "support"]}}


def test_a_public_half_is_written_without_a_secret() -> None:
    half = Key(kid="a1", alg="Ed25519", purpose="decision", public=OWN.public, reviewer="alice")
    (item,) = written([half], {})["keys"]
    assert "secret" not in item
    assert item["public"] == encoded(OWN.public)
    assert item["roles"] == []


def test_a_revoked_key_of_a_document_stays_revoked() -> None:
    with pytest.raises(ConfigurationError, match="'seal'"):
        KeyRing.from_document(document(revoked_at=6)).require("seal")


def test_a_later_version_asks_for_an_upgrade() -> None:
    with pytest.raises(ConfigurationError, match="upgrade the adapter"):
        KeyRing.from_document({"version": 2, "other": []})


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"version": 1},
        {"version": True, "keys": []},
        {"version": "1", "keys": []},
        {"version": 1, "keys": [{"kid": "x"}]},
        {"version": 1, "keys": 5},
        {"version": 1, "keys": ["x"]},
        {"version": 1, "keys": [], "more": 1},
        {"version": 1, "keys": [], "reviewers": []},
        {"version": 1, "keys": [], "reviewers": {"bob": {}}},
        {"version": 1, "keys": [], "reviewers": {"bob": {"roles": "finance"}}},
        document(secret="a"),
        document(secret="not base64!"),
        document(secret=None),
        document(kid=5),
        document(alg=["HS256"], purpose=["seal"]),
        document(created_at="soon"),
        document(created_at="5"),
        document(revoked_at="yesterday"),
        document(revoked_at=True),
        document(revoked=6),
        document(reviewer="alice", purpose="decision", roles={"finance": 1}),
        [],
    ],
)
def test_another_document_is_refused_without_quoting_it(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="not of the form"):
        KeyRing.from_document(bad)


@pytest.mark.parametrize("name", ["", "a,b"])
def test_a_name_in_a_document_is_a_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match="reviewer is a name"):
        KeyRing.from_document({"version": 1, "keys": [], "reviewers": {name: {"roles": []}}})


def test_base64_is_read_in_both_alphabets() -> None:
    assert decoded("-_8=") == decoded("+/8=") == b"\xfb\xff"
