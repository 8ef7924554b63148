"""What the tests of this folder share."""

from __future__ import annotations

from tests.support.fixtures import bench, rooms, works

__all__ = ["bench", "rooms", "works"]
