"""The lines of an audit file hold the hashed bytes unchanged, and any JSON reader reads them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.core.audit_lines import anchor_line, event_line, read_line
from adapter.core.chain import GENESIS, link
from adapter.core.store import Anchor, StoredEvent, ThreadHead

BODY = b'{"data":{"x":",\\"event\\":{}}"},"id":"e1","kind":"started","thread_id":"t1"}'
LINE, HASH = link(body=BODY, prev=GENESIS, seq=1, run_seq=1)
EVENT = StoredEvent(thread_id='t"1', seq=1, event_id="e1", kind="started", line=LINE, hash=HASH)


def test_an_event_is_one_json_object_and_its_bytes_come_back() -> None:
    line = event_line(EVENT)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)["event"] == json.loads(LINE)
    assert read_line(line) == (EVENT, None)


def test_the_head_goes_with_its_link() -> None:
    head = ThreadHead(thread_id='t"1', seq=1, hash=HASH, kid="k", signature="{}", count=1)
    assert read_line(event_line(EVENT, head)) == (EVENT, head)


def test_an_anchor_comes_back() -> None:
    anchor = Anchor(thread_id="t", seq=3, hash="ab", removed=3, at=1, by="ops", kid="k")
    assert read_line(anchor_line(anchor)) == (anchor, None)


@pytest.mark.parametrize(
    "line", [b"junk", b'{"a":1}\n', b'{"a":\r1}', b"", b"\xff", b"[" * 100_000, b"{}}"]
)
def test_a_stored_line_that_was_tampered_with_comes_back_too(line: bytes) -> None:
    odd = StoredEvent(thread_id="t", seq=1, event_id="e", kind="k", line=line, hash="h")
    made = event_line(odd)
    assert made.count(b"\n") == 1
    assert read_line(made) == (odd, None)


@given(st.binary(max_size=60), st.text(max_size=20), st.text(max_size=20))
def test_whatever_is_stored_comes_back(line: bytes, thread: str, name: str) -> None:
    odd = StoredEvent(thread_id=thread, seq=1, event_id=name, kind="k", line=line, hash="h")
    assert read_line(event_line(odd)) == (odd, None)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"junk",
        b"[]",
        b"{}",
        b'{"thread_id":"t"}',
        b'{"thread_id":"t","anchor":{}}',
        b'{"thread_id":"t","seq":"x","hash":"","event_id":"","kind":"","event":{}}',
        b'{"thread_id":"t","seq":1,"hash":"h","event_id":"e","kind":"k","raw":"!"}',
        b'{"thread_id":"t","seq":1,"hash":"h","event_id":"e","kind":"k","head":{},"event":{}}',
        b'{"thread_id":"t","seq":1,"hash":"h","event_id":"e","kind":"k"}',
        b'{"thread_id":"t","seq":1,"hash":"h","event_id":"e","kind":"k","kind":"l","event":{}}',
        b'{"event": 1,"thread_id":"t","seq":1,"hash":"h","event_id":"e","kind":"k","event":{}}',
        b'{"thread_id":"t","seq":1,"hash":"h","event_id":"e","kind":"k","raw":"","event":{}}',
        b'{"thread_id":"t","anchor":{"seq":"3","hash":"h","removed":3,"at":1,"by":"o","kid":null,'
        b'"signature":null}}',
    ],
)
def test_anything_else_is_no_line(line: bytes) -> None:
    with pytest.raises(ValueError, match="audit file"):
        read_line(line)
