"""Files that only their owner may read: checked on reading, whole or absent on writing.

All functions block; callers on an event loop use a thread. This room knows no key and no setting:
the path is given, and the name of its setting only to say it in errors. What a file holds never
appears in an error.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from adapter.core.errors import ConfigurationError

__all__ = ["MAX_FILE", "locked", "read_secret", "replace_secret", "write_secret"]

MAX_FILE = 1_048_576
"""Largest file read, in bytes."""

_OTHERS = 0o077
_POSIX = os.name == "posix"

Randomness = Callable[[int], bytes]


def read_secret(path: Path, *, setting: str, cure: str) -> tuple[bytes, os.stat_result]:
    """Return a file's bytes after looking at its permissions.

    Args:
        path: The file.
        setting: The setting that names it.
        cure: How to get such a file, for the error when there is none.

    Returns:
        The content, and what the file was when it was opened.

    Raises:
        ConfigurationError: Missing, unreadable, or open to other users of this machine (POSIX).
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if _POSIX and stat.S_IMODE(found.st_mode) & _OTHERS:
                problem = (
                    f"The key file {path} ({setting}) is open to other users of this machine. "
                    f"Close it with `chmod 600 {path}`."
                )
                raise ConfigurationError(problem)
            return file.read(MAX_FILE), found
    except FileNotFoundError:
        problem = f"There is no key file at {path}. {cure}"
    except OSError as error:
        problem = (
            f"The key file {path} ({setting}) cannot be read "
            f"({error.strerror or type(error).__name__}): make it a file this user can read, or "
            f"set {setting} to one."
        )
    raise ConfigurationError(problem)


def write_secret(
    path: Path, body: bytes, *, setting: str, randomness: Randomness = secrets.token_bytes
) -> bool:
    """Write a new file of mode 0600 unless there is one; it appears whole or not at all.

    Args:
        path: Where the file goes; its folder is made with mode 0700.
        body: What it holds.
        setting: The setting that names it.
        randomness: Makes the name of the unfinished file.

    Returns:
        Whether this call made the file; False when there was one.

    Raises:
        ConfigurationError: It cannot be written.
    """
    part = _part(path, randomness)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _write_new(part, body)
            return _publish(part, path, body)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise _unwritten(path, setting, reason)


def replace_secret(
    path: Path, body: bytes, *, setting: str, randomness: Randomness = secrets.token_bytes
) -> None:
    """Put a new content in a file's place at one stroke, with mode 0600 and the same owner.

    Args:
        path: A file that exists; a symbolic link is followed.
        body: What it holds from now on.
        setting: The setting that names it.
        randomness: Makes the name of the unfinished file.

    Raises:
        ConfigurationError: It cannot be written; the old content stays.
    """
    try:
        path = path.resolve(strict=True)
        part = _part(path, randomness)
        owner = path.stat()
        try:
            _write_new(part, body)
            made = part.stat()
            if _POSIX and (made.st_uid, made.st_gid) != (owner.st_uid, owner.st_gid):
                # Changed by root: the server must still be able to read its file.
                os.chown(part, owner.st_uid, owner.st_gid)
            part.replace(path)
            with contextlib.suppress(OSError):
                _flush_folder(path.parent)
            return
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise _unwritten(path, setting, reason)


@contextlib.contextmanager
def locked(path: Path, *, setting: str) -> Iterator[None]:
    """Hold the lock of a file against other processes that change it; wait for it.

    Args:
        path: The file; its lock is a file beside it that stays.
        setting: The setting that names it.

    Raises:
        ConfigurationError: The lock cannot be had.
    """
    place = path.resolve()
    descriptor = None
    try:
        descriptor = os.open(place.with_name(f".{place.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        _lock(descriptor)
    except OSError as error:
        if descriptor is not None:
            os.close(descriptor)
        reason = error.strerror or type(error).__name__
    else:
        try:
            yield
        finally:
            # Closing it gives the lock back, also where the process dies here.
            os.close(descriptor)
        return
    raise _unwritten(path, setting, reason)


if sys.platform == "win32":  # pragma: no cover - the tests run where fcntl is
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

    def _flush_folder(folder: Path) -> None:
        """Do nothing: a folder cannot be flushed here."""

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def _flush_folder(folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _part(path: Path, randomness: Randomness) -> Path:
    return path.with_name(f".{path.name}.{randomness(8).hex()}.tmp")


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


def _unwritten(path: Path, setting: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"The key file {path} cannot be written ({reason}): make its folder writable, or set "
        f"{setting} to a file that can be."
    )
