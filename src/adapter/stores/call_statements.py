"""The statements about calls and votes; part of ``Statements``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Select,
    Table,
    Text,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from adapter.core.types import CallStatus
from adapter.stores.schema import CALL_FIELDS

if TYPE_CHECKING:
    from adapter.stores.statement import Statement

__all__ = ["CallStatements"]

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


class CallStatements(ABC):
    """SQL text by name; see ``Statements``."""

    _upsert: Any

    @abstractmethod
    def _text(self, statement: Any) -> Statement: ...

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
        of_thread = rows.where(c.thread_id == bindparam("at_thread")).order_by(*in_order)
        self.calls_of_thread = self._text(of_thread)
        self.calls_of_task = self._text(
            of_thread.where(c.checkpoint_ns == bindparam("at_namespace"))
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
        self.call_drop = self._text(delete(calls).where(mine))
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
        # a doubt that keeps its lease was raised by the clock alone
        late = _is(c.status, CallStatus.IN_DOUBT) & (c.lease_until <= now)
        self.call_take_over = self._text(
            claim.where(mine, same_fence, or_(claimed & ran_out, late)).returning(*returned)
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
        close = (
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
        )
        self.call_close = self._text(close.returning(*returned))
        unchanged = func.coalesce(c.decision, "") == bindparam("at_decision", type_=Text)
        self.call_amend = self._text(close.where(unchanged).returning(*returned))

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
            rows.where(_any(c.status, _OPEN), c.expires_at <= now).order_by(*in_order).limit(limit)
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
            .where(mine, c.fence == bindparam("at_fence"), doubtful)
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
        self.votes_kept = self._text(select(*votes.c).where(c.call_key == bindparam("at_key")))
        self.votes_of = self._text(
            select(c.call_key, c.reviewer, c.kid, c.answer, c.executed_digest, c.decision)
            .where(c.call_key == bindparam("at_key"))
            .order_by(c.created_at, c.reviewer)
        )
