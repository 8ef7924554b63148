"""Rotation keeps verifying, revocation is at once, an enrolled reviewer signs alone."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from adapter.core.errors import ConfigurationError
from adapter.core.keychange import enrol, give_roles, revoke, rotate
from adapter.core.keys import PURPOSES, Key, KeyRing, new_document

NUMBERS = count(1)


def randomness(size: int) -> bytes:
    start = next(NUMBERS) * 7
    return bytes((start + place * 11) % 256 for place in range(size))


def fresh() -> KeyRing:
    return KeyRing.from_document(new_document(100, randomness))


def enrolled(ring: KeyRing, name: str = "alice", roles: Any = ("finance",)) -> Any:
    return enrol(ring, name, roles, now=200, randomness=randomness)


class TestRotate:
    def test_the_new_key_signs_and_the_old_one_still_verifies(self) -> None:
        ring = fresh()
        old = ring.sign("decision", b"m")
        made, (new,) = rotate(ring, ["decision"], now=200, randomness=randomness)
        assert made.sign("decision", b"m")["kid"] == new.kid != old["kid"]
        assert made.verify("decision", b"m", old)

    def test_all_but_the_digest_key_by_default(self) -> None:
        made, new = rotate(fresh(), [], now=200)
        assert [key.purpose for key in new] == [p for p in PURPOSES if p != "digest"]
        assert made.oldest("digest") == made.newest("digest")

    def test_a_named_digest_key_is_added_and_the_oldest_still_digests(self) -> None:
        ring = fresh()
        made, (new,) = rotate(ring, ["digest", "digest"], now=200)
        assert made.newest("digest").kid == new.kid
        assert made.oldest("digest") == ring.oldest("digest")

    def test_at_the_same_second_the_new_key_signs(self) -> None:
        made, (new,) = rotate(fresh(), ["seal"], now=100)
        assert made.newest("seal").kid == new.kid

    def test_an_unknown_purpose_is_named(self) -> None:
        unknown: Any = "seals"
        with pytest.raises(ConfigurationError, match="no purpose 'seals'"):
            rotate(fresh(), [unknown], now=200)

    def test_a_seal_for_ed25519_reviewers_is_followed_by_another(self) -> None:
        ring = enrolled(fresh()).ring
        made, (new,) = rotate(ring, ["seal"], now=300)
        assert new.alg == "Ed25519"
        assert made.newest("seal").kid == new.kid

    def test_no_shared_decision_key_appears_unasked(self) -> None:
        ring = enrolled(fresh()).ring
        shared = ring.newest("decision").kid
        ring, _ = revoke(ring, shared, now=250)
        _, new = rotate(ring, [], now=300)
        assert "decision" not in {key.purpose for key in new}
        _, (asked,) = rotate(ring, ["decision"], now=300)
        assert asked.alg == "HS256"


class TestRevoke:
    def test_what_it_signed_no_longer_verifies(self) -> None:
        ring, _ = rotate(fresh(), ["decision"], now=200)
        signature = ring.sign("decision", b"m")
        made, lacking = revoke(ring, signature["kid"], now=300)
        assert not made.verify("decision", b"m", signature)
        assert made.sign("decision", b"m")["kid"] != signature["kid"]
        assert lacking == ()

    def test_a_purpose_left_without_a_key_is_told(self) -> None:
        ring = fresh()
        made, lacking = revoke(ring, ring.newest("seal").kid, now=300)
        assert lacking == ("seal",)
        assert revoke(made, made.newest("audit").kid, now=300)[1] == ("audit",)

    def test_the_seal_of_ed25519_reviewers_is_missed_too(self) -> None:
        made = enrolled(fresh())
        assert revoke(made.ring, made.server[-1].kid, now=300)[1] == ("seal",)

    def test_an_unknown_or_revoked_key_is_said(self) -> None:
        ring = fresh()
        with pytest.raises(ConfigurationError, match="no key 'other'"):
            revoke(ring, "other", now=1)
        kid = ring.newest("seal").kid
        with pytest.raises(ConfigurationError, match="revoked already"):
            revoke(revoke(ring, kid, now=1)[0], kid, now=2)


class TestEnrol:
    def test_the_server_verifies_what_only_the_reviewer_can_sign(self) -> None:
        made = enrolled(fresh())
        own = KeyRing([made.own, *made.server])
        signature = own.sign("decision", b"m")
        assert made.ring.verify("decision", b"m", signature)
        assert made.ring.reviewer_of(signature["kid"]) == "alice"
        server = next(key for key in made.ring.keys if key.kid == made.own.kid)
        assert not server.can_sign
        assert not made.ring.speaks_for(made.ring.newest("decision").kid, "alice")

    def test_the_server_seals_and_only_the_server(self) -> None:
        made = enrolled(fresh())
        seal = made.ring.sign("seal", b"m")
        assert seal["alg"] == "Ed25519"
        own = KeyRing([made.own, *made.server])
        assert own.verify("seal", b"m", seal)
        with pytest.raises(ConfigurationError, match="'seal'"):
            own.sign("seal", b"m")

    def test_the_seal_key_is_made_once(self) -> None:
        first = enrolled(fresh())
        second = enrolled(first.ring, "bob")
        assert (first.made_seal, second.made_seal) == (True, False)
        assert second.server == first.server

    def test_a_revoked_seal_key_is_replaced(self) -> None:
        first = enrolled(fresh())
        ring, _ = revoke(first.ring, first.server[-1].kid, now=250)
        again = enrolled(ring, "bob")
        assert again.made_seal
        assert {key.kid for key in again.server}.isdisjoint(key.kid for key in first.server)

    def test_a_second_key_keeps_the_roles(self) -> None:
        first = enrolled(fresh())
        second = enrolled(first.ring, roles=None)
        assert second.own.roles == ("finance",)

    def test_new_roles_go_to_every_key_of_the_person(self) -> None:
        first = enrolled(fresh())
        second = enrolled(first.ring, roles=["boss"])
        assert second.ring.roles_of("alice", first.own.kid) == {"boss"}

    def test_roles_given_by_name_move_to_the_key(self) -> None:
        ring = give_roles(fresh(), "alice", ["finance"])
        assert ring.roles_of("alice", ring.newest("decision").kid) == {"finance"}
        made = enrolled(ring, roles=None).ring
        assert made.reviewers == {}
        assert made.roles_of("alice", made.newest("decision").kid) == frozenset()

    def test_a_name_that_reads_like_anothers_is_refused(self) -> None:
        made = enrolled(fresh())
        with pytest.raises(ConfigurationError, match="reads like the reviewer 'alice'"):
            enrolled(made.ring, "Alice")
        assert enrolled(made.ring, "alicia").own.reviewer == "alicia"

    def test_a_name_that_is_none_enrols_nobody(self) -> None:
        with pytest.raises(ConfigurationError, match="reviewer is a name"):
            enrolled(fresh(), "")


class TestRoles:
    def test_by_name_where_there_is_no_key(self) -> None:
        ring = give_roles(fresh(), "bob", ["support", "support"])
        assert ring.reviewers == {"bob": {"support"}}
        assert give_roles(ring, "bob", []).reviewers == {}

    def test_on_the_keys_where_there_are(self) -> None:
        made = enrolled(fresh())
        ring = give_roles(made.ring, "alice", [])
        assert ring.roles_of("alice", made.own.kid) == frozenset()
        assert ring.reviewers == {}

    def test_of_others_stay(self) -> None:
        ring = give_roles(give_roles(fresh(), "bob", ["support"]), "carol", ["finance"])
        assert ring.reviewers == {"bob": {"support"}, "carol": {"finance"}}

    def test_a_role_is_a_name(self) -> None:
        with pytest.raises(ConfigurationError, match="role is a name"):
            give_roles(fresh(), "bob", [" "])


def test_an_unbound_pair_counts_as_shared_by_its_holders() -> None:
    group = Key(kid="g", alg="Ed25519", purpose="decision", secret=bytes(range(32)))
    _, new = rotate(KeyRing([group]), [], now=1)
    assert [key.purpose for key in new] == ["decision"]
