"""Audit events: one per proposed call, refusal, question, decision, start and outcome.

Builds events with their masks applied; the store gives each its place in the thread's chain. The
checkpoint is never the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from adapter.core.canonical import canonical_bytes
from adapter.core.redaction import mask_arguments, mask_value
from adapter.core.spec import ToolSpec
from adapter.core.store import Event
from adapter.core.types import CallContext, opened

__all__ = ["Auditor", "Subject"]

_OpenEvent = opened(Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The call an event is about.

    Attributes:
        arguments_digest: Digest over the real arguments.
        key: The call key, or another id that makes the event's id stable over re-runs.
    """

    tool: str
    call_id: str
    key: str
    arguments_digest: str = ""
    spec: ToolSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Auditor:
    """Builds events; holds no state.

    Attributes:
        clock: Milliseconds since the epoch.
    """

    clock: Callable[[], int]

    def event(
        self,
        kind: str,
        ctx: CallContext,
        subject: Subject,
        *,
        part: str = "",
        once: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **data: Any,
    ) -> Event:
        """Return one event, masked.

        Args:
            kind: What happened, e.g. ``requested``.
            ctx: Where.
            subject: To which call.
            part: Makes the id of a repeatable kind unique, e.g. the fence or the answer's digest.
            once: Skip it when the thread has it already.
            arguments: Shown masked, by the spec's masks and by pattern.
            data: Further JSON facts, masked by pattern.
        """
        facts: dict[str, Any] = {}
        if data:
            facts = mask_value({name: value for name, value in data.items() if value is not None})
        if arguments is not None:
            masks = subject.spec.masks if subject.spec is not None else ()
            facts["arguments"] = mask_arguments(arguments, masks)
        # The key first: the index then keeps one call's events together.
        event_id = ":".join(filter(None, (subject.key, kind, part)))
        thread_id, turn_id, run_id = ctx.place.thread_id, ctx.place.turn_id, ctx.run_id
        body = {
            "arguments_digest": subject.arguments_digest,
            "at": self.clock(),
            "call_id": subject.call_id,
            "data": facts,
            "id": event_id,
            "kind": kind,
            "run_id": run_id,
            "thread_id": thread_id,
            "tool": subject.tool,
            "turn_id": turn_id,
            "user": ctx.user,
            "v": 1,
        }
        event = _OpenEvent(event_id, thread_id, run_id, turn_id, kind, _bytes(body), once)
        event.__class__ = Event
        return event  # type: ignore[no-any-return]


def _bytes(body: dict[str, Any]) -> bytes:
    try:
        # The names above are in canonical order and their values are texts and small numbers, of
        # which orjson makes the same bytes; only the facts may hold more.
        if body["data"]:
            body = {**body, "data": orjson.Fragment(canonical_bytes(body["data"]))}
        return orjson.dumps(body)
    except (ValueError, TypeError):
        # What a model invents may have no canonical form; the refusal is recorded all the same.
        return canonical_bytes({**body, "data": {"unprintable": True}, "tool": ascii(body["tool"])})
