"""A server that ends: politely with a question open, and by kill -9 with a tool running.

This server answers a bad answer LangGraph's way (ADAPTER_ON_INVALID=raise), for the client's heal.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Lab, refund
from tests.support.server import Server

pytestmark = pytest.mark.slow


@pytest.mark.anyio
async def test_pauses_and_claims_outlive_the_server(tmp_path: Path) -> None:
    server = Server(tmp_path / "own", ADAPTER_ON_INVALID="raise", AGENT_TOOL_DELAY_MS="0")
    server.start()
    try:
        first, second, third, fourth = server.orders()[:4]
        lab = Lab(server)
        thread, asked = await lab.paused(first)
        used_thread, used = await lab.paused(second)
        answer = {used["id"]: await lab.sign(used)}
        await lab.resume(used_thread, answer)
        assert server.refunds(second) == [100]

        # a bad answer in mode raise, healed by the client
        await lab.resume(thread, {asked["id"]: {"approved": True}})
        assert await lab.status(thread) == "error"
        (healed,) = await lab.desk.heal(thread)
        assert healed.id == asked["id"]
        assert await lab.status(thread) == "interrupted"
        await lab.close()

        server.stop(signal.SIGTERM)
        server.env["AGENT_TOOL_DELAY_MS"] = "60000"
        server.start()
        lab = Lab(server)
        assert server.refunds(first) == []
        (pending,) = await lab.desk.pending(thread)
        assert pending.value["binding"] == asked["value"]["binding"]

        # kill -9 while the approved tool runs: its effect is there, its outcome is not
        run: Any = await lab.sdk.runs.create(
            thread, "agent", command={"resume": {pending.id: await lab.sign(pending)}}
        )
        assert run["run_id"]
        await until(lambda: server.refunds(first) == [100])
        await lab.close()
        server.stop(signal.SIGKILL)

        server.env["AGENT_TOOL_DELAY_MS"] = "0"
        server.start()
        lab = Lab(server)
        await asyncio.sleep(2)  # what a restart alone would run again, it would run now
        assert server.refunds(first) == [100]
        assert server.refunds(second) == [100]
        await lab.resume(thread, {pending.id: await lab.sign(pending)})
        await lab.run(thread, input=None)
        assert server.refunds(first) == [100]

        # the used answer is still used, new work is possible, the trail is whole
        await lab.resume(used_thread, answer)
        assert server.refunds(second) == [100]
        _, fresh = await lab.paused(third)
        assert fresh["value"]["request"]["arguments"]["order_id"] == third
        await lab.say(await lab.thread(), refund(fourth), "/call nonsense {}")
        kinds = [event["kind"] for event in await lab.events(thread)]
        assert kinds.count("started") == 1
        await lab.close()
    finally:
        server.stop()
    assert "BlockingError" not in server.text


async def until(true: Any, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.05)
