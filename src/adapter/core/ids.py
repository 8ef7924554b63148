"""Unique text for events, claims and attempts: random once per process, counted from there.

Never used where an attacker must not guess; a random source asked for each id would cost more than
the rest of an audit event.
"""

from __future__ import annotations

import itertools
import os
import secrets

__all__ = ["IdSource", "new_id"]


class IdSource:
    """Callable that returns a new text each time, also across forked processes."""

    def __init__(self, seed: str | None = None) -> None:
        """Take a seed, or make one."""
        self._seed = seed or secrets.token_hex(12)
        self._numbers = itertools.count(1)

    def __call__(self) -> str:
        """Return the next id."""
        return f"{self._seed}{os.getpid():x}x{next(self._numbers):x}"


new_id = IdSource()
"""Default source of this process."""
