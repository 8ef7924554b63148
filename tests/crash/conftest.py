"""Databases that outlive the processes which are killed here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.stores.conftest import postgresql
from tests.support.zygote import Zygote

__all__ = ["postgresql"]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    made = Zygote("tests.support.worker")
    yield made
    made.close()


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One store for the whole matrix; each case has a thread of its own in it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('store')}/adapter.db"
    address: str = request.getfixturevalue("postgresql")
    return address
