"""DeferredApproval: the store decides, once, and a resume value never does."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from tests.support.room import KEYS, gated, tool_of
from tests.support.toolkit import (
    CONFIG,
    NO,
    YES,
    Bench,
    Shop,
    asking,
    direct,
    error_kind,
    graph_of,
    of,
    results,
)
from typing_extensions import TypedDict

from adapter import ApprovalDecision, ApprovalPending, ApprovalRule, DeferredApproval
from adapter.core.signing import check_seal
from adapter.langgraph import LangGraphApproval, one_use, tool_node

pytestmark = pytest.mark.anyio


class State(TypedDict, total=False):
    messages: list[Any]
    said: list[Any]


def shop_of(bench: Bench, name: str | None = None, **more: Any) -> Shop:
    store = bench.store(name)
    return bench.shop(store=store, port=DeferredApproval(store, KEYS), **more)


def node_of(shop: Shop) -> Any:
    async def sell(state: State) -> State:
        noted = await shop.executor.run(direct("note", "n", text="x"))
        return {"said": [noted, await shop.executor.run(direct("pay", "p", text="y"))]}

    return one_use(sell)


async def test_an_undecided_request_is_pending_on_every_run(bench: Bench) -> None:
    shop = shop_of(bench)
    app = graph_of(node_of(shop), schema=State)
    for _ in range(3):
        with pytest.raises(ApprovalPending, match="waits for a decision"):
            await app.ainvoke({} if _ == 0 else None, CONFIG)
    (row,) = await shop.port.pending()
    assert row.approval_id is not None
    sealed = check_seal(KEYS, row.decision["sealed"])
    assert sealed["request"]["approval_id"] == row.approval_id
    assert sealed["request"]["arguments"] == {"text": "y"}
    assert (bench.ran("note"), bench.ran("pay")) == (1, 0)


async def test_a_decided_record_runs_when_continued_with_none(bench: Bench) -> None:
    shop = shop_of(bench)
    app = graph_of(node_of(shop), schema=State)
    with pytest.raises(ApprovalPending):
        await app.ainvoke({}, CONFIG)
    (row,) = await shop.port.pending("shop-1")
    await shop.port.record(row, YES)
    assert await shop.port.pending() == []
    assert bench.ran("pay") == 0
    out = await app.ainvoke(None, CONFIG)
    assert out["said"] == [{"noted": "x"}, "paid y"]
    assert (bench.ran("note"), bench.ran("pay")) == (1, 1)


async def test_a_record_is_decided_in_another_process(bench: Bench) -> None:
    saver = InMemorySaver()
    shop = shop_of(bench, "shared")
    with pytest.raises(ApprovalPending):
        await graph_of(node_of(shop), saver, State).ainvoke({}, CONFIG)
    desk = shop_of(bench, "shared")
    (row,) = await desk.port.pending()
    await desk.port.record(row.key, YES)
    third = shop_of(bench, "shared")
    out = await graph_of(node_of(third), saver, State).ainvoke(None, CONFIG)
    assert out["said"][-1] == "paid y"
    assert bench.ran("pay") == 1


async def test_a_used_record_is_never_used_again(bench: Bench) -> None:
    shop = shop_of(bench)
    app = graph_of(node_of(shop), schema=State)
    with pytest.raises(ApprovalPending):
        await app.ainvoke({"messages": []}, CONFIG)
    paused = (await app.aget_state(CONFIG)).config
    (row,) = await shop.port.pending()
    await shop.port.record(row, YES)
    await app.ainvoke(None, CONFIG)
    # A replay and a fork are other tasks: each makes a request of its own.
    with pytest.raises(ApprovalPending):
        await app.ainvoke(None, paused)
    first = [state async for state in app.aget_state_history(CONFIG)][-1]
    fork = await app.aupdate_state(first.config, {"messages": []}, as_node="__start__")
    with pytest.raises(ApprovalPending):
        await app.ainvoke(None, fork)
    others = await shop.port.pending()
    assert len({row.approval_id, *(other.approval_id for other in others)}) == 3
    assert bench.ran("pay") == 1


async def test_a_resume_value_never_decides(bench: Bench) -> None:
    shop = shop_of(bench)
    app = graph_of(node_of(shop), schema=State)
    with pytest.raises(ApprovalPending):
        await app.ainvoke({}, CONFIG)
    (row,) = await shop.port.pending()
    signed = LangGraphApproval(KEYS).resume_value({"value": row.decision["sealed"]}, YES)
    for resume in (signed, {"0" * 32: signed}, True):
        with pytest.raises(ApprovalPending):
            await app.ainvoke(Command(resume=resume), CONFIG)
    assert bench.ran("pay") == 0


async def test_a_rejected_record_is_the_models_error_in_a_tool_node(bench: Bench) -> None:
    shop = shop_of(bench)
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    with pytest.raises(ApprovalPending):
        await app.ainvoke(asking(of("pay", "c1", text="x")), CONFIG)
    (row,) = await shop.port.pending()
    await shop.port.record(row, NO)
    out = await app.ainvoke(None, CONFIG)
    assert error_kind(results(out)[0]) == "ApprovalDenied"
    assert bench.ran("pay") == 0


@pytest.mark.parametrize(
    ("decision", "said", "ran"),
    [
        (ApprovalDecision(kind="edit", edited_args={"text": "less"}), "paid less", 1),
        (ApprovalDecision(kind="respond", response="by hand"), "by hand", 0),
    ],
)
async def test_every_kind_of_decision_can_be_recorded(
    bench: Bench, decision: ApprovalDecision, said: str, ran: int
) -> None:
    shop = shop_of(bench)
    app = graph_of(node_of(shop), schema=State)
    with pytest.raises(ApprovalPending):
        await app.ainvoke({}, CONFIG)
    (row,) = await shop.port.pending()
    await shop.port.record(row, decision)
    assert (await app.ainvoke(None, CONFIG))["said"][-1] == said
    assert bench.ran("pay") == ran


async def test_several_requests_of_one_batch_come_one_after_another(bench: Bench) -> None:
    shop = shop_of(bench)
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    given: Any = asking(of("pay", "c1", text="1"), of("pay", "c2", text="2"))
    for call_id in ("c1", "c2"):
        with pytest.raises(ApprovalPending):
            await app.ainvoke(given, CONFIG)
        given = None
        (row,) = await shop.port.pending()
        assert row.tool_call_id == call_id
        await shop.port.record(row, YES)
    out = await app.ainvoke(None, CONFIG)
    assert [message.content for message in results(out)] == ["paid 1", "paid 2"]
    assert bench.ran("pay") == 2


async def test_a_quorum_collects_its_votes_in_the_store(bench: Bench) -> None:
    def grave(text: str) -> str:
        bench.ledger.add(tool="grave")
        return text

    rule = ApprovalRule(name="two", reason="Grave.", quorum=2)
    shop = shop_of(bench, tools=[tool_of(grave, "grave")], specs=[gated("grave", approval=rule)])
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    with pytest.raises(ApprovalPending):
        await app.ainvoke(asking(of("grave", "c1", text="x")), CONFIG)
    for reviewer in ("ann", "bob"):
        (row,) = await shop.port.pending()
        await shop.port.record(row, ApprovalDecision(approved=True, reviewer=reviewer))
        if reviewer == "ann":
            with pytest.raises(ApprovalPending):
                await app.ainvoke(None, CONFIG)
    await app.ainvoke(None, CONFIG)
    assert bench.ran("grave") == 1
