"""One key: its algorithm, its one purpose, and perhaps the one person it belongs to.

HS256 (HMAC-SHA256, a shared secret) and Ed25519 (a public half that verifies, a private seed that
signs) give the same wire form, lowercase hexadecimal. The algorithm is a property of the key; what
a message says about it is never believed. Knows no ring, no file and no clock.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Final, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from adapter.core.canonical import domain
from adapter.core.errors import ConfigurationError

__all__ = [
    "MAX_NAME",
    "MIN_SECRET",
    "PURPOSES",
    "Algorithm",
    "Key",
    "Purpose",
    "checked_name",
    "checked_secret",
    "folded",
]

Algorithm = Literal["HS256", "Ed25519"]

Purpose = Literal["seal", "decision", "state", "audit", "digest"]
PURPOSES: tuple[Purpose, ...] = ("seal", "decision", "state", "audit", "digest")

MIN_SECRET = 16
"""Shortest accepted secret, in bytes."""

MAX_NAME = 200
"""Longest name of a key, reviewer or role, in characters."""

_ED25519_BYTES: Final = 32
_VARIETY: Final = 5
_SIGNATURE_BYTES: Final[dict[Algorithm, int]] = {"HS256": 32, "Ed25519": 64}
# State is also encrypted and digests are compared: both need a secret both sides share.
_ALGORITHMS: Final[dict[Purpose, tuple[Algorithm, ...]]] = {
    "seal": ("HS256", "Ed25519"),
    "decision": ("HS256", "Ed25519"),
    "state": ("HS256",),
    "audit": ("HS256", "Ed25519"),
    "digest": ("HS256",),
}
_NEW_FILE: Final = "Make a new key file with `adapter keys new`."
_HOW_TO_MAKE_ONE: Final = (
    'Make one once with `python -c "import secrets; print(secrets.token_hex(32))"`, keep it as a '
    "secret, and give bytes.fromhex(…) of it; for a trial in one process os.urandom(32) will do."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: an id, an algorithm, one purpose.

    Attributes:
        kid: Names exactly this key.
        alg: How it signs; ``Ed25519`` for the purposes seal, decision and audit only.
        purpose: The only kind of message it signs and verifies.
        secret: HS256: the shared secret. Ed25519: the private seed, 32 bytes, or empty where only
            the public half is held.
        public: Ed25519: the public half, 32 bytes, derived from the seed when left out.
        reviewer: The one person whose decisions it signs; None binds it to nobody.
        roles: That person's roles.
        created_at: Seconds since the epoch; the newest unrevoked key of a purpose signs.
        revoked_at: Seconds since the epoch; a revoked key neither signs nor verifies.
    """

    kid: str
    alg: Algorithm = "HS256"
    purpose: Purpose
    secret: bytes = field(default=b"", repr=False)
    public: bytes = field(default=b"", repr=False)
    reviewer: str | None = None
    roles: tuple[str, ...] = ()
    created_at: int = 0
    revoked_at: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be a key."""
        if not self.kid or self.alg not in _ALGORITHMS.get(self.purpose, ()):
            msg = (
                "A key needs a kid, a purpose out of " + ", ".join(PURPOSES) + " and the "
                "algorithm HS256, or for seal, decision and audit Ed25519. " + _NEW_FILE
            )
            raise ConfigurationError(msg)
        checked_name(self.kid, "kid")
        self._check_owner()
        if self.alg == "HS256":
            self._check_secret()
        else:
            self._check_pair()

    @property
    def can_sign(self) -> bool:
        """Whether the half that signs is here."""
        return bool(self.secret)

    def mac(self, message: bytes) -> str:
        """Return this key's signature over its purpose and a message, hexadecimal.

        Raises:
            ConfigurationError: Only the public half is here.
        """
        if not self.can_sign:
            msg = (
                f"Key {self.kid!r} is the public half of a pair: it verifies and cannot sign. "
                "Sign where the private half is (ADAPTER_REVIEWER_KEY)."
            )
            raise ConfigurationError(msg)
        if self.alg == "HS256":
            return self._hmac(message).finalize().hex()
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(self._tagged(message)).hex()

    def matches(self, message: bytes, mac: str) -> bool:
        """Tell whether a signature is this key's; secrets are compared in constant time."""
        try:
            signature = bytes.fromhex(mac)
            # One spelling per signature: an answer must not have a second digest.
            if len(signature) != _SIGNATURE_BYTES[self.alg] or signature.hex() != mac:
                return False
            if self.alg == "HS256":
                self._hmac(message).verify(signature)
            else:
                public = Ed25519PublicKey.from_public_bytes(self.public)
                public.verify(signature, self._tagged(message))
        except (InvalidSignature, ValueError):
            return False
        return True

    def _hmac(self, message: bytes) -> hmac.HMAC:
        made = hmac.HMAC(self.secret, hashes.SHA256())
        made.update(self._tagged(b""))
        made.update(message)
        return made

    def _tagged(self, message: bytes) -> bytes:
        return domain(f"{self.purpose}/v1") + message

    def _check_owner(self) -> None:
        if self.reviewer is None:
            if self.roles:
                msg = f"Key {self.kid!r} has roles but no reviewer: name whose key it is."
                raise ConfigurationError(msg)
            return
        checked_name(self.reviewer, "reviewer")
        for role in self.roles:
            checked_name(role, "role")
        if self.purpose != "decision":
            msg = f"Key {self.kid!r} names a reviewer; only a decision key belongs to a person."
            raise ConfigurationError(msg)

    def _check_secret(self) -> None:
        if self.public:
            msg = f"Key {self.kid!r} is HS256: it has a secret and no public half. {_NEW_FILE}"
            raise ConfigurationError(msg)
        if len(self.secret) < MIN_SECRET or len(set(self.secret)) < _VARIETY:
            msg = (
                f"The secret of key {self.kid!r} is too short or a placeholder: at least "
                f"{MIN_SECRET} random bytes. {_NEW_FILE}"
            )
            raise ConfigurationError(msg)

    def _check_pair(self) -> None:
        given = [half for half in (self.secret, self.public) if half]
        if not given or any(
            len(half) != _ED25519_BYTES or len(set(half)) < _VARIETY for half in given
        ):
            msg = (
                f"Key {self.kid!r} is Ed25519: it needs a public half of {_ED25519_BYTES} bytes, "
                "and where it signs the private half it belongs to. Make a new one with "
                "`adapter keys new --reviewer NAME`."
            )
            raise ConfigurationError(msg)
        if self.secret:
            private = Ed25519PrivateKey.from_private_bytes(self.secret)
            public = private.public_key().public_bytes_raw()
            if self.public not in (b"", public):
                msg = f"The two halves of key {self.kid!r} do not belong together."
                raise ConfigurationError(msg)
            object.__setattr__(self, "public", public)


