"""Bounded arithmetic: text in, one number out. Nothing is ever evaluated as code."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Final

__all__ = ["MAX_CHARS", "MAX_MAGNITUDE", "MAX_NODES", "ExpressionError", "evaluate"]

MAX_CHARS: Final = 200
MAX_NODES: Final = 50
MAX_MAGNITUDE: Final = 1e12

_ALLOWED: Final = re.compile(r"[0-9eE.+\-*/()\s]*")
_BINARY: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_UNARY: Final[dict[type[ast.unaryop], Callable[[float], float]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


class ExpressionError(ValueError):
    """The text is not arithmetic we do; the message says why and is fit for the model."""


def evaluate(expression: str) -> int | float:
    """Compute ``+ - * /``, signs and parentheses over plain numbers.

    Args:
        expression: At most 200 characters, which parse to at most 50 syntax nodes.

    Returns:
        A finite number of magnitude at most 1e12; so is every intermediate one.

    Raises:
        ExpressionError: Anything else, a power, a name and a division by zero among it.
    """
    if len(expression) > MAX_CHARS:
        raise ExpressionError(f"the expression is longer than {MAX_CHARS} characters")
    # Before the parser sees it: letters would mean names, quotes strings, and some digits-and-
    # letters mixes make the parser warn.
    if _ALLOWED.fullmatch(expression) is None:
        raise ExpressionError("only numbers, + - * / and parentheses are allowed")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ExpressionError("the expression is not complete arithmetic") from None
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise ExpressionError(f"the expression has more than {MAX_NODES} parts")
    return _value(tree.body)


def _value(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=value):
            return _bounded(value)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _bounded(_UNARY[type(op)](_value(operand)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            try:
                return _bounded(_BINARY[type(op)](_value(left), _value(right)))
            except ZeroDivisionError:
                raise ExpressionError("division by zero") from None
        case _:
            raise ExpressionError("only + - * / over numbers is allowed, no power and no names")


def _bounded(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError("only plain numbers are allowed")
    if not math.isfinite(value) or abs(value) > MAX_MAGNITUDE:
        raise ExpressionError(f"a number is above {MAX_MAGNITUDE:g} or not finite")
    return value
