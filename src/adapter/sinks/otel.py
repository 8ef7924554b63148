"""OpenTelemetry: one span per stretch of a call's life, with its audit events inside.

Names follow the semantic conventions for generative AI (``execute_tool``, ``gen_ai.tool.name``).
All spans of a turn share one trace, whichever process made them. Arguments are left out unless
asked for, and are masked as in the audit. Needs the extra ``otel``; imported on use.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from adapter.core.errors import ConfigurationError
from adapter.core.sinks import Committed
from adapter.core.store import StoredEvent

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer, TracerProvider

__all__ = ["OtelSink"]

MOST = 10_000
"""Most calls whose end is waited for; the oldest is exported as it is."""

EVENTS = 100
"""Most events in one span; of more, the newest is kept."""

_STARTED = "started"
_PAUSES = frozenset({"requested", "suspended"})
_FAILED = frozenset({"failed", "in_doubt"})
_NOT_RUN = frozenset({"refused", "expired", "void"})
_ENDS = frozenset({"succeeded", "replayed"}) | _FAILED | _NOT_RUN | _PAUSES
_NANO = 1_000_000
_FACTS = ("decision", "reviewer", "reason", "error", "code", "delivery")


@dataclass(slots=True)
class _Open:
    """A stretch of one call's life that has not ended."""

    began: int
    events: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    arguments: str | None = None
    ran: bool = False


class OtelSink:
    """Makes spans of audit events.

    Args:
        arguments: Whether spans show the masked arguments.
        provider: Makes the tracer; by default the process's own.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """

    name = "otel"

    def __init__(self, *, arguments: bool = False, provider: TracerProvider | None = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            msg = (
                "ADAPTER_AUDIT_OTEL is set, and OpenTelemetry is not installed: "
                "pip install 'agent-adapter[otel]'"
            )
            raise ConfigurationError(msg) from error
        self._trace = trace
        self._tracer: Tracer = trace.get_tracer("agent-adapter", tracer_provider=provider)
        self._arguments = arguments
        self._open: OrderedDict[tuple[str, str, str], _Open] = OrderedDict()

    def write(self, committed: Committed) -> None:
        """Take events; those that end a stretch make its span."""
        for event in committed.events:
            body = _body(event)
            if body.get("tool") or body.get("call_id"):
                self._take(event, body)
        while len(self._open) > MOST:
            key, kept = self._open.popitem(last=False)
            self._span(key, kept, kept.events[-1][1], {"thread_id": key[0]}, "")

    def close(self) -> None:
        """Export what has not ended."""
        for key, kept in self._open.items():
            self._span(key, kept, kept.events[-1][1], {"thread_id": key[0]}, "")
        self._open.clear()

    def _take(self, event: StoredEvent, body: dict[str, Any]) -> None:
        kind = event.kind
        at = int(body.get("at") or 0) * _NANO
        key = (event.thread_id, str(body.get("turn_id")), str(body.get("call_id")))
        kept = self._open.setdefault(key, _Open(began=at))
        data = body.get("data")
        data = data if isinstance(data, dict) else {}
        facts = {f"agent_adapter.{name}": str(data[name]) for name in _FACTS if name in data}
        if len(kept.events) == EVENTS:
            del kept.events[-1]
        kept.events.append((f"agent_adapter.{kind}", at, {"agent_adapter.seq": event.seq, **facts}))
        if self._arguments and isinstance(data.get("arguments"), dict):
            kept.arguments = json.dumps(data["arguments"], ensure_ascii=False)
        kept.ran = kept.ran or kind == _STARTED
        # A decision that leads to no run is followed by nothing.
        if kind in _ENDS or data.get("decision") in ("reject", "respond"):
            del self._open[key]
            error = str(data.get("error") or kind) if kind in _FAILED | _NOT_RUN else ""
            self._span(key, kept, at, body, error)

    def _span(
        self,
        key: tuple[str, str, str],
        kept: _Open,
        ended: int,
        body: dict[str, Any],
        error: str,
    ) -> None:
        tool = str(body.get("tool") or "unknown")
        operation = "execute_tool" if kept.ran else "propose_tool"
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.tool.name": tool,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": key[2],
            "gen_ai.conversation.id": key[0],
            "agent_adapter.turn_id": key[1],
            "agent_adapter.run_id": str(body.get("run_id", "")),
            "agent_adapter.arguments_digest": str(body.get("arguments_digest", "")),
            "agent_adapter.outcome": kept.events[-1][0].removeprefix("agent_adapter."),
        }
        if kept.arguments is not None:
            attributes["gen_ai.tool.call.arguments"] = kept.arguments
        if error:
            attributes["error.type"] = error
        span = self._tracer.start_span(
            f"{operation} {tool}",
            context=self._parent(key),
            attributes=attributes,
            start_time=kept.began,
        )
        for name, at, facts in kept.events:
            span.add_event(name, facts, timestamp=at)
        if error:
            span.set_status(self._trace.StatusCode.ERROR, error)
        span.end(end_time=max(ended, kept.began))

    def _parent(self, key: tuple[str, str, str]) -> Context:
        """Return the context that all spans of a turn have in common."""
        name = sha256(json.dumps(key[:2]).encode()).digest()
        parent = self._trace.SpanContext(
            trace_id=int.from_bytes(name[:16]) or 1,
            span_id=int.from_bytes(name[16:24]) or 1,
            is_remote=True,
            trace_flags=self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED),
        )
        return self._trace.set_span_in_context(self._trace.NonRecordingSpan(parent))


def _body(event: StoredEvent) -> dict[str, Any]:
    try:
        found = json.loads(event.line)["body"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