def checked_name(name: object, what: str) -> str:
    """Return the name of a key, reviewer or role.

    Args:
        name: 1 to 200 printable characters without space around them or a comma.
        what: Word for the error message.

    Raises:
        ConfigurationError: Not such a name.
    """
    if (
        isinstance(name, str)
        and 0 < len(name) <= MAX_NAME
        and name.isprintable()
        and name == name.strip()
        and "," not in name
    ):
        return name
    msg = (
        f"A {what} is a name of 1 to {MAX_NAME} printable characters, without a comma and "
        "without space around it."
    )
    raise ConfigurationError(msg)


def checked_secret(secret: object, name: str) -> bytes:
    """Return a secret that keys may be derived from.

    Args:
        secret: 16 or more random bytes.
        name: What it was given as, for the error message.

    Raises:
        ConfigurationError: It is no bytes, is short, or is no random secret.
    """
    if not isinstance(secret, bytes):
        fault = f"takes bytes, not a {type(secret).__name__}"
    elif len(secret) < MIN_SECRET:
        fault = f"is too short: {len(secret)} bytes, and it needs {MIN_SECRET} or more"
    elif len(set(secret)) == 1:
        fault = "is no random secret: all its bytes are equal"
    elif len(set(secret)) < _VARIETY:
        fault = "is no random secret: it is made of a few bytes that repeat"
    else:
        return secret
    msg = f"{name} {fault}. {_HOW_TO_MAKE_ONE}"
    raise ConfigurationError(msg)


def folded(name: str) -> str:
    """Return a form in which names that people read as the same one are mostly equal.

    Case, width, what has no form of its own, and the number of spaces do not count.
    """
    text = unicodedata.normalize("NFKC", name).casefold()
    return " ".join("".join(one for one in text if one.isprintable()).split())
