"""The crash points of the test kit."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.integration.stores.records import claim, ungated

from adapter.faults import CrashAt, FaultyStore
from adapter.stores import MemoryStore

pytestmark = pytest.mark.anyio


async def test_each_operation_of_the_store_has_two_points() -> None:
    crash = CrashAt(None)
    inner = MemoryStore()
    store = FaultyStore.around(inner, crash)
    assert (await store.claim(ungated())).state == "claimed"
    store.post([])
    await store.aclose()
    assert crash.reached == ["before claim", "after claim", "before aclose", "after aclose"]


async def test_the_process_ends_at_the_nth_arrival_only() -> None:
    ended: list[str] = []
    crash = CrashAt("before claim", nth=2, kill=lambda: ended.append("killed"))
    inner = MemoryStore()
    store = FaultyStore.around(inner, crash)
    await store.claim(ungated())
    assert ended == []
    await store.claim(claim())
    assert ended == ["killed"]
    await store.claim(claim())
    assert ended == ["killed"]
    await inner.aclose()


def test_the_end_is_a_sigkill() -> None:
    script = (
        "import atexit; from adapter.faults import CrashAt; atexit.register(print, 'exit');"
        "CrashAt('here')('here'); print('alive')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == -9
    assert done.stdout == ""
