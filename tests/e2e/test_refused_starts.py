"""What cannot work refuses at start-up, naming the setting and the cure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.server import Server

pytestmark = pytest.mark.slow

OWN = """
from langgraph.checkpoint.memory import InMemorySaver
from agent.settings import AgentSettings
from agent.wiring import build_agent

graph = build_agent(AgentSettings.load(), checkpointer=InMemorySaver())
"""

CASES = {
    "unknown setting": ("ADAPTER_DATABSE_URI", "did you mean ADAPTER_DATABASE_URI"),
    "placeholder key": ("ADAPTER_KEY_FILE", "adapter keys new"),
    "placeholder setting": ("ADAPTER_AUDIENCE", "still a placeholder"),
    "missing key": ("ADAPTER_KEY_FILE", "adapter keys new"),
    "own checkpointer": ("checkpointer", ""),
    "no model": ("AGENT_MODEL", ""),
}


def made(name: str, folder: Path) -> Server:
    own = folder / name.replace(" ", "-")
    own.mkdir()
    if name == "unknown setting":
        return Server(own, ADAPTER_DATABSE_URI="sqlite:///x.db")
    if name == "placeholder key":
        keys = own / "keys.json"
        key = {"alg": "HS256", "secret": "Y2hhbmdlLW1l", "created_at": 1, "revoked_at": None}
        document = {
            "version": 1,
            "keys": [
                {**key, "kid": purpose, "purpose": purpose}
                for purpose in ("seal", "decision", "state", "audit", "digest")
            ],
        }
        keys.write_text(json.dumps(document))
        keys.chmod(0o600)
        return Server(own, ADAPTER_KEY_FILE=str(keys))
    if name == "placeholder setting":
        return Server(own, ADAPTER_AUDIENCE="change-me")
    if name == "missing key":
        return Server(own, ADAPTER_DATABASE_URI=f"sqlite:///{own / 'adapter.db'}")
    if name == "own checkpointer":
        (own / "own.py").write_text(OWN)
        return Server(own, graph=f"{own / 'own.py'}:graph")
    return Server(own, AGENT_MODEL="nosuchprovider:model")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, str]]]:
    """All of them started side by side; how each ended and what it said."""
    folder = tmp_path_factory.mktemp("refused")
    servers = {name: made(name, folder) for name in CASES}
    found = {}
    try:
        names = list(servers)
        for start in range(0, len(names), 3):
            group = names[start : start + 3]
            for name in group:
                servers[name].launch()
            for name in group:
                found[name] = (servers[name].wait_for_end(), servers[name].text)
        yield found
    finally:
        for server in servers.values():
            server.stop()


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_server_does_not_start(ended: dict[str, tuple[int, str]], name: str) -> None:
    status, text = ended[name]
    setting, cure = CASES[name]
    assert status != 0
    assert setting in text
    assert cure in text
    assert "Y2hhbmdlLW1l" not in text
    assert "change-me" not in text
