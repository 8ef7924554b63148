"""Judging the signatures of heads and anchors with the audit keys of a ring.

The links themselves are checked in ``audit_verify``. A signature shows that who held an audit key
wrote this head; that it is the newest one, only a head kept elsewhere shows.
"""

from __future__ import annotations

from dataclasses import replace

from adapter.core.audit_faults import Fault
from adapter.core.chain import anchor_message, head_message, packed_signature, signature_of
from adapter.core.keys import KeyRing
from adapter.core.store import Anchor, ThreadHead

__all__ = ["judged_anchor", "judged_head", "signed_anchor"]

_NOT = "holds what the store never writes"


def judged_head(head: ThreadHead, keys: KeyRing) -> Fault | None:
    """Return what is wrong with a head's signature.

    Args:
        head: As the store, or another place, has it.
        keys: The ring with the audit keys.
    """
    try:
        # A head whose count is not known cannot be what was signed.
        message = head_message(head.thread_id, head.seq, head.hash, head.count or 0)
        wrong = _wrong(message, head.kid, head.signature, keys)
    except (ValueError, TypeError):
        wrong = _NOT
    if wrong is None:
        return None
    return Fault(seq=head.seq, kind="signature", message=f"the head of link {head.seq} {wrong}.")


def judged_anchor(anchor: Anchor, keys: KeyRing) -> Fault | None:
    """Return what is wrong with an anchor's signature.

    Args:
        anchor: As the store has it.
        keys: The ring with the audit keys.
    """
    try:
        wrong = _wrong(anchor_message(anchor), anchor.kid, anchor.signature, keys)
    except (ValueError, TypeError):
        wrong = _NOT
    if wrong is None:
        return None
    text = f"the anchor at link {anchor.seq} {wrong}: links up to it may be missing unrecorded."
    return Fault(seq=anchor.seq, kind="signature", message=text)


def signed_anchor(anchor: Anchor, signed: dict[str, str]) -> Anchor:
    """Return the anchor with the signature that was made over ``anchor_message``."""
    return replace(anchor, kid=signed["kid"], signature=packed_signature(signed))


def _wrong(message: bytes, kid: str | None, packed: str | None, keys: KeyRing) -> str | None:
    if kid is None:
        return "is not signed"
    if keys.verify("audit", message, signature_of(kid, packed)):
        return None
    if keys.find("audit", kid) is not None:
        return f"does not match its signature by the key {kid}"
    known = [key for key in keys.keys if key.kid == kid and key.purpose == "audit"]
    if known:
        return f"is signed with the key {kid}, which is revoked"
    return f"is signed with the key {kid}, which is not an audit key of this ring"
