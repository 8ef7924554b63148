"""One event becomes one line, and the line can be taken apart again."""

from __future__ import annotations

import hashlib

import pytest

from adapter.core.chain import GENESIS, Link, link, link_hash, read_link


def test_a_line_is_canonical_and_hashed_under_its_domain() -> None:
    line, made = link(body=b'{"a":1}', prev=GENESIS, seq=3, run_seq=2)
    assert line == b'{"body":{"a":1},"prev":"%b","run_seq":2,"seq":3}' % GENESIS.encode()
    assert made == hashlib.sha256(b"agent-adapter:audit/v1\x00" + line).hexdigest()


def test_a_line_is_read_back_without_parsing_its_body() -> None:
    line, _ = link(body=b"anything", prev=GENESIS, seq=3, run_seq=2)
    assert read_link(line) == Link(body=b"anything", prev=GENESIS, seq=3, run_seq=2)


def test_a_body_that_looks_like_a_tail_does_not_confuse_the_reader() -> None:
    inner, _ = link(body=b"{}", prev="1" * 64, seq=8, run_seq=8)
    line, _ = link(body=inner, prev=GENESIS, seq=3, run_seq=2)
    assert read_link(line).body == inner


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        link(body=b"{}", prev=GENESIS, seq=1, run_seq=1)[0] + b"\n",
        link(body=b"{}", prev="x", seq=1, run_seq=1)[0],
        link(body=b"{}", prev=GENESIS, seq=0, run_seq=1)[0],
        b" " + link(body=b"{}", prev=GENESIS, seq=1, run_seq=1)[0],
    ],
)
def test_another_line_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a line"):
        read_link(line)


def test_two_lines_have_two_hashes() -> None:
    assert link_hash(b"a") != link_hash(b"b")
