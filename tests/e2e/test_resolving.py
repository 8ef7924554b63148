"""kill -9 while an approved tool runs; a person states its result; the thread goes on over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Lab
from tests.e2e.test_restarts import until
from tests.support.server import ROOT, Server


def adapter(server: Server, *arguments: str) -> str:
    """Run the command line where the server runs."""
    done = subprocess.run(
        [sys.executable, "-c", "from adapter.cli import main; main()", *arguments],
        cwd=server.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "ADAPTER_DATA_DIR": str(server.data),
            "ADAPTER_REVIEWER": "olga",
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def doubts(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        adapter(server, "calls", "list", "--in-doubt", "--json")
    )
    return found


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_stated_result_goes_on_over_the_server(tmp_path: Path) -> None:
    server = Server(tmp_path / "own", AGENT_TOOL_DELAY_MS="60000", ADAPTER_LEASE="1")
    server.start()
    try:
        lab = Lab(server)
        order = server.orders()[0]
        thread, asked = await lab.paused(order)
        answer = {asked["id"]: await lab.sign(asked)}
        await lab.close()
        server.stop(signal.SIGTERM)  # the development server saves its threads when it ends
        server.start()
        lab = Lab(server)
        await lab.sdk.runs.create(thread, "agent", command={"resume": answer})
        await until(lambda: server.refunds(order) == [100])
        await lab.close()
        server.stop(signal.SIGKILL)

        server.env["AGENT_TOOL_DELAY_MS"] = "0"
        server.start()
        lab = Lab(server)
        await until(lambda: bool(doubts(server)))
        (doubt,) = doubts(server)
        assert doubt["thread_id"] == thread
        assert doubt["arguments"]["order_id"] == order
        key = doubt["key"][:12]
        said = adapter(server, "calls", "resolve", key, "--succeeded", "refunded 1.00", "--yes")
        assert f"thread {thread}" in said

        await lab.run(thread, input=None)
        assert server.refunds(order) == [100]
        (result,) = (await lab.results(thread)).values()
        assert result["content"] == "refunded 1.00"
        assert result["status"] == "success"
        kinds = [event["kind"] for event in await lab.events(thread)]
        assert kinds.count("started") == kinds.count("resolved") == 1
        assert "verified" in adapter(server, "audit", "verify", "--thread", thread)
        await lab.close()
    finally:
        server.stop()
    assert "BlockingError" not in server.text
