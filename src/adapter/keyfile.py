"""The key file: read it safely, make it once.

All functions block; callers on an event loop use a thread. This room reads no setting: the path is
given. What the file holds never appears in an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

from adapter.core.canonical import strict_loads
from adapter.core.errors import ConfigurationError
from adapter.core.keys import KeyRing, new_document

__all__ = ["create_keys", "load_keys", "load_or_create", "write_keys"]

MAX_FILE = 1_048_576
"""Largest key file read, in bytes."""

_OTHERS = 0o077
_POSIX = os.name == "posix"
_CURE = "Make one with `adapter keys new PATH` and set ADAPTER_KEY_FILE to it."

Randomness = Callable[[int], bytes]


def load_keys(path: Path) -> KeyRing:
    """Read a key file.

    Args:
        path: The file that ADAPTER_KEY_FILE names.

    Returns:
        The key ring.

    Raises:
        ConfigurationError: Missing, unreadable, open to other users of this machine (POSIX), or
            not a key file.
    """
    ring: KeyRing | None = None
    text = _read(Path(path))
    with contextlib.suppress(ValueError, RecursionError, ConfigurationError):
        ring = KeyRing.from_document(strict_loads(text))
    # Raised out here: an exception's context would carry the file's content into a traceback.
    if ring is None:
        raise ConfigurationError(
            f"The key file {path} (ADAPTER_KEY_FILE) is not a valid key file, or a secret in it is "
            f"short or a placeholder. {_CURE}"
        )
    return ring


def create_keys(
    path: Path, now: int | None = None, randomness: Randomness = secrets.token_bytes
) -> KeyRing:
    """Make a key file unless there is one, and read it.

    Of several processes that start at once one writes the file; all of them read that one.

    Args:
        path: Where the file goes; its folder is made with mode 0700.
        now: Seconds since the epoch, the keys' creation time; None reads the clock.
        randomness: Source of secret bytes.

    Returns:
        The key ring in the file.

    Raises:
        ConfigurationError: The file cannot be written or read.
    """
    write_keys(path, now, randomness)
    return load_keys(path)


def load_or_create(
    path: Path,
    now: int | None = None,
    randomness: Randomness = secrets.token_bytes,
    *,
    created: Callable[[Path], object] | None = None,
) -> KeyRing:
    """Read a key file, making it first when there is none.

    Args:
        path: The file.
        now: Seconds since the epoch; None reads the clock.
        randomness: Source of secret bytes.
        created: Called with the path when this call made the file, to say so.

    Returns:
        The key ring in the file.

    Raises:
        ConfigurationError: The file cannot be written or read, or is no key file.
    """
    if not Path(path).exists() and write_keys(path, now, randomness) and created is not None:
        created(Path(path))
    return load_keys(path)


def write_keys(
    path: Path, now: int | None = None, randomness: Randomness = secrets.token_bytes
) -> bool:
    """Write a new key file, readable by its owner only; never overwrite one.

    The file appears whole or not at all.

    Args:
        path: Where the file goes; its folder is made with mode 0700.
        now: Seconds since the epoch; None reads the clock.
        randomness: Source of secret bytes.

    Returns:
        Whether this call made the file; False when there was one.

    Raises:
        ConfigurationError: It cannot be written.
    """
    path = Path(path)
    moment = time.time_ns() // 1_000_000_000 if now is None else now
    body = json.dumps(new_document(moment, randomness), indent=2).encode() + b"\n"
    part = path.with_name(f".{path.name}.{randomness(8).hex()}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _write_new(part, body)
            return _publish(part, path, body)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise ConfigurationError(
        f"The key file {path} cannot be written ({reason}): make its folder writable, or set "
        "ADAPTER_KEY_FILE to a file that can be."
    )


def _publish(part: Path, path: Path, body: bytes) -> bool:
    """Give the finished file its name unless that is taken."""
    try:
        # A rename would overwrite on POSIX; on Windows a rename is what refuses to.
        if _POSIX:
            os.link(part, path)
        else:
            part.rename(path)
    except FileExistsError:
        return False
    except OSError:
        # No hard links on this file system: exclusive creation keeps "one file, never two".
        try:
            _write_new(path, body)
        except FileExistsError:
            return False
    return True


def _write_new(path: Path, body: bytes) -> None:
    """Create a file of mode 0600 that must not exist yet, and flush it to disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> bytes:
    """Return the file's bytes after looking at its permissions."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if _POSIX and stat.S_IMODE(found.st_mode) & _OTHERS:
                problem = (
                    f"The key file {path} (ADAPTER_KEY_FILE) is open to other users of this "
                    f"machine. Close it with `chmod 600 {path}`."
                )
                raise ConfigurationError(problem)
            return file.read(MAX_FILE)
    except FileNotFoundError:
        problem = f"There is no key file at {path}. {_CURE}"
    except OSError as error:
        problem = (
            f"The key file {path} (ADAPTER_KEY_FILE) cannot be read "
            f"({error.strerror or type(error).__name__}): make it a file this user can read, or "
            "set ADAPTER_KEY_FILE to one."
        )
    raise ConfigurationError(problem)
