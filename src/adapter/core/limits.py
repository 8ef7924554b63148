"""The sizes a budget may have: as it is set up, and as a run's caller may lower it."""

from __future__ import annotations

from typing import Any

from adapter.core.errors import ConfigurationError
from adapter.core.prices import MOST, decimal_of, micro_dollars

__all__ = ["check_whole", "said_size"]


def check_whole(name: str, value: object) -> None:
    """Refuse a budget that is no whole number of 1 or more, or more than a counter holds.

    Only the turn's may not be left out.

    Args:
        name: The field of ``Budgets``.
        value: What it was given.

    Raises:
        ConfigurationError: It is none.
    """
    if value is None and name not in ("model_calls_per_turn", "tool_calls_per_turn"):
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        msg = f"Budgets.{name} must be a whole number, at least 1 and at most {MOST}."
        raise ConfigurationError(msg)


def said_size(value: Any, key: str, *, dollars: bool) -> int:
    """Read a limit a client set: what cannot be one is refused, never taken for another.

    Args:
        value: What the run's context says.
        key: Where it says so.
        dollars: It is of money, as text; else a whole number.

    Returns:
        The size in the budget's own unit (calls, tokens, micro-dollars).

    Raises:
        ConfigurationError: It is no size.
    """
    try:
        if dollars and not isinstance(value, float):
            size = micro_dollars(decimal_of(value, key))
        else:
            size = value if isinstance(value, int) and not isinstance(value, bool) else 0
    except ConfigurationError:
        size = 0
    if size < 1:
        what = "dollars as text" if dollars else "a whole number"
        msg = f"The run's context[{key!r}] lowers a limit: give {what}, more than 0, or leave it."
        raise ConfigurationError(msg)
    return size
