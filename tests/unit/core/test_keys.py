"""A key signs for one purpose; the algorithm comes from the key; revoked keys do nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adapter.core.errors import ConfigurationError
from adapter.core.keys import MIN_SECRET, PURPOSES, Key, KeyRing

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
    ring = KeyRing(
        [key("b", created_at=2), key("a", created_at=1), key("c", created_at=3, revoked_at=4)]
    )
    assert ring.newest("decision").kid == "b"


def test_the_oldest_key_makes_digests_also_when_it_is_revoked() -> None:
    ring = KeyRing([key("b", created_at=2), key("a", created_at=1, revoked_at=3)])
    assert ring.oldest("decision").kid == "a"


@pytest.mark.parametrize(
    ("ask", "others"),
    [("newest", [key("s", purpose="seal", revoked_at=1)]), ("oldest", [])],
)
def test_a_purpose_without_a_key_is_named(ask: str, others: list[Key]) -> None:
    with pytest.raises(ConfigurationError, match="'seal'"):
        getattr(KeyRing([key(), *others]), ask)("seal")


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


# ------------------------------------------------------------------------------------ Ed25519

SEED = bytes(range(100, 132))


def pair(kid: str = "e1", **fields: Any) -> Key:
    given = {"alg": "Ed25519", "purpose": "decision", "secret": SEED} | fields
    return Key(kid=kid, **given)


def public(made: Key) -> Key:
    return replace(made, secret=b"")


def test_the_public_half_verifies_what_the_private_half_signed() -> None:
    own = pair()
    signature = KeyRing([own]).sign("decision", b"m")
    assert signature["alg"] == "Ed25519"
    assert KeyRing([public(own)]).verify("decision", b"m", signature)
    assert not KeyRing([public(own)]).verify("decision", b"n", signature)


def test_the_public_half_cannot_sign() -> None:
    assert not public(pair()).can_sign
    with pytest.raises(ConfigurationError, match="'e1' is the public half"):
        public(pair()).mac(b"m")


def test_a_key_that_cannot_sign_is_not_the_newest() -> None:
    ring = KeyRing([key(created_at=1), public(pair(created_at=2))])
    assert ring.newest("decision").kid == "k1"


def test_a_ring_of_public_halves_signs_nothing() -> None:
    with pytest.raises(ConfigurationError, match=r"no unrevoked key that signs .*'decision'"):
        KeyRing([public(pair())]).sign("decision", b"m")


def test_the_same_pair_for_another_purpose_signs_other_bytes() -> None:
    seal = pair("s1", purpose="seal")
    assert seal.public == pair().public
    assert not pair().matches(b"m", seal.mac(b"m"))


@pytest.mark.parametrize("alg", ["HS256", "none", "ed25519", None])
def test_the_algorithm_of_an_ed25519_key_is_not_taken_from_the_message(alg: Any) -> None:
    ring = KeyRing([pair()])
    signature = ring.sign("decision", b"m")
    assert not ring.verify("decision", b"m", signature | {"alg": alg})


def test_a_hmac_under_the_public_half_does_not_verify() -> None:
    server = KeyRing([public(pair())])
    forged = Key(kid="e1", purpose="decision", secret=pair().public).mac(b"m")
    for alg in ("HS256", "Ed25519"):
        for mac in (forged, forged * 2):
            signature = {"kid": "e1", "alg": alg, "mac": mac}
            assert not server.verify("decision", b"m", signature)


@pytest.mark.parametrize("made", [key(), pair()], ids=["HS256", "Ed25519"])
def test_a_signature_has_one_spelling(made: Key) -> None:
    mac = made.mac(b"m")
    assert made.matches(b"m", mac)
    assert not made.matches(b"m", mac.upper())
    assert not made.matches(b"m", f"{mac[:2]} {mac[2:]}")


def test_the_public_half_is_derived_and_not_shown() -> None:
    assert len(pair().public) == 32
    assert pair() == pair(public=pair().public)
    assert "secret" not in repr(pair())


@pytest.mark.parametrize(
    "change",
    [
        {"secret": b""},
        {"secret": SEED[:31]},
        {"secret": b"a" * 32},
        {"secret": b"", "public": SEED[:31]},
        {"secret": b"", "public": b"\x01" + bytes(31)},
    ],
)
def test_what_is_no_pair_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="'e1' is Ed25519"):
        pair(**change)


def test_halves_of_different_pairs_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="do not belong together"):
        pair(public=pair(secret=SECRET).public)


@pytest.mark.parametrize("purpose", ["state", "digest"])
def test_what_is_encrypted_or_compared_needs_a_secret(purpose: Any) -> None:
    with pytest.raises(ConfigurationError, match="A key needs"):
        pair(purpose=purpose)
    assert key(purpose=purpose).can_sign


def test_a_shared_secret_has_no_public_half() -> None:
    with pytest.raises(ConfigurationError, match="no public half"):
        key(public=pair().public)


# -------------------------------------------------------------------------- which key seals


def test_among_hs256_reviewers_only_age_decides_what_seals() -> None:
    ring = KeyRing([key(), key("s", purpose="seal"), pair("t", purpose="seal")])
    assert ring.newest("seal").kid == "t"
    ring = KeyRing([key(), pair("t", purpose="seal"), key("s", purpose="seal")])
    assert ring.newest("seal").kid == "s"


def test_with_an_ed25519_reviewer_the_server_seals_with_its_own_pair() -> None:
    ring = KeyRing(
        [public(pair()), pair("t", purpose="seal"), key("s", purpose="seal", created_at=9)]
    )
    assert ring.newest("seal").kid == "t"


def test_a_seal_no_ed25519_reviewer_could_check_is_not_made() -> None:
    ring = KeyRing([public(pair()), key("s", purpose="seal")])
    with pytest.raises(ConfigurationError, match="adapter keys rotate seal"):
        ring.newest("seal")


def test_a_revoked_ed25519_reviewer_no_longer_decides_how_to_seal() -> None:
    ring = KeyRing([public(pair(revoked_at=1)), key("s", purpose="seal")])
    assert ring.newest("seal").kid == "s"


def test_a_server_without_a_decision_key_of_its_own_is_complete() -> None:
    KeyRing([public(pair())]).require("decision")
    with pytest.raises(ConfigurationError, match="'decision'"):
        KeyRing([public(pair(revoked_at=1))]).require("decision")


# --------------------------------------------------------------------------------- people

ALICE = pair("a1", reviewer="alice", roles=("finance",))
BOTH = KeyRing([key("k1"), public(ALICE)], {"bob": ["support"], "alice": ["boss"]})


def test_a_key_of_one_person_signs_in_that_name_only() -> None:
    assert BOTH.speaks_for("a1", "alice")
    assert not BOTH.speaks_for("a1", "bob")
    assert not BOTH.speaks_for("a1", None)


def test_a_shared_key_does_not_sign_for_who_has_a_key() -> None:
    assert BOTH.speaks_for("k1", "bob")
    assert not BOTH.speaks_for("k1", "alice")


@pytest.mark.parametrize("name", ["Alice", "ALICE", "\uff41lice"])
def test_a_shared_key_does_not_sign_for_a_name_that_reads_the_same(name: str) -> None:
    assert not BOTH.speaks_for("k1", name)


def test_losing_a_key_does_not_free_its_owners_name() -> None:
    ring = KeyRing([key("k1"), public(replace(ALICE, revoked_at=1))])
    assert not ring.speaks_for("k1", "alice")


def test_whose_a_key_is() -> None:
    assert BOTH.reviewer_of("a1") == "alice"
    assert BOTH.reviewer_of("k1") is None
    assert BOTH.reviewer_of("other") is None
    assert BOTH.reviewer_of(["a1"]) is None


@pytest.mark.parametrize(
    ("name", "kid", "roles"),
    [
        ("alice", "a1", {"finance"}),
        ("bob", "k1", {"support"}),
        ("carol", "k1", set()),
        ("alice", "k1", set()),
        ("bob", "a1", set()),
        ("bob", "other", set()),
        ("bob", None, set()),
    ],
)
def test_roles_come_from_the_key_or_from_the_claimed_name(
    name: str, kid: Any, roles: set[str]
) -> None:
    assert BOTH.roles_of(name, kid) == roles


def test_a_revoked_key_has_no_roles() -> None:
    ring = KeyRing([public(replace(ALICE, revoked_at=1))])
    assert ring.roles_of("alice", "a1") == frozenset()


def test_roles_belong_to_a_person_and_people_to_decision_keys() -> None:
    with pytest.raises(ConfigurationError, match="roles but no reviewer"):
        key(roles=("finance",))
    with pytest.raises(ConfigurationError, match="only a decision key"):
        key(purpose="seal", reviewer="alice")
    assert key(reviewer="alice", roles=("finance",)).reviewer == "alice"


@pytest.mark.parametrize("name", ["", " alice", "a,b", "a\nb", "a\u202eb", "x" * 201])
def test_a_name_is_short_and_shows_as_what_it_is(name: str) -> None:
    with pytest.raises(ConfigurationError, match="reviewer is a name"):
        key(reviewer=name)
    with pytest.raises(ConfigurationError, match="role is a name"):
        key(reviewer="alice", roles=(name,))


# ------------------------------------------------------------------------------ the ring itself


def test_what_is_listed_of_a_key_holds_no_secret() -> None:
    shown = KeyRing([replace(ALICE, created_at=5), key("k1", revoked_at=7)]).states()
    assert [item["kid"] for item in shown] == ["k1", "a1"]
    assert shown[0]["public"] is None
    assert shown[0]["revoked_at"] == 7
    assert shown[1]["roles"] == ["finance"]
    assert shown[1]["created_at"] == 5
    assert not any(secret.hex() in str(shown) for secret in (SECRET, SEED))
    assert not {"secret", "private"} & shown[1].keys()


def test_a_changed_ring_replaces_and_adds() -> None:
    ring = KeyRing([key("k1", created_at=10)], {"bob": ["support"]})
    made = ring.changed([key("k1", revoked_at=11, created_at=10), key("k2", created_at=3)])
    assert [found.kid for found in made.keys] == ["k1", "k2"]
    assert made.newest("decision").kid == "k2"
    assert made.reviewers == {"bob": {"support"}}
    assert ring.newest("decision").kid == "k1"


def test_a_key_added_by_a_clock_that_went_back_is_still_the_newest() -> None:
    made = KeyRing([key("k1", created_at=10)]).changed([key("k2", created_at=3)])
    assert made.newest("decision").kid == "k2"
    assert KeyRing([]).changed([key("k2", created_at=3)]).keys[0].created_at == 3


@pytest.mark.anyio
async def test_a_ring_is_a_source_that_never_changes() -> None:
    ring = KeyRing([key()])
    await ring.refresh()
    assert ring.current() is ring


@pytest.mark.parametrize(
    ("secret", "fault"),
    [
        (b"x" * 16, "checkpoint_key is no random secret: all its bytes are equal"),
        (b"abcd" * 8, "checkpoint_key is no random secret: it is made of a few bytes"),
        (SECRET[:7], "checkpoint_key is too short: 7 bytes"),
        (SECRET.hex(), "checkpoint_key takes bytes, not a str"),
    ],
)
def test_a_bad_secret_is_told_by_its_own_name_with_the_way_to_make_one(
    secret: Any, fault: str
) -> None:
    with pytest.raises(ConfigurationError, match=fault) as caught:
        KeyRing.from_secret(secret, name="checkpoint_key")
    assert "secrets.token_hex(32)" in caught.value.message
    assert "os.urandom(32)" in caught.value.message
    assert "key file" not in caught.value.message
