"""How one audit event becomes a link of its thread's chain: bytes in, bytes and a hash out.

The writer and the verifier both use this room, so that they cannot disagree about what a hash
covers. It reads no store and knows no key.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from adapter.core.canonical import domain

__all__ = ["GENESIS", "Link", "link", "link_hash", "read_link"]

GENESIS = "0" * 64
"""What the first link of a thread names as its predecessor's hash."""

_DOMAIN = domain("audit/v1")
_START = b'{"body":'
_TAIL = re.compile(rb',"prev":"([0-9a-f]{64})","run_seq":([1-9][0-9]*),"seq":([1-9][0-9]*)\}\Z')


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A stored line taken apart.

    Attributes:
        body: Canonical JSON of the event.
        prev: Hash of the link before, 64 hexadecimal digits.
        seq: Place in the thread's chain, from 1.
        run_seq: Place among the links of one run in that thread, from 1.
    """

    body: bytes
    prev: str
    seq: int
    run_seq: int


def link(*, body: bytes, prev: str, seq: int, run_seq: int) -> tuple[bytes, str]:
    """Return the line of one link and its hash.

    Args:
        body: Canonical JSON of the event, masked already.
        prev: Hash of the link before; ``GENESIS`` for the first.
        seq: Place in the thread's chain, from 1.
        run_seq: Place among the links of one run in that thread, from 1.

    Returns:
        The canonical line and 64 hexadecimal digits.
    """
    line = b'{"body":%b,"prev":"%b","run_seq":%d,"seq":%d}' % (body, prev.encode(), run_seq, seq)
    return line, link_hash(line)


def link_hash(line: bytes) -> str:
    """Return the hash of a line: SHA-256 of the domain tag ``audit/v1`` and the line."""
    return hashlib.sha256(_DOMAIN + line).hexdigest()


def read_link(line: bytes) -> Link:
    """Take a stored line apart without parsing its body.

    Raises:
        ValueError: The line is not of the form that ``link`` makes.
    """
    found = _TAIL.search(line, max(0, len(line) - 160))
    if found is None or not line.startswith(_START):
        msg = "not a line of an audit chain"
        raise ValueError(msg)
    prev, run_seq, seq = found.groups()
    body = line[len(_START) : found.start()]
    return Link(body=body, prev=prev.decode(), seq=int(seq), run_seq=int(run_seq))
