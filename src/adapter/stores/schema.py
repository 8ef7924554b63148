"""The tables, as SQLAlchemy Core sees them. No statement and no connection in this room.

Columns of later features (votes, rate marks, signed heads, sealed outcomes) exist from the first
revision on. A change here needs a new revision in ``migrations``; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from adapter.core.store import CallRow

__all__ = ["CALL_FIELDS", "POSTGRES_SCHEMA", "VERSION_TABLE", "Tables", "tables"]

POSTGRES_SCHEMA = "agent_adapter"
"""Name of our own schema in PostgreSQL; SQLite has none."""

VERSION_TABLE = "agent_adapter_version"
"""Where Alembic keeps the revision, apart from any other application's ``alembic_version``."""

CALL_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(CallRow))
"""Columns of ``calls`` that make a CallRow, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Every table of the store, in one PostgreSQL schema or in none."""

    metadata: MetaData
    meta: Table
    calls: Table
    votes: Table
    counters: Table
    rate_marks: Table
    audit_events: Table
    audit_runs: Table
    audit_heads: Table
    audit_anchors: Table


@cache
def tables(schema: str | None = None) -> Tables:
    """Build the tables, once in a process.

    Args:
        schema: PostgreSQL schema that holds them; None for SQLite.
    """
    metadata = MetaData(schema=schema)
    return Tables(
        metadata=metadata,
        meta=Table(
            "meta",
            metadata,
            Column("key", Text, primary_key=True),
            Column("value", Text, nullable=False),
        ),
        calls=_calls(metadata),
        votes=Table(
            "votes",
            metadata,
            Column("call_key", Text, nullable=False),
            Column("reviewer", Text, nullable=False),
            Column("kid", Text, nullable=False),
            Column("answer", Text, nullable=False),
            Column("executed_digest", Text, nullable=False),
            Column("decision", Text, nullable=False),
            Column("created_at", BigInteger, nullable=False),
            PrimaryKeyConstraint("call_key", "reviewer", name="pk_votes"),
        ),
        counters=Table(
            "counters",
            metadata,
            Column("scope", Text, primary_key=True),
            Column("used", BigInteger, nullable=False),
            Column("updated_at", BigInteger, nullable=False),
        ),
        rate_marks=Table(
            "rate_marks",
            metadata,
            Column("scope", Text, nullable=False),
            Column("mark", Text, nullable=False),
            Column("at", BigInteger, nullable=False),
            Column("amount", BigInteger, nullable=False),
            PrimaryKeyConstraint("scope", "mark", name="pk_rate_marks"),
            Index("ix_rate_marks_at", "scope", "at"),
        ),
        audit_events=_audit_events(metadata),
        audit_runs=Table(
            "audit_runs",
            metadata,
            Column("thread_id", Text, nullable=False),
            Column("run_id", Text, nullable=False),
            Column("run_seq", BigInteger, nullable=False),
            PrimaryKeyConstraint("thread_id", "run_id", name="pk_audit_runs"),
        ),
        audit_heads=Table(
            "audit_heads",
            metadata,
            Column("thread_id", Text, primary_key=True),
            Column("seq", BigInteger, nullable=False),
            Column("hash", Text, nullable=False),
            Column("run_id", Text, nullable=False),
            Column("run_seq", BigInteger, nullable=False),
            Column("count", BigInteger, nullable=False),
            Column("kid", Text),
            Column("signature", Text),
        ),
        audit_anchors=Table(
            "audit_anchors",
            metadata,
            Column("thread_id", Text, primary_key=True),
            Column("seq", BigInteger, nullable=False),
            Column("hash", Text, nullable=False),
            Column("removed", BigInteger, nullable=False),
            Column("at", BigInteger, nullable=False),
            Column("by", Text, nullable=False),
            Column("kid", Text),
            Column("signature", Text),
        ),
    )


def _calls(metadata: MetaData) -> Table:
    return Table(
        "calls",
        metadata,
        Column("key", Text, primary_key=True),
        Column("thread_id", Text, nullable=False),
        Column("checkpoint_ns", Text, nullable=False),
        Column("task_id", Text, nullable=False),
        Column("turn_id", Text, nullable=False),
        Column("message_id", Text, nullable=False),
        Column("tool_call_id", Text, nullable=False),
        Column("tool", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("arguments_digest", Text, nullable=False),
        Column("policy_digest", Text, nullable=False),
        Column("schema_digest", Text, nullable=False),
        Column("idempotency_key", Text, nullable=False),
        Column("interrupt_id", Text),
        Column("position", Integer, nullable=False),
        Column("requester", Text),
        Column("request", Text),
        Column("approval_id", Text),
        Column("quorum_need", Integer, nullable=False),
        Column("status", Text, nullable=False),
        Column("issued_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger),
        Column("decision", Text),
        Column("answers", Text, nullable=False),
        Column("executed_digest", Text),
        Column("fence", BigInteger, nullable=False),
        Column("owner", Text),
        Column("lease_until", BigInteger),
        Column("run_id", Text, nullable=False),
        Column("outcome", Text),
        Column("updated_at", BigInteger, nullable=False),
        Column("outcome_kid", Text),
        Index("ix_calls_message", "thread_id", "message_id"),
        Index("ix_calls_status", "status", "issued_at"),
    )


def _audit_events(metadata: MetaData) -> Table:
    return Table(
        "audit_events",
        metadata,
        Column("thread_id", Text, nullable=False),
        Column("seq", BigInteger, nullable=False),
        Column("event_id", Text, nullable=False),
        Column("run_id", Text, nullable=False),
        Column("run_seq", BigInteger, nullable=False),
        Column("turn_id", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("line", LargeBinary, nullable=False),
        Column("hash", Text, nullable=False),
        PrimaryKeyConstraint("thread_id", "seq", name="pk_audit_events"),
        UniqueConstraint("thread_id", "event_id", name="uq_audit_events_id"),
        Index("ix_audit_events_turn", "thread_id", "turn_id", "seq"),
    )
