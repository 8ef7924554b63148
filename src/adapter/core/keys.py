"""Key ring: which key signs, which keys verify, for which purpose.

Purposes are separated: a key of one purpose never verifies another's message. The algorithm is a
property of the key and is never read from a message. This room does no file or environment access.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from typing_extensions import override

from adapter.core.canonical import domain
from adapter.core.errors import ConfigurationError

__all__ = ["MIN_SECRET", "PURPOSES", "Key", "KeyRing", "Purpose", "new_document"]

Purpose = Literal["seal", "decision", "state", "audit", "digest"]
PURPOSES: tuple[Purpose, ...] = ("seal", "decision", "state", "audit", "digest")

MIN_SECRET = 16
"""Shortest accepted secret, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: an id, an algorithm, one purpose.

    Attributes:
        created_at: Seconds since the epoch; the newest unrevoked key of a purpose signs.
        revoked_at: Seconds since the epoch; a revoked key neither signs nor verifies.
    """

    kid: str
    alg: Literal["HS256"] = "HS256"
    purpose: Purpose
    secret: bytes = field(repr=False)
    created_at: int = 0
    revoked_at: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be a key."""
        if not self.kid or self.purpose not in PURPOSES or self.alg != "HS256":
            msg = (
                "A key needs a kid, a purpose out of " + ", ".join(PURPOSES) + " and the "
                "algorithm HS256. Make a new key file with `adapter keys new`."
            )
            raise ConfigurationError(msg)
        if len(self.secret) < MIN_SECRET or len(set(self.secret)) < 5:
            msg = (
                f"The secret of key {self.kid!r} is too short or a placeholder: at least "
                f"{MIN_SECRET} random bytes. Make a new key file with `adapter keys new`."
            )
            raise ConfigurationError(msg)

    def mac(self, message: bytes) -> str:
        """Return the HMAC-SHA256 of a message under this key and purpose, hexadecimal."""
        return self._hmac(message).finalize().hex()

    def matches(self, message: bytes, mac: str) -> bool:
        """Compare in constant time."""
        try:
            self._hmac(message).verify(bytes.fromhex(mac))
        except (InvalidSignature, ValueError):
            return False
        return True

    def _hmac(self, message: bytes) -> hmac.HMAC:
        made = hmac.HMAC(self.secret, hashes.SHA256())
        made.update(domain(f"{self.purpose}/v1"))
        made.update(message)
        return made


class KeyRing:
    """An immutable set of keys, asked by purpose and kid."""

    def __init__(self, keys: Iterable[Key]) -> None:
        """Take the keys.

        Raises:
            ConfigurationError: Two keys of one purpose share a kid.
        """
        self._keys = tuple(sorted(keys, key=lambda key: key.created_at))
        named = [(key.purpose, key.kid) for key in self._keys]
        if len(set(named)) != len(named):
            msg = "Two keys of one purpose have the same kid; give each key its own."
            raise ConfigurationError(msg)

    @override
    def __repr__(self) -> str:
        """Show ids only."""
        return f"KeyRing({[f'{key.purpose}:{key.kid}' for key in self._keys]})"

    @classmethod
    def from_secret(cls, secret: bytes) -> KeyRing:
        """Derive one key per purpose from a shared secret of 16 or more bytes.

        Raises:
            ConfigurationError: The secret is short or a placeholder.
        """
        probe = Key(kid="shared", purpose="seal", secret=secret)
        derived = []
        for purpose in PURPOSES:
            info = domain(f"derive/{purpose}")
            made = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info)
            derived.append(Key(kid=probe.kid, purpose=purpose, secret=made.derive(secret)))
        return cls(derived)

    @classmethod
    def random(cls, randomness: Callable[[int], bytes] = secrets.token_bytes) -> KeyRing:
        """Make a ring nobody else has: what it signs verifies in this process only."""
        return cls.from_secret(randomness(32))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> KeyRing:
        """Read the ``keys.json`` form.

        Args:
            document: ``{"version": 1, "keys": [{"kid", "alg", "purpose", "secret",
                "created_at", "revoked_at"}]}``, secrets as URL-safe base64.

        Raises:
            ConfigurationError: Not of that form; no secret is quoted.
        """
        try:
            version, items = document["version"], [_key(item) for item in document["keys"]]
        except (KeyError, TypeError, AttributeError, ValueError, binascii.Error) as error:
            msg = (
                'The key file is not of the form {"version": 1, "keys": [...]}. '
                "Make a new one with `adapter keys new`."
            )
            raise ConfigurationError(msg) from error
        if version != 1:
            msg = "The key file has a version this adapter does not know; upgrade the adapter."
            raise ConfigurationError(msg)
        return cls(items)

    def require(self, *purposes: Purpose) -> None:
        """Check that every purpose has a key that can sign.

        Raises:
            ConfigurationError: Names the first purpose without one.
        """
        for purpose in purposes:
            self.newest(purpose)

    def newest(self, purpose: Purpose) -> Key:
        """Return the key that signs for a purpose.

        Raises:
            ConfigurationError: Every key of this purpose is revoked, or there is none.
        """
        for key in reversed(self._keys):
            if key.purpose == purpose and key.revoked_at is None:
                return key
        msg = (
            f"There is no unrevoked key for the purpose {purpose!r}. "
            "Make one with `adapter keys new` and set ADAPTER_KEY_FILE."
        )
        raise ConfigurationError(msg)

    def oldest(self, purpose: Purpose) -> Key:
        """Return the key whose digests must stay comparable over rotations.

        Raises:
            ConfigurationError: There is no unrevoked key of this purpose.
        """
        for key in self._keys:
            if key.purpose == purpose and key.revoked_at is None:
                return key
        return self.newest(purpose)

    def find(self, purpose: Purpose, kid: object) -> Key | None:
        """Return the unrevoked key of exactly this purpose and kid."""
        for key in self._keys:
            if key.purpose == purpose and key.kid == kid and key.revoked_at is None:
                return key
        return None

    def sign(self, purpose: Purpose, message: bytes) -> dict[str, str]:
        """Return ``{"kid", "alg", "mac"}`` over a message."""
        key = self.newest(purpose)
        return {"kid": key.kid, "alg": key.alg, "mac": key.mac(message)}

    def verify(self, purpose: Purpose, message: bytes, signature: Mapping[str, Any]) -> bool:
        """Tell whether a signature is from a known, unrevoked key of this purpose."""
        key = self.find(purpose, signature.get("kid"))
        mac = signature.get("mac")
        if key is None or not isinstance(mac, str) or len(mac) != 64:
            return False
        return key.matches(message, mac) and signature.get("alg") == key.alg


def _key(item: Mapping[str, Any]) -> Key:
    return Key(
        kid=item["kid"],
        alg=item["alg"],
        purpose=item["purpose"],
        secret=base64.urlsafe_b64decode(item["secret"]),
        created_at=int(item["created_at"]),
        revoked_at=item.get("revoked_at"),
    )


def new_document(
    now: int, randomness: Callable[[int], bytes] = secrets.token_bytes
) -> dict[str, Any]:
    """Return a fresh ``keys.json`` document with one key per purpose.

    Args:
        now: Seconds since the epoch, the keys' creation time.
        randomness: Source of secret bytes.
    """
    kid = randomness(6).hex()
    return {
        "version": 1,
        "keys": [
            {
                "kid": f"{purpose}-{kid}",
                "alg": "HS256",
                "purpose": purpose,
                "secret": base64.urlsafe_b64encode(randomness(32)).decode(),
                "created_at": now,
                "revoked_at": None,
            }
            for purpose in PURPOSES
        ],
    }
