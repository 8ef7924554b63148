"""Where prices come from: a file of the person's own, or the optional price package.

Settings name the source; this room reads it once, at start-up. It never fetches anything.
"""

from __future__ import annotations

import json
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from adapter.core.errors import ConfigurationError
from adapter.core.prices import Prices, PriceTable, decimal_of, micro_dollars
from adapter.core.usage import Usage

__all__ = ["load_prices"]

PACKAGE = "genai"
"""Value of ADAPTER_PRICES that means the price package."""


def load_prices(source: str | None) -> Prices | None:
    """Return the prices a setting names.

    Args:
        source: Path of a TOML or JSON file ``{model: {input, cached_input, output}}`` in dollars
            per million tokens; ``genai`` for the package genai-prices; None for none.

    Raises:
        ConfigurationError: The file cannot be read or is no price table, or the package is
            missing.
    """
    if source is None:
        return None
    if source == PACKAGE:
        return _PackagePrices()
    return PriceTable(_read(Path(source)))


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
        # numbers stay as written: a price is no binary fraction
        found = (
            json.loads(text, parse_float=str)
            if path.suffix == ".json"
            else tomllib.loads(text, parse_float=str)
        )
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"ADAPTER_PRICES: {path} cannot be read ({type(error).__name__}): make it a TOML or "
            "JSON file of {model: {input, cached_input, output}}, dollars per million tokens, or "
            "set it to genai."
        ) from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"ADAPTER_PRICES: {path} must hold an object of model names.")
    return found


class _PackagePrices:
    """Prices of the package genai-prices, as it was installed."""

    def __init__(self) -> None:
        try:
            self._package: Any = import_module("genai_prices")
        except ImportError as error:
            raise ConfigurationError(
                "ADAPTER_PRICES=genai needs the price package: pip install 'agent-adapter[prices]'"
            ) from error

    def cost(self, model: str, usage: Usage) -> int | None:
        """Return what a model call costs in micro-dollars, rounded up; None if unknown."""
        used = self._package.Usage(
            input_tokens=usage.input,
            cache_read_tokens=usage.cached,
            output_tokens=usage.output,
        )
        try:
            total = self._package.calc_price(used, model_ref=model).total_price
        except LookupError:
            return None
        return micro_dollars(decimal_of(total, f"the price of {model}"))
