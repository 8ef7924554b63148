"""Signatures of heads and anchors: whose, and what is said of one that does not count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adapter.core.audit_faults import Fault
from adapter.core.audit_heads import judged_anchor, judged_head, signed_anchor
from adapter.core.chain import anchor_message, head_message, packed_signature, signature_of
from adapter.core.keys import KeyRing
from adapter.core.store import Anchor, ThreadHead

RING = KeyRing.from_secret(bytes(range(32)))
OTHER = KeyRing.from_secret(bytes(range(1, 33)))
BARE = ThreadHead(thread_id="t", seq=3, hash="ab" * 32, count=3)
ANCHOR = Anchor(thread_id="t", seq=3, hash="ab" * 32, removed=3, at=1, by="ops")


def signed(head: ThreadHead = BARE, ring: KeyRing = RING) -> ThreadHead:
    made = ring.sign("audit", head_message(head.thread_id, head.seq, head.hash, head.count or 0))
    return replace(head, kid=made["kid"], signature=packed_signature(made))


def said(fault: Fault | None) -> str:
    assert fault is not None
    assert fault.kind == "signature"
    return fault.message


def test_a_signed_head_is_no_fault() -> None:
    assert judged_head(signed(), RING) is None


def test_a_head_that_is_not_signed() -> None:
    assert "is not signed" in said(judged_head(BARE, RING))


@pytest.mark.parametrize(
    "changed",
    [
        {"seq": 2},
        {"count": 4},
        {"hash": "cd" * 32},
        {"thread_id": "u"},
        {"signature": None},
        {"signature": "{"},
        {"signature": "[]"},
        {"signature": '{"alg":"HS256"}'},
        {"signature": '{"alg":"none","mac":""}'},
    ],
)
def test_a_signature_of_another_head(changed: dict[str, Any]) -> None:
    head = replace(signed(), **changed)
    assert "does not match its signature by the key shared-audit" in said(judged_head(head, RING))


def test_a_key_of_another_purpose_or_ring() -> None:
    assert "not an audit key" in said(judged_head(replace(signed(), kid="shared-seal"), RING))
    assert "not an audit key" in said(judged_head(replace(signed(), kid="nobody"), RING))
    assert "does not match" in said(judged_head(signed(ring=OTHER), RING))


def test_a_revoked_key_is_said_to_be_revoked() -> None:
    gone = KeyRing(replace(key, revoked_at=1) for key in RING.keys)
    assert "shared-audit, which is revoked" in said(judged_head(signed(), gone))


def test_an_older_key_still_counts_after_a_rotation() -> None:
    newer = replace(OTHER.newest("audit"), kid="audit-2", created_at=9)
    rotated = RING.changed([newer])
    assert rotated.newest("audit").kid == "audit-2"
    assert judged_head(signed(), rotated) is None
    assert judged_head(signed(ring=rotated), rotated) is None


def test_an_anchor_is_signed_over_all_it_says() -> None:
    made = signed_anchor(ANCHOR, RING.sign("audit", anchor_message(ANCHOR)))
    assert judged_anchor(made, RING) is None
    for changed in ({"seq": 9}, {"hash": ""}, {"removed": 1}, {"at": 2}, {"by": "eve"}):
        assert "does not match" in said(judged_anchor(replace(made, **changed), RING))
    assert "links up to it may be missing" in said(judged_anchor(ANCHOR, RING))


def test_a_heads_signature_is_no_anchors() -> None:
    made = RING.sign("audit", head_message("t", 3, "ab" * 32, 3))
    fake = replace(ANCHOR, kid=made["kid"], signature=packed_signature(made))
    assert "does not match" in said(judged_anchor(fake, RING))


def test_a_signature_is_read_as_it_was_packed() -> None:
    made = RING.sign("audit", b"x")
    assert signature_of(made["kid"], packed_signature(made)) == made


def test_what_the_store_never_writes_is_a_fault_and_no_crash() -> None:
    odd: Any = b"x"
    assert "never writes" in said(judged_head(replace(signed(), hash=odd), RING))
    assert "never writes" in said(judged_head(replace(signed(), count=2**60), RING))
    assert "never writes" in said(judged_anchor(replace(ANCHOR, kid="k", hash=odd), RING))
