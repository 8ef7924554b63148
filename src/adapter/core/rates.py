"""How often per time: the notation ``10/minute``, read strictly.

A typing error in a limit must not become another limit, so nothing is guessed here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapter.core.errors import ConfigurationError

__all__ = ["Rate"]

_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_LETTERS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_FORM = re.compile(
    r"([1-9][0-9]{0,8})/(?:(second|minute|hour|day)|([1-9][0-9]{0,5})([smhd]))", re.ASCII
)


_MOST = 2**53 - 1
_LONGEST = 999_999 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most so many within a sliding window.

    Attributes:
        limit: How many.
        seconds: Length of the window.
    """

    limit: int
    seconds: float

    def __post_init__(self) -> None:
        """Refuse a rate nothing fits in, or that no counter holds."""
        if not 1 <= self.limit <= _MOST or not 0 < self.seconds <= _LONGEST:
            msg = (
                "A Rate needs a limit of at least 1 and a positive window in seconds, and counts "
                f"at most {_MOST} within {_LONGEST} seconds."
            )
            raise ConfigurationError(msg)

    @classmethod
    def parse(cls, text: Rate | str | None) -> Rate | None:
        """Return the rate a text says; a Rate and None are returned as they are.

        Args:
            text: ``10/minute`` (second, minute, hour, day), or ``5/30s`` (s, m, h, d).

        Raises:
            ConfigurationError: The text says no rate.
        """
        if text is None or isinstance(text, Rate):
            return text
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            msg = (
                f"{text!r} is no rate: write 10/minute (second, minute, hour or day), or 5/30s "
                "(a number of s, m, h or d)."
            )
            raise ConfigurationError(msg)
        limit, unit, number, letter = found.groups()
        seconds = _UNITS[unit] if unit else int(number) * _LETTERS[letter]
        return cls(limit=int(limit), seconds=seconds)
