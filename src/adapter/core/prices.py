"""What model calls cost, in whole micro-dollars, computed with decimals only.

A price is dollars per million tokens, which is micro-dollars per token. This room reads no file
and knows no provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any, Protocol

from adapter.core.errors import ConfigurationError
from adapter.core.usage import Usage

__all__ = ["MOST", "MOST_DOLLARS", "Price", "PriceTable", "Prices", "decimal_of", "micro_dollars"]

_MILLION = 1_000_000

MOST = 2**53 - 1
"""Highest limit of a counter, which has room for the calls in flight beyond it."""

MOST_DOLLARS = MOST // _MILLION
"""Largest amount of money that is counted, here and in every price."""


class Prices(Protocol):
    """A source of prices."""

    def cost(self, model: str, usage: Usage) -> int | None:
        """Return what a model call costs in micro-dollars, rounded up; None if unknown."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Prices of one model, in dollars per million tokens.

    Attributes:
        input: Tokens sent.
        output: Tokens answered.
        cached_input: Tokens sent that the provider had in its cache; None: as ``input``.
    """

    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None

    def cost(self, usage: Usage) -> int:
        """Return the cost in micro-dollars, rounded up."""
        cached = self.input if self.cached_input is None else self.cached_input
        total = (
            (usage.input - usage.cached) * self.input
            + usage.cached * cached
            + usage.output * self.output
        )
        return int(total.to_integral_value(rounding=ROUND_CEILING))


class PriceTable:
    """Prices by exact model name.

    Args:
        prices: ``{model: {"input", "output", "cached_input"}}``, dollars per million tokens as
            numbers or texts; ``cached_input`` may be left out.

    Raises:
        ConfigurationError: An entry that is no price, named.
    """

    def __init__(self, prices: Mapping[str, Any]) -> None:
        self._prices = {name: _price(name, entry) for name, entry in prices.items()}
        if not self._prices:
            msg = "The price table is empty: give {model: {input, output}} per million tokens."
            raise ConfigurationError(msg)

    def cost(self, model: str, usage: Usage) -> int | None:
        """Return what a model call costs in micro-dollars, rounded up; None if unknown."""
        price = self._prices.get(model)
        return None if price is None else price.cost(usage)


def _price(name: str, entry: Any) -> Price:
    if isinstance(entry, Price):
        return entry
    wanted = {"input", "output"}
    if not isinstance(entry, Mapping) or not wanted <= entry.keys() <= wanted | {"cached_input"}:
        msg = (
            f"The price of {name!r} needs input and output, and may have cached_input: dollars "
            "per million tokens. Nothing else belongs there."
        )
        raise ConfigurationError(msg)
    # str first: 0.1 in a file means a tenth, not the double nearest to it
    read = {field: decimal_of(str(value), f"{name}: {field}") for field, value in entry.items()}
    return Price(**read)


def decimal_of(value: Any, what: str) -> Decimal:
    """Return an amount of dollars that is exact, not negative and at most ``MOST_DOLLARS``.

    Args:
        value: A Decimal, an int or a text.
        what: Named in the error.

    Raises:
        ConfigurationError: It is something else; a float is no exact amount.
    """
    try:
        amount = Decimal("nan") if isinstance(value, bool | float) else Decimal(value)
    except (InvalidOperation, TypeError, ValueError):
        amount = Decimal("nan")
    if amount.is_finite() and 0 <= amount <= MOST_DOLLARS:
        return amount
    msg = (
        f"{what} must be dollars as a Decimal or a text such as '0.50', not negative and at most "
        f"{MOST_DOLLARS}."
    )
    raise ConfigurationError(msg)


def micro_dollars(dollars: Decimal) -> int:
    """Return an amount in whole micro-dollars, rounded up."""
    return int((dollars * _MILLION).to_integral_value(rounding=ROUND_CEILING))
