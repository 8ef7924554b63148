"""A flow's state: as JSON on the wire, as a model for nodes, and how a superstep's writes merge.

Each node gets a model of its own, made from the JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from typing_extensions import override

from adapter.core.errors import FlowError
from adapter.core.merge import UNSET
from adapter.core.types import JsonObject, JsonValue
from adapter.flow.field import Field
from adapter.flow.wire import explained, is_json, settled

__all__ = ["Fields", "Writes"]

Writes = Mapping[str, Sequence[JsonValue]]
"""What one node wrote: for each field its writes, in order."""


class Fields(Mapping[str, Field]):
    """All fields of a state model, by name."""

    def __init__(self, state: type[BaseModel]) -> None:
        """Read the model."""
        self._state = state
        self._fields = {name: Field(name, info, state) for name, info in state.model_fields.items()}

    @override
    def __getitem__(self, name: str) -> Field:
        return self._fields[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    @override
    def __len__(self) -> int:
        return len(self._fields)

    def load(self, values: JsonObject, *, where: str = "state") -> Any:
        """Return a model of its own, made from JSON.

        Raises:
            FlowError: Names where, and each field that does not hold.
        """
        try:
            return self._state.model_validate_json(to_json(values), by_alias=False, by_name=True)
        except ValidationError as error:
            msg = f"{where}: the state does not hold: {explained(error)}."
            raise FlowError(msg) from None

    def given(self, values: Mapping[str, Any]) -> JsonObject:
        """Return what nodes are given of a state: its fields, in the form that lasts."""
        return {name: settled(values[name]) for name in self._fields if name in values}

    def initial(self, state: Any, *, wire: bool = False) -> JsonObject:
        """Return the JSON a run begins with.

        Args:
            state: A model, or a mapping of its fields.
            wire: A mapping that is JSON is read as JSON, in which a date is text.

        Raises:
            FlowError: A field that does not exist, lacks, or does not hold.
        """
        if isinstance(state, self._state):
            given = {name: getattr(state, name) for name in self._fields}
        elif isinstance(state, Mapping):
            unknown = sorted(str(name) for name in state if name not in self._fields)
            if unknown:
                msg = f"state: there is no field {', '.join(unknown)}. {self.offered}"
                raise FlowError(msg)
            given = dict(state)
        else:
            msg = (
                f"state: give a {self._state.__name__} or a mapping of its fields, not a "
                f"{type(state).__name__}."
            )
            raise FlowError(msg)
        try:
            if wire and is_json(given):
                text = to_json(given)
                made = self._state.model_validate_json(text, by_alias=False, by_name=True)
            else:
                made = self._state.model_validate(given, by_alias=False, by_name=True)
        except ValidationError as error:
            msg = f"state: {explained(error)}."
            raise FlowError(msg) from None
        return {name: field.read(getattr(made, name)) for name, field in self._fields.items()}

    @property
    def offered(self) -> str:
        """A sentence naming every field, for errors."""
        return f"Fields are: {', '.join(sorted(self._fields)) or 'none'}."

    def apply(self, values: JsonObject, writes: Iterable[Writes]) -> JsonObject:
        """Return the next values.

        Args:
            values: Those the superstep began with.
            writes: Of each node, in the order of the nodes' names.

        Raises:
            FlowError: Names the field.
        """
        gathered: dict[str, list[JsonValue]] = {}
        for one in writes:
            for name, given in one.items():
                gathered.setdefault(name, []).extend(given)
        made = dict(values)
        for name, given in gathered.items():
            field = self._fields[name]
            current = values[name] if name in values else field.default()
            merged = field.merge(current, given)
            if merged is not UNSET:
                made[name] = merged
        return made

    def conflict(self, writes: Mapping[str, Writes]) -> None:
        """Refuse two writers of a superstep to a field without a declared rule.

        Args:
            writes: By node.

        Raises:
            FlowError: Names the field and the nodes.
        """
        for name, field in self._fields.items():
            if field.declared:
                continue
            writers = sorted(node for node, made in writes.items() if made.get(name))
            if len(writers) > 1:
                msg = (
                    f"merge conflict: the nodes {', '.join(writers)} wrote the field {name!r} in "
                    f"one superstep. Declare its rule, e.g. {name}: Annotated[…, Merge.last], or "
                    "let them run one after the other."
                )
                raise FlowError(msg)

    def edited(self, edit: Mapping[str, Any]) -> JsonObject:
        """Return a reviewer's edit as JSON of the fields it names: what was signed, unconverted.

        Raises:
            FlowError: No key, one that is no field, or a value that does not hold or has another
                type.
        """
        unknown = sorted(str(name) for name in edit if name not in self._fields)
        if not edit:
            msg = f"the edit names no field. {self.offered}"
            raise FlowError(msg)
        if unknown:
            msg = f"there is no field {', '.join(unknown)} to edit. {self.offered}"
            raise FlowError(msg)
        return {
            name: self._fields[name].read(value, wire=True, strict=True)
            for name, value in edit.items()
        }

    def update(
        self, returned: Any, values: JsonObject, *, where: str
    ) -> dict[str, list[JsonValue]]:
        """Return the writes that a node's returned value stands for.

        Args:
            returned: None, a mapping of fields, or a model: the state as it should be.
            values: What the node was given.
            where: Names the node, for errors.

        Raises:
            FlowError: Names the node and the field.
        """
        if returned is None:
            return {}
        try:
            if isinstance(returned, self._state):
                return self._differences(returned, values)
            return self._said(returned)
        except FlowError as error:
            msg = f"{where}: {error.message.rstrip('.')}."
            raise FlowError(msg) from None

    def _said(self, returned: Any) -> dict[str, list[JsonValue]]:
        if not isinstance(returned, Mapping):
            msg = (
                f"it returned a {type(returned).__name__}; return None, a dict of fields, or a "
                f"{self._state.__name__}"
            )
            raise FlowError(msg)
        unknown = sorted(str(name) for name in returned if name not in self._fields)
        if unknown:
            msg = f"it returned the unknown field {', '.join(unknown)}. {self.offered}"
            raise FlowError(msg)
        return {name: [self._fields[name].write(value)] for name, value in returned.items()}

    def _differences(self, returned: BaseModel, values: JsonObject) -> dict[str, list[JsonValue]]:
        made = {}
        for name, field in self._fields.items():
            before = values[name] if name in values else field.default()
            writes = field.changed(before, field.read(getattr(returned, name)))
            if writes:
                made[name] = writes
        return made
