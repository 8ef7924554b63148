"""A paused node's progress travels in its pause: in any process with the key nothing runs twice."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt
from tests.support.flows import CONFIG, Board, Process, Works, shown
from tests.support.room import KEYS
from tests.support.toolkit import NO, YES

from adapter import KeyRing, ToolUsageError
from adapter.client import ApprovalClient
from adapter.core.errors import FlowError
from adapter.flow import Call, Flow, FlowContext, Map
from adapter.langgraph.runflow import flow_result

pytestmark = pytest.mark.anyio

KEY = b"checkpoint-secret-0123456789-abc"


def buying(works: Works, *, gate: bool = False) -> Flow:
    """One node: an effect, a read, a gated call, another effect."""

    async def buy(state: Board, ctx: FlowContext) -> dict[str, Any]:
        works.ledger.add(tool="node", text="buy")
        noted = await ctx.call("note", {"text": "first"})
        rate = await ctx.call("rate", {"text": "abc"})
        paid = await ctx.call("pay", {"text": "x"})
        await ctx.call("note", {"text": "last"})
        return {"receipt": paid, "n": int(rate), "log": [noted["noted"]]}

    flow = Flow("buying", state=Board).node("buy", buy, pause=shown if gate else None)
    return flow.end("buy")


async def each(works: Works, process: Process) -> None:
    """Check that each call ran once, and has one entry in the ledger of the store."""
    assert [works.ran(name) for name in ("first", "abc", "x", "last")] == [1, 1, 1, 1]
    events = await process.shop.store.events("flow-1")
    started = [event for event in events if event.kind == "succeeded"]
    assert len(started) == len({event.event_id for event in started})


@pytest.mark.parametrize("gate", [False, True])
async def test_a_new_process_with_the_key_replays_finished_calls(works: Works, gate: bool) -> None:
    flow = buying(works, gate=gate)
    one = works.process(flow, key=KEY)
    paused = await one.run({})
    while paused.status == "paused":
        one = works.process(flow, key=KEY)  # knows the checkpointer only
        paused = await one.run(YES)
    assert paused.status == "done"
    assert (paused.state.receipt, paused.state.n, paused.state.log) == ("paid x", 3, ["first"])
    await each(works, one)


async def test_a_new_process_with_the_ports_keys_needs_no_other(works: Works) -> None:
    flow = buying(works)
    await works.process(flow).run({})
    assert (await works.process(flow).run(YES)).status == "done"
    await each(works, works.process(flow))


async def test_a_new_process_with_another_key_runs_nothing(works: Works) -> None:
    flow = buying(works)
    one = works.process(flow, key=KEY)
    await one.run({})
    (asked,) = await one.asked()
    other = works.process(flow, key=b"another-secret-0123456789-abcdef")
    given = other.signed(asked) if works.port == "signed" else None
    with pytest.raises(FlowError, match="another key"):
        await other.app.ainvoke(given, CONFIG)
    assert [works.ran(name) for name in ("first", "x", "last")] == [1, 0, 0]
    assert (await works.process(flow, key=KEY).run(YES)).status == "done"
    await each(works, one)


async def test_another_version_of_the_flow_does_not_take_the_progress_up(works: Works) -> None:
    await works.process(buying(works), key=KEY).run({})
    changed = buying(works).node("more", works.node("more")).edge("buy", "more").end("more")
    other = works.process(changed, key=KEY)
    with pytest.raises(FlowError, match="version of the flow"):
        await other.app.ainvoke(None, CONFIG)
    assert works.ran("x") == 0


async def test_an_older_process_that_lives_on_does_not_repeat_what_another_finished(
    works: Works,
) -> None:
    async def buy(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        return {"log": [await ctx.call("pay", {"text": text}) for text in ("one", "two")]}

    flow = Flow("f", state=Board).node("buy", buy).end("buy")
    old = works.process(flow, key=KEY)
    await old.run({})
    new = works.process(flow, key=KEY)
    await new.run(YES)
    assert works.ran("one") == 1
    done = await old.run(YES)
    assert done.state.log == ["paid one", "paid two"]
    assert [works.ran(name) for name in ("one", "two")] == [1, 1]


async def test_with_a_lasting_store_the_seal_carries_no_rows(works: Works) -> None:
    flow = buying(works)
    sizes = {}
    for store in (None, "lasting"):
        one = works.process(flow, store=store)
        config = {"configurable": {"thread_id": f"flow-{store}"}}
        await one.run({}, config)
        (asked,) = await one.asked(config)
        sizes[store] = len(str(asked.value["aa_state"]))
        again = works.process(flow, store=store)
        assert (await again.run(YES, config)).status == "done"
    assert sizes["lasting"] < 400 < sizes[None]
    assert works.ran("x") == 2


async def test_finished_items_of_a_map_are_not_repeated(works: Works) -> None:
    def items(_state: Board) -> list[dict[str, str]]:
        return [{"text": f"item-{n}"} for n in range(3)]

    flow = Flow("f", state=Board).node("pay", Map(items, tool="pay", into="log")).end("pay")
    result = await works.process(flow, key=KEY).run({})
    for _ in range(3):
        assert result.status == "paused"
        result = await works.process(flow, key=KEY).run(YES)
    assert result.state.log == ["paid item-0", "paid item-1", "paid item-2"]
    assert [works.ran(f"item-{n}") for n in range(3)] == [1, 1, 1]


async def test_a_denied_call_is_denied_in_a_new_process(works: Works) -> None:
    flow = buying(works)
    await works.process(flow, key=KEY).run({})
    denied = await works.process(flow, key=KEY).run(NO)
    assert denied.status == "denied"
    assert [works.ran(name) for name in ("first", "x", "last")] == [1, 0, 0]


async def test_a_failed_approved_tool_is_not_run_again_by_a_retry(works: Works) -> None:
    attempts: list[int] = []

    async def buy(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        attempts.append(1)
        paid = await ctx.call("pay", {"text": "x"})
        if len(attempts) < 3:
            raise RuntimeError("stumbled")
        return {"receipt": paid}

    flow = Flow("f", state=Board).node("buy", buy, retries=2).end("buy")
    await works.process(flow, key=KEY).run({})
    done = await works.process(flow, key=KEY).run(YES)
    assert done.state.receipt == "paid x"
    assert works.ran("x") == 1


async def test_an_interrupt_of_the_nodes_own_carries_the_progress_too(works: Works) -> None:
    async def ask(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        await ctx.call("note", {"text": "first"})
        return {"receipt": interrupt({"question": "which?"})}

    flow = Flow("f", state=Board).node("ask", ask).end("ask")
    paused = await works.process(flow, key=KEY).run({})
    assert paused.pending is not None
    assert (paused.pending.kind, paused.pending.value["question"]) == ("interrupt", "which?")
    done = await works.process(flow, key=KEY).run(Command(resume="this"))
    assert done.state.receipt == "this"
    assert works.ran("first") == 1


async def test_an_interrupt_that_cannot_carry_it_is_refused_where_the_store_forgets(
    works: Works,
) -> None:
    async def ask(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        await ctx.call("note", {"text": "first"})
        return {"receipt": interrupt("which?")}

    flow = Flow("f", state=Board).node("ask", ask).end("ask")
    with pytest.raises(ToolUsageError, match="mapping"):
        await works.process(flow).run({})
    lasting = works.process(flow, store="lasting")
    assert (await lasting.run({})).status == "paused"
    assert (await lasting.run(Command(resume="this"))).state.receipt == "this"


async def test_the_reviewers_client_signs_a_value_that_carries_progress(works: Works) -> None:
    works.port = "signed"
    one = works.process(works.gated(), key=KEY)
    await one.run({})
    (asked,) = await one.asked()
    assert "aa_state" in asked.value
    client = ApprovalClient(url="http://127.0.0.1:9", keys=KEYS, reviewer="rita")
    value = await client.sign({"id": asked.id, "value": asked.value}, YES)
    await one.app.ainvoke(Command(resume={asked.id: value}), CONFIG)
    assert works.ran("place") == 1


async def test_a_bad_answer_in_mode_ask_keeps_the_progress_and_the_id(works: Works) -> None:
    from adapter.langgraph import LangGraphApproval

    works.port = "signed"
    one = works.process(buying(works), key=KEY)
    one.shop.port._ask_again = True
    assert isinstance(one.shop.port, LangGraphApproval)
    await one.run({})
    (asked,) = await one.asked()
    await one.app.ainvoke(Command(resume={asked.id: {"forged": True}}), CONFIG)
    (again,) = await one.asked()
    assert again.id == asked.id
    assert again.value["refused"]["code"] == "invalid_answer"
    assert "aa_state" in again.value
    assert works.ran("x") == 0
    assert (await works.process(buying(works), key=KEY).run(YES)).status == "done"
    await each(works, one)


@pytest.fixture
async def async_sqlite(tmp_path: Path) -> AsyncIterator[AsyncSqliteSaver]:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "async.db")) as saver:
        yield saver


async def test_it_works_on_sqlite(works: Works, async_sqlite: AsyncSqliteSaver) -> None:
    flow = buying(works, gate=True)
    result = await works.process(flow, key=KEY, saver=async_sqlite).run({})
    for _ in range(2):
        result = await works.process(flow, key=KEY, saver=async_sqlite).run(YES)
    assert result.status == "done"
    await each(works, works.process(flow))


def test_it_works_synchronously_on_sqlite(works: Works, tmp_path: Path) -> None:
    works.port = "signed"
    flow = buying(works, gate=True)
    connection = sqlite3.connect(tmp_path / "sync.db", check_same_thread=False)
    saver = SqliteSaver(connection)
    given: Any = {}
    result: Any = None
    for _ in range(3):
        one = works.process(flow, key=KEY, saver=saver)
        one.app.invoke(given, CONFIG)
        result = flow_result(one.app, one.app.get_state(CONFIG))
        if result.pending is None:
            break
        value = one.shop.port.resume_value(result.pending, YES)
        given = Command(resume={result.pending.interrupt_id: value})
    assert result.status == "done"
    assert [works.ran(name) for name in ("first", "abc", "x", "last")] == [1, 1, 1, 1]
    connection.close()


async def test_a_call_node_that_asks_is_replayed(works: Works) -> None:
    flow = (
        Flow("f", state=Board)
        .node("pay", Call("pay", {"text": "x"}, into="receipt"))
        .node("done", works.node("done"))
        .edge("pay", "done")
        .end("done")
    )
    await works.process(flow, key=KEY).run({})
    done = await works.process(flow, key=KEY).run(YES)
    assert done.state.receipt == "paid x"
    assert works.ran("x") == 1


async def test_without_keys_a_run_resumes_in_its_own_process_only(works: Works) -> None:
    works.port = "signed"
    flow = buying(works)
    own = KeyRing.random()
    await works.process(flow, keys=own).run({})
    with pytest.raises(FlowError, match="Nothing ran"):
        await works.process(flow, keys=KeyRing.random()).app.ainvoke(None, CONFIG)
    assert works.ran("x") == 0
    assert (await works.process(flow, keys=own).run(YES)).status == "done"
