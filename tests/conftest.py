"""What every test shares: one async backend, hypothesis profiles, and an environment of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
OWNED = ("ADAPTER_", "AGENT_", "LANGCHAIN_", "LANGGRAPH_", "LANGSMITH_", "OPENAI_")

settings.register_profile(
    "dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real servers run one after another: everything in tests/e2e goes to one xdist worker."""
    for item in items:
        if (HERE / "e2e") in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.xdist_group("server"))


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the server does."""
    return "asyncio"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the person's shell reaches a test, and none of a test's leaks out."""
    for name in list(os.environ):
        if name.startswith(OWNED):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
