"""Values on the wire: what is JSON, and what is wrong with what is not. No value is ever quoted."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from decimal import Decimal
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    PlainSerializer,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    ValidationError,
    WrapSerializer,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python
from typing_extensions import TypeAliasType

from adapter.core.types import JsonValue

__all__ = [
    "canonical",
    "checked",
    "explained",
    "is_json",
    "jsonable",
    "listed",
    "lost",
    "restored",
    "settled",
]

_NESTED = (dict, list)
_SERIALIZERS = (PlainSerializer, WrapSerializer)

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
        made = canonical(value, to_jsonable_python(value))
    except (PydanticSerializationError, RecursionError) as error:
        msg = f"a {type(value).__name__} holds something that is no JSON"
        raise ValueError(msg) from error
    return checked(made)


def canonical(value: Any, made: JsonValue) -> JsonValue:
    """Return what was made of a value, with its sets in one order: by their items' JSON text.

    Sets come in another order in each process, and calls are known by their arguments.

    Args:
        value: What was dumped.
        made: Its dump, by the names of fields.
    """
    if type(made) not in _NESTED:
        return made
    if isinstance(value, RootModel):
        return canonical(value.root, made)
    if type(made) is list:
        if isinstance(value, str | bytes) or not isinstance(value, Collection):
            return made
        if len(value) == len(made):  # else a serializer of its own made it
            pairs = zip(value, made, strict=True)
            made = [canonical(one, item) if type(item) in _NESTED else item for one, item in pairs]
        return sorted(made, key=to_json) if isinstance(value, set | frozenset) else made
    inner: Iterable[Any]
    if isinstance(value, dict | Mapping):
        if len(value) != len(made):
            return made
        inner = value.values()
    elif isinstance(value, BaseModel) or is_dataclass(value):
        inner = (
            getattr(value, name, None) if type(item) in _NESTED else None
            for name, item in made.items()
        )
    else:
        return made
    return {
        name: canonical(one, item) if type(item) in _NESTED else item
        for one, (name, item) in zip(inner, made.items(), strict=True)
    }


def listed(items: Iterable[Any]) -> list[Any]:
    """Return items in their order; those of a set in the one that their JSON has."""
    return sorted(items, key=_text) if isinstance(items, set | frozenset) else list(items)


def _text(item: Any) -> str:
    try:
        return to_json(jsonable(item)).decode()
    except ValueError:
        return repr(item)


def checked(value: JsonValue, *, whole: bool = False) -> JsonValue:
    """Return a dumped value, if it consists of what JSON has.

    Args:
        value: JSON.
        whole: Its whole numbers must be such as checkpoints keep.

    Raises:
        ValueError: A number that is none or too wide, or half a character.
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
        elif type(item) is int and whole and item not in _INTEGERS:
            msg = (
                "it holds a whole number of more than 64 bits, which no checkpoint keeps; use text"
            )
            raise ValueError(msg)
        elif isinstance(item, str) and not item.isascii():
            item.encode()  # half of a surrogate pair is no text
    return value


def is_json(value: Any) -> bool:
    """Tell whether a value consists of what JSON has, and of nothing else."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if type(item) is dict:
            if not all(type(name) is str for name in item):
                return False
            waiting.extend(item.values())
        elif type(item) is list:
            waiting.extend(item)
        elif type(item) is float:
            if not math.isfinite(item):
                return False
        elif item is not None and type(item) not in (str, bool, int):
            return False
    return True


def lost(annotation: Any, metadata: Sequence[Any] = (), seen: list[Any] | None = None) -> list[str]:
    """Return what a type holds that its JSON leaves out, in words.

    Args:
        annotation: The type.
        metadata: Its annotations; with a serializer among them, what becomes of it is its own.
        seen: Types that were looked at.
    """
    seen = [] if seen is None else seen
    if annotation in seen or any(isinstance(one, _SERIALIZERS) for one in metadata):
        return []
    kind = get_origin(annotation) or annotation
    if kind is Annotated:
        inner, *more = get_args(annotation)
        return lost(inner, more, seen)
    seen.append(annotation)
    if isinstance(annotation, TypeAliasType):
        return lost(annotation.__value__, (), seen)
    found = [what for one in get_args(annotation) for what in lost(one, (), seen)]
    if not isinstance(kind, type):
        return found
    if issubclass(kind, SecretStr | SecretBytes | Secret):
        return [f"a {kind.__name__}, whose JSON is asterisks"]
    return found + _lost_inside(annotation, kind, seen)


def _lost_inside(annotation: Any, kind: type, seen: list[Any]) -> list[str]:
    said = getattr(annotation, "__pydantic_decorators__", None)
    if said is not None and (said.field_serializers or said.model_serializers):
        return []
    own: Mapping[str, FieldInfo] = getattr(annotation, "__pydantic_fields__", None) or {}
    found = []
    for name, info in own.items():
        if info.exclude:
            found.append(f"a {kind.__name__}, whose field {name} is excluded from its JSON")
        else:
            found += lost(info.annotation, info.metadata, seen)
    if not own and (is_dataclass(kind) or issubclass(kind, tuple | dict)):
        with suppress(NameError, TypeError):
            hints = get_type_hints(kind, include_extras=True)
            found += [what for one in hints.values() for what in lost(one, (), seen)]
    return found


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
