"""Operations on the audit trail: reading chains, and removing what is older than it must be kept.

Pruning removes the beginning of a chain and leaves an anchor, a signed record of where the rest
begins. Turns of calls that are open, running or in doubt are never removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapter.core.store import Anchor, Event, StoredEvent, ThreadHead
from adapter.stores.rows import anchor_row, head_row, link_columns, stored_event
from adapter.stores.transaction import Transaction

__all__ = [
    "anchors",
    "clear_outcomes",
    "events",
    "first_kept",
    "head_run",
    "heads",
    "link_rows",
    "old_outcomes",
    "prune_chain",
    "threads",
]


def events(
    tx: Transaction,
    now: int,  # noqa: ARG001 - an operation
    *,
    thread_id: str,
    after: int,
    limit: int,
) -> Sequence[StoredEvent]:
    """Return links of a thread's chain, in order."""
    asked = {"at_thread": thread_id, "at_seq": after, "at_limit": limit}
    return tuple(stored_event(row) for row in tx.all(tx.sql.events_after, asked))


def link_rows(
    tx: Transaction,
    now: int,  # noqa: ARG001
    *,
    thread_id: str,
    after: int | None,
    limit: int,
) -> Sequence[Sequence[Any]]:
    """Return links as columns; see ``Trail.link_rows``."""
    asked: dict[str, Any] = {"at_thread": thread_id, "at_limit": limit}
    if after is None:
        rows = tx.all(tx.sql.links_first, asked)
    else:
        rows = tx.all(tx.sql.links_after, asked | {"at_seq": after})
    return [row if type(row[4]) is bytes else (*link_columns(row), *row[6:]) for row in rows]


def head_run(tx: Transaction, now: int, *, thread_id: str) -> tuple[Any, Any] | None:  # noqa: ARG001
    """Return the run of a thread's newest link and its number there, as the head has them."""
    row = tx.one(tx.sql.head_run, {"at_thread": thread_id})
    return None if row is None else (row[0], row[1])


def heads(tx: Transaction, now: int, *, thread_id: str | None) -> Sequence[ThreadHead]:  # noqa: ARG001
    """Return the newest link of every thread, or of one."""
    if thread_id is None:
        rows = tx.all(tx.sql.heads, {})
    else:
        rows = tx.all(tx.sql.head_of_thread, {"at_thread": thread_id})
    return tuple(head_row(row) for row in rows)


def threads(tx: Transaction, now: int) -> Sequence[str]:  # noqa: ARG001
    """Return every thread that has a link."""
    return tuple(row[0] for row in tx.all(tx.sql.threads, {}))


def anchors(tx: Transaction, now: int, *, thread_id: str | None) -> Sequence[Anchor]:  # noqa: ARG001
    """Return where the pruned chains begin: all of them, or one thread's."""
    if thread_id is None:
        rows = tx.all(tx.sql.anchors, {})
    else:
        rows = tx.all(tx.sql.anchor_of_thread, {"at_thread": thread_id})
    return tuple(anchor_row(row) for row in rows)


def first_kept(tx: Transaction, now: int, *, thread_id: str) -> int | None:  # noqa: ARG001
    """Return the first link of a turn that is not finished; None when all are."""
    row = tx.one(tx.sql.first_unfinished, {"at_thread": thread_id})
    return None if row is None or row[0] is None else int(row[0])


def prune_chain(tx: Transaction, now: int, *, anchor: Anchor, event: Event) -> int:
    """Remove a chain's links up to an anchor and link the event that says so.

    Returns:
        How many links were removed: none when the chain or its open calls changed meanwhile.
    """
    at = {"at_thread": anchor.thread_id, "at_seq": anchor.seq}
    kept = first_kept(tx, now, thread_id=anchor.thread_id)
    found = tx.one(tx.sql.link_hash, at)
    if found is None or found[0] != anchor.hash or (kept is not None and kept <= anchor.seq):
        return 0
    # Linked first: a run that is pruned whole goes on counting where it was.
    tx.chains.append([event])
    tx.chains.flush_links()
    removed = tx.run(tx.sql.events_drop, at)
    tx.recent.forget(tx, anchor.thread_id)
    facts = {name: getattr(anchor, name) for name in Anchor.__slots__}
    tx.run(tx.sql.anchor_put, facts)
    return removed


def old_outcomes(tx: Transaction, now: int, *, before: int) -> Sequence[tuple[str, int]]:  # noqa: ARG001
    """Return how many recorded outcomes of each thread are older than a moment, milliseconds."""
    rows = tx.all(tx.sql.outcomes_old, {"at_before": before})
    return tuple((str(row[0]), int(row[1])) for row in rows)


def clear_outcomes(
    tx: Transaction,
    now: int,  # noqa: ARG001
    *,
    thread_id: str,
    before: int,
    event: Event,
) -> int:
    """Remove a thread's recorded outcomes older than a moment; the rows stay, so nothing reruns."""
    cleared = tx.run(tx.sql.outcomes_clear, {"at_thread": thread_id, "at_before": before})
    if cleared:
        tx.chains.append([event])
    return cleared
