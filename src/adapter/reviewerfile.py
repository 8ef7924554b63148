"""The reviewer's key file: read it, make it while enrolling, pin another server key in it.

All functions block. This room reads no setting: path and passphrase are given. What a file holds
never appears in an error.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from adapter.core.algorithms import Key
from adapter.core.canonical import strict_loads
from adapter.core.errors import ConfigurationError
from adapter.core.keychange import Enrolment, enrol
from adapter.core.keys import KeyRing
from adapter.core.reviewerkey import Reviewer, pinned, read_reviewer, reviewer_document
from adapter.keyfile import edit_keys
from adapter.secretfile import locked, read_secret, replace_secret, write_secret

__all__ = ["enrol_reviewer", "load_reviewer", "pin_server_key"]

_SETTING: Final = "ADAPTER_REVIEWER_KEY"
_CURE: Final = f"Make one with `adapter keys new --reviewer NAME` and set {_SETTING} to it."


def load_reviewer(path: Path, passphrase: str | None = None) -> Reviewer:
    """Read a reviewer's key file.

    Args:
        path: The file that ADAPTER_REVIEWER_KEY names.
        passphrase: Opens encrypted private keys.

    Raises:
        ConfigurationError: Missing, unreadable, open to other users of this machine (POSIX), not
            a reviewer's key file, or not opened by the passphrase.
    """
    path = Path(path)
    document = _document(path)
    try:
        return read_reviewer(document, passphrase)
    except ConfigurationError as error:
        message = error.message
    # Raised out here: an exception's context would carry the file's content into a traceback.
    raise _about(path, message)


def enrol_reviewer(
    key_file: Path,
    out: Path,
    reviewer: str,
    roles: Iterable[str] | None = None,
    *,
    now: int,
    passphrase: str | None = None,
    randomness: Callable[[int], bytes] = secrets.token_bytes,
) -> Enrolment:
    """Make a reviewer's pair: the private half in a new file, the public half in the server's.

    Args:
        key_file: The server's key file.
        out: The reviewer's new file, mode 0600.
        reviewer: Whose key it is.
        roles: Their roles; None keeps the ones they have.
        now: Seconds since the epoch.
        passphrase: Encrypts the private half.
        randomness: Source of secret bytes.

    Returns:
        What was enrolled.

    Raises:
        ConfigurationError: ``out`` exists, a file cannot be read or written, or the name, a role
            or the passphrase cannot be used. Nothing is enrolled then.
    """

    def change(ring: KeyRing) -> tuple[KeyRing, Enrolment]:
        made = enrol(ring, reviewer, roles, now=now, randomness=randomness)
        document = reviewer_document(
            made.own, made.server, passphrase=passphrase, randomness=randomness
        )
        if not write_secret(out, _body(document), setting=_SETTING, randomness=randomness):
            raise ConfigurationError(
                f"{out} exists and is not overwritten: it may hold the only copy of a key. Give "
                "another path with --out."
            )
        written.append(out)
        return made.ring, made

    out = Path(out)
    written: list[Path] = []
    try:
        return edit_keys(key_file, change)
    except BaseException:
        # A private key that nobody knows would only look like one that counts.
        for path in written:
            path.unlink(missing_ok=True)
        raise


def pin_server_key(path: Path, seal: Key) -> None:
    """Pin one more of the server's seal keys in a reviewer's file.

    Args:
        path: The reviewer's file.
        seal: The server's key, public half.

    Raises:
        ConfigurationError: The file cannot be read or written, is no reviewer's key file, or pins
            another key under this kid.
    """
    path = Path(path)
    _document(path)
    with locked(path, setting=_SETTING):
        try:
            body = _body(pinned(_document(path), seal))
        except (KeyError, TypeError):
            body = None
        if body is None:
            raise _about(path, f"It is no reviewer's key file. {_CURE}")
        replace_secret(path, body, setting=_SETTING)


def _document(path: Path) -> Any:
    content, _ = read_secret(path, setting=_SETTING, cure=_CURE)
    try:
        return strict_loads(content)
    except (ValueError, RecursionError):
        pass
    raise _about(path, f"It is not JSON. {_CURE}")


def _about(path: Path, message: str) -> ConfigurationError:
    return ConfigurationError(f"The key file {path} ({_SETTING}): {message}")


def _body(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"
