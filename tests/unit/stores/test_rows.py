"""Records built from columns are the same records as built by their constructors."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from adapter.core.store import CallRow, StoredEvent
from adapter.core.types import CallStatus
from adapter.stores.rows import call_row, inserted_row, stored_event
from adapter.stores.schema import CALL_FIELDS

COLUMNS = {
    **{field.name: field.name for field in fields(CallRow)},
    "status": "claimed",
    "answers": '["a","b"]',
    "request": '{"tool":"pay"}',
    "decision": None,
    "outcome": '{"result":1}',
}
DECODED = {
    "status": CallStatus.CLAIMED,
    "answers": ("a", "b"),
    "request": {"tool": "pay"},
    "outcome": {"result": 1},
}


def test_a_call_read_from_its_columns_is_a_call_row() -> None:
    row = call_row([COLUMNS[name] for name in CALL_FIELDS])
    assert type(row) is CallRow
    assert row == CallRow(**{**COLUMNS, **DECODED})  # type: ignore[arg-type]


def test_a_call_that_was_just_inserted_reads_the_same() -> None:
    read = call_row([COLUMNS[name] for name in CALL_FIELDS])
    assert inserted_row({**COLUMNS, "outcome_kid": "not a field"}) == read


def test_an_event_read_from_its_columns_is_a_stored_event() -> None:
    made = stored_event(("t", 1, "e", "started", memoryview(b"line"), "h"))
    assert type(made) is StoredEvent
    assert made == StoredEvent(
        thread_id="t", seq=1, event_id="e", kind="started", line=b"line", hash="h"
    )


def test_what_was_read_cannot_be_changed() -> None:
    made = stored_event(("t", 1, "e", "started", b"line", "h"))
    with pytest.raises(FrozenInstanceError):
        made.hash = "other"  # type: ignore[misc]
