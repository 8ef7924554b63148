"""Charging a turn's counters, and showing its state."""

from __future__ import annotations

from collections.abc import Sequence

from adapter.core.store import Charge, Event, Turn
from adapter.stores.transaction import Transaction

__all__ = ["charge_turn"]


def charge_turn(
    tx: Transaction,
    _now: int,
    *,
    charges: Sequence[Charge],
    events: Sequence[Event],
    unless: str | None,
    show: Sequence[str],
    recent: tuple[str, str, int] | None,
    refunds: Sequence[Charge] = (),
) -> Turn:
    """Charge all or none, link the events if nothing was exceeded, and look around."""
    if show or refunds:
        scopes = (*(one.scope for one in (*refunds, *charges) if one.window is None), *show)
        tx.counters.look_for(dict.fromkeys(scopes))
    tx.counters.refund(refunds)
    counted = unless is not None and tx.chains.has(*_split(unless))
    exceeded = None if counted else tx.counters.charge(charges)
    if exceeded is None:
        # counted before means written before, in one transaction: every id may exist
        tx.chains.append(events, careful=counted)
    if recent is None and not show:
        # most callers only want to know whether they may go on: nothing to look up for them
        return Turn(exceeded=exceeded, used={})
    used = tx.counters.used(dict.fromkeys([*(one.scope for one in charges), *show]))
    thread_id = _thread(events, unless, recent)
    return Turn(
        exceeded=exceeded,
        used=used,
        recent=() if recent is None else tx.recent.of_turn(tx, *recent),
        head=None if thread_id is None else tx.chains.head(thread_id),
    )


def _split(unless: str) -> tuple[str, str]:
    thread_id, _, event_id = unless.partition("\n")
    return thread_id, event_id


def _thread(
    events: Sequence[Event], unless: str | None, recent: tuple[str, str, int] | None
) -> str | None:
    if recent is not None:
        return recent[0]
    if events:
        return events[0].thread_id
    return None if unless is None else _split(unless)[0]
