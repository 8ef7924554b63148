"""Key ring: which key signs, which keys verify, for which purpose, in whose name.

Purposes are separated: a key of one purpose never verifies another's message. The algorithm is a
property of the key and is never read from a message. This room does no file or environment access.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from os import PathLike
from types import MappingProxyType
from typing import Any, Protocol, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from typing_extensions import override

from adapter.core.algorithms import (
    MIN_SECRET,
    PURPOSES,
    Algorithm,
    Key,
    Purpose,
    checked_secret,
    folded,
)
from adapter.core.canonical import domain
from adapter.core.errors import ConfigurationError
from adapter.core.keydocument import encoded, new_document, read_document, written

__all__ = [
    "MIN_SECRET",
    "PURPOSES",
    "Algorithm",
    "Key",
    "KeyRing",
    "KeySource",
    "Purpose",
    "new_document",
    "source_of",
]


class KeySource(Protocol):
    """Where a running program gets its key ring, so that a revocation reaches it at once."""

    def current(self) -> KeyRing:
        """Return the ring last loaded; no I/O."""
        ...

    async def refresh(self) -> None:
        """Load the ring again if it changed; await it before each use that matters."""
        ...


def source_of(key: Any) -> KeySource:
    """Return where keys come from, of what a port was given for them.

    Args:
        key: A ring, a source of one, a shared secret, or None for random keys.

    Raises:
        ConfigurationError: A short secret or a placeholder; or the name of a key file.
    """
    if isinstance(key, str | PathLike):
        msg = (
            f"An approval port takes bytes, not a {type(key).__name__}, or keys. For those in a "
            "key file give KeyFileSource(Path(…)), which sees rotations, or "
            "load_or_create(Path(…)), both of adapter.keyfile; for a secret in hex "
            "bytes.fromhex(…)."
        )
        raise ConfigurationError(msg)
    if key is None:
        return KeyRing.random()
    found: KeySource = key if hasattr(key, "refresh") else KeyRing.from_secret(key)
    return found


class KeyRing:
    """An immutable set of keys, asked by purpose and kid. A source that never changes."""

    def __init__(
        self, keys: Iterable[Key], reviewers: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        """Take the keys.

        Args:
            keys: Of equally old ones the later in this order is the newer.
            reviewers: Roles of people who sign with a key that is nobody's own.

        Raises:
            ConfigurationError: Two keys share a kid.
        """
        self._keys = tuple(sorted(keys, key=lambda key: key.created_at))
        self._by_kid = {key.kid: key for key in self._keys}
        if len(self._by_kid) != len(self._keys):
            msg = "Two keys have the same kid; a kid names exactly one key and purpose."
            raise ConfigurationError(msg)
        self._roles = {name: frozenset(roles) for name, roles in (reviewers or {}).items()}
        # Revoked keys too: losing a key must not free its owner's name for a shared one.
        self._owners = {folded(key.reviewer) for key in self._keys if key.reviewer is not None}

    @override
    def __repr__(self) -> str:
        """Show ids only."""
        return f"KeyRing({[f'{key.purpose}:{key.kid}' for key in self._keys]})"

    @classmethod
    def from_secret(cls, secret: bytes, *, name: str = "The secret given") -> KeyRing:
        """Derive one key per purpose from a shared secret of 16 or more bytes.

        Args:
            secret: The secret.
            name: What it was given as, for the error message.

        Raises:
            ConfigurationError: The secret is short or a placeholder.
        """
        checked_secret(secret, name)
        derived = []
        for purpose in PURPOSES:
            info = domain(f"derive/{purpose}")
            made = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info)
            kid = f"shared-{purpose}"
            derived.append(Key(kid=kid, purpose=purpose, secret=made.derive(secret)))
        return cls(derived)

    @classmethod
    def random(cls, randomness: Callable[[int], bytes] = secrets.token_bytes) -> KeyRing:
        """Make a ring nobody else has: what it signs verifies in this process only."""
        return cls.from_secret(randomness(32))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> KeyRing:
        """Read the ``keys.json`` form, as `adapter.core.keydocument` describes it.

        Raises:
            ConfigurationError: Not of that form; no secret is quoted.
        """
        keys, roles = read_document(document)
        return cls(keys, roles)

    def to_document(self) -> dict[str, Any]:
        """Return the ``keys.json`` form; it holds the secrets."""
        return written(self._keys, self._roles)

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys, oldest first, revoked ones too."""
        return self._keys

    @property
    def reviewers(self) -> Mapping[str, frozenset[str]]:
        """Roles of people who sign with a key that is nobody's own."""
        return MappingProxyType(self._roles)

    def changed(
        self, keys: Iterable[Key] = (), reviewers: Mapping[str, Iterable[str]] | None = None
    ) -> KeyRing:
        """Return a ring in which these keys replace those of their kid, or are added as newest.

        Args:
            keys: Changed and new keys. A new one is made no older than what it is newer than.
            reviewers: Replaces the whole section of roles.
        """
        given = {key.kid: key for key in keys}
        kept = [given.pop(key.kid, key) for key in self._keys]
        last = kept[-1].created_at if kept else 0
        # A clock that went back must not leave the old key signing.
        added = [replace(key, created_at=max(key.created_at, last)) for key in given.values()]
        return KeyRing([*kept, *added], self._roles if reviewers is None else reviewers)

    def current(self) -> Self:
        """Return this ring: as a source it always gives itself."""
        return self

    async def refresh(self) -> None:
        """Do nothing: what is in memory does not change."""

    def require(self, *purposes: Purpose) -> None:
        """Check that every purpose has its key: one that signs, for decisions one that verifies.

        Raises:
            ConfigurationError: Names the first purpose without one.
        """
        for purpose in purposes:
            # A server that holds public halves only cannot decide, and must not need to.
            if purpose != "decision" or not self._valid("decision"):
                self.newest(purpose)

    def newest(self, purpose: Purpose) -> Key:
        """Return the key that signs for a purpose.

        For seals that is an Ed25519 key as soon as any valid decision key is one: its owner holds
        no secret of the server to check another seal with.

        Raises:
            ConfigurationError: Every key of this purpose is revoked or verifies only, or there is
                none.
        """
        found = [key for key in self._valid(purpose) if key.can_sign]
        if purpose == "seal" and any(key.alg == "Ed25519" for key in self._valid("decision")):
            found = [key for key in found if key.alg == "Ed25519"]
        if found:
            return found[-1]
        msg = (
            f"There is no unrevoked key that signs for the purpose {purpose!r}. Make one with "
            f"`adapter keys rotate {purpose}`, or a new file with `adapter keys new`, and set "
            "ADAPTER_KEY_FILE."
        )
        raise ConfigurationError(msg)

    def oldest(self, purpose: Purpose) -> Key:
        """Return the key whose digests must stay comparable, over rotations and revocations.

        A revoked one too: under another key the same call would be another call, and run again.

        Raises:
            ConfigurationError: There is no key of this purpose.
        """
        found = [key for key in self._keys if key.purpose == purpose]
        return found[0] if found else self.newest(purpose)

    def find(self, purpose: Purpose, kid: object) -> Key | None:
        """Return the unrevoked key of exactly this purpose and kid."""
        key = self._named(kid)
        if key is None or key.purpose != purpose or key.revoked_at is not None:
            return None
        return key

    def sign(self, purpose: Purpose, message: bytes) -> dict[str, str]:
        """Return ``{"kid", "alg", "mac"}`` over a message."""
        key = self.newest(purpose)
        return {"kid": key.kid, "alg": key.alg, "mac": key.mac(message)}

    def verify(self, purpose: Purpose, message: bytes, signature: Mapping[str, Any]) -> bool:
        """Tell whether a signature is from a known, unrevoked key of this purpose."""
        key = self.find(purpose, signature.get("kid"))
        mac = signature.get("mac")
        if key is None or not isinstance(mac, str) or signature.get("alg") != key.alg:
            return False
        return key.matches(message, mac)

    def reviewer_of(self, kid: object) -> str | None:
        """Return the one person a key belongs to; None for a shared or unknown key."""
        key = self._named(kid)
        return None if key is None else key.reviewer

    def speaks_for(self, kid: object, reviewer: object) -> bool:
        """Tell whether a key may sign in this name.

        A key of one person signs in exactly that name. A shared key signs in any name, but not in
        that of somebody who has, or had, a key of their own.
        """
        owner = self.reviewer_of(kid)
        if owner is not None:
            return reviewer == owner
        return not (isinstance(reviewer, str) and folded(reviewer) in self._owners)

    def roles_of(self, reviewer: str, kid: object) -> frozenset[str]:
        """Return the roles an answer in this name under this key has now.

        Those of the key where it is somebody's own, else those the document gives to the claimed
        name. None where the key is unknown, revoked, or may not sign in this name.
        """
        key = self.find("decision", kid)
        if key is None or not self.speaks_for(kid, reviewer):
            return frozenset()
        if key.reviewer is not None:
            return frozenset(key.roles)
        return self._roles.get(reviewer, frozenset())

    def states(self) -> list[dict[str, Any]]:
        """Return what may be shown of each key, oldest first: JSON values, no secret."""
        return [
            {
                "kid": key.kid,
                "alg": key.alg,
                "purpose": key.purpose,
                "reviewer": key.reviewer,
                "roles": list(key.roles),
                "can_sign": key.can_sign,
                "public": encoded(key.public) if key.public else None,
                "created_at": key.created_at,
                "revoked_at": key.revoked_at,
            }
            for key in self._keys
        ]

    def _named(self, kid: object) -> Key | None:
        return self._by_kid.get(kid) if isinstance(kid, str) else None

    def _valid(self, purpose: Purpose) -> list[Key]:
        return [key for key in self._keys if key.purpose == purpose and key.revoked_at is None]
