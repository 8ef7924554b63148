"""Changes of a key ring: rotate, revoke, enrol a reviewer, give roles. Each returns a new ring.

Pure; time and randomness are passed in. Writing the result to a file is another room's work.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from adapter.core.algorithms import PURPOSES, Algorithm, Key, Purpose, checked_name, folded
from adapter.core.errors import ConfigurationError
from adapter.core.keydocument import new_secret_key
from adapter.core.keys import KeyRing

__all__ = ["Enrolment", "enrol", "give_roles", "revoke", "rotate"]

Randomness = Callable[[int], bytes]

_SEED_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """A reviewer's new pair and where its halves go.

    Attributes:
        ring: The server's ring, with the public half only.
        own: The reviewer's key, with the private half.
        server: The server's seal keys to pin, public halves only.
        made_seal: Whether the seal key was made for this enrolment.
    """

    ring: KeyRing
    own: Key
    server: tuple[Key, ...]
    made_seal: bool


def rotate(
    ring: KeyRing,
    purposes: Iterable[Purpose],
    *,
    now: int,
    randomness: Randomness = secrets.token_bytes,
) -> tuple[KeyRing, tuple[Key, ...]]:
    """Add a new key per purpose; the old ones go on verifying until revoked.

    Args:
        ring: The ring as it is.
        purposes: Which; when empty, all but ``digest`` that have a key that signs. (A ring without
            a shared decision key does not get one unasked: its reviewers have their own.)
        now: Seconds since the epoch.
        randomness: Source of secret bytes.

    Returns:
        The new ring and its new keys.

    Raises:
        ConfigurationError: A purpose is unknown.
    """
    wanted = tuple(dict.fromkeys(purposes)) or tuple(
        purpose for purpose in PURPOSES if purpose != "digest" and _shared(ring, purpose)
    )
    for purpose in wanted:
        if purpose not in PURPOSES:
            msg = f"There is no purpose {purpose!r}: it is one of {', '.join(PURPOSES)}."
            raise ConfigurationError(msg)
    made = tuple(_successor(ring, purpose, now, randomness) for purpose in wanted)
    return ring.changed(made), made


def revoke(ring: KeyRing, kid: str, *, now: int) -> tuple[KeyRing, tuple[Purpose, ...]]:
    """Revoke a key: from now on it neither signs nor verifies.

    Args:
        ring: The ring as it is.
        kid: The key.
        now: Seconds since the epoch.

    Returns:
        The new ring, and the purposes that had their key before and have none now.

    Raises:
        ConfigurationError: The ring has no such key, or it is revoked already.
    """
    found = next((key for key in ring.keys if key.kid == kid), None)
    if found is None:
        msg = f"There is no key {kid!r}: see `adapter keys list`."
        raise ConfigurationError(msg)
    if found.revoked_at is not None:
        msg = f"Key {kid!r} is revoked already; it verifies nothing."
        raise ConfigurationError(msg)
    left = ring.changed([replace(found, revoked_at=now)])
    lacking = tuple(
        purpose for purpose in PURPOSES if _served(ring, purpose) and not _served(left, purpose)
    )
    return left, lacking


def enrol(
    ring: KeyRing,
    reviewer: str,
    roles: Iterable[str] | None,
    *,
    now: int,
    randomness: Randomness = secrets.token_bytes,
) -> Enrolment:
    """Make a reviewer's Ed25519 pair and take its public half into the ring.

    The first enrolment also makes the server's own Ed25519 seal key.

    Args:
        ring: The server's ring.
        reviewer: Whose key it is.
        roles: Their roles, on all their keys; None keeps the ones they have.
        now: Seconds since the epoch.
        randomness: Source of secret bytes.

    Raises:
        ConfigurationError: The name or a role is not one, or another reviewer's reads the same.
    """
    checked_name(reviewer, "reviewer")
    for key in ring.keys:
        other = key.reviewer
        if other is not None and other != reviewer and folded(other) == folded(reviewer):
            msg = f"The name {reviewer!r} reads like the reviewer {other!r}: choose another."
            raise ConfigurationError(msg)
    own = Key(
        kid=f"decision-{randomness(6).hex()}",
        alg="Ed25519",
        purpose="decision",
        secret=randomness(_SEED_BYTES),
        reviewer=reviewer,
        roles=_sorted(_roles_now(ring, reviewer) if roles is None else roles),
        created_at=now,
    )
    made = ring.changed([replace(own, secret=b"")])
    seals = _pinned(made)
    made_seal = not any(key.can_sign for key in seals)
    if made_seal:
        made = made.changed([_new_pair("seal", now, randomness)])
        seals = _pinned(made)
    public = tuple(replace(key, secret=b"") for key in seals)
    return Enrolment(
        ring=give_roles(made, reviewer, own.roles), own=own, server=public, made_seal=made_seal
    )


def give_roles(ring: KeyRing, reviewer: str, roles: Iterable[str]) -> KeyRing:
    """Replace a reviewer's roles: on their own keys, or by name where they have none.

    Raises:
        ConfigurationError: The name or a role is not one.
    """
    checked_name(reviewer, "reviewer")
    named = tuple(checked_name(role, "role") for role in _sorted(roles))
    others = {name: given for name, given in ring.reviewers.items() if name != reviewer}
    own = [replace(key, roles=named) for key in ring.keys if key.reviewer == reviewer]
    if own or not named:
        return ring.changed(own, others)
    return ring.changed((), {**others, reviewer: frozenset(named)})


def _successor(ring: KeyRing, purpose: Purpose, now: int, randomness: Randomness) -> Key:
    if purpose == "seal" and _algorithm(ring) == "Ed25519":
        return _new_pair(purpose, now, randomness)
    return new_secret_key(purpose, now, randomness)


def _algorithm(ring: KeyRing) -> Algorithm:
    """What the server's seals must be signed with."""
    own = any(key.alg == "Ed25519" and key.revoked_at is None for key in _of(ring, "decision"))
    return "Ed25519" if own else "HS256"


def _new_pair(purpose: Purpose, now: int, randomness: Randomness) -> Key:
    return Key(
        kid=f"{purpose}-{randomness(6).hex()}",
        alg="Ed25519",
        purpose=purpose,
        secret=randomness(_SEED_BYTES),
        created_at=now,
    )


def _pinned(ring: KeyRing) -> list[Key]:
    return [key for key in _of(ring, "seal") if key.alg == "Ed25519" and key.revoked_at is None]


def _of(ring: KeyRing, purpose: Purpose) -> list[Key]:
    return [key for key in ring.keys if key.purpose == purpose]


def _shared(ring: KeyRing, purpose: Purpose) -> bool:
    return any(
        key.can_sign and key.revoked_at is None and key.reviewer is None
        for key in _of(ring, purpose)
    )


def _served(ring: KeyRing, purpose: Purpose) -> bool:
    try:
        ring.require(purpose)
    except ConfigurationError:
        return False
    return True


def _roles_now(ring: KeyRing, reviewer: str) -> frozenset[str]:
    own = [key for key in ring.keys if key.reviewer == reviewer]
    return frozenset(own[-1].roles) if own else ring.reviewers.get(reviewer, frozenset())


def _sorted(roles: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(roles)))
