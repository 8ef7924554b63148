"""How one audit event becomes a link of its thread's chain: bytes in, bytes and a hash out.

The writer and the verifier both use this room, so that they cannot disagree about what a hash or a
signature covers. It reads no store and knows no key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from adapter.core.canonical import canonical_bytes, domain
from adapter.core.store import Anchor

__all__ = [
    "DOMAIN",
    "GENESIS",
    "Link",
    "anchor_message",
    "head_message",
    "link",
    "link_hash",
    "packed_signature",
    "read_link",
    "signature_of",
]

GENESIS = "0" * 64
"""What the first link of a thread names as its predecessor's hash."""

DOMAIN = domain("audit/v1")
"""What is hashed before a line."""

_HEAD = domain("audit-head/v1")
_ANCHOR = domain("audit-anchor/v1")
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
    return hashlib.sha256(DOMAIN + line).hexdigest()


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


def head_message(thread_id: str, seq: int, hash_: str, count: int) -> bytes:
    """Return what the signature of a head covers."""
    facts = {"count": count, "hash": hash_, "seq": seq, "thread_id": thread_id}
    return _HEAD + canonical_bytes(facts)


def anchor_message(anchor: Anchor) -> bytes:
    """Return what the signature of an anchor covers."""
    facts = {
        "at": anchor.at,
        "by": anchor.by,
        "hash": anchor.hash,
        "removed": anchor.removed,
        "seq": anchor.seq,
        "thread_id": anchor.thread_id,
    }
    return _ANCHOR + canonical_bytes(facts)


def packed_signature(signed: Mapping[str, str]) -> str:
    """Return the text stored beside the ``kid`` of a signature."""
    return json.dumps({"alg": signed["alg"], "mac": signed["mac"]}, separators=(",", ":"))


def signature_of(kid: str, packed: str | None) -> dict[str, object]:
    """Return ``{"kid", "alg", "mac"}`` as stored; without the last two where they are no JSON."""
    try:
        found = json.loads(packed or "")
    except ValueError:
        found = None
    return {**(found if isinstance(found, dict) else {}), "kid": kid}
