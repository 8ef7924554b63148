"""What a gate of a flow asks: what its node's ``pause`` says, and how a reviewer may edit it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from adapter.core.canonical import digest
from adapter.core.errors import FlowError, ToolArgsInvalid
from adapter.core.gates import Gate, gate_spec
from adapter.core.types import JsonObject, JsonValue
from adapter.flow.kinds import Node
from adapter.flow.shape import Shape
from adapter.flow.wire import jsonable
from adapter.flow.work import done

__all__ = ["gate_of", "gate_state", "grant_digest", "state_digest"]


async def gate_of(
    flow: Shape, node: Node, values: JsonObject, *, state: str, group: str = ""
) -> Gate:
    """Return the gate before a node.

    Args:
        flow: The flow.
        node: A node with ``pause``.
        values: JSON of the state as the superstep began.
        state: Its ``gate_state``.
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
        model = flow.fields.load(values, where=where)
        try:
            said = await done(node.pause(model))
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
        state=state,
        group=group,
    )


def gate_state(flow: Shape, values: JsonObject, told: JsonObject) -> str:
    """Return what the gates of a superstep are bound to: one digest, the same for all of them.

    Args:
        flow: Another version of it is another thing to approve.
        values: JSON of the state as the superstep began.
        told: What the run keeps besides: its id, visits and counts name the calls of a visit.
    """
    return state_digest({"flow": flow.digest, "values": values, "told": told})


def grant_digest(flow: Shape, node: str, state: str) -> str:
    """Return the ``policy_digest`` of a gate's row that was opened for this ``gate_state``."""
    return gate_spec(flow.name, node, state).policy_digest


def state_digest(values: JsonObject) -> str:
    """Return a digest of a state, the same whatever kept it meanwhile.

    Databases may give back 1e22 as a whole number, and keys in another order.
    """
    return digest("flow-state/v2", json.dumps(_exact(values), sort_keys=True))


def _exact(value: JsonValue) -> JsonValue:
    """Return a value so that no two have one form: what is no mapping and no list stays apart."""
    if isinstance(value, dict):
        return {name: _exact(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return ["list", *(_exact(one) for one in value)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            return ["number", repr(value)]
        # Hexadecimal: decimal text of a very long number is refused by Python.
        return ["number", "{:x}/{:x}".format(*value.as_integer_ratio())]
    return value
