"""Fixtures of what runs in process, imported by the conftest of each folder that uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.flows import Works
from tests.support.room import Rooms
from tests.support.toolkit import Bench


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    made = Rooms(tmp_path)
    yield made
    made.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["signed", "deferred"])
def works(request: pytest.FixtureRequest, bench: Bench) -> Works:
    """Compiled flows, answered in either way."""
    return Works(bench, request.param)
