"""Between the records of the store interface and the columns of the tables. No SQL here.

Encoding happens in the caller, before an operation is queued: a value that is no JSON raises there
and sinks nobody else's work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, make_dataclass
from operator import itemgetter
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

_JSON = tuple(CALL_FIELDS.index(name) for name in ("request", "decision", "outcome"))
_STATUS_AT, _ANSWERS_AT = CALL_FIELDS.index("status"), CALL_FIELDS.index("answers")
_STATUS = {status.value: status for status in CallStatus}
_in_order = itemgetter(*CALL_FIELDS)

# The constructor of a frozen record sets each field through a call, which takes longer here than
# the database does: a record is filled as one that is not frozen, and then made what it is.
_OpenRow: Any = make_dataclass("_OpenRow", CALL_FIELDS, slots=True)
_OpenEvent: Any = make_dataclass(
    "_OpenEvent", [field.name for field in fields(StoredEvent)], slots=True
)


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
    made = list(values)
    made[_STATUS_AT] = _STATUS[made[_STATUS_AT]]
    answers = made[_ANSWERS_AT]
    made[_ANSWERS_AT] = () if answers == "[]" else tuple(json.loads(answers))
    for at in _JSON:
        if made[at] is not None:
            made[at] = loads(made[at])
    row = _OpenRow(*made)
    row.__class__ = CallRow
    return row  # type: ignore[no-any-return]


def inserted_row(values: Mapping[str, Any]) -> CallRow:
    """Build the record from the columns a row was just made of; cheaper than to return them."""
    return call_row(_in_order(values))


def stored_event(values: Sequence[Any]) -> StoredEvent:
    """Build one link from its columns."""
    event = _OpenEvent(*link_columns(values))
    event.__class__ = StoredEvent
    return event  # type: ignore[no-any-return]


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
