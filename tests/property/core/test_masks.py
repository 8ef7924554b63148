"""No masked argument and no secret that a pattern knows is in any event, audit line or span."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from adapter.core.audit import Auditor, Subject
from adapter.core.audit_lines import event_line
from adapter.core.chain import GENESIS, link
from adapter.core.sinks import Committed
from adapter.core.spec import ToolSpec
from adapter.core.store import StoredEvent
from adapter.core.types import Effects
from adapter.sinks import OtelSink
from adapter.testing import make_context

AUDIT = Auditor(clock=lambda: 1)
SPEC = ToolSpec(name="pay", effects=Effects(), masks=("card", "nested"), approval=None)

alphabet = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789"
# Marked, so that finding one is no accident.
core = st.text(alphabet, min_size=16, max_size=30).map(lambda text: "Zq9" + text)
around = st.sampled_from(["", "see ", "x=1 ", "(", "\n", "ü "])

masked: st.SearchStrategy[Any] = st.deferred(
    lambda: core | st.lists(core, min_size=1, max_size=3) | st.dictionaries(core, core, min_size=1)
)
digits = st.text("0123456789", min_size=16, max_size=16)
SECRETS: list[st.SearchStrategy[tuple[str, str]]] = [
    core.map(lambda text: (f"Bearer {text}", text)),
    core.map(lambda text: (f"Basic {text}", text)),
    core.map(lambda text: (f"sk-{text}", text)),
    core.map(lambda text: (f"ghp_{text}", text)),
    core.map(lambda text: (f"eyJ{text}.{text}.{text}", text)),
    core.map(lambda text: (f"postgresql://user:{text}@host/db", text)),
    core.map(lambda text: (f"password={text}", text)),
    core.map(lambda text: (f"api_key: '{text}'", text)),
    digits.map(lambda text: (f"{text[:4]} {text[4:8]} {text[8:12]} {text[12:]}", text[4:8] * 2)),
    digits.map(lambda text: (text, text)),
]
secret = st.one_of(SECRETS)
NAMES = ("password", "token", "api_key", "Authorization", "client-secret", "cvv", "card_number")


def wrapped(shape: int, text: str) -> Any:
    """The text somewhere inside a JSON value."""
    return (text, [text], {"deep": [{"text": text}]}, [[{"a": {"b": text}}]])[shape]


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [part for item in value.items() for one in item for part in strings(one)]
    if isinstance(value, list):
        return [part for one in value for part in strings(one)]
    return [value] if isinstance(value, str) else []


def everywhere(kind: str, subject: Subject, **data: Any) -> str:
    """Everything that an event becomes: the stored line, the audit file's, the span."""
    event = AUDIT.event(kind, make_context(), subject, **data)
    line, hash_ = link(body=event.body, prev=GENESIS, seq=1, run_seq=1)
    stored = StoredEvent(thread_id="t", seq=1, event_id=event.id, kind=kind, line=line, hash=hash_)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sink = OtelSink(arguments=True, provider=provider)
    sink.write(Committed(events=[stored]))
    sink.close()
    spans = "".join(
        f"{span.name} {json.dumps(dict(span.attributes or {}))}"
        + "".join(json.dumps(dict(one.attributes or {})) for one in span.events)
        for span in exporter.get_finished_spans()
    )
    assert spans
    return line.decode() + event_line(stored).decode() + spans


@given(value=masked, other=masked, kind=st.sampled_from(["proposed", "started", "refused"]))
def test_a_masked_argument_is_nowhere(value: Any, other: Any, kind: str) -> None:
    subject = Subject(tool="pay", call_id="c", key="k", spec=SPEC)
    shown = everywhere(
        kind, subject, arguments={"card": value, "nested": {"x": other}, "to": "bob"}
    )
    for text in strings(value) + strings(other):
        assert text not in shown
    assert "bob" in shown


@given(found=secret, before=around, shape=st.integers(0, 3), where=st.sampled_from(["arg", "data"]))
def test_a_secret_that_a_pattern_knows_is_nowhere(
    found: tuple[str, str], before: str, shape: int, where: str
) -> None:
    text, hidden = found
    assume(hidden not in GENESIS)  # the first link's own zeros are no secret
    subject = Subject(tool="pay", call_id="c", key="k")
    value = wrapped(shape, before + text)
    if where == "arg":
        shown = everywhere("started", subject, arguments={"note": value})
    else:
        shown = everywhere("failed", subject, reason=value, error="ToolFailed")
    assert hidden not in shown


@given(text=core, name=st.sampled_from(NAMES), shape=st.integers(0, 3))
def test_what_has_a_secrets_name_is_nowhere(text: str, name: str, shape: int) -> None:
    subject = Subject(tool="pay", call_id="c", key="k")
    shown = everywhere("started", subject, arguments={"headers": {name: wrapped(shape, text)}})
    assert text not in shown
