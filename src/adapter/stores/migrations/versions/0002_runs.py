"""How far each run's numbers got is kept by itself: an index over all events cost every event."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_INDEX = "ix_audit_events_run"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    runs = op.create_table(
        "audit_runs",
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("run_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "run_id", name="pk_audit_runs"),
        schema=schema,
    )
    thread, run, number = (sa.Column[Any](name) for name in ("thread_id", "run_id", "run_seq"))
    events = sa.table("audit_events", thread, run, number, schema=schema)
    newest = sa.select(thread, run, sa.func.max(number)).select_from(events).group_by(thread, run)
    op.execute(sa.insert(runs).from_select(["thread_id", "run_id", "run_seq"], newest))
    op.drop_index(_INDEX, "audit_events", schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_index(_INDEX, "audit_events", ["thread_id", "run_id", "run_seq"], schema=schema)
    op.drop_table("audit_runs", schema=schema)
