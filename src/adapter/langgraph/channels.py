"""reducer: a merge rule as a channel of the graph that sees every write of a superstep at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from langgraph.channels.base import BaseChannel
from langgraph.channels.last_value import LastValue
from langgraph.errors import EmptyChannelError, InvalidUpdateError
from langgraph.types import Overwrite
from typing_extensions import override

from adapter.core.errors import ToolUsageError
from adapter.core.merge import UNSET, Merge, MergeRule

__all__ = ["MergeChannel", "Newest", "as_overwrite", "reducer"]


class MergeChannel(BaseChannel[Any, Any, Any]):
    """Keeps one field's value under a merge rule; each rule has a class of its own."""

    rule: ClassVar[MergeRule]

    __slots__ = ("value",)

    def __init__(self, typ: Any, key: str = "") -> None:
        """Begin with the type's empty value where the rule says so, else with none."""
        super().__init__(typ, key)
        self.value: Any = UNSET
        if self.rule.from_empty:
            try:
                self.value = typ()
            except TypeError:
                self.value = UNSET

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, MergeChannel) and other.rule == self.rule

    __hash__ = None  # type: ignore[assignment]

    @property
    @override
    def ValueType(self) -> Any:
        """The field's type."""
        return self.typ

    @property
    @override
    def UpdateType(self) -> Any:
        """The type of a write: the field's, or one item of it."""
        return self.typ

    @override
    def copy(self) -> Self:
        """Return a copy of the channel."""
        made = self.__class__(self.typ, self.key)
        made.value = self.value
        return made

    @override
    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return the channel with a saved value."""
        made = self.__class__(self.typ, self.key)
        if checkpoint is not _NOTHING_SAVED:
            made.value = checkpoint
        return made

    @override
    def update(self, values: Sequence[Any]) -> bool:
        """Merge all writes of a superstep; an Overwrite replaces what was, once.

        Raises:
            InvalidUpdateError: Two writes of the superstep are an Overwrite.
        """
        if not values:
            return False
        replaced = [made for value in values if (made := as_overwrite(value)) is not None]
        if len(replaced) > 1:
            msg = f"{self.key}: more than one Overwrite in a superstep."
            raise InvalidUpdateError(msg)
        if replaced:
            self.value = replaced[0].value
            return True
        self.value = self.rule(self.value, list(values))
        return True

    @override
    def get(self) -> Any:
        """Return the value.

        Raises:
            EmptyChannelError: There is none yet.
        """
        if self.value is UNSET:
            raise EmptyChannelError
        return self.value

    @override
    def is_available(self) -> bool:
        """Whether there is a value."""
        return self.value is not UNSET


class Newest(LastValue[Any]):
    """Keeps the newest of several writes: a client that writes one twice locks no thread by it."""

    __slots__ = ()

    @override
    def update(self, values: Sequence[Any]) -> bool:
        """Take the last write."""
        return super().update(values[-1:])


def reducer(rule: MergeRule | Callable[[Any, Sequence[Any]], Any]) -> type[MergeChannel]:
    """Return the channel class of a field that is merged by a rule.

    The writes come in LangGraph's order: nodes by name, then Send tasks in the order sent.

    Args:
        rule: One of ``Merge``, or a function of the current value and all writes.

    Raises:
        ToolUsageError: It is neither.
    """
    if not callable(rule):
        msg = "reducer takes a rule of Merge, or a function of the current value and all writes."
        raise ToolUsageError(msg)
    made = rule if isinstance(rule, MergeRule) else Merge.custom(rule)
    return type("MergeChannel", (MergeChannel,), {"rule": made, "__slots__": ()})


_OVERWRITE = "__overwrite__"


def as_overwrite(write: Any) -> Overwrite | None:
    """Return a write as an Overwrite if it is one, also in the forms that JSON leaves of it.

    Those are ``{"__overwrite__": value}``, as a client writes it, and the fields of the class, as
    a client's encoder does; LangGraph's own channels take both.
    """
    if isinstance(write, Overwrite):
        return write
    if isinstance(write, dict):
        if len(write) == 1 and _OVERWRITE in write:
            return Overwrite(write[_OVERWRITE])
        if write.get("type") == _OVERWRITE and "value" in write:
            return Overwrite(write["value"])
    return None


_NOTHING_SAVED: Any = LastValue(object).checkpoint()
"""What LangGraph hands a channel that no checkpoint holds a value of."""
