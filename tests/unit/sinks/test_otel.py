"""Spans of audit events: GenAI names, one trace per turn, arguments masked and only if asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.unit.core.kit import CARD, PAY

from adapter.core.audit import Auditor, Subject
from adapter.core.chain import GENESIS, link
from adapter.core.errors import ConfigurationError
from adapter.core.sinks import Committed
from adapter.core.store import Event, StoredEvent
from adapter.sinks import OtelSink, otel
from adapter.testing import FrozenClock, make_context

SUBJECT = Subject(tool="pay", call_id="c1", key="k", arguments_digest="d", spec=PAY[0])


class Telemetry:
    def __init__(self, *, arguments: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.sink = OtelSink(arguments=arguments, provider=provider)
        self.clock = FrozenClock()
        self.audit = Auditor(clock=self.clock)
        self.seq = 0

    def tell(
        self, kind: str, subject: Subject = SUBJECT, turn: str = "turn-1", **data: Any
    ) -> None:
        self.clock.advance(1)
        event = self.audit.event(kind, make_context(turn_id=turn), subject, **data)
        self.seq += 1
        self.sink.write(Committed(events=[stored(event, self.seq)]))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()


def stored(event: Event, seq: int) -> StoredEvent:
    line, hash_ = link(body=event.body, prev=GENESIS, seq=seq, run_seq=seq)
    return StoredEvent(
        thread_id=event.thread_id,
        seq=seq,
        event_id=event.id,
        kind=event.kind,
        line=line,
        hash=hash_,
    )


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_run_is_a_span_with_its_events() -> None:
    made = Telemetry()
    made.tell("proposed")
    made.tell("started", arguments={"card": CARD, "to": "bob"})
    made.tell("succeeded")
    (span,) = made.spans
    assert span.name == "execute_tool pay"
    found = facts(span)
    assert found["gen_ai.operation.name"] == "execute_tool"
    assert found["gen_ai.tool.name"] == "pay"
    assert found["gen_ai.tool.call.id"] == "c1"
    assert found["gen_ai.conversation.id"] == "thread-1"
    assert found["agent_adapter.arguments_digest"] == "d"
    assert "gen_ai.tool.call.arguments" not in found
    assert [event.name for event in span.events] == [
        "agent_adapter.proposed",
        "agent_adapter.started",
        "agent_adapter.succeeded",
    ]
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == 2_000_000_000
    assert span.status.status_code is StatusCode.UNSET


def test_a_question_ends_a_span_and_its_run_is_another_of_the_same_trace() -> None:
    made = Telemetry()
    made.tell("proposed")
    made.tell("requested")
    made.tell("decided", decision="approve", reviewer="rita")
    made.tell("started")
    made.tell("failed", error="ToolFailed")
    asked, ran = made.spans
    assert (asked.name, ran.name) == ("propose_tool pay", "execute_tool pay")
    assert asked.context.trace_id == ran.context.trace_id
    assert facts(ran)["error.type"] == "ToolFailed"
    assert ran.status.status_code is StatusCode.ERROR
    decided = ran.events[0]
    assert dict(decided.attributes or {})["agent_adapter.reviewer"] == "rita"


def test_turns_have_traces_of_their_own() -> None:
    made = Telemetry()
    made.tell("refused", error="PolicyDenied")
    made.tell("refused", turn="turn-2")
    first, second = made.spans
    assert first.context.trace_id != second.context.trace_id
    assert facts(first)["error.type"] == "PolicyDenied"
    assert facts(second)["error.type"] == "refused"


def test_a_reject_ends_it() -> None:
    made = Telemetry()
    made.tell("decided", decision="reject", reason="no")
    assert [facts(span)["agent_adapter.outcome"] for span in made.spans] == ["decided"]


def test_arguments_are_shown_masked_and_only_when_asked_for() -> None:
    made = Telemetry(arguments=True)
    made.tell("started", arguments={"card": CARD, "to": "bob", "note": "password=hunter2"})
    made.tell("succeeded")
    shown = json.loads(facts(made.spans[0])["gen_ai.tool.call.arguments"])
    assert shown == {"card": "***", "to": "bob", "note": "***"}


def test_events_about_no_call_and_lines_that_are_none_make_no_span() -> None:
    made = Telemetry()
    made.tell("pruned", Subject(tool="", call_id="", key="retention"))
    for line in (b"junk", b'{"body":1}', b"[]"):
        odd = StoredEvent(thread_id="t", seq=1, event_id="e", kind="k", line=line, hash="")
        made.sink.write(Committed(events=[odd]))
    made.sink.close()
    assert made.spans == ()


def test_what_never_ended_is_exported_on_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "MOST", 2)
    monkeypatch.setattr(otel, "EVENTS", 3)
    made = Telemetry()
    for n in range(3):
        made.tell("started", Subject(tool="pay", call_id=f"c{n}", key="k"))
    assert [facts(span)["gen_ai.tool.call.id"] for span in made.spans] == ["c0"]
    for _ in range(5):
        made.tell("answer_refused", Subject(tool="pay", call_id="c2", key="k"), code="invalid")
    made.sink.close()
    assert [facts(span)["gen_ai.tool.call.id"] for span in made.spans] == ["c0", "c1", "c2"]
    assert len(made.spans[-1].events) == 3


def test_without_opentelemetry_the_start_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"agent-adapter\[otel\]"):
        OtelSink()
