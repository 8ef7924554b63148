"""Values on the wire: what is JSON, and what is wrong with what is not. No value is ever quoted."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from adapter.core.types import JsonValue

__all__ = ["checked", "explained", "jsonable", "restored", "settled"]

_WIDE = 1e16
"""Floats from here on are written with an exponent."""

_INTEGERS = range(-(2**63), 2**64)
"""Whole numbers that a checkpoint can hold."""


def jsonable(value: Any) -> JsonValue:
    """Return a value as JSON.

    Raises:
        ValueError: It has no JSON form, or holds a number that is none.
    """
    try:
        made = to_jsonable_python(value)
    except (PydanticSerializationError, RecursionError) as error:
        msg = f"a {type(value).__name__} holds something that is no JSON"
        raise ValueError(msg) from error
    return checked(made)


def checked(value: JsonValue) -> JsonValue:
    """Return a dumped value, if it consists of what JSON has.

    Raises:
        ValueError: A number that is none, or half a character.
    """
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, float) and not math.isfinite(item):
            msg = f"it holds the number {item}, which JSON does not have"
            raise ValueError(msg)
        elif isinstance(item, str) and not item.isascii():
            item.encode()  # half of a surrogate pair is no text
    return value


def settled(value: JsonValue) -> JsonValue:
    """Return a field's value in the one form that every checkpointer gives back.

    PostgreSQL keeps a field that is a single number as a decimal: a float that is written with an
    exponent comes back as a whole number, and zero without its sign. Nodes get that form at once,
    so that what a gate was opened for is what its node is given, however often.
    """
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    if abs(value) < _WIDE:
        return value or 0.0
    whole = int(Decimal(repr(value)))
    return whole if whole in _INTEGERS else value


def restored(value: JsonValue) -> JsonValue:
    """Return a field's value as it was put into a checkpoint: wider whole numbers were floats."""
    if type(value) is not int or value in _INTEGERS:
        return value
    try:
        return float(value)
    except OverflowError:
        return value


def explained(error: ValidationError, field: str | None = None) -> str:
    """Return what is wrong, naming fields and never a value."""
    faults = []
    for item in error.errors(include_url=False, include_input=False, include_context=False)[:10]:
        where = [str(part) for part in item["loc"]]
        if field is not None:
            where[:1] = [field]
        faults.append(f"{'.'.join(where) or 'state'}: {item['msg']}")
    return "; ".join(faults)
