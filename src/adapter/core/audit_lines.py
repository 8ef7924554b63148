"""The lines of an audit file: one JSON object each, whose event is the stored line byte for byte.

``{"thread_id":…,"seq":…,"hash":…,"event_id":…,"kind":…,"head":{…},"event":<the line>}``: any JSON
reader can read it, and a verifier cuts the hashed bytes out of it unchanged. An anchor, where a
pruned or shortened chain begins, is ``{"thread_id":…,"anchor":{…}}``. No I/O here.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from typing import Any

from adapter.core.canonical import strict_loads
from adapter.core.store import Anchor, StoredEvent, ThreadHead

__all__ = ["anchor_line", "event_line", "read_line"]

_EVENT = b',"event":'
_ANCHOR = ("seq", "hash", "removed", "at", "by", "kid", "signature")


def event_line(event: StoredEvent, head: ThreadHead | None = None) -> bytes:
    """Return a link as one line, newline included.

    Args:
        event: The link.
        head: The thread's head, where it is this link's.
    """
    facts: dict[str, Any] = {
        "thread_id": event.thread_id,
        "seq": event.seq,
        "hash": event.hash,
        "event_id": event.event_id,
        "kind": event.kind,
    }
    if head is not None:
        facts["head"] = {"count": head.count, "kid": head.kid, "signature": head.signature}
    whole = _is_json(event.line)
    if not whole:
        facts["raw"] = base64.b64encode(event.line).decode()
    start = _compact(facts)
    return start[:-1] + _EVENT + event.line + b"}\n" if whole else start + b"\n"


def anchor_line(anchor: Anchor) -> bytes:
    """Return where a chain begins as one line, newline included."""
    facts = asdict(anchor)
    thread = facts.pop("thread_id")
    return (
        json.dumps(
            {"thread_id": thread, "anchor": facts}, ensure_ascii=False, separators=(",", ":")
        ).encode()
        + b"\n"
    )


def read_line(line: bytes) -> tuple[StoredEvent | Anchor, ThreadHead | None]:
    """Take one line apart.

    Returns:
        The link and, where the line has it, the head; or an anchor and None.

    Raises:
        ValueError: The line is none of an audit file.
    """
    line = line.rstrip(b"\r\n")
    cut = line.find(_EVENT)
    body = b""
    if cut >= 0 and line.endswith(b"}"):
        body = line[cut + len(_EVENT) : -1]
        line = line[:cut] + b"}"
    try:
        facts = strict_loads(line)
        if "anchor" in facts:
            found = {name: facts["anchor"][name] for name in _ANCHOR}
            if type(found["seq"]) is not int:
                raise ValueError  # noqa: TRY301
            return Anchor(thread_id=str(facts["thread_id"]), **found), None
        if ("raw" in facts) is bool(body) or "event" in facts:
            raise ValueError  # noqa: TRY301 - other readers would take another event for this one
        if "raw" in facts:
            body = base64.b64decode(facts["raw"], validate=True)
        event = StoredEvent(
            thread_id=str(facts["thread_id"]),
            seq=int(facts["seq"]),
            event_id=str(facts["event_id"]),
            kind=str(facts["kind"]),
            line=body,
            hash=str(facts["hash"]),
        )
        return event, _head(event, facts.get("head"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        msg = "not a line of an audit file"
        raise ValueError(msg) from error


def _head(event: StoredEvent, given: Any) -> ThreadHead | None:
    if given is None:
        return None
    return ThreadHead(
        thread_id=event.thread_id,
        seq=event.seq,
        hash=event.hash,
        kid=given["kid"],
        signature=given["signature"],
        count=given["count"],
    )


def _compact(facts: dict[str, Any]) -> bytes:
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace")


def _is_json(line: bytes) -> bool:
    """Tell whether a stored line can stand inside another as it is."""
    if b"\n" in line or b"\r" in line:
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
