"""RFC 8785 bytes and domain-separated digests.

One canonical form for everything that is hashed or signed, so that two readers can never
disagree about what a signature covers. See https://www.rfc-editor.org/rfc/rfc8785.
"""

from __future__ import annotations

import hashlib
import json
import math
from functools import cache
from typing import Any

import orjson
import rfc8785

from adapter.core.errors import ToolArgsInvalid

__all__ = [
    "MAX_DEPTH",
    "MAX_SIZE",
    "SAFE_INTEGER",
    "canonical_bytes",
    "checked_json",
    "digest",
    "domain",
    "loads",
    "strict_loads",
]

MAX_DEPTH = 32
"""Deepest nesting accepted in arguments and answers."""

MAX_SIZE = 262_144
"""Largest canonical form accepted in arguments and answers, in bytes."""

_PREFIX = b"agent-adapter:"
SAFE_DIGITS = 15
SAFE_INTEGER = 2**53 - 1
"""Largest integer that every JSON reader keeps exact."""


def canonical_bytes(value: Any) -> bytes:
    """Return the RFC 8785 form of a JSON value.

    Args:
        value: JSON value; mappings with text keys only.

    Returns:
        UTF-8 bytes, the same for every equal value in every process.

    Raises:
        ValueError: Not a JSON value: non-finite number, integer beyond 2**53 - 1, lone
            surrogate, key that is not text, or another type.
    """
    try:
        if _is_simple(value):
            # orjson gives the same bytes for these, about fifty times faster.
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        return rfc8785.dumps(value)
    except RecursionError as error:
        msg = "the value is nested too deeply"
        raise ValueError(msg) from error
    except (rfc8785.CanonicalizationError, TypeError, AttributeError) as error:
        msg = "the value has no canonical JSON form, or is nested too deeply"
        raise ValueError(msg) from error


def _is_simple(value: Any) -> bool:
    """Tell whether json.dumps is canonical for the value: ASCII keys, no floats, exact types."""
    if type(value) is str:
        return True
    levels: list[Any] = [(value,)]
    for level in levels:  # grows as it goes
        for item in level:
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if kind is int:
                if not -SAFE_INTEGER <= item <= SAFE_INTEGER:
                    return False
            elif kind is dict:
                if not _has_plain_names(item):
                    return False
                levels.append(item.values())
            elif kind is list:
                levels.append(item)
            else:
                return False
    return True


def _has_plain_names(value: dict[Any, Any]) -> bool:
    for name in value:  # noqa: SIM110 - a generator would cost more than the names
        if type(name) is not str or not name.isascii():
            return False
    return True


def digest(purpose: str, value: Any) -> str:
    """Return the SHA-256 of a value's canonical form, separated by purpose.

    Args:
        purpose: Tag naming what the digest is for; two purposes never collide.
        value: JSON value, or bytes that are canonical already.

    Returns:
        64 hexadecimal digits.
    """
    body = value if isinstance(value, bytes) else canonical_bytes(value)
    return hashlib.sha256(domain(purpose) + body).hexdigest()


@cache
def domain(purpose: str) -> bytes:
    """Return the prefix that separates one purpose's bytes from every other's."""
    return _PREFIX + purpose.encode() + b"\x00"


def checked_json(value: Any, *, what: str = "arguments") -> bytes:
    """Return canonical bytes of a value from outside, within the size and depth limits.

    Args:
        value: Anything a model or client sent.
        what: Word for the error message.

    Returns:
        The canonical bytes.

    Raises:
        ToolArgsInvalid: No JSON value, too deep or too large; the message names the limit.
    """
    _check_depth(value, what)
    try:
        body = canonical_bytes(value)
    except (ValueError, UnicodeEncodeError) as error:
        msg = f"The {what} are not a JSON value: finite numbers, safe integers, text keys only."
        raise ToolArgsInvalid(msg) from error
    if len(body) > MAX_SIZE:
        msg = f"The {what} are too large: at most {MAX_SIZE} bytes of JSON."
        raise ToolArgsInvalid(msg)
    return body


def _check_depth(value: Any, what: str) -> None:
    """Refuse deep nesting without recursing."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        nested: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                nested.extend(item.values())
            elif isinstance(item, list | tuple):
                nested.extend(item)
        if not nested:
            return
        level = nested
    msg = f"The {what} are nested too deeply: at most {MAX_DEPTH} levels."
    raise ToolArgsInvalid(msg)


def strict_loads(text: str | bytes) -> Any:
    """Parse JSON, refusing duplicate keys and non-finite numbers.

    Raises:
        ValueError: Malformed, a key twice in one object, or NaN / Infinity.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items):
            msg = "a key occurs twice in one JSON object"
            raise ValueError(msg)
        return made

    def constant(name: str) -> Any:
        msg = f"{name} is not JSON"
        raise ValueError(msg)

    return json.loads(
        text,
        object_pairs_hook=pairs,
        parse_constant=constant,
        parse_float=_finite,
        parse_int=_whole,
    )


def loads(text: str | bytes) -> Any:
    """Parse JSON that this adapter wrote, so that its canonical form is the same again."""
    return json.loads(text, parse_int=_whole)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        msg = "a number is too large for JSON"
        raise ValueError(msg)
    return number


def _whole(text: str) -> int | float:
    """Read an integer; a large whole float is written like one, and is a float again."""
    return int(text) if len(text) <= SAFE_DIGITS else _wide(text)


def _wide(text: str) -> int | float:
    number = int(text) if len(text) <= 2 * SAFE_DIGITS else 2 * SAFE_INTEGER
    return number if abs(number) <= SAFE_INTEGER else _finite(text)
