"""What is wrong with edited arguments, said before they are signed.

The server refuses a bad edit with one constant message, whatever the cause; here, on the reviewer's
side, the sealed request's own schema can say more. It decides nothing: the server judges again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapter.core.redaction import MASK
from adapter.core.types import JsonObject

__all__ = ["faults_of"]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


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
    shown = request.get("arguments", {})
    faults = [
        f"{name}: missing"
        for name in schema.get("required", ())
        if name not in edited and shown.get(name) != MASK
    ]
    for name, value in edited.items():
        if name not in properties:
            if schema.get("additionalProperties") is not True:
                faults.append(f"{name}: the tool has no such argument")
        elif not _fits(value, properties[name]):
            faults.append(f"{name}: must be of type {properties[name]['type']}")
    return faults


def _fits(value: Any, schema: Any) -> bool:
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = _TYPES.get(wanted) if isinstance(wanted, str) else None
    if kinds is None:
        return True
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, kinds)
