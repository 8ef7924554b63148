"""One link: its line, its hash, and the line taken apart again."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.core.canonical import canonical_bytes
from adapter.core.chain import GENESIS, Link, link, link_hash, read_link


def test_a_link_is_its_canonical_line_and_the_hash_of_it() -> None:
    line, hash_ = link(body=b'{"a":1}', prev=GENESIS, seq=1, run_seq=2)
    expected = b'{"body":{"a":1},"prev":"' + b"0" * 64 + b'","run_seq":2,"seq":1}'
    assert line == expected
    assert line == canonical_bytes(json.loads(line))
    assert hash_ == hashlib.sha256(b"agent-adapter:audit/v1\x00" + expected).hexdigest()
    assert hash_ == link_hash(line)


@given(
    body=st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(-(2**53) + 1, 2**53 - 1),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ).filter(lambda value: "\ud800" not in str(value)),
    seq=st.integers(1, 2**53 - 1),
    run_seq=st.integers(1, 2**53 - 1),
)
def test_a_line_can_be_taken_apart(body: object, seq: int, run_seq: int) -> None:
    bytes_ = canonical_bytes(body)
    prev = "ab" * 32
    line, _ = link(body=bytes_, prev=prev, seq=seq, run_seq=run_seq)
    assert read_link(line) == Link(body=bytes_, prev=prev, seq=seq, run_seq=run_seq)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b'{"body":{},"prev":"' + b"0" * 63 + b'","run_seq":1,"seq":1}',
        b'{"body":{},"prev":"' + b"0" * 64 + b'","run_seq":0,"seq":1}',
        b'{"body":{},"prev":"' + b"0" * 64 + b'","run_seq":1,"seq":1} ',
        b'{"bode":{},"prev":"' + b"0" * 64 + b'","run_seq":1,"seq":1}',
    ],
)
def test_anything_else_is_no_line(line: bytes) -> None:
    with pytest.raises(ValueError, match="audit chain"):
        read_link(line)
