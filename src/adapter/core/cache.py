"""Results of read-only tools, given again for a while to whoever got them.

In this process only: a cache that is lost costs a call, one that is shared too widely costs a
secret. Never holds results of gated calls, errors or pauses; the executor sees to that.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from adapter.core.canonical import canonical_bytes, digest
from adapter.core.errors import ConfigurationError
from adapter.core.spec import ToolSpec
from adapter.core.types import CallContext, JsonObject, JsonValue

__all__ = ["ResultCache", "cache_key"]


@dataclass(frozen=True, slots=True)
class _Entry:
    body: bytes
    until: int


class ResultCache:
    """A bounded map from what was asked, and by whom, to the recorded result."""

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        max_entries: int = 1024,
        max_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        """Make an empty cache.

        Args:
            clock: Milliseconds since the epoch.
            max_entries: Most results kept; the one unused for longest goes first.
            max_bytes: Most bytes of canonical JSON kept; a larger result is never kept.

        Raises:
            ConfigurationError: A bound below 1.
        """
        if max_entries < 1 or max_bytes < 1:
            msg = "ResultCache needs max_entries and max_bytes of at least 1."
            raise ConfigurationError(msg)
        self._clock = clock
        self._bounds = (max_entries, max_bytes)
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> JsonValue | None:
        """Return a copy of the recorded result, or None when there is none any more."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry.until <= self._clock():
                self._drop(key)
                return None
            self._entries.move_to_end(key)
            body = entry.body
        return json.loads(body)

    def put(self, key: str, recorded: JsonValue, ttl: float) -> None:
        """Keep a result.

        Args:
            key: From ``cache_key``.
            recorded: JSON form of the result.
            ttl: Seconds it may be given again.
        """
        body = canonical_bytes(recorded)
        most, room = self._bounds
        with self._lock:
            self._drop(key)
            if len(body) > room:
                return
            self._entries[key] = _Entry(body, self._clock() + round(ttl * 1000))
            self._size += len(body)
            while len(self._entries) > most or self._size > room:
                self._drop(next(iter(self._entries)))

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= len(entry.body)


def cache_key(
    spec: ToolSpec, digests: tuple[str, str], arguments: JsonObject, ctx: CallContext
) -> str:
    """Return the key of a call's result.

    Args:
        spec: The tool.
        digests: Digests of its policy and its schema: another meaning has another key.
        arguments: Canonical arguments; ``1``, ``1.0``, ``True`` and ``"1"`` differ.
        ctx: Whose call it is: the authenticated user's, else the thread's.
    """
    whose = ["thread", ctx.thread_id] if ctx.user is None else ["user", ctx.user]
    # Canonical JSON writes 1.0 as 1; Python's writer keeps the types apart.
    written = json.dumps(arguments, sort_keys=True, ensure_ascii=True)
    return digest("cache/v1", [spec.name, spec.version, *digests, written, *whose])
