"""What an approval port takes for keys, and what it says of the name of their file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter import ConfigurationError, DeferredApproval, KeyRing
from adapter.keyfile import KeyFileSource, load_or_create
from adapter.langgraph import LangGraphApproval
from adapter.stores.memory import MemoryStore

SECRET = bytes(range(32))


def deferred(key: Any) -> DeferredApproval:
    return DeferredApproval(MemoryStore(), key)


PORTS = pytest.mark.parametrize("port", [LangGraphApproval, deferred])


@pytest.mark.parametrize("named", ["keys.json", Path("keys.json")])
@PORTS
def test_a_port_that_is_given_a_files_name_says_how_it_is_loaded(port: Any, named: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        port(named)
    assert "KeyFileSource(Path(…))" in caught.value.message
    assert "load_or_create(Path(…)), both of adapter.keyfile" in caught.value.message


@PORTS
def test_a_port_takes_what_its_error_names(port: Any, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ring = load_or_create(path)
    assert port(ring).keys.keys == ring.keys
    assert port(KeyFileSource(path)).keys.keys == ring.keys
    assert port(SECRET).keys.keys == KeyRing.from_secret(SECRET).keys
    assert port(None).keys.keys != port(None).keys.keys
