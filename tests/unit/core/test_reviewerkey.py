"""The reviewer's own document: one person, private keys, and the server's seal pinned."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from adapter.core.errors import ConfigurationError
from adapter.core.keydocument import encoded
from adapter.core.keys import Key
from adapter.core.reviewerkey import pinned, read_reviewer, reviewer_document

SEED = bytes(range(100, 132))
OWN = Key(
    kid="a1", alg="Ed25519", purpose="decision", secret=SEED, reviewer="alice", roles=("finance",)
)
SEAL = Key(kid="s1", alg="Ed25519", purpose="seal", secret=bytes(range(32)))
PASSPHRASE = "correct horse"


def document(**change: Any) -> dict[str, Any]:
    made = reviewer_document(OWN, [SEAL])
    made["keys"][0] |= change
    return made


def locked(pem: bytes, **more: Any) -> dict[str, Any]:
    made = document(encrypted_private=pem.decode(), **more)
    del made["keys"][0]["private"]
    return made


def test_a_document_is_read_back() -> None:
    reviewer = read_reviewer(json.loads(json.dumps(document())))
    assert reviewer.name == "alice"
    own = reviewer.keys.newest("decision")
    assert (own.kid, own.secret, own.reviewer) == ("a1", SEED, "alice")
    assert reviewer.keys.verify(
        "seal", b"m", {"kid": "s1", "alg": "Ed25519", "mac": SEAL.mac(b"m")}
    )


def test_of_the_server_it_holds_the_public_half_only() -> None:
    made = document()
    assert made["server"] == [
        {"kid": "s1", "alg": "Ed25519", "purpose": "seal", "public": encoded(SEAL.public)}
    ]
    assert made["keys"] == [
        {"kid": "a1", "alg": "Ed25519", "purpose": "decision", "private": encoded(SEED)}
    ]


def test_with_a_passphrase_the_private_half_is_encrypted() -> None:
    made = reviewer_document(OWN, [SEAL], passphrase=PASSPHRASE)
    assert "private" not in made["keys"][0]
    assert encoded(SEED) not in json.dumps(made)
    assert read_reviewer(made, PASSPHRASE).keys.newest("decision").secret == SEED


def test_a_file_without_encryption_needs_no_passphrase() -> None:
    assert read_reviewer(document(), PASSPHRASE).keys.newest("decision").secret == SEED


def test_without_the_passphrase_the_setting_is_named() -> None:
    made = reviewer_document(OWN, [SEAL], passphrase=PASSPHRASE)
    for given in (None, ""):
        with pytest.raises(ConfigurationError, match="set ADAPTER_REVIEWER_PASSPHRASE"):
            read_reviewer(made, given)


def test_a_wrong_passphrase_is_refused_and_not_quoted() -> None:
    made = reviewer_document(OWN, [SEAL], passphrase=PASSPHRASE)
    with pytest.raises(ConfigurationError, match="does not open") as caught:
        read_reviewer(made, "hunter2hunter2")
    assert "hunter2" not in caught.value.message


def test_a_short_passphrase_encrypts_nothing() -> None:
    with pytest.raises(ConfigurationError, match="too short"):
        reviewer_document(OWN, [SEAL], passphrase="1234567")


def test_a_key_another_program_encrypted_is_read() -> None:
    pem = Ed25519PrivateKey.from_private_bytes(SEED).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSPHRASE.encode())
    )
    assert read_reviewer(locked(pem), PASSPHRASE).keys.newest("decision").secret == SEED


def test_a_key_of_another_kind_is_refused() -> None:
    pem = generate_private_key(SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSPHRASE.encode())
    )
    with pytest.raises(ConfigurationError, match="does not open"):
        read_reviewer(locked(pem), PASSPHRASE)


@pytest.mark.parametrize(
    "kdf",
    [
        {"name": "md5"},
        {"n": 2**30},
        {"n": "32768"},
        {"r": 0},
        {"p": True},
        {"n": 1000},
        {"salt": "!"},
        {"salt": 5},
    ],
)
def test_costs_of_the_passphrase_are_bounded(kdf: dict[str, Any]) -> None:
    made = reviewer_document(OWN, [SEAL], passphrase=PASSPHRASE)
    made["keys"][0]["kdf"] |= kdf
    with pytest.raises(ConfigurationError, match="not of the form"):
        read_reviewer(made, PASSPHRASE)


@pytest.mark.parametrize(
    "bad",
    [
        {},
        [],
        {**document(), "version": 2},
        {**document(), "version": True},
        {**document(), "server": [{"kid": "s1"}]},
        {**document(), "server": [{**document()["server"][0], "alg": "HS256"}]},
        {**document(), "server": [{**document()["server"][0], "purpose": "decision"}]},
        {**document(), "keys": 5},
        document(alg="HS256"),
        document(purpose="seal"),
        document(private=""),
        document(private="!"),
        document(kid=5, private=None),
    ],
)
def test_another_document_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="not of the form"):
        read_reviewer(bad)


def test_a_document_without_a_key_cannot_decide() -> None:
    with pytest.raises(ConfigurationError, match="'decision'"):
        read_reviewer({**document(), "keys": []})


def test_the_last_key_of_a_file_signs() -> None:
    newer = Key(
        kid="a2", alg="Ed25519", purpose="decision", secret=bytes(range(32)), reviewer="alice"
    )
    made = document()
    made["keys"] += reviewer_document(newer, [])["keys"]
    assert read_reviewer(made).keys.newest("decision").kid == "a2"


def test_another_seal_key_is_pinned_beside_the_first() -> None:
    second = Key(kid="s2", alg="Ed25519", purpose="seal", secret=SEED)
    reviewer = read_reviewer(pinned(document(), second))
    assert reviewer.keys.find("seal", "s1") is not None
    assert reviewer.keys.find("seal", "s2") is not None


def test_pinning_the_same_key_again_changes_nothing() -> None:
    assert pinned(document(), SEAL) == document()


def test_a_pinned_kid_is_not_given_another_key() -> None:
    other = Key(kid="s1", alg="Ed25519", purpose="seal", secret=SEED)
    with pytest.raises(ConfigurationError, match="pins another key"):
        pinned(document(), other)
