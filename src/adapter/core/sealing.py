"""Sealing values at rest: AES-256-GCM, bound to the row they belong to.

A sealed value moved to another row, thread or purpose does not open. Keys come from the ring's
``state`` purpose; which one is written beside the value.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from adapter.core.canonical import canonical_bytes, domain, strict_loads
from adapter.core.errors import StoreUnavailable
from adapter.core.keys import Key, KeyRing
from adapter.core.types import JsonValue

__all__ = ["Sealer"]

_NONCE = 12

_SHUT = (
    "A recorded outcome does not open: it was altered or moved, or the state key it was sealed "
    "with is missing or revoked (see `adapter keys list`)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealer:
    """Seals and opens JSON values.

    Attributes:
        keys: Returns the ring in force; a key revoked since still opens nothing new.
        randomness: Source of nonces.
    """

    keys: Callable[[], KeyRing]
    randomness: Callable[[int], bytes] = secrets.token_bytes

    def seal(self, value: JsonValue, *bound: str) -> JsonValue:
        """Return the sealed form of a value.

        Args:
            value: Any JSON value; None stays None.
            bound: What it belongs to, e.g. the call key and the thread.
        """
        if value is None:
            return None
        key = self.keys().newest("state")
        nonce = self.randomness(_NONCE)
        data = _cipher(key).encrypt(nonce, canonical_bytes(value), _associated(key, bound))
        return {"sealed": {"kid": key.kid, "nonce": _text(nonce), "data": _text(data)}}

    def open(self, value: JsonValue, *bound: str) -> JsonValue:
        """Return the value that was sealed for exactly this place.

        Values that were stored unsealed, by a store without keys, are refused: whoever can write
        the database could otherwise replace an outcome by a plain one.

        Raises:
            StoreUnavailable: It does not open: altered, moved, unsealed, or its key is gone.
        """
        if value is None:
            return None
        try:
            sealed = value["sealed"]
            key = self.keys().find("state", sealed["kid"])
            nonce, data = _bytes(sealed["nonce"]), _bytes(sealed["data"])
            if key is not None:
                return strict_loads(_cipher(key).decrypt(nonce, data, _associated(key, bound)))
        except (InvalidTag, KeyError, TypeError, ValueError) as error:
            raise StoreUnavailable(_SHUT) from error
        raise StoreUnavailable(_SHUT)


def _cipher(key: Key) -> AESGCM:
    derived = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=domain("seal-at-rest/v1"))
    return AESGCM(derived.derive(key.secret))


def _associated(key: Key, bound: tuple[str, ...]) -> bytes:
    return canonical_bytes([key.kid, *bound])


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
