"""What Alembic runs: the migrations, on the connection and in the transaction it is handed."""

from __future__ import annotations

from alembic import context

from adapter.stores.schema import VERSION_TABLE, tables


def run() -> None:
    """Migrate; the caller holds the lock and commits."""
    attributes = context.config.attributes
    schema = attributes["schema"]
    context.configure(
        connection=attributes["connection"],
        target_metadata=tables(schema).metadata,
        version_table=VERSION_TABLE,
        version_table_schema=schema,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
