"""One SQL statement as text, and how its parameters are put in order. Nothing is executed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

__all__ = ["Statement"]


class Statement:
    """SQL text with positional parameters, which drivers bind far faster than named ones.

    Args:
        text: The SQL.
        names: Name of each parameter, in order.
        constants: Values that Core turned into parameters, such as LIMIT 1.
    """

    __slots__ = ("arrange", "text")

    def __init__(self, text: str, names: Sequence[str], constants: Mapping[str, Any]) -> None:
        self.text = text
        self.arrange: Callable[[Mapping[str, Any]], Sequence[Any]]
        if constants:
            self.arrange = lambda values: [
                constants[name] if name in constants else values[name] for name in names
            ]
        elif len(names) > 1:
            self.arrange = itemgetter(*names)  # a tuple, in C
        else:
            self.arrange = lambda values: [values[name] for name in names]
