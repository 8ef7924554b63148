"""The PostgreSQL that checkpoints are kept in, and the shop that makes a flow's calls."""

from __future__ import annotations

from tests.integration.stores.conftest import postgresql
from tests.support.fixtures import bench

__all__ = ["bench", "postgresql"]
