"""Fixtures of the rooms in process, imported by the conftest of each folder that uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.room import Rooms


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    made = Rooms(tmp_path)
    yield made
    made.close()
