"""Databases that several processes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.stores.conftest import durable_uri, postgresql, postgresql_uri
from tests.support.fixtures import rooms
from tests.support.zygote import Zygote

__all__ = ["durable_uri", "postgresql", "postgresql_uri", "rooms"]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    made = Zygote("tests.support.worker")
    yield made
    made.close()
