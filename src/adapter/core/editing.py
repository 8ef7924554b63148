"""What is wrong with edited arguments, said before they are signed or recorded.

The server refuses a bad edit with one constant message, whatever the cause; on the reviewer's side
the sealed request's own schema can say more. It decides nothing: the server judges again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import ge, gt, le, lt
from typing import Any, Final

from adapter.core.canonical import canonical_bytes
from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import InvalidAnswer
from adapter.core.redaction import MASK
from adapter.core.types import JsonObject

__all__ = ["check_edit", "faults_of"]

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
    "null": (type(None),),
}

_BOUNDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "minimum": ge,
    "exclusiveMinimum": gt,
    "maximum": le,
    "exclusiveMaximum": lt,
}

_NESTING: Final = 32
_SHOWN: Final = 10


def check_edit(value: object, decision: ApprovalDecision) -> None:
    """Refuse an edit that does not fit its own request, by name and path and never by value.

    Args:
        value: The interrupt's value, or what a row keeps of it.
        decision: What was decided.

    Raises:
        InvalidAnswer: Names each fault.
    """
    request = value.get("request") if isinstance(value, Mapping) else None
    if decision.edited_args is None or not isinstance(request, Mapping):
        return
    faults = faults_of(request, decision.edited_args)
    if not faults:
        return
    cure = "give every argument, as the request shows them"
    if request.get("kind") == "gate":
        cure = "an edit at a gate is of the state's fields"
        fields = (request.get("schema") or {}).get("properties") or {}
        cure += f", which are {', '.join(fields)}" if fields else ""
    msg = (
        f"The edit does not fit {request.get('tool')}: {'; '.join(faults[:_SHOWN])}. Nothing was "
        f"signed or recorded, and the request is still open; {cure}."
    )
    raise InvalidAnswer(msg)


def faults_of(request: Mapping[str, Any], edited: JsonObject) -> list[str]:
    """Return what a reviewer should mend in edited arguments; empty when nothing is seen.

    Args:
        request: The approval request, with ``schema`` and the masked ``arguments``.
        edited: The whole argument object to run instead.
    """
    schema = request.get("schema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping):
        return []
    shown = request.get("arguments")
    shown = shown if isinstance(shown, Mapping) else {}
    faults = [
        f"{name}: missing"
        for name in schema.get("required", ())
        if name not in edited and shown.get(name) != MASK
    ]
    gate = request.get("kind") == "gate"
    unknown = "the state has no such field" if gate else "the tool has no such argument"
    more = schema.get("additionalProperties")
    for name, value in edited.items():
        if name not in properties and more in (None, False):
            faults.append(f"{name}: {unknown}")
        elif name not in shown or not _as_shown(value, shown[name]):
            # What is given back as it was shown stands for the bound value, masks and all.
            part = properties.get(name, more)
            faults.extend(_faults(value, part, str(name), schema, 0))
    return faults


def _as_shown(value: Any, shown: Any) -> bool:
    """Compare as JSON, in which true is not 1."""
    try:
        return value == shown and canonical_bytes(value) == canonical_bytes(shown)
    except ValueError:
        return False


def _faults(value: Any, schema: Any, path: str, root: Mapping[str, Any], depth: int) -> list[str]:
    """Return the faults of one value, each with its path."""
    schema = _resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > _NESTING:
        return []
    below = depth + 1
    for word in ("anyOf", "oneOf"):
        branches = schema.get(word)
        if isinstance(branches, list | tuple) and branches:
            tried = [_faults(value, branch, path, root, below) for branch in branches]
            if all(tried):
                return _nearest(tried, path, [_resolved(branch, root) for branch in branches])
    kinds = schema.get("type")
    wanted = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if wanted and not any(_is_a(value, kind) for kind in wanted):
        return [f"{path}: must be of type {' or '.join(map(str, wanted))}"]
    return [*_limits(value, schema, path), *_inside(value, schema, path, root, below)]


def _nearest(tried: list[list[str]], path: str, branches: list[Any]) -> list[str]:
    """Return the faults inside the first form whose own type fits, else the types that would."""
    for faults in tried:
        if not faults[0].startswith(f"{path}: must be of type"):
            return faults
    kinds = [str(branch.get("type")) for branch in branches if isinstance(branch, Mapping)]
    return [f"{path}: must be of type {' or '.join(kinds)}"]


def _inside(
    value: Any, schema: Mapping[str, Any], path: str, root: Mapping[str, Any], depth: int
) -> Iterator[str]:
    """Yield the faults of what a list or an object holds, and of the schemas that all hold."""
    for part in schema.get("allOf") or ():
        yield from _faults(value, part, path, root, depth)
    if isinstance(value, list | tuple):
        first = schema.get("prefixItems") or ()
        for place, item in enumerate(value):
            part = first[place] if place < len(first) else schema.get("items")
            yield from _faults(item, part, f"{path}.{place}", root, depth)
    elif isinstance(value, Mapping):
        properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
        for name in schema.get("required") or ():
            if name not in value:
                yield f"{path}.{name}: missing"
        for name, item in value.items():
            if name not in properties and more is False:
                yield f"{path}.{name}: there is no such field"
            else:
                part = properties.get(name, more)
                yield from _faults(item, part, f"{path}.{name}", root, depth)


def _limits(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the bounds that a value of the right type does not keep."""
    if isinstance(schema.get("enum"), list | tuple) and value not in schema["enum"]:
        yield f"{path}: must be one of those the schema names"
    if "const" in schema and value != schema["const"]:
        yield f"{path}: must be the one value the schema names"
    if isinstance(value, int | float) and not isinstance(value, bool):
        for word, holds in _BOUNDS.items():
            bound = schema.get(word)
            number = isinstance(bound, int | float) and not isinstance(bound, bool)
            if number and not holds(value, bound):
                yield f"{path}: {word} is {bound}"
    if isinstance(value, str | list | tuple):
        kind = "Length" if isinstance(value, str) else "Items"
        least, most = schema.get(f"min{kind}"), schema.get(f"max{kind}")
        if isinstance(least, int) and len(value) < least:
            yield f"{path}: min{kind} is {least}"
        if isinstance(most, int) and len(value) > most:
            yield f"{path}: max{kind} is {most}"


def _resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """Follow references inside the request's schema; one that leads nowhere says nothing."""
    for _ in range(_NESTING):
        place = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(place, str):
            return schema
        schema = root if place.startswith("#") else None
        for name in place.removeprefix("#").strip("/").split("/"):
            found = name.replace("~1", "/").replace("~0", "~")
            schema = schema.get(found) if isinstance(schema, Mapping) and name else schema
    return None


def _is_a(value: Any, kind: Any) -> bool:
    kinds = _TYPES.get(kind) if isinstance(kind, str) else None
    if kinds is None:
        return True
    if isinstance(value, bool):
        return bool(kind == "boolean")
    return isinstance(value, kinds)
