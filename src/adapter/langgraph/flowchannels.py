"""The channels of a compiled flow: one for each field, and three of the flow's own.

A channel sees all writes of a superstep at once and hands them to the field's merge rule; values
are JSON throughout. A client may write anything, and LangGraph merges it whenever the thread is
read: so no channel raises for it. What nodes write is judged before it is kept (``flowmeeting``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Final, Self

from langgraph.channels.base import BaseChannel
from langgraph.types import Overwrite
from typing_extensions import TypedDict, override

from adapter.core.errors import FlowError
from adapter.core.merge import UNSET, Merge, MergeRule
from adapter.core.types import JsonObject
from adapter.flow.field import Field
from adapter.flow.shape import Shape
from adapter.flow.wire import restored
from adapter.langgraph.channels import MergeChannel, as_overwrite
from adapter.langgraph.flowtold import Told, counted

__all__ = ["COUNTS", "FLOW", "VISITS", "Written", "beginning", "schemas"]

FLOW: Final = "aa_flow"
"""Which run it is, how many supersteps ended, and why the flow was denied if it was."""

VISITS: Final = "aa_visits"
"""Visits that ended, by node."""

COUNTS: Final = "aa_loop_counts"
"""Choices of capped routes so far, by ``source->target``."""

Written = tuple[Any, Sequence[Any]]
"""A reviewer's edit of one field, or UNSET, and a node's writes to it."""


class FieldChannel(MergeChannel):
    """Keeps one field of a flow's state as JSON; each field has a class of its own."""

    field: ClassVar[Field]

    __slots__ = ("ended",)

    def __init__(self, typ: Any, key: str = "") -> None:
        """Begin with no value: the flow's start writes every field."""
        BaseChannel.__init__(self, typ, key)
        self.value = UNSET
        self.ended: dict[str, Written] = {}
        """What the nodes that ended in this run's superstep wrote here."""

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldChannel) and other.field is self.field

    __hash__ = None

    @override
    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return the channel with a saved value."""
        return super().from_checkpoint(restored(checkpoint))

    @override
    def update(self, values: Sequence[Any]) -> bool:
        """Replace by reviewers' edits first, then merge the writes in order.

        Of a client's writes, those that cannot be merged change nothing.

        Raises:
            FlowError: What this run's nodes wrote does not go together.
        """
        ended, self.ended = self.ended, {}
        if not values:
            return False
        writes = []
        for value in values:
            edit = as_overwrite(value)
            if edit is None:
                writes.append(value)
            else:
                self.value = edit.value
        try:
            self.value = self.field.merge(self.value, writes)
        except FlowError:
            if ended:
                raise
            self._merge_each(writes)
        return True

    def _merge_each(self, writes: Sequence[Any]) -> None:
        for write in writes:
            with suppress(FlowError):
                self.value = self.field.merge(self.value, [write])


class OwnChannel(MergeChannel):
    """Keeps what the flow itself says; whatever a client writes, the thread stays readable.

    Attributes:
        ends: A node, or the start, ended in this run's superstep.
        ended: The nodes that did, and what each wrote.
        begun: One did in an earlier superstep of this run, so that no task of the present one ran
            before. Known of this process, and not by what any config says.
    """

    __slots__ = ("begun", "ended", "ends")

    def __init__(self, typ: Any, key: str = "") -> None:
        """Begin as the rule says."""
        super().__init__(typ, key)
        self.ends = self.begun = False
        self.ended: dict[str, Mapping[str, Written]] = {}

    @override
    def update(self, values: Sequence[Any]) -> bool:
        """Hand every write to the rule, which takes what holds of them; never raises."""
        if not values:
            return False
        self.begun, self.ends, self.ended = self.begun or self.ends, False, {}
        self.value = self.rule(self.value, list(values))
        return True


def _own(rule: MergeRule) -> type[OwnChannel]:
    return type("OwnChannel", (OwnChannel,), {"rule": rule, "__slots__": ()})


def schemas(flow: Shape, told: Told) -> tuple[Any, Any]:
    """Return the schemas of the graph's state and of its input.

    Args:
        flow: The flow.
        told: Judges what is said of its runs.
    """
    fields: dict[str, Any] = {}
    for name, field in flow.fields.items():
        channel = type(
            "FieldChannel", (FieldChannel,), {"field": field, "rule": field.rule, "__slots__": ()}
        )
        # The annotation is for readers of the graph's schema; what is kept is the field's JSON.
        fields[name] = Annotated[flow.state.model_fields[name].annotation, channel]
    own = {
        VISITS: Annotated[dict[str, int], _own(Merge.custom(counted))],
        COUNTS: Annotated[dict[str, int], _own(Merge.custom(counted))],
        FLOW: Annotated[dict[str, Any], _own(Merge.custom(told.merged))],
    }
    title = flow.state.__name__
    return _typed(f"{title}State", {**fields, **own}), _typed(title, fields)


def _typed(name: str, fields: Mapping[str, Any]) -> Any:
    make: Any = TypedDict
    return make(name, dict(fields), total=False)


def beginning(flow: Shape, given: Any, begun: JsonObject, told: Told) -> list[tuple[str, Any]]:
    """Return the writes a run begins with; nothing of an earlier run of the thread stays.

    Args:
        flow: The flow.
        given: The input, as the run's caller wrote it, or as ``run_compiled`` read it.
        begun: What is said of the run, signed.
        told: Knows which of them it is.

    Raises:
        FlowError: It is no state of the flow.
    """
    values = _values(flow, given, told)
    own: JsonObject = {VISITS: {}, COUNTS: {}, FLOW: begun}
    return [(name, Overwrite(value)) for name, value in {**values, **own}.items()]


def _values(flow: Shape, given: Any, told: Told) -> JsonObject:
    if isinstance(given, Mapping) and FLOW in given:
        values = {name: value for name, value in given.items() if name != FLOW}
        if told.is_read(values, given[FLOW]):
            return values
        if not told.lasting:
            given = values  # another process read it, and its keys are gone
    return flow.fields.initial(given, wire=True)
