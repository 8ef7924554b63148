"""The channels of a compiled flow: one for each field, and three of the flow's own.

A channel sees all writes of a superstep at once and hands them to the field's merge rule; values
are JSON throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

from langgraph.channels.base import BaseChannel
from langgraph.types import Overwrite
from typing_extensions import TypedDict, override

from adapter.core.errors import FlowError
from adapter.core.merge import UNSET, Merge, MergeRule
from adapter.core.types import JsonObject
from adapter.flow.field import Field
from adapter.flow.shape import Shape
from adapter.langgraph.channels import MergeChannel, as_overwrite
from adapter.langgraph.flowtold import Told, counted

__all__ = ["COUNTS", "FLOW", "VISITS", "beginning", "schemas"]

FLOW: Final = "aa_flow"
"""Which run it is, how many supersteps ended, and why the flow was denied if it was."""

VISITS: Final = "aa_visits"
"""Visits that ended, by node."""

COUNTS: Final = "aa_loop_counts"
"""Choices of capped routes so far, by ``source->target``."""


class FieldChannel(MergeChannel):
    """Keeps one field of a flow's state as JSON; each field has a class of its own."""

    field: ClassVar[Field]

    __slots__ = ()

    def __init__(self, typ: Any, key: str = "") -> None:
        """Begin with no value: the flow's start writes every field."""
        BaseChannel.__init__(self, typ, key)
        self.value = UNSET

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldChannel) and other.field is self.field

    __hash__ = None

    @override
    def update(self, values: Sequence[Any]) -> bool:
        """Replace by reviewers' edits first, then merge the nodes' writes in order.

        Raises:
            FlowError: Two writes to a field without a declared rule, or they do not go together.
        """
        if not values:
            return False
        writes = []
        for value in values:
            edit = as_overwrite(value)
            if edit is None:
                writes.append(value)
            else:
                self.value = edit.value
        if len(writes) > 1 and not self.field.declared:
            name = self.field.name
            msg = (
                f"merge conflict: two nodes wrote the field {name!r} in one superstep. Declare its "
                f"rule, e.g. {name}: Annotated[…, Merge.last], or let them run one after the other."
            )
            raise FlowError(msg)
        self.value = self.field.merge(self.value, writes)
        return True


class OwnChannel(MergeChannel):
    """Keeps what the flow itself says; whatever a client writes, the thread stays readable."""

    __slots__ = ()

    @override
    def update(self, values: Sequence[Any]) -> bool:
        """Hand every write to the rule, which takes what holds of them; never raises."""
        if not values:
            return False
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


def beginning(flow: Shape, given: Any, begun: JsonObject) -> list[tuple[str, Any]]:
    """Return the writes a run begins with; nothing of an earlier run of the thread stays.

    Args:
        flow: The flow.
        given: The input, as the run's caller wrote it.
        begun: What is said of the run, signed.

    Raises:
        FlowError: It is no state of the flow.
    """
    values = flow.fields.initial(given)
    own: JsonObject = {VISITS: {}, COUNTS: {}, FLOW: begun}
    return [(name, Overwrite(value)) for name, value in {**values, **own}.items()]
