"""The notation of rates is read strictly."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.core.errors import ConfigurationError
from adapter.core.rates import Rate


@pytest.mark.parametrize(
    ("text", "limit", "seconds"),
    [
        ("10/minute", 10, 60),
        ("3/second", 3, 1),
        ("100/hour", 100, 3_600),
        ("1000/day", 1000, 86_400),
        ("5/30s", 5, 30),
        ("1/2m", 1, 120),
        ("1/12h", 1, 43_200),
        ("7/7d", 7, 604_800),
    ],
)
def test_a_rate_is_read(text: str, limit: int, seconds: int) -> None:
    assert Rate.parse(text) == Rate(limit=limit, seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", "10", "/minute", "0/minute", "-1/minute", "+1/minute", "01/minute", "1.5/minute"),
        *("10/minutes", "10/Minute", "10 / minute", " 10/minute", "10/minute\n", "10/min"),
        *("10/0s", "10/s", "10/30", "10/30w", "10/1.5s", "1_0/minute", "10//minute"),
        *("\u0661/minute", "1e3/day", "9999999999/day", 10, ("10", "minute")),
    ],
)
def test_anything_else_is_no_rate(text: Any) -> None:
    with pytest.raises(ConfigurationError, match="10/minute"):
        Rate.parse(text)


def test_a_rate_and_nothing_stay_what_they_are() -> None:
    rate = Rate(limit=1, seconds=0.5)
    assert Rate.parse(rate) is rate
    assert Rate.parse(None) is None


@pytest.mark.parametrize(
    ("limit", "seconds"), [(0, 1), (1, 0), (1, -1), (1, float("inf")), (2**53, 1), (1, 1e12)]
)
def test_a_rate_nothing_fits_in_is_refused(limit: int, seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        Rate(limit=limit, seconds=seconds)
