"""The first revision: journal, votes, counters, rate marks and the audit chain."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    "audit_anchors",
    "audit_heads",
    "audit_events",
    "rate_marks",
    "counters",
    "votes",
    "calls",
    "meta",
)


def _text(name: str, *, nullable: bool = False, primary_key: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), nullable=nullable, primary_key=primary_key)


def _big(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table("meta", _text("key", primary_key=True), _text("value"), schema=schema)
    op.create_table(
        "calls",
        _text("key", primary_key=True),
        _text("thread_id"),
        _text("checkpoint_ns"),
        _text("task_id"),
        _text("turn_id"),
        _text("message_id"),
        _text("tool_call_id"),
        _text("tool"),
        _text("kind"),
        _text("arguments_digest"),
        _text("policy_digest"),
        _text("schema_digest"),
        _text("idempotency_key"),
        _text("interrupt_id", nullable=True),
        sa.Column("position", sa.Integer(), nullable=False),
        _text("requester", nullable=True),
        _text("request", nullable=True),
        _text("approval_id", nullable=True),
        sa.Column("quorum_need", sa.Integer(), nullable=False),
        _text("status"),
        _big("issued_at"),
        _big("expires_at", nullable=True),
        _text("decision", nullable=True),
        _text("answers"),
        _text("executed_digest", nullable=True),
        _big("fence"),
        _text("owner", nullable=True),
        _big("lease_until", nullable=True),
        _text("run_id"),
        _text("outcome", nullable=True),
        _big("updated_at"),
        _text("outcome_kid", nullable=True),
        schema=schema,
    )
    op.create_index("ix_calls_message", "calls", ["thread_id", "message_id"], schema=schema)
    op.create_index("ix_calls_status", "calls", ["status", "issued_at"], schema=schema)
    op.create_table(
        "votes",
        _text("call_key"),
        _text("reviewer"),
        _text("kid"),
        _text("answer"),
        _text("executed_digest"),
        _text("decision"),
        _big("created_at"),
        sa.PrimaryKeyConstraint("call_key", "reviewer", name="pk_votes"),
        schema=schema,
    )
    op.create_table(
        "counters",
        _text("scope", primary_key=True),
        _big("used"),
        _big("updated_at"),
        schema=schema,
    )
    op.create_table(
        "rate_marks",
        _text("scope"),
        _text("mark"),
        _big("at"),
        _big("amount"),
        sa.PrimaryKeyConstraint("scope", "mark", name="pk_rate_marks"),
        schema=schema,
    )
    op.create_index("ix_rate_marks_at", "rate_marks", ["scope", "at"], schema=schema)
    _create_audit(schema)


def _create_audit(schema: str | None) -> None:
    op.create_table(
        "audit_events",
        _text("thread_id"),
        _big("seq"),
        _text("event_id"),
        _text("run_id"),
        _big("run_seq"),
        _text("turn_id"),
        _text("kind"),
        sa.Column("line", sa.LargeBinary(), nullable=False),
        _text("hash"),
        sa.PrimaryKeyConstraint("thread_id", "seq", name="pk_audit_events"),
        sa.UniqueConstraint("thread_id", "event_id", name="uq_audit_events_id"),
        schema=schema,
    )
    turn = ["thread_id", "turn_id", "seq"]
    run = ["thread_id", "run_id", "run_seq"]
    op.create_index("ix_audit_events_turn", "audit_events", turn, schema=schema)
    op.create_index("ix_audit_events_run", "audit_events", run, schema=schema)
    op.create_table(
        "audit_heads",
        _text("thread_id", primary_key=True),
        _big("seq"),
        _text("hash"),
        _text("run_id"),
        _big("run_seq"),
        _big("count"),
        _text("kid", nullable=True),
        _text("signature", nullable=True),
        schema=schema,
    )
    op.create_table(
        "audit_anchors",
        _text("thread_id", primary_key=True),
        _big("seq"),
        _text("hash"),
        _big("removed"),
        _big("at"),
        _text("by"),
        _text("kid", nullable=True),
        _text("signature", nullable=True),
        schema=schema,
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for name in _TABLES:
        op.drop_table(name, schema=schema)
