"""Every SQL statement of the store, built from the tables once per dialect and kept as text.

Compiling a Core statement, or looking it up in the compile cache, costs more than SQLite takes to
run it; so the writer hands plain text and a mapping of named parameters to the driver. Nothing is
executed in this room.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    Dialect,
    Table,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from typing_extensions import override

from adapter.stores.audit_statements import SLOTS, AuditStatements
from adapter.stores.call_statements import CallStatements
from adapter.stores.schema import Tables
from adapter.stores.statement import Statement

__all__ = ["SLOTS", "UNLIMITED", "Statements"]

UNLIMITED = 2**62
"""Bound in place of a missing limit."""


class Statements(AuditStatements, CallStatements):
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
        self._runs(tables.audit_runs)
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

    def _counters(self, counters: Table) -> None:
        c = counters.c
        add = self._upsert(counters)
        total = c.used + add.excluded.used
        self.counter_get = self._text(select(c.used).where(c.scope == bindparam("at_scope")))
        self.counters_get = {
            slots: self._text(
                select(c.scope, c.used).where(
                    c.scope.in_([bindparam(f"at_scope{n}") for n in range(slots)])
                )
            )
            for slots in SLOTS
        }
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
