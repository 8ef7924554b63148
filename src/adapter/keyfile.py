"""The server's key file: read it safely, make it once, change it at one stroke, notice changes.

All functions block; callers on an event loop use a thread. This room reads no setting: the path is
given. What the file holds never appears in an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from typing_extensions import override

from adapter.core.canonical import strict_loads
from adapter.core.errors import ConfigurationError
from adapter.core.keys import KeyRing, new_document
from adapter.secretfile import locked, read_secret, replace_secret, write_secret

__all__ = [
    "KeyFileSource",
    "create_keys",
    "edit_keys",
    "load_keys",
    "load_or_create",
    "write_keys",
]

_SETTING: Final = "ADAPTER_KEY_FILE"
_CURE: Final = (
    f"If the server has one, set {_SETTING} (or ADAPTER_DATA_DIR) to the server's; else make one "
    f"with `adapter keys new PATH` and set {_SETTING} to it for both."
)
_RACY_NS: Final = 2_000_000_000
_LOOK_EVERY: Final = 1.0

_log = logging.getLogger(__name__)

Randomness = Callable[[int], bytes]
T = TypeVar("T")


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
    path = Path(path)
    return _parsed(path, _read(path)[0])


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
    moment = time.time_ns() // 1_000_000_000 if now is None else now
    body = _body(new_document(moment, randomness))
    return write_secret(Path(path), body, setting=_SETTING, randomness=randomness)


def edit_keys(path: Path, change: Callable[[KeyRing], tuple[KeyRing, T]]) -> T:
    """Change a key file at one stroke; changes by several processes come one after another.

    Args:
        path: The file.
        change: Gets the ring in the file; returns the new ring and what to give back. What it
            raises leaves the file as it was.

    Returns:
        What ``change`` gave back.

    Raises:
        ConfigurationError: The file cannot be read or written, or is no key file.
    """
    path = Path(path)
    # Read before locking as well: no lock file beside a path that is no key file.
    load_keys(path)
    with locked(path, setting=_SETTING):
        ring, result = change(load_keys(path))
        replace_secret(path, _body(ring.to_document()), setting=_SETTING)
    return result


class KeyFileSource:
    """The key ring of a file, loaded again when the file changed.

    A changed file that is missing, unreadable or malformed leaves the last good ring in use and is
    logged as an error: a half-written file must not lock every thread. `adapter keys` replaces the
    file at one stroke, so its revocations take effect at the next refresh.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Load the file.

        Args:
            path: The file.
            clock: Seconds that only go on, for ``recent``.

        Raises:
            ConfigurationError: As `load_keys`; there is no earlier ring to go on with.
        """
        self._path = Path(path).absolute()
        self._lock = threading.Lock()
        self._content, self._stamp = _read_stamped(self._path)
        self._ring = _parsed(self._path, self._content)
        self._trouble: str | None = None
        self._clock = clock
        self._looked = clock()

    @override
    def __repr__(self) -> str:
        """Show the path only."""
        return f"KeyFileSource({str(self._path)!r})"

    def current(self) -> KeyRing:
        """Return the ring last loaded; no I/O."""
        return self._ring

    async def refresh(self) -> None:
        """Load the file again if it changed, in a worker thread."""
        await asyncio.to_thread(self.reload)

    def recent(self) -> KeyRing:
        """Return the ring as the file had it a second ago or later; blocks.

        For what signs often in a thread of its own, such as the heads of audit chains.
        """
        now = self._clock()
        if now - self._looked < _LOOK_EVERY:
            return self._ring
        self._looked = now
        return self.reload()

    def reload(self) -> KeyRing:
        """Load the file again if it changed, and return the ring; blocks."""
        with self._lock:
            try:
                self._look()
            except (ConfigurationError, OSError) as error:
                said = error.message if isinstance(error, ConfigurationError) else str(error)
                # Once per trouble: this is asked before every question.
                if said != self._trouble:
                    _log.error("%s Going on with the keys loaded before.", said)
                self._trouble = said
            return self._ring

    def _look(self) -> None:
        if self._stamp is not None and _stamp(self._path.stat()) == self._stamp:
            return
        content, stamp = _read_stamped(self._path)
        if content != self._content:
            ring = _parsed(self._path, content)
            self._ring, self._content = ring, content
            _log.info("loaded the key file %s again: it has changed", self._path)
        self._stamp, self._trouble = stamp, None


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    return read_secret(path, setting=_SETTING, cure=_CURE)


def _read_stamped(path: Path) -> tuple[bytes, tuple[int, ...] | None]:
    """Return the content, and a stamp that stays the same only while the content does.

    No stamp for a file changed just now: a second change within the clock's grain could leave it
    as it is, so the content is compared until the file is two seconds old.
    """
    content, found = _read(path)
    age = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns)
    return content, None if age < _RACY_NS else _stamp(found)


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return (
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_size,
        found.st_ino,
        found.st_dev,
        found.st_mode,
    )


def _parsed(path: Path, text: bytes) -> KeyRing:
    try:
        ring = KeyRing.from_document(strict_loads(text))
    except (ValueError, RecursionError, ConfigurationError):
        ring = None
    if ring is not None and ring.keys:
        return ring
    if ring is not None:
        raise ConfigurationError(f"The key file {path} ({_SETTING}) has no key in it. {_CURE}")
    # Raised out here: an exception's context would carry the file's content into a traceback.
    raise ConfigurationError(
        f"The key file {path} ({_SETTING}) is not a valid key file, or a secret in it is short or "
        f"a placeholder. {_CURE}"
    )


def _body(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"
