"""Every SQL statement of the store, built from the tables once per dialect and kept as text.

Compiling a Core statement, or looking it up in the compile cache, costs more than SQLite takes to
run it; so the writer hands plain text and a mapping of named parameters to the driver. Nothing is
executed in this room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    Dialect,
    Select,
    Table,
    Text,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.sql.elements import ColumnElement
from typing_extensions import override

from adapter.core.types import CallStatus
from adapter.stores.audit_statements import AuditStatements
from adapter.stores.schema import CALL_FIELDS, Tables

__all__ = ["UNLIMITED", "Statement", "Statements"]

UNLIMITED = 2**62
"""Bound in place of a missing limit."""

_OPEN = (CallStatus.REQUESTED, CallStatus.APPROVED)
_RAN = (
    CallStatus.CLAIMED,
    CallStatus.SUCCEEDED,
    CallStatus.FAILED,
    CallStatus.IN_DOUBT,
    CallStatus.SUSPENDED,
)


def _any(column: ColumnElement[str], statuses: Sequence[CallStatus]) -> ColumnElement[bool]:
    return column.in_([literal_column(f"'{status.value}'") for status in statuses])


def _is(column: ColumnElement[str], status: CallStatus) -> ColumnElement[bool]:
    return column == literal_column(f"'{status.value}'")


class Statement:
    """SQL text with positional parameters, which drivers bind far faster than named ones.

    Args:
        text: The SQL.
        names: Name of each parameter, in order.
        constants: Values that Core turned into parameters, such as LIMIT 1.
    """

    __slots__ = ("arrange", "text")

    def __init__(self, text: str, names: Sequence[str], constants: Mapping[str, Any]) -> None:
        self.text = text
        self.arrange: Callable[[Mapping[str, Any]], Sequence[Any]]
        if constants:
            self.arrange = lambda values: [
                constants[name] if name in constants else values[name] for name in names
            ]
        elif len(names) > 1:
            self.arrange = itemgetter(*names)  # a tuple, in C
        else:
            self.arrange = lambda values: [values[name] for name in names]


class Statements(AuditStatements):
    """SQL text by name, for one dialect and schema.

    Parameters are named after the columns they set; those a condition compares begin with ``at_``.
    """

    def __init__(self, dialect: Dialect, tables: Tables) -> None:
        self._dialect = dialect
        self._upsert: Any = sqlite_insert if dialect.name == "sqlite" else postgresql_insert
        self._meta(tables.meta)
        self._call_reads(tables.calls)
        self._call_writes(tables.calls)
        self._call_desk(tables.calls)
        self._votes(tables.votes)
        self._counters(tables.counters)
        self._rates(tables.rate_marks)
        self._events(tables.audit_events)
        self._heads(tables.audit_heads)
        self._anchors(tables.audit_anchors)
        self._retention(tables.calls, tables.audit_events)

    @override
    def _text(self, statement: Any) -> Statement:
        compiled = statement.compile(dialect=self._dialect)
        names = tuple(compiled.positiontup or ())
        given = {name: value for name, value in compiled.params.items() if value is not None}
        return Statement(str(compiled), names, given)

    def _meta(self, meta: Table) -> None:
        self.meta_get = self._text(select(meta.c.value).where(meta.c.key == bindparam("at_key")))
        self.meta_put = self._text(
            self._upsert(meta).on_conflict_do_nothing(index_elements=["key"])
        )

    def _call_reads(self, calls: Table) -> None:
        c = calls.c
        rows: Select[Any] = select(*[c[name] for name in CALL_FIELDS])
        in_order = (c.issued_at, c.position, c.key)
        self.call_get = self._text(rows.where(c.key == bindparam("at_key")))
        self.calls_of_message = self._text(
            rows.where(
                c.thread_id == bindparam("at_thread"), c.message_id == bindparam("at_message")
            ).order_by(*in_order)
        )
        waiting = rows.where(_is(c.status, CallStatus.REQUESTED)).order_by(*in_order)
        waiting = waiting.limit(bindparam("at_limit"))
        self.calls_requested = self._text(waiting)
        self.calls_requested_of_thread = self._text(
            waiting.where(c.thread_id == bindparam("at_thread"))
        )
        self.call_twin = self._text(
            rows.where(
                c.thread_id == bindparam("at_thread"),
                c.message_id == bindparam("at_message"),
                c.tool_call_id == bindparam("at_call"),
                c.arguments_digest == bindparam("at_arguments"),
                c.key != bindparam("at_key"),
                _any(c.status, _RAN),
            ).limit(1)
        )

    def _call_writes(self, calls: Table) -> None:
        c = calls.c
        returned = [c[name] for name in CALL_FIELDS]
        now = bindparam("at_now", type_=c.issued_at.type)
        mine = c.key == bindparam("at_key")
        same_fence = c.fence == bindparam("at_fence")
        claimed = _is(c.status, CallStatus.CLAIMED)
        ran_out = or_(c.lease_until.is_(None), c.lease_until <= now)
        values: dict[str, Any] = {name: bindparam(name) for name in CALL_FIELDS}
        self.call_insert = self._text(
            self._upsert(calls).values(values).on_conflict_do_nothing(index_elements=["key"])
        )
        self.call_forget = self._text(
            delete(calls).where(mine, claimed, same_fence, c.run_id == bindparam("at_run"))
        )
        claim = update(calls).values(
            status=literal_column("'claimed'"),
            fence=c.fence + literal_column("1"),
            owner=bindparam("owner"),
            lease_until=bindparam("lease_until"),
            run_id=bindparam("run_id"),
            decision=func.coalesce(bindparam("decision", type_=Text), c.decision),
            answers=bindparam("answers"),
            interrupt_id=func.coalesce(bindparam("taken_at", type_=Text), c.interrupt_id),
            executed_digest=bindparam("executed_digest"),
            updated_at=now,
        )
        in_time = or_(c.expires_at.is_(None), c.expires_at > now)
        free = or_(_is(c.status, CallStatus.SUSPENDED), _any(c.status, _OPEN) & in_time)
        self.call_claim = self._text(claim.where(mine, free).returning(*returned))
        self.call_take_over = self._text(
            claim.where(mine, claimed, same_fence, ran_out).returning(*returned)
        )
        self.call_doubt = self._text(
            update(calls)
            .values(status=literal_column("'in_doubt'"), updated_at=now)
            .where(mine, claimed, same_fence, ran_out)
            .returning(*returned)
        )
        self.call_expire = self._text(
            update(calls)
            .values(status=literal_column("'expired'"), updated_at=now)
            .where(mine, _any(c.status, _OPEN), c.expires_at <= now)
            .returning(*returned)
        )
        self.call_settle = self._text(
            update(calls)
            .values(
                status=bindparam("status"),
                outcome=bindparam("outcome"),
                lease_until=null(),
                updated_at=now,
            )
            .where(mine, same_fence, _any(c.status, (CallStatus.CLAIMED, CallStatus.IN_DOUBT)))
        )
        self.call_reword = self._text(
            update(calls)
            .values(
                request=bindparam("request"),
                policy_digest=bindparam("policy_digest"),
                schema_digest=bindparam("schema_digest"),
                quorum_need=bindparam("quorum_need"),
                updated_at=now,
            )
            .where(mine, _is(c.status, CallStatus.REQUESTED))
            .returning(*returned)
        )
        self.call_renew = self._text(
            update(calls)
            .values(lease_until=bindparam("lease_until"), updated_at=now)
            .where(mine, same_fence, claimed)
        )
        self.call_close = self._text(
            update(calls)
            .values(
                status=bindparam("status"),
                run_id=func.coalesce(bindparam("run_id", type_=Text), c.run_id),
                decision=func.coalesce(bindparam("decision", type_=Text), c.decision),
                answers=bindparam("answers"),
                interrupt_id=func.coalesce(bindparam("taken_at", type_=Text), c.interrupt_id),
                outcome=bindparam("outcome"),
                updated_at=now,
            )
            .where(mine, _any(c.status, _OPEN))
            .returning(*returned)
        )

    def _call_desk(self, calls: Table) -> None:
        c = calls.c
        now = bindparam("at_now", type_=c.issued_at.type)
        rows: Select[Any] = select(*[c[name] for name in CALL_FIELDS])
        returned = [c[name] for name in CALL_FIELDS]
        in_order = (c.issued_at, c.position, c.key)
        ran_out = _is(c.status, CallStatus.CLAIMED) & (c.lease_until <= now)
        doubtful = or_(_is(c.status, CallStatus.IN_DOUBT), ran_out)
        mine = c.key == bindparam("at_key")
        limit: Any = bindparam("at_limit")
        self.calls_unsettled = self._text(rows.where(doubtful).order_by(*in_order).limit(limit))
        self.calls_overdue = self._text(
            rows.where(_is(c.status, CallStatus.REQUESTED), c.expires_at <= now)
            .order_by(*in_order)
            .limit(limit)
        )
        self.call_resolve = self._text(
            update(calls)
            .values(
                status=bindparam("status"),
                outcome=bindparam("outcome"),
                # an answer that comes late for the old fence must not settle it again
                fence=c.fence + literal_column("1"),
                lease_until=null(),
                # whoever lets it run again has seen the deadline
                expires_at=case(
                    (bindparam("status") == literal_column("'approved'"), null()),
                    else_=c.expires_at,
                ),
                updated_at=now,
            )
            .where(mine, doubtful)
            .returning(*returned)
        )
        self.call_note_vote = self._text(
            update(calls)
            .values(answers=bindparam("answers"), updated_at=now)
            .where(mine, _is(c.status, CallStatus.REQUESTED), c.expires_at > now)
        )

    def _votes(self, votes: Table) -> None:
        c = votes.c
        put = self._upsert(votes)
        changed = ("kid", "answer", "executed_digest", "decision", "created_at")
        self.vote_put = self._text(
            put.on_conflict_do_update(
                index_elements=["call_key", "reviewer"],
                set_={name: put.excluded[name] for name in changed},
            )
        )
        self.votes_of = self._text(
            select(c.call_key, c.reviewer, c.kid, c.answer, c.executed_digest, c.decision)
            .where(c.call_key == bindparam("at_key"))
            .order_by(c.created_at, c.reviewer)
        )

    def _counters(self, counters: Table) -> None:
        c = counters.c
        self.counter_raise = self._text(
            update(counters)
            .values(used=c.used + bindparam("amount"), updated_at=bindparam("at_now"))
            .where(
                c.scope == bindparam("at_scope"),
                c.used + bindparam("amount") <= bindparam("at_limit", type_=c.used.type),
            )
        )
        add = self._upsert(counters)
        total = c.used + add.excluded.used
        self.counter_get = self._text(select(c.used).where(c.scope == bindparam("at_scope")))
        self.counter_add = self._text(
            add.on_conflict_do_update(
                index_elements=["scope"],
                set_={"used": total, "updated_at": add.excluded.updated_at},
                where=total <= bindparam("at_limit", type_=c.used.type),
            )
        )
        amount = bindparam("at_amount", type_=c.used.type)
        self.counter_take = self._text(
            update(counters)
            .values(
                used=case((c.used > amount, c.used - amount), else_=literal_column("0")),
                updated_at=bindparam("at_now"),
            )
            .where(c.scope == bindparam("at_scope"))
        )

    def _rates(self, marks: Table) -> None:
        c = marks.c
        scope, mark = c.scope == bindparam("at_scope"), c.mark == bindparam("at_mark")
        time = bindparam("at_time", type_=c.at.type)
        self.rate_used = self._text(
            select(func.coalesce(func.sum(c.amount), literal_column("0"))).where(scope, c.at > time)
        )
        self.rate_marked = self._text(select(c.at).where(scope, mark))
        self.rate_add = self._text(insert(marks))
        self.rate_take = self._text(delete(marks).where(scope, mark))
        self.rate_prune = self._text(delete(marks).where(scope, c.at <= time))
