"""The ``keys.json`` form of a key ring: reading it strictly, writing it, starting a new one.

Version 1: ``{"version": 1, "keys": [...], "reviewers": {...}}``. Pure: no file access. What a
document holds is never quoted in an error.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from adapter.core.algorithms import PURPOSES, Key, Purpose, checked_name
from adapter.core.errors import ConfigurationError

__all__ = ["decoded", "encoded", "new_document", "new_secret_key", "read_document", "written"]

Randomness = Callable[[int], bytes]

_VERSION: Final = 1
_FIELDS: Final = frozenset(
    {
        "kid",
        "alg",
        "purpose",
        "secret",
        "public",
        "reviewer",
        "roles",
        "created_at",
        "revoked_at",
    }
)
_SECRET_BYTES: Final = 32


def read_document(
    document: Mapping[str, Any],
) -> tuple[tuple[Key, ...], dict[str, tuple[str, ...]]]:
    """Read a document.

    Args:
        document: Each key has ``kid``, ``alg``, ``purpose``, ``created_at``, perhaps
            ``revoked_at`` (seconds since the epoch), and ``secret`` (URL-safe base64). An Ed25519
            key has ``public``, and ``secret`` only where it signs. ``reviewer`` and ``roles`` bind
            a decision key to a person; ``reviewers`` gives roles to names without a key.

    Returns:
        The keys in the document's order, and roles by reviewer.

    Raises:
        ConfigurationError: Not of that form, or a field this version does not know (a misspelt
            ``revoked_at`` must not pass for an unrevoked key).
    """
    try:
        version = document["version"]
        if type(version) is int and version != _VERSION:
            msg = "The key file has a version this adapter does not know; upgrade the adapter."
            raise ConfigurationError(msg)
        keys = tuple(_key(item) for item in document["keys"])
        roles = {
            checked_name(name, "reviewer"): _roles(entry["roles"])
            for name, entry in document.get("reviewers", {}).items()
        }
        if document.keys() - {"version", "keys", "reviewers"} or type(version) is not int:
            raise ValueError("a field is not known")  # noqa: TRY301 - one form, one error
    except (KeyError, TypeError, AttributeError, ValueError, binascii.Error) as error:
        msg = (
            'The key file is not of the form {"version": 1, "keys": [...], "reviewers": {...}}. '
            "Make a new one with `adapter keys new`."
        )
        raise ConfigurationError(msg) from error
    return keys, roles


def written(keys: Iterable[Key], roles: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Return the document of these keys and roles; it holds secrets."""
    document: dict[str, Any] = {"version": _VERSION, "keys": [_item(key) for key in keys]}
    if roles:
        document["reviewers"] = {name: {"roles": sorted(roles[name])} for name in sorted(roles)}
    return document


def new_document(now: int, randomness: Randomness = secrets.token_bytes) -> dict[str, Any]:
    """Return a fresh ``keys.json`` document with one key per purpose.

    Args:
        now: Seconds since the epoch, the keys' creation time.
        randomness: Source of secret bytes.
    """
    tag = randomness(6).hex()
    return written((new_secret_key(purpose, now, randomness, tag) for purpose in PURPOSES), {})


def new_secret_key(
    purpose: Purpose, now: int, randomness: Randomness = secrets.token_bytes, tag: str = ""
) -> Key:
    """Return a new HS256 key of one purpose.

    Args:
        purpose: What it signs.
        now: Seconds since the epoch.
        randomness: Source of secret bytes.
        tag: Ending of the kid; random when empty.
    """
    kid = f"{purpose}-{tag or randomness(6).hex()}"
    return Key(kid=kid, purpose=purpose, secret=randomness(_SECRET_BYTES), created_at=now)


def encoded(value: bytes) -> str:
    """Return bytes as URL-safe base64."""
    return base64.urlsafe_b64encode(value).decode()


def decoded(text: Any) -> bytes:
    """Return the bytes of base64 text, strictly.

    Raises:
        ValueError: Not base64.
        TypeError: Not text.
    """
    if not isinstance(text, str):
        raise TypeError("base64 is text")
    return base64.b64decode(text, altchars=b"-_", validate=True)


def _item(key: Key) -> dict[str, Any]:
    item: dict[str, Any] = {"kid": key.kid, "alg": key.alg, "purpose": key.purpose}
    if key.secret:
        item["secret"] = encoded(key.secret)
    if key.public:
        item["public"] = encoded(key.public)
    if key.reviewer is not None:
        item |= {"reviewer": key.reviewer, "roles": list(key.roles)}
    return item | {"created_at": key.created_at, "revoked_at": key.revoked_at}


def _key(item: Mapping[str, Any]) -> Key:
    if item.keys() - _FIELDS:
        raise ValueError("a field is not known")
    return Key(
        kid=_text(item["kid"]),
        alg=item["alg"],
        purpose=item["purpose"],
        secret=decoded(item["secret"]) if "secret" in item else b"",
        public=decoded(item["public"]) if item.get("public") is not None else b"",
        reviewer=item.get("reviewer"),
        roles=_roles(item.get("roles") or []),
        created_at=_seconds(item["created_at"]),
        revoked_at=None if item.get("revoked_at") is None else _seconds(item["revoked_at"]),
    )


def _roles(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list):
        raise TypeError("roles are a list")
    return tuple(sorted({checked_name(name, "role") for name in names}))


def _seconds(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("a time is a whole number of seconds")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a kid is text")
    return value
