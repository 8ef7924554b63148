"""The records of a thread's audit chain: an event, its link, the newest link, where it begins."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Anchor", "Event", "StoredEvent", "ThreadHead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One audit event before it has its place in the chain.

    Attributes:
        id: Unique within the thread; the same over re-runs of a node.
        thread_id: The chain it belongs to.
        run_id: The run that caused it.
        turn_id: The turn it belongs to, for display.
        kind: ``proposed``, ``refused``, ``requested``, ``decided``, ``started``, …
        body: Canonical JSON of the event, masked already.
        once: Skip it silently when the thread has an event of this id.
    """

    id: str
    thread_id: str
    run_id: str
    turn_id: str
    kind: str
    body: bytes
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One link of a thread's chain as it is stored.

    Attributes:
        line: Canonical bytes that were hashed:
            ``{"body":…,"prev":"<hash>","run_seq":n,"seq":n}``.
        hash: SHA-256 of the domain tag ``audit/v1`` and the line, hexadecimal.
    """

    thread_id: str
    seq: int
    event_id: str
    kind: str
    line: bytes
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadHead:
    """The newest link of a thread's chain.

    Attributes:
        kid: Key of the signature; None where the store signs no heads.
        signature: JSON text of its ``alg`` and ``mac``, over ``adapter.core.chain.head_message``.
        count: Links the thread ever had, those pruned since included; None when not known.
    """

    thread_id: str
    seq: int
    hash: str
    kid: str | None = None
    signature: str | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """Where a pruned chain begins: the last link that was removed.

    Attributes:
        seq: Its number; all up to it are removed.
        hash: What the first link that is left names as its predecessor.
        removed: Links that the newest pruning removed.
        at: When, milliseconds since the epoch.
        by: Who had it done.
        kid: Key of the signature over ``adapter.core.chain.anchor_message``.
        signature: JSON text of its ``alg`` and ``mac``.
    """

    thread_id: str
    seq: int
    hash: str
    removed: int
    at: int
    by: str
    kid: str | None = None
    signature: str | None = None
