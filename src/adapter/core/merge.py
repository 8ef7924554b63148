"""How the writes of one superstep to one field become its next value.

Pure rules over a current value and the writes in order; which order that is, is the host's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

from adapter.core.errors import ToolUsageError

__all__ = ["UNSET", "Merge", "MergeRule"]

UNSET: Any = object()
"""The field has no value yet."""

Combine = Callable[[Any, Sequence[Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """One way to merge.

    Attributes:
        name: For messages.
        combine: Next value from the current one (UNSET at first) and the writes, in order.
        from_empty: The field begins as its type's empty value, where the type has one.
    """

    name: str
    combine: Combine
    from_empty: bool = False

    def __call__(self, current: Any, writes: Sequence[Any]) -> Any:
        """Return the next value.

        Raises:
            ToolUsageError: The values do not go together under this rule.
        """
        if not writes:
            return current
        try:
            return self.combine(current, writes)
        except TypeError as error:
            kinds = sorted({type(value).__name__ for value in writes})
            msg = f"Merge.{self.name} cannot merge {', '.join(kinds)} into this field: {error}."
            raise ToolUsageError(msg) from error


def _append(current: Any, writes: Sequence[Any]) -> Any:
    made = [] if current is UNSET or current is None else list(current)
    for value in writes:
        made.extend(value) if isinstance(value, list) else made.append(value)
    return made


def _last(_current: Any, writes: Sequence[Any]) -> Any:
    return writes[-1]


def _union(current: Any, writes: Sequence[Any]) -> Any:
    if current is not UNSET and current is not None:
        values = [current, *writes]
    else:
        values = [[], *writes] if isinstance(writes[0], list) else list(writes)
    return reduce(_united, values)


def _united(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return one | other
    if isinstance(one, AbstractSet) and isinstance(other, AbstractSet):
        return one | other
    if isinstance(one, list) and isinstance(other, list):
        made = list(one)
        made += [item for n, item in enumerate(other) if item not in one + other[:n]]
        return made
    msg = "a union is of dicts, of sets or of lists"
    raise TypeError(msg)


def _folding(step: Callable[[Any, Any], Any]) -> Combine:
    def combine(current: Any, writes: Sequence[Any]) -> Any:
        values = list(writes) if current is UNSET or current is None else [current, *writes]
        return reduce(step, values)

    return combine


class Merge:
    """The rules.

    Attributes:
        append: Each write is one more item of a list; a list is several.
        last: The last write is the value.
        union: Dicts (later keys win), sets, or lists without repeats.
        sum: Everything added up.
        max: The largest.
        min: The smallest.
    """

    append: ClassVar = MergeRule(name="append", combine=_append, from_empty=True)
    last: ClassVar = MergeRule(name="last", combine=_last)
    union: ClassVar = MergeRule(name="union", combine=_union, from_empty=True)
    sum: ClassVar = MergeRule(name="sum", combine=_folding(operator.add), from_empty=True)
    max: ClassVar = MergeRule(name="max", combine=_folding(max))
    min: ClassVar = MergeRule(name="min", combine=_folding(min))

    @staticmethod
    def custom(combine: Combine) -> MergeRule:
        """Return a rule of your own.

        Args:
            combine: Called with the current value (None at first) and a list of all writes of
                the superstep, in order; returns the next value.
        """

        def merged(current: Any, writes: Sequence[Any]) -> Any:
            return combine(None if current is UNSET else current, list(writes))

        name = getattr(combine, "__name__", "custom")
        return MergeRule(name=f"custom({name})", combine=merged)
