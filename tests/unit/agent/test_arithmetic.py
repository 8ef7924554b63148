"""Arithmetic: exact inside its limits, a clear no outside them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.arithmetic import MAX_CHARS, MAX_MAGNITUDE, ExpressionError, evaluate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("6*7", 42),
        (" (1 + 2) * -3 ", -9),
        ("7/2", 3.5),
        ("1e3 + .5", 1000.5),
        ("--+1", 1),
        ("(" * 99 + "1" + ")" * 99, 1),
        ("1000000000000", 10**12),
    ],
)
def test_sums_are_done(expression: str, value: float) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        " ",
        "2**3",
        "7//2",
        "7%2",
        "True",
        "1+True",
        "'a'*3",
        "__import__('os')",
        "e",
        "1 if 1 else 2",
        "1,2",
        "(1",
        "007",
        "1e",
        "1j",
        "0x10",
        "1\n+2)",
        "1/0",
        "1/(2-2.0)",
        "1e13",
        "1e999",
        "1000000*1000001",
        "1+" * 60 + "1",
        "(" * 150 + "1",
        "1" * (MAX_CHARS + 1),
        "\x00",
        "\u0661+1",
    ],
)
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(expression)


@given(st.text(max_size=250))
def test_any_text_gives_a_bounded_number_or_a_refusal(text: str) -> None:
    try:
        value = evaluate(text)
    except ExpressionError:
        return
    assert type(value) in {int, float}
    assert abs(value) <= MAX_MAGNITUDE


@given(st.text(alphabet="0123456789.eE+-*/() \n", max_size=60))
def test_any_arithmetic_looking_text_gives_a_bounded_number_or_a_refusal(text: str) -> None:
    try:
        value = evaluate(text)
    except ExpressionError:
        return
    assert abs(value) <= MAX_MAGNITUDE


_NUMBERS = st.integers(0, 10**4).map(str)
_SUMS = st.recursive(
    _NUMBERS,
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        lambda parts: f"({''.join(parts)})"
    ),
    max_leaves=6,
)


@given(_SUMS)
def test_whole_numbers_are_exact(expression: str) -> None:
    expected = Fraction(eval(expression))
    try:
        value = evaluate(expression)
    except ExpressionError:
        return  # an intermediate number may be above the limit
    assert value == expected
