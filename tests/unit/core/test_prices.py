"""Costs are whole micro-dollars, computed with decimals and rounded up."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.core.errors import ConfigurationError
from adapter.core.prices import Price, PriceTable, decimal_of, micro_dollars
from adapter.core.usage import Usage

PRICE = Price(input=Decimal("0.40"), cached_input=Decimal("0.10"), output=Decimal("1.60"))


def test_cached_input_has_its_own_price() -> None:
    usage = Usage(input=1000, cached=900, output=100)
    assert PRICE.cost(usage) == 100 * 0.4 + 900 * 0.1 + 100 * 1.6 == 290


def test_without_a_price_cached_input_costs_as_any_other() -> None:
    price = Price(input=Decimal(3), output=Decimal(0))
    assert price.cost(Usage(input=10, cached=10)) == 30


@pytest.mark.parametrize(("tokens", "cost"), [(0, 0), (1, 1), (9, 1), (10, 1), (11, 2)])
def test_a_part_of_a_micro_dollar_is_a_whole_one(tokens: int, cost: int) -> None:
    assert Price(input=Decimal("0.1"), output=Decimal(0)).cost(Usage(input=tokens)) == cost


@given(
    sent=st.integers(0, 10**7),
    share=st.integers(0, 100),
    answered=st.integers(0, 10**6),
    cents=st.integers(0, 10_000),
)
def test_a_cost_is_exact_to_less_than_a_micro_dollar(
    sent: int, share: int, answered: int, cents: int
) -> None:
    usage = Usage(input=sent, cached=sent * share // 100, output=answered)
    price = Price(input=Decimal(cents) / 100, output=Decimal(3 * cents) / 100)
    hundredths = (sent + 3 * answered) * cents
    assert price.cost(usage) == -(-hundredths // 100)


@pytest.mark.parametrize(
    "entry",
    [
        {"input": "0.1", "output": "0.2"},
        {"input": 0.1, "output": 0.2},
        {"input": Decimal("0.1"), "output": Decimal("0.2")},
        Price(input=Decimal("0.1"), output=Decimal("0.2")),
    ],
)
def test_prices_are_numbers_or_texts(entry: Any) -> None:
    assert PriceTable({"m": entry}).cost("m", Usage(input=10, output=10)) == 3


def test_a_model_that_is_not_listed_has_no_price() -> None:
    table = PriceTable({"m": {"input": 1, "output": 1}})
    assert table.cost("M", Usage()) is None
    assert table.cost("m", Usage()) == 0


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ({}, "empty"),
        ({"m": 3}, "'m'"),
        ({"m": {"input": 1}}, "'m'"),
        ({"m": {"input": 1, "output": 1, "cached": 1}}, "'m'"),
        ({"m": {"input": 1, "output": "x"}}, "m: output"),
        ({"m": {"input": -1, "output": 1}}, "m: input"),
        ({"m": {"input": None, "output": 1}}, "m: input"),
    ],
)
def test_what_is_no_price_is_refused_by_name(prices: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        PriceTable(prices)


def test_dollars_are_rounded_up_to_micro_dollars() -> None:
    assert micro_dollars(Decimal("0.0000011")) == 2
    assert micro_dollars(decimal_of("1.25", "x")) == 1_250_000
