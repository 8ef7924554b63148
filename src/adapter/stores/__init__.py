"""Durable stores: one state machine over SQLite and PostgreSQL. Nothing here knows LangGraph."""

from __future__ import annotations

from adapter.stores.memory import MemoryStore
from adapter.stores.opening import open_store
from adapter.stores.sql import SqlStore

__all__ = ["MemoryStore", "SqlStore", "open_store"]
