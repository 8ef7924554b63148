"""The main job over HTTP, with both clients: asked, refused, approved with an edit, replayed."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from langgraph_sdk import get_sync_client
from tests.e2e.conftest import Lab, refund
from tests.support.server import Server

from adapter.client import PendingApproval, SyncApprovalClient


@pytest.mark.anyio
async def test_a_refund_is_asked_for_refused_forged_approved_with_an_edit_and_replayed(
    lab: Lab, order: str
) -> None:
    thread = await lab.thread()
    await lab.say(
        thread, '/call calculate {"expression": "6*7"}', '/call search_database {"query": "widget"}'
    )
    results = await lab.results(thread)
    assert len(results) == 2
    assert any("42" in str(message["content"]) for message in results.values())

    await lab.say(thread, refund(order, 400))
    assert lab.server.refunds(order) == []
    (pending,) = await lab.desk.pending(thread)
    assert isinstance(pending, PendingApproval)
    assert pending.request["tool"] == "issue_refund"
    assert pending.request["arguments"]["amount_cents"] == 400
    assert not pending.expired

    paused: Any = await lab.sdk.threads.get_state(thread)
    good = await lab.sign(
        pending, "edit", edited_args={**pending.request["arguments"], "amount_cents": 250}
    )
    forged = copy.deepcopy(good)
    forged["decision"]["edited_args"]["amount_cents"] = 499
    for bad in ({"approved": True}, forged):
        await lab.resume(thread, {pending.id: bad})
        assert lab.server.refunds(order) == []
        assert await lab.status(thread) == "interrupted"
        (still,) = await lab.desk.pending(thread)
        assert still.id == pending.id
        assert still.refused is not None
        assert still.refused["code"] == "invalid_answer"

    await lab.desk.resume(thread, {pending.id: good})
    assert lab.server.refunds(order) == [250]
    assert await lab.desk.pending(thread) == []
    await lab.results(thread)

    replayed = await lab.resume(
        thread, {pending.id: good}, checkpoint_id=paused["checkpoint"]["checkpoint_id"]
    )
    assert lab.server.refunds(order) == [250]
    assert "ApprovalAlreadyDecided" in str(replayed)

    kinds = [event["kind"] for event in await lab.events(thread)]
    assert kinds.count("answer_refused") == 2
    for kind in ("proposed", "requested", "decided", "started", "succeeded", "refused"):
        assert kind in kinds
    state: Any = await lab.sdk.threads.get_state(thread)
    assert good["mac"] not in str(state["values"])


def test_the_synchronous_client_approves_rejects_and_responds(
    server: Server, orders: list[str]
) -> None:
    sdk: Any = get_sync_client(url=server.url, api_key=None)
    from adapter.keyfile import load_keys

    keys = load_keys(server.data / "keys.json")
    with SyncApprovalClient(server.url, keys=keys, reviewer="ann", token="") as desk:
        thread = str(sdk.threads.create()["thread_id"])
        text = "\n".join(refund(order, 120) for order in orders)
        sdk.runs.wait(thread, "agent", input={"messages": [{"role": "user", "content": text}]})
        asked = {one.request["arguments"]["order_id"]: one for one in desk.pending(thread)}
        assert set(asked) == set(orders)
        assert {one.thread_id for one in desk.pending()} >= {thread}
        desk.reject(asked[orders[1]], "not late")
        desk.respond(asked[orders[2]], "Paid by hand.")
        desk.approve(asked[orders[0]], reason="fine")
        assert desk.pending(thread) == []
    state: Any = sdk.threads.get_state(thread)
    said = str([m["content"] for m in state["values"]["messages"] if m["type"] == "tool"])
    assert "not late" in said
    assert "Paid by hand." in said
    assert [server.refunds(order) for order in orders] == [[120], [], []]
    sdk.close()


@pytest.mark.anyio
async def test_streaming_shows_the_pause_and_then_the_effect_once(lab: Lab, order: str) -> None:
    modes: Any = ["values", "updates", "messages-tuple", "custom", "debug", "tasks", "checkpoints"]
    thread = await lab.thread()
    ask: Any = {"messages": [{"role": "user", "content": refund(order)}]}
    seen: list[Any] = [
        part
        async for part in lab.sdk.runs.stream(
            thread, "agent", input=ask, stream_mode=modes, stream_subgraphs=True
        )
    ]
    assert not [part for part in seen if part.event == "error"]
    assert any("agent_adapter.approval" in str(part.data) for part in seen)
    (asked,) = await lab.asked(thread)
    answer: Any = {"resume": {asked["id"]: await lab.sign(asked)}}
    parts: list[Any] = [
        part
        async for part in lab.sdk.runs.stream(thread, "agent", command=answer, stream_mode=modes)
    ]
    events = {part.event.partition("|")[0] for part in parts}
    assert {"values", "updates", "tasks", "checkpoints"} <= events
    assert any(event.startswith("messages") for event in events)
    assert "error" not in events
    assert lab.server.refunds(order) == [100]


@pytest.mark.anyio
async def test_two_resumes_at_once_have_one_effect(lab: Lab, order: str) -> None:
    thread, asked = await lab.paused(order)
    answer = {asked["id"]: await lab.sign(asked)}
    strategies = ("enqueue", "interrupt")
    await asyncio.gather(
        *(lab.resume(thread, answer, multitask_strategy=how) for how in strategies),
        return_exceptions=True,
    )
    await lab.run(thread, input=None)
    assert lab.server.refunds(order) == [100]
