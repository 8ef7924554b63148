"""Alembic migrations of the store; run by ``adapter.stores.prepare``, without an alembic.ini."""
