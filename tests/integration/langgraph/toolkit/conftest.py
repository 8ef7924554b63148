"""What the tests of this folder share."""

from __future__ import annotations

from tests.support.fixtures import bench

__all__ = ["bench"]
