"""The statements about chains, heads, anchors and retention; part of ``Statements``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Table,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    null,
    select,
    update,
)

from adapter.core.types import CallStatus

if TYPE_CHECKING:
    from adapter.stores.statement import Statement

__all__ = ["SLOTS", "AuditStatements"]

SLOTS = (1, 4, 16, 64)
"""How many names one look-up can take; shorter lists repeat their last one."""

_LINK = ("thread_id", "seq", "event_id", "kind", "line", "hash")
_BESIDE = ("run_id", "run_seq", "turn_id")
_HEAD = ("thread_id", "seq", "hash", "kid", "signature", "count")
_ANCHOR = ("thread_id", "seq", "hash", "removed", "at", "by", "kid", "signature")
_UNFINISHED = (
    CallStatus.REQUESTED,
    CallStatus.APPROVED,
    CallStatus.CLAIMED,
    CallStatus.SUSPENDED,
    CallStatus.IN_DOUBT,
)


class AuditStatements(ABC):
    """SQL text by name; see ``Statements``."""

    _upsert: Any

    @abstractmethod
    def _text(self, statement: Any) -> Statement: ...

    def _events(self, events: Table) -> None:
        c = events.c
        thread = c.thread_id == bindparam("at_thread")
        links = select(*[c[name] for name in _LINK])
        self.event_insert = self._text(insert(events))
        self.events_after = self._text(
            links.where(thread, c.seq > bindparam("at_seq"))
            .order_by(c.seq)
            .limit(bindparam("at_limit"))
        )
        whole = select(*[c[name] for name in (*_LINK, *_BESIDE)]).where(thread).order_by(c.seq)
        some = whole.limit(bindparam("at_limit"))
        # From the first row on, wherever that is: none may hide under a number of its own.
        self.links_first = self._text(some)
        self.links_after = self._text(some.where(c.seq > bindparam("at_seq")))
        self.events_of_turn = self._text(
            links.where(thread, c.turn_id == bindparam("at_turn"))
            .order_by(c.seq.desc())
            .limit(bindparam("at_limit"))
        )
        self.event_ids = {
            slots: self._text(
                select(c.event_id).where(
                    thread, c.event_id.in_([bindparam(f"at_id{n}") for n in range(slots)])
                )
            )
            for slots in SLOTS
        }

        self.threads = self._text(select(c.thread_id).distinct().order_by(c.thread_id))
        self.link_hash = self._text(select(c.hash).where(thread, c.seq == bindparam("at_seq")))
        self.events_drop = self._text(delete(events).where(thread, c.seq <= bindparam("at_seq")))

    def _runs(self, runs: Table) -> None:
        c = runs.c
        self.run_seq = self._text(
            select(c.run_seq).where(
                c.thread_id == bindparam("at_thread"), c.run_id == bindparam("at_run")
            )
        )
        put = self._upsert(runs)
        self.run_put = self._text(
            put.on_conflict_do_update(
                index_elements=["thread_id", "run_id"], set_={"run_seq": put.excluded.run_seq}
            )
        )

    def _heads(self, heads: Table) -> None:
        c = heads.c
        self.chain_get = self._text(
            select(c.seq, c.hash, c.run_id, c.run_seq, c.count).where(
                c.thread_id == bindparam("at_thread")
            )
        )
        put = self._upsert(heads).values(
            **{name: bindparam(name) for name in ("thread_id", "seq", "hash", "run_id")},
            run_seq=bindparam("run_seq"),
            count=bindparam("count"),
            kid=bindparam("kid"),
            signature=bindparam("signature"),
        )
        moved = ("seq", "hash", "run_id", "run_seq", "count", "kid", "signature")
        self.chain_put = self._text(
            put.on_conflict_do_update(
                index_elements=["thread_id"],
                set_={name: put.excluded[name] for name in moved},
            )
        )
        self.head_run = self._text(
            select(c.run_id, c.run_seq).where(c.thread_id == bindparam("at_thread"))
        )
        every = select(*[c[name] for name in _HEAD]).order_by(c.thread_id)
        self.heads = self._text(every)
        self.head_of_thread = self._text(every.where(c.thread_id == bindparam("at_thread")))

    def _anchors(self, anchors: Table) -> None:
        c = anchors.c
        put = self._upsert(anchors).values(**{name: bindparam(name) for name in _ANCHOR})
        self.anchor_put = self._text(
            put.on_conflict_do_update(
                index_elements=["thread_id"],
                set_={name: put.excluded[name] for name in _ANCHOR[1:]},
            )
        )
        every = select(*[c[name] for name in _ANCHOR]).order_by(c.thread_id)
        self.anchors = self._text(every)
        self.anchor_of_thread = self._text(every.where(c.thread_id == bindparam("at_thread")))

    def _retention(self, calls: Table, events: Table) -> None:
        c, e = calls.c, events.c
        still: list[Any] = [literal_column(f"'{one.value}'") for one in _UNFINISHED]
        unfinished = c.status.in_(still)
        turns = select(c.turn_id).where(c.thread_id == bindparam("at_thread"), unfinished)
        self.first_unfinished = self._text(
            select(func.min(e.seq)).where(
                e.thread_id == bindparam("at_thread"), e.turn_id.in_(turns)
            )
        )
        # What a suspended or doubtful call may still need stays, however old; and so does what
        # came before an open call in its turn: the node that runs on reads it again.
        other = calls.alias()
        open_turn = exists().where(
            other.c.thread_id == c.thread_id,
            other.c.turn_id == c.turn_id,
            other.c.status.in_(still),
        )
        old = (c.outcome.is_not(None), ~open_turn, c.updated_at < bindparam("at_before"))
        self.outcomes_old = self._text(
            select(c.thread_id, func.count())
            .where(*old)
            .group_by(c.thread_id)
            .order_by(c.thread_id)
        )
        self.outcomes_clear = self._text(
            update(calls).values(outcome=null()).where(c.thread_id == bindparam("at_thread"), *old)
        )
