"""The PostgreSQL that checkpoints are kept in."""

from __future__ import annotations

from tests.integration.stores.conftest import postgresql

__all__ = ["postgresql"]
