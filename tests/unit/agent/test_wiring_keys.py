"""The server's keys: made at a local start, required elsewhere, and followed when they change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from adapter import ConfigurationError
from adapter.core.keychange import rotate
from adapter.keyfile import edit_keys, write_keys
from agent.settings import AgentSettings
from agent.wiring import keys_for


def test_a_local_start_makes_the_file_once_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = AgentSettings(data_dir=tmp_path)
    first = keys_for(settings).current()
    assert str(tmp_path / "keys.json") in caplog.text
    caplog.clear()
    assert keys_for(settings).current().keys == first.keys
    assert not [found for found in caplog.records if found.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "elsewhere",
    [{"database_uri": "postgresql://db.test/a"}, {"api_url": "http://agent.test:8000"}],
)
def test_elsewhere_a_missing_file_stops_the_start(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    settings = AgentSettings(key_file=tmp_path / "keys.json", **elsewhere)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="adapter keys new"):
        keys_for(settings)
    write_keys(tmp_path / "keys.json", now=1)
    assert keys_for(settings).current().keys


@pytest.mark.anyio
async def test_a_rotation_reaches_the_running_server(tmp_path: Path) -> None:
    source = keys_for(AgentSettings(data_dir=tmp_path))
    (made,) = edit_keys(tmp_path / "keys.json", lambda ring: rotate(ring, ["seal"], now=2))
    await source.refresh()
    assert source.current().newest("seal").kid == made.kid
