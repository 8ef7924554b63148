"""What the tests of this folder share."""

from __future__ import annotations

from tests.support.fixtures import rooms

__all__ = ["rooms"]
