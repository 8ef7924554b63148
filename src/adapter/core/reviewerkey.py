"""The reviewer's own file: one person's private keys and the server's pinned public ones.

``{"version": 1, "reviewer": NAME, "keys": [...], "server": [...]}``. A key in it holds ``private``
(base64 of the seed) or ``encrypted_private`` (PKCS8 PEM under the passphrase). PKCS8 itself
stretches a passphrase too little, so new files stretch it with scrypt first and say so in ``kdf``.
Pure: no file access. Neither key nor passphrase appears in an error.
"""

from __future__ import annotations

import binascii
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from adapter.core.algorithms import Key, checked_name
from adapter.core.errors import ConfigurationError
from adapter.core.keydocument import decoded, encoded
from adapter.core.keys import KeyRing

__all__ = ["MIN_PASSPHRASE", "Reviewer", "pinned", "read_reviewer", "reviewer_document"]

MIN_PASSPHRASE = 8
"""Shortest passphrase accepted for a new file, in characters."""

_VERSION: Final = 1
_SCRYPT: Final = {"n": 2**15, "r": 8, "p": 1}
# Anybody may hand a reviewer a file; it must not be able to take all memory.
_MAX_SCRYPT: Final = {"n": 2**17, "r": 8, "p": 4}
_SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer:
    """Who decides, and with which keys.

    Attributes:
        name: The reviewer every answer must name.
        keys: Their decision keys and the server's public seal keys.
    """

    name: str
    keys: KeyRing


def reviewer_document(
    own: Key,
    server: Iterable[Key],
    *,
    passphrase: str | None = None,
    randomness: Callable[[int], bytes] = secrets.token_bytes,
) -> dict[str, Any]:
    """Return the file of one reviewer; it holds the private key.

    Args:
        own: An Ed25519 decision key with its private half and a reviewer.
        server: The server's Ed25519 seal keys.
        passphrase: Encrypts the private half.
        randomness: Source of the salt.

    Raises:
        ConfigurationError: The passphrase is too short.
    """
    item: dict[str, Any] = {"kid": own.kid, "alg": own.alg, "purpose": own.purpose}
    if passphrase is None:
        item["private"] = encoded(own.secret)
    else:
        item |= _locked(own.secret, passphrase, randomness(_SALT_BYTES))
    return {
        "version": _VERSION,
        "reviewer": own.reviewer,
        "keys": [item],
        "server": [_public(key) for key in server],
    }


def read_reviewer(document: Mapping[str, Any], passphrase: str | None = None) -> Reviewer:
    """Read a reviewer's file.

    Args:
        document: The file's JSON.
        passphrase: Opens encrypted private keys; scrypt makes this take a tenth of a second.

    Raises:
        ConfigurationError: Not of that form, no passphrase, or a wrong one; nothing is quoted.
    """
    try:
        if document["version"] != _VERSION or type(document["version"]) is not int:
            raise ValueError("another version")  # noqa: TRY301 - one form, one error
        name = checked_name(document["reviewer"], "reviewer")
        own = [
            _private(item, name, place, passphrase) for place, item in enumerate(document["keys"])
        ]
        server = [_seal(item, place) for place, item in enumerate(document["server"])]
    except (KeyError, TypeError, AttributeError, ValueError, binascii.Error) as error:
        msg = (
            'The reviewer\'s key file is not of the form {"version": 1, "reviewer": "...", '
            '"keys": [...], "server": [...]}. Make a new one with `adapter keys new --reviewer '
            "NAME`."
        )
        raise ConfigurationError(msg) from error
    ring = KeyRing([*own, *server])
    ring.require("decision")
    return Reviewer(name=name, keys=ring)


def pinned(document: Mapping[str, Any], seal: Key) -> dict[str, Any]:
    """Return a reviewer's document in which one more server seal key is pinned.

    Raises:
        ConfigurationError: The file pins another key under this kid.
    """
    kept = [item for item in document["server"] if item["kid"] != seal.kid]
    same = [item for item in document["server"] if item["kid"] == seal.kid]
    if same and same != [_public(seal)]:
        msg = f"The file pins another key under the kid {seal.kid!r}; a kid names one key."
        raise ConfigurationError(msg)
    return {**document, "server": [*kept, _public(seal)]}


def _public(key: Key) -> dict[str, Any]:
    return {
        "kid": key.kid,
        "alg": key.alg,
        "purpose": key.purpose,
        "public": encoded(key.public),
    }


def _seal(item: Mapping[str, Any], place: int) -> Key:
    if (item["alg"], item["purpose"]) != ("Ed25519", "seal"):
        raise ValueError("only seal keys are pinned")
    return Key(
        kid=item["kid"],
        alg="Ed25519",
        purpose="seal",
        public=decoded(item["public"]),
        created_at=place,
    )


def _private(item: Mapping[str, Any], name: str, place: int, passphrase: str | None) -> Key:
    if (item["alg"], item["purpose"]) != ("Ed25519", "decision"):
        raise ValueError("only decision keys are a reviewer's")
    sealed = item.get("encrypted_private")
    secret = decoded(item["private"]) if sealed is None else _opened(item, sealed, passphrase)
    if not secret:
        raise ValueError("a reviewer's key signs")
    return Key(
        kid=item["kid"],
        alg="Ed25519",
        purpose="decision",
        secret=secret,
        reviewer=name,
        created_at=place,
    )


def _locked(seed: bytes, passphrase: str, salt: bytes) -> dict[str, Any]:
    if len(passphrase) < MIN_PASSPHRASE:
        msg = f"The passphrase is too short: at least {MIN_PASSPHRASE} characters."
        raise ConfigurationError(msg)
    kdf = {"name": "scrypt", "salt": encoded(salt), **_SCRYPT}
    pem = Ed25519PrivateKey.from_private_bytes(seed).private_bytes(
        Encoding.PEM,
        PrivateFormat.PKCS8,
        BestAvailableEncryption(_stretched(passphrase, kdf)),
    )
    return {"encrypted_private": pem.decode("ascii"), "kdf": kdf}


def _opened(item: Mapping[str, Any], pem: str, passphrase: str | None) -> bytes:
    if not passphrase:
        msg = "This private key is encrypted: set ADAPTER_REVIEWER_PASSPHRASE."
        raise ConfigurationError(msg)
    kdf = item.get("kdf")
    password = passphrase.encode() if kdf is None else _stretched(passphrase, kdf)
    try:
        key = load_pem_private_key(pem.encode("ascii"), password)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        msg = "ADAPTER_REVIEWER_PASSPHRASE does not open this private key, or it is damaged."
        raise ConfigurationError(msg)
    return key.private_bytes_raw()


def _stretched(passphrase: str, kdf: Mapping[str, Any]) -> bytes:
    costs = {name: kdf[name] for name in _MAX_SCRYPT}
    if kdf["name"] != "scrypt" or any(
        type(cost) is not int or not 1 <= cost <= _MAX_SCRYPT[name] for name, cost in costs.items()
    ):
        raise ValueError("another key derivation")
    made = Scrypt(salt=decoded(kdf["salt"]), length=32, **costs)
    return made.derive(passphrase.encode()).hex().encode()
