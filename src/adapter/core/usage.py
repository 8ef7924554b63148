"""What a model call used, as numbers: tokens in, of them from a cache, and out.

Reads the usage of a provider strictly: what cannot be a usage is unknown, and unknown is never
free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Usage"]

_MOST = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one model call.

    Attributes:
        input: Tokens sent, those from a cache included.
        cached: Of these, tokens the provider read from its cache.
        output: Tokens it answered.
    """

    input: int = 0
    cached: int = 0
    output: int = 0

    @property
    def tokens(self) -> int:
        """Tokens that count against a budget."""
        return self.input + self.output

    @classmethod
    def read(cls, found: Iterable[Any]) -> Usage | None:
        """Return the sum of what the messages of one model call say, or None if unknown.

        Args:
            found: The ``usage_metadata`` of each message; None where it has none.
        """
        parts = [part for part in map(_part, found) if part is not None]
        total = cls(
            input=sum(part.input for part in parts),
            cached=sum(part.cached for part in parts),
            output=sum(part.output for part in parts),
        )
        return total if total.tokens else None


def _part(found: Any) -> Usage | None:
    if not isinstance(found, Mapping):
        return None
    sent, answered = _count(found.get("input_tokens")), _count(found.get("output_tokens"))
    total = _count(found.get("total_tokens"))
    if sent is None or answered is None:
        if total is None:
            return None
        # Only a sum: the dearer kind, so that it is not counted too low.
        known = sent or answered or 0
        return Usage(input=sent or 0, output=max(total - known, 0) + (answered or 0))
    details = found.get("input_token_details")
    cached = _count(details.get("cache_read")) if isinstance(details, Mapping) else None
    return Usage(input=sent, cached=min(cached or 0, sent), output=answered)


def _count(value: Any) -> int | None:
    """Return a number of tokens; None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        return None
    return value
