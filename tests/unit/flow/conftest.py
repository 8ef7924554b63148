"""An executor for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.unit.flow.kit import Kit


@pytest.fixture
async def kit(anyio_backend: str) -> AsyncIterator[Kit]:
    made = Kit()
    yield made
    await made.store.aclose()
