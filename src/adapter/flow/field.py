"""One field of a flow's state: its values as JSON, its writes, and how they merge.

Every value that leaves a node is validated as its field's type, apart from the other fields, and
kept as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from inspect import isroutine
from typing import Any, get_args

from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import (
    PydanticSerializationError,
    PydanticUndefined,
    to_json,
)

from adapter.core.errors import FlowError, ToolUsageError
from adapter.core.merge import UNSET, Merge, MergeRule
from adapter.core.types import JsonObject, JsonValue
from adapter.flow.wire import canonical, checked, explained, jsonable, listed, lost

__all__ = ["Field"]


class Field:
    """One field of the state.

    Attributes:
        name: Its name.
        rule: How writes become its next value.
        declared: The rule was said, so that several nodes of a superstep may write the field.
        faults: What is wrong with the declaration.
    """

    def __init__(self, name: str, info: FieldInfo, state: type[BaseModel]) -> None:
        """Read the declaration."""
        rules = [item for item in info.metadata if isinstance(item, MergeRule)]
        self.name = name
        self.rule = rules[0] if rules else Merge.last
        self.declared = bool(rules)
        self.faults: list[str] = []
        self._info = info
        if _has_rule(info.annotation):
            self.faults.append(
                f"field {name!r} has its merge rule inside its type; put it outside: "
                "Annotated[T | None, rule]"
            )
        if len(rules) > 1:
            self.faults.append(f"field {name!r} has {len(rules)} merge rules; give it one")
        if any(isroutine(item) for item in info.metadata):
            self.faults.append(
                f"field {name!r} is annotated with a function; a merge rule of your own is "
                "Merge.custom(function)"
            )
        if info.exclude:
            self.faults.append(f"field {name!r} is excluded from the model's JSON; keep it in")
        self.faults += [
            f"field {name!r} holds {what}; keep it out of the state, or give its type a serializer"
            for what in lost(info.annotation, info.metadata)
        ]
        self._one = _one_field(info, state)
        self.json_schema = self._schema()
        if self.json_schema and info.default is not PydanticUndefined:
            self._check_default()

    def _schema(self) -> JsonObject:
        try:
            self._one.model_json_schema(mode="serialization")
            return self._one.model_json_schema()
        except Exception as error:  # noqa: BLE001 - whatever a type's own schema hook raises
            self.faults.append(
                f"field {self.name!r} has a type that is no JSON ({type(error).__name__})"
            )
            return {}

    def _check_default(self) -> None:
        try:
            self.read(self._info.default)
        except FlowError as error:
            self.faults.append(f"field {self.name!r} has a default that does not hold: {error}")

    def default(self) -> JsonValue:
        """Return the JSON of the model's default, else of the rule's empty value, or UNSET."""
        info = self._info
        if not info.is_required():
            try:
                made = info.get_default(call_default_factory=True, validated_data={})
            except KeyError:
                return UNSET  # made from other fields: the model does that
            return self.read(made)
        if self.rule.from_empty:
            empties: tuple[Any, ...] = ([], {}, 0)
            for empty in empties:
                try:
                    return self._dump(self._read(empty))
                except ValueError:
                    continue
        return UNSET

    def read(self, value: Any, *, wire: bool = False, strict: bool = False) -> JsonValue:
        """Return a value of this field as JSON.

        Args:
            value: A Python value, or JSON.
            wire: It is JSON.
            strict: JSON of another type is refused where it would be converted.

        Raises:
            FlowError: It is no value of this field.
        """
        try:
            taken = self._read(value, strict=strict or None) if wire else self._take(value)
            return self._dump(taken)
        except ValidationError as error:
            raise FlowError(explained(error, self.name)) from None
        except ValueError as error:
            msg = f"{self.name}: {error}"
            raise FlowError(msg) from None

    def write(self, value: Any, *, wire: bool = False) -> JsonValue:
        """Return one write as JSON: an appended item as a list of one, else a value of the field.

        Raises:
            FlowError: It cannot be merged into this field.
        """
        if self.rule is Merge.append:
            return self._appended(value, wire=wire)
        if not _named(self.rule):
            try:
                return self.read(value, wire=wire)
            except FlowError:
                pass
            try:
                return checked(jsonable(value), whole=True)
            except ValueError as error:
                msg = f"{self.name}: {error}"
                raise FlowError(msg) from None
        return self.read(value, wire=wire)

    def _appended(self, value: Any, *, wire: bool) -> JsonValue:
        if not isinstance(value, list | tuple | set | frozenset):
            return self.read([value], wire=wire)
        try:
            return self.read(listed(value), wire=wire)
        except FlowError as error:
            try:
                return self.read([value], wire=wire)  # a list that is one item
            except FlowError:
                raise error from None

    def merge(self, current: JsonValue, writes: Sequence[JsonValue]) -> JsonValue:
        """Return the next value.

        Args:
            current: JSON, or UNSET.
            writes: JSON of all writes of a superstep, in node-name order, then in each node's.

        Raises:
            FlowError: They do not go together, or what they make is no value of this field.
        """
        if not writes:
            return current
        if self.rule is Merge.last:
            return writes[-1]
        try:
            before = UNSET if current is UNSET else self._read(current)
            made = self.rule(before, [self._given(one) for one in writes])
        except ToolUsageError as error:
            msg = f"{self.name}: {error.message}"
            raise FlowError(msg) from error
        except Exception as error:
            msg = f"{self.name}: Merge.{self.rule.name} raised {type(error).__name__}."
            raise FlowError(msg) from error
        return self.read(made)

    def _given(self, write: JsonValue) -> Any:
        if self.rule is Merge.append:
            return list(self._read(write))  # of a set or a tuple too
        if _named(self.rule):
            return self._read(write)
        try:
            return self._read(write)
        except ValidationError:
            return write

    def changed(self, before: JsonValue, after: JsonValue) -> list[JsonValue]:
        """Return the writes that lead from one value to another: what a returned model says.

        Raises:
            FlowError: No write of this field does.
        """
        if before is not UNSET and before != after:
            # Of an older version, or as a client wrote it: a set may be in another order there.
            before = self.read(before, wire=True)
        if before == after:
            return []
        if self.rule is Merge.append and isinstance(before, list) and isinstance(after, list):
            added = self._added(before, after)
            if added is None:
                msg = (
                    f"{self.name}: items can only be added to a field of Merge.append; return a "
                    "dict of writes"
                )
                raise FlowError(msg)
            return [added]
        if self.rule is Merge.sum:
            msg = (
                f"{self.name}: what was added to a field of Merge.sum cannot be told from a whole "
                "state; return a dict of writes"
            )
            raise FlowError(msg)
        return [after]

    def _added(self, before: list[JsonValue], after: list[JsonValue]) -> list[JsonValue] | None:
        """Return the items that were added; None where others are gone."""
        if isinstance(self._read(before), set | frozenset):
            more = [item for item in after if item not in before]
            return more if len(before) + len(more) == len(after) else None
        return after[len(before) :] if after[: len(before)] == before else None

    def _take(self, value: Any) -> Any:
        one: Any = self._one.model_validate({"value": value}, by_alias=False, by_name=True)
        return one.value

    def _read(self, value: JsonValue, *, strict: bool | None = None) -> Any:
        text = to_json({"value": value})
        one: Any = self._one.model_validate_json(text, strict=strict, by_alias=False, by_name=True)
        return one.value

    def _dump(self, value: Any) -> JsonValue:
        try:
            one = self._one.model_construct(value=value)
            made = canonical(value, one.model_dump(mode="json", by_alias=False)["value"])
        except (PydanticSerializationError, RecursionError) as error:
            msg = "it holds something that is no JSON"
            raise ValueError(msg) from error
        return checked(made, whole=True)


def _has_rule(annotation: Any) -> bool:
    """Tell whether a merge rule is hidden inside a type, where it would never be applied."""
    return any(isinstance(one, MergeRule) or _has_rule(one) for one in get_args(annotation))


def _named(rule: MergeRule) -> bool:
    return rule in (Merge.append, Merge.last, Merge.union, Merge.sum, Merge.max, Merge.min)


_OF_THE_WHOLE = ("alias_generator", "extra", "json_schema_extra", "title")


def _one_field(info: FieldInfo, state: type[BaseModel]) -> type[BaseModel]:
    """Return a model of one field ``value``: each field is validated without the others."""
    alone = copy(info)
    alone.default, alone.default_factory = PydanticUndefined, None
    alone.alias = alone.validation_alias = alone.serialization_alias = None
    alone.exclude = None
    config = {name: said for name, said in state.model_config.items() if name not in _OF_THE_WHOLE}
    if config.get("ser_json_inf_nan") != "strings":
        config["ser_json_inf_nan"] = "constants"  # to be seen and refused, where null would pass
    return create_model(  # type: ignore[no-any-return, call-overload]
        f"{state.__name__}Field", __config__=config, value=(info.annotation, alone)
    )
