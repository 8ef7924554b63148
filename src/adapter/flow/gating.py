"""What a gate of a flow asks: what its node's ``pause`` says, and how a reviewer may edit it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from adapter.core.canonical import digest
from adapter.core.errors import FlowError, ToolArgsInvalid
from adapter.core.gates import Gate
from adapter.core.types import JsonObject, JsonValue
from adapter.flow.kinds import Node
from adapter.flow.shape import Shape
from adapter.flow.wire import jsonable
from adapter.flow.work import done

__all__ = ["gate_of", "state_digest"]


async def gate_of(flow: Shape, node: Node, values: JsonObject, *, group: str = "") -> Gate:
    """Return the gate before a node.

    Args:
        flow: The flow.
        node: A node with ``pause``.
        values: JSON of the state as the superstep began.
        group: Names the superstep.

    Raises:
        FlowError: What ``pause`` returned is no mapping, or has no JSON form.
        Exception: Whatever ``pause`` raised; a note says where.
    """
    where = f"flow {flow.name!r}, node {node.name!r}"

    def validate(edit: JsonObject) -> JsonObject:
        try:
            return flow.fields.edited(edit)
        except FlowError as error:
            msg = f"Invalid edit: {error.message}"
            raise ToolArgsInvalid(msg) from None

    said: Any = {}
    if node.pause is not None:
        state = flow.fields.load(values, where=where)
        try:
            said = await done(node.pause(state))
        except Exception as error:
            error.add_note(f"{where}, its pause= function")
            raise
    if not isinstance(said, Mapping):
        msg = f"{where}: pause must return a dict, not a {type(said).__name__}."
        raise FlowError(msg)
    try:
        arguments: JsonObject = jsonable(dict(said))
    except ValueError as error:
        msg = f"{where}: what pause returned has no JSON form: {error}."
        raise FlowError(msg) from None
    return Gate(
        flow=flow.name,
        node=node.name,
        arguments=arguments,
        schema=flow.edit_schema,
        validate=validate,
        state=state_digest(values),
        group=group,
    )


def state_digest(values: JsonObject) -> str:
    """Return a digest of a state, the same whatever kept it meanwhile.

    Databases may give back 1e22 as a whole number, and keys in another order.
    """
    return digest("flow-state/v1", json.dumps(_exact(values), sort_keys=True))


def _exact(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _exact(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_exact(one) for one in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"number": "{}/{}".format(*value.as_integer_ratio())}
    return value
