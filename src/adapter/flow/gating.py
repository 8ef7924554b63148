"""What a gate of a flow asks: what its node's ``pause`` says, and how a reviewer may edit it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from adapter.core.canonical import canonical_bytes, digest, loads
from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import FlowError, InvalidAnswer, ToolArgsInvalid
from adapter.core.gates import Gate, gate_spec
from adapter.core.types import JsonObject
from adapter.flow.kinds import Node
from adapter.flow.shape import Shape
from adapter.flow.wire import jsonable
from adapter.flow.work import done

__all__ = ["check_edit_of", "gate_of", "gate_state", "grant_digest", "state_digest", "unsigned"]


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
        FlowError: What ``pause`` returned is no mapping, has no JSON form, or cannot be signed.
        Exception: Whatever ``pause`` raised; a note says where.
    """
    where = f"flow {flow.name!r}, node {node.name!r}"

    def validate(edit: JsonObject) -> JsonObject:
        try:
            # As the journal keeps it: a visit that runs again gets the edit from there, and what
            # was signed has neither an order of keys nor two forms of one number.
            return flow.fields.edited(loads(canonical_bytes(edit)))
        except ValueError as error:
            msg = "Invalid edit: it has no canonical JSON form."
            raise ToolArgsInvalid(msg) from error
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
    if fault := unsigned(arguments):
        msg = f"{where}: what pause returned cannot be signed: {fault}."
        raise FlowError(msg)
    return Gate(
        flow=flow.name,
        node=node.name,
        arguments=arguments,
        schema=flow.edit_schema,
        validate=validate,
        state=state,
        group=group,
    )


def unsigned(values: Mapping[str, Any]) -> str | None:
    """Return what keeps values from being signed, with the field; None where nothing does."""
    for name, value in values.items():
        try:
            canonical_bytes({str(name): value})
        except ValueError:
            return (
                f"{name} holds a whole number beyond 2**53 - 1, which not every reader of JSON "
                "keeps exact, or is no JSON; use text"
            )
    return None


def check_edit_of(flow: str, node: str, kind: str, decision: ApprovalDecision) -> None:
    """Refuse an edit that nobody could sign, or that edits nothing of a gate's state.

    Raises:
        InvalidAnswer: Names flow, node and field; nothing was recorded.
    """
    if decision.edited_args is None:
        return
    fault = unsigned(decision.edited_args)
    if kind == "gate" and not decision.edited_args:
        fault = "it names no field of the state; to change nothing, approve"
    if fault:
        msg = (
            f"flow {flow!r}, node {node!r}: the edit does not hold: {fault}. Nothing was signed or "
            "recorded, and the request is still open."
        )
        raise InvalidAnswer(msg)


def gate_state(flow: Shape, values: JsonObject, told: JsonObject) -> str:
    """Return what the gates of a superstep are bound to: one digest, the same for all of them.

    Args:
        flow: Another version of it is another thing to approve.
        values: What its nodes are given, ``settled``.
        told: What the run keeps besides: its id, visits and counts name the calls of a visit.

    Raises:
        FlowError: The values have no JSON form.
    """
    kept = json.dumps(told, sort_keys=True)
    try:
        return state_digest({"flow": flow.digest, "values": values, "told": kept})
    except ValueError as error:
        msg = f"flow {flow.name!r}: the state holds something that is no JSON."
        raise FlowError(msg) from error


def grant_digest(flow: Shape, node: str, state: str) -> str:
    """Return the ``policy_digest`` of a gate's row that was opened for this ``gate_state``."""
    return gate_spec(flow.name, node, state).policy_digest


def state_digest(values: JsonObject) -> str:
    """Return a digest of exactly what a node is given: forms of numbers and order of keys too."""
    return digest("flow-state/v3", to_json(values))
