"""What is wrong with edited arguments, said before they are signed or recorded.

The server refuses a bad edit with one constant message, whatever the cause; on the reviewer's side
the sealed request's own schema can say more. It decides nothing: the server judges again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from adapter.core.canonical import canonical_bytes
from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import InvalidAnswer
from adapter.core.jsonarguments import library
from adapter.core.redaction import MASK
from adapter.core.types import JsonObject

__all__ = ["check_edit", "faults_of"]

_SHOWN: Final = 10
_WORDS: Final[Mapping[str, str]] = {
    "enum": "must be one of those the schema names",
    "const": "must be the one value the schema names",
}


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
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        return []
    shown = request.get("arguments")
    shown = shown if isinstance(shown, Mapping) else {}
    # What is given back as it was shown stands for the bound value, masks and all.
    kept = {name for name, value in edited.items() if _as_shown(value, shown, name)}
    masked = {name for name, value in shown.items() if value == MASK}
    judged = {
        "additionalProperties": False,
        **schema,
        "required": [name for name in schema.get("required", ()) if name not in kept | masked],
    }
    new = {
        name: value
        for name, value in edited.items()
        if name not in kept or name not in schema["properties"]
    }
    gate = request.get("kind") == "gate"
    unknown = "the state has no such field" if gate else "the tool has no such argument"
    package, registry, unsound = library()
    try:
        errors = list(package.Draft202012Validator(judged, registry=registry).iter_errors(new))
    except unsound:  # the server judges by the schema that it has
        return []
    left_out = [] if gate else _left_out(schema, shown, edited, masked)
    found = [*(fault for error in errors for fault in _faults(error, unknown)), *left_out]
    return list(dict.fromkeys(found))


def _left_out(
    schema: Mapping[str, Any],
    shown: Mapping[str, Any],
    edited: JsonObject,
    masked: set[str],
) -> Iterator[str]:
    """Yield what was shown, is not in the edit, and would run with another value than shown."""
    for name, known in schema["properties"].items():
        if name in edited or name in masked or name in schema.get("required", ()):
            continue
        default = known.get("default") if isinstance(known, Mapping) else None
        if name in shown and not _as_shown(default, shown, name):
            yield f"{name}: missing"


def _as_shown(value: Any, shown: Mapping[str, Any], name: str) -> bool:
    """Compare as JSON, in which true is not 1."""
    if name not in shown:
        return False
    try:
        return value == shown[name] and canonical_bytes(value) == canonical_bytes(shown[name])
    except ValueError:
        return False


def _faults(error: Any, unknown: str) -> Iterator[str]:
    """Word one fault by path and rule, never by value."""
    path, word, wanted = _path(error), error.validator, error.validator_value
    if word in ("anyOf", "oneOf"):
        yield from _nearest(error, unknown)
    elif word == "required":
        # The library says this once for each name that is missing, and names it in prose only.
        missing = [name for name in wanted if name not in error.instance]
        yield from (f"{_below(path, name)}: missing" for name in missing)
    elif word == "additionalProperties":
        said = "there is no such field" if path else unknown
        known = error.schema.get("properties", {})
        yield from (f"{_below(path, name)}: {said}" for name in error.instance if name not in known)
    elif word == "type":
        yield f"{path}: must be of type {_either([wanted] if isinstance(wanted, str) else wanted)}"
    elif word in _WORDS:
        yield f"{path}: {_WORDS[word]}"
    elif isinstance(wanted, int | float) and not isinstance(wanted, bool):
        yield f"{path}: {word} is {wanted}"
    else:
        yield f"{path}: does not keep {word}"


def _nearest(error: Any, unknown: str) -> Iterator[str]:
    """Yield the faults inside the first form whose own type fits, else the types that would."""
    branches: dict[int, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    own = list(error.absolute_path)
    for inner in branches.values():
        if not any(one.validator == "type" and list(one.absolute_path) == own for one in inner):
            yield from (fault for one in inner for fault in _faults(one, unknown))
            return
    kinds = [one.validator_value for inner in branches.values() for one in inner[:1]]
    named = [kind for kind in kinds if isinstance(kind, str)]
    yield f"{_path(error)}: must be of type {_either(named)}"


def _path(error: Any) -> str:
    return ".".join(str(part) for part in error.absolute_path)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _either(kinds: Iterable[Any]) -> str:
    return " or ".join(map(str, kinds))
