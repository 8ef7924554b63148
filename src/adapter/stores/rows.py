"""Between the records of the store interface and the columns of the tables. No SQL here.

Encoding happens in the caller, before an operation is queued: a value that is no JSON raises there
and sinks nobody else's work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from adapter.core.canonical import canonical_bytes, loads
from adapter.core.store import Anchor, CallRow, NewCall, StoredEvent, ThreadHead
from adapter.core.types import CallStatus, JsonValue
from adapter.stores.schema import CALL_FIELDS

__all__ = [
    "anchor_row",
    "call_row",
    "encoded",
    "head_row",
    "inserted_row",
    "link_columns",
    "milliseconds",
    "new_call_values",
    "stored_event",
    "with_answer",
]

_JSON = ("request", "decision", "outcome")
_STATUS = {status.value: status for status in CallStatus}


def milliseconds(seconds: float) -> int:
    """Return a duration in whole milliseconds."""
    return int(seconds * 1000)


def encoded(value: JsonValue) -> str | None:
    """Return the canonical text of a JSON value; None stays None.

    Raises:
        ValueError: The value has no canonical JSON form.
    """
    return None if value is None else canonical_bytes(value).decode()


def new_call_values(call: NewCall) -> dict[str, Any]:
    """Return every column of a row that is being made, as of nobody having claimed it.

    The times are missing (they are the store's); ``ttl`` stays for the writer to apply.

    Raises:
        ValueError: The request has no canonical JSON form.
    """
    return {
        "key": call.key,
        "thread_id": call.thread_id,
        "checkpoint_ns": call.checkpoint_ns,
        "task_id": call.task_id,
        "turn_id": call.turn_id,
        "message_id": call.message_id,
        "tool_call_id": call.tool_call_id,
        "tool": call.tool,
        "kind": call.kind,
        "arguments_digest": call.arguments_digest,
        "policy_digest": call.policy_digest,
        "schema_digest": call.schema_digest,
        "idempotency_key": call.idempotency_key,
        "interrupt_id": call.interrupt_id,
        "position": call.position,
        "requester": call.requester,
        "request": encoded(call.request),
        "approval_id": call.approval_id,
        "quorum_need": call.quorum_need,
        "status": "requested",
        "decision": None,
        "answers": "[]",
        "executed_digest": None,
        "fence": 0,
        "owner": None,
        "lease_until": None,
        "run_id": call.run_id,
        "outcome": None,
    }


def with_answer(answers: Sequence[str], answer: str | None) -> str:
    """Return the stored list of answer digests with one more, unless it is there."""
    kept = list(answers)
    if answer is not None and answer not in kept:
        kept.append(answer)
    return json.dumps(kept, separators=(",", ":"))


def call_row(values: Sequence[Any]) -> CallRow:
    """Build the record from the columns ``CALL_FIELDS``, in that order."""
    return _decoded(dict(zip(CALL_FIELDS, values, strict=True)))


def inserted_row(values: Mapping[str, Any]) -> CallRow:
    """Build the record from the columns a row was just made of; cheaper than to return them."""
    return _decoded(dict(values))


def _decoded(made: dict[str, Any]) -> CallRow:
    made["status"] = _STATUS[made["status"]]
    answers = made["answers"]
    made["answers"] = () if answers == "[]" else tuple(json.loads(answers))
    for name in _JSON:
        text = made[name]
        if text is not None:
            made[name] = loads(text)
    return CallRow(**made)


def stored_event(values: Sequence[Any]) -> StoredEvent:
    """Build one link from its columns."""
    thread_id, seq, event_id, kind, line, hash_ = link_columns(values)
    return StoredEvent(
        thread_id=thread_id, seq=seq, event_id=event_id, kind=kind, line=line, hash=hash_
    )


def link_columns(values: Sequence[Any]) -> Sequence[Any]:
    """Return one link's columns with the line as bytes, whatever the driver gave."""
    line = values[4]
    if type(line) is bytes:
        return values
    return (*values[:4], _as_bytes(line), values[5])


def _as_bytes(line: Any) -> bytes:
    """Return the bytes of a driver's own type; anything else was not written by the store."""
    if isinstance(line, bytearray | memoryview):
        return bytes(line)
    # SQLite keeps what it is given: the same line as text is a line that somebody rewrote.
    return b"not bytes: " + str(line).encode(errors="replace")


def head_row(values: Sequence[Any]) -> ThreadHead:
    """Build the newest link's record from its columns."""
    thread_id, seq, hash_, kid, signature, count = values
    return ThreadHead(
        thread_id=thread_id, seq=seq, hash=hash_, kid=kid, signature=signature, count=count
    )


def anchor_row(values: Sequence[Any]) -> Anchor:
    """Build the record of where a pruned chain begins from its columns."""
    thread_id, seq, hash_, removed, at, by, kid, signature = values
    return Anchor(
        thread_id=thread_id,
        seq=seq,
        hash=hash_,
        removed=removed,
        at=at,
        by=by,
        kid=kid,
        signature=signature,
    )
