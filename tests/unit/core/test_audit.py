"""Events are masked when they are made, and always have a canonical form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.core.kit import CARD, PAY

from adapter.core.audit import Auditor, Subject
from adapter.core.canonical import canonical_bytes
from adapter.testing import FrozenClock, make_context

AUDIT = Auditor(clock=FrozenClock(7))
SUBJECT = Subject(tool="pay", call_id="c", key="k", arguments_digest="d", spec=PAY[0])


def body(subject: Subject = SUBJECT, **data: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        AUDIT.event("started", make_context(user="ann"), subject, **data).body
    )
    return made


def test_an_event_says_what_where_when_and_who() -> None:
    assert body(code="x") == {
        "arguments_digest": "d",
        "at": 7,
        "call_id": "c",
        "data": {"code": "x"},
        "id": "k:started",
        "kind": "started",
        "run_id": "run-1",
        "thread_id": "thread-1",
        "tool": "pay",
        "turn_id": "turn-1",
        "user": "ann",
        "v": 1,
    }


def test_a_part_makes_the_id_its_own() -> None:
    event = AUDIT.event("failed", make_context(), SUBJECT, part="3", once=True)
    assert (event.id, event.once) == ("k:failed:3", True)


def test_declared_arguments_are_masked() -> None:
    shown = body(arguments={"card": CARD, "to": "bob"})["data"]["arguments"]
    assert shown == {"card": "***", "to": "bob"}


def test_arguments_without_a_spec_are_masked_by_pattern() -> None:
    subject = Subject(tool="pay", call_id="c", key="k")
    shown = body(subject, arguments={"text": "password=x"})["data"]["arguments"]
    assert shown == {"text": "***"}


def test_absent_facts_are_left_out() -> None:
    assert body(reason=None)["data"] == {}


@pytest.mark.parametrize("name", ["\ud800", "pay"])
def test_what_cannot_be_printed_is_recorded_all_the_same(name: str) -> None:
    subject = Subject(tool=name, call_id="c", key="k")
    made = body(subject, reason="\ud800")
    assert made["data"] == {"unprintable": True}
    assert made["tool"] == ascii(name)


@pytest.mark.parametrize(
    "facts", [{"b": {"z": 1, "a": 2.0}, "a": None}, {"\u00e4": [1.5, "\u20ac"], "a": "\n"}]
)
def test_what_an_event_tells_is_canonical(facts: dict[str, Any]) -> None:
    made = AUDIT.event("started", make_context(user="Zo\u00eb"), SUBJECT, **facts).body
    assert made == canonical_bytes(json.loads(made))
    assert json.loads(made)["data"] == {name: v for name, v in facts.items() if v is not None}
