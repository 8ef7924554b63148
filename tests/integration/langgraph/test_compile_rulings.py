"""What a compiled flow promises, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.types import Command
from pydantic import ValidationError
from tests.support.flows import CONFIG, Board, Works, shown
from tests.support.room import Clock, free, tool_of
from tests.support.toolkit import NO, YES

from adapter import (
    ApprovalAlreadyDecided,
    ApprovalDecision,
    ToolUsageError,
)
from adapter.core.errors import FlowCompileError, FlowError, FlowLoopExceeded
from adapter.flow import Call, Flow, FlowContext, Route
from adapter.langgraph import compile_flow
from adapter.stores import MemoryStore

pytestmark = pytest.mark.anyio

EDIT = ApprovalDecision(kind="edit", edited_args={"n": 7})


async def test_the_route_sees_the_input_state_plus_its_own_nodes_writes(works: Works) -> None:
    seen: list[Board] = []

    def choose(state: Board) -> str:
        seen.append(state)
        return "end"

    flow = (
        Flow("f", state=Board)
        .node("a", works.node("a", n=1))
        .node("b", works.node("b", total=2))
        .node("end", works.node("end"))
        .start("a", "b")
        .edge("a", Route(choose, to=("end",)))
        .edge("b", "end")
        .end("end")
    )
    await works.process(flow).run({"log": ["given"]})
    (state,) = seen
    assert (state.log, state.n, state.total) == (["given", "a"], 1, 0)


async def test_a_gate_asks_by_a_signed_request_bound_to_thread_checkpoint_and_node(
    works: Works,
) -> None:
    one = works.process(works.gated())
    paused = await one.run({})
    assert paused.status == "paused"
    assert paused.pending is not None
    assert (paused.pending.kind, paused.pending.tool) == ("gate", "place")
    assert paused.pending.arguments == {"n": 1}
    bindings = {paused.pending.value["binding"]}
    other = await one.run({}, {"configurable": {"thread_id": "flow-2"}})
    assert other.pending is not None
    bindings.add(other.pending.value["binding"])
    again = await one.run({})
    assert again.pending is not None
    bindings.add(again.pending.value["binding"])
    assert len(bindings) == 3
    assert works.ran("place") == 0


async def test_an_approved_gate_lets_its_node_run_once(works: Works) -> None:
    one = works.process(works.gated())
    await one.run({})
    done = await one.run(YES)
    assert (done.status, done.steps) == ("done", 3)
    assert done.state.log == ["plan", "place", "done"]
    assert dict(done.visits) == {"plan": 1, "place": 1, "done": 1}
    assert works.ran("place") == 1


async def test_every_node_of_a_gated_superstep_waits_for_the_gate(works: Works) -> None:
    one = works.process(works.gated(siblings=("pack", "ship")))
    paused = await one.run({})
    assert [pending.node for pending in paused.pendings] == ["place"]
    assert works.ran("pack") + works.ran("ship") + works.ran("place") == 0
    done = await one.run(YES)
    assert done.status == "done"
    assert done.state.log == ["plan", "pack", "place", "ship", "done"]


async def test_a_gate_whose_port_decides_at_once_does_not_stop_the_run(works: Works) -> None:
    done = await works.process(works.gated(siblings=("pack",)), port="at once").run({})
    assert done.status == "done"
    assert done.state.log == ["plan", "pack", "place", "done"]


async def test_a_denied_gate_ends_the_run_without_its_superstep(works: Works) -> None:
    one = works.process(works.gated(siblings=("pack",)))
    await one.run({})
    denied = await one.run(NO)
    assert (denied.status, denied.steps, dict(denied.visits)) == ("denied", 1, {"plan": 1})
    assert denied.reason == NO.reason
    assert [works.ran(name) for name in ("plan", "place", "pack", "done")] == [1, 0, 0, 0]
    assert (await one.run(None)).status == "denied"
    assert [works.ran(name) for name in ("place", "pack", "done")] == [0, 0, 0]


async def test_an_expired_gate_ends_the_run_as_denied(works: Works) -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    works.bench.stores.append(store)
    one = works.process(works.gated(), store=store, shop={"approval_ttl": 60, "clock": clock})
    await one.run({})
    assert (await one.run(None)).status == "paused"
    clock.advance(61)
    late = await one.run(None)
    assert (late.status, late.steps, late.reason) == ("denied", 1, "Nobody answered in time.")
    assert works.ran("place") == 0


async def test_a_decision_that_comes_too_late_ends_the_run_as_denied(works: Works) -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    works.bench.stores.append(store)
    one = works.process(works.gated(), store=store, shop={"approval_ttl": 60, "clock": clock})
    one.shop.port._clock = clock
    await one.run({})
    clock.advance(61)
    assert (await one.run(YES)).status == "denied"
    assert works.ran("place") == 0


async def test_a_spent_grant_is_already_decided(works: Works) -> None:
    works.port = "signed"
    one = works.process(works.gated())
    await one.run({})
    (asked,) = await one.asked()
    before = (await one.app.aget_state(CONFIG)).config
    await one.app.ainvoke(one.signed(asked), CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await one.app.ainvoke(one.signed(asked), before)
    assert works.ran("place") == 1


async def test_a_decision_when_nothing_waits_is_already_decided(works: Works) -> None:
    one = works.process(works.gated())
    await one.run({})
    await one.run(YES)
    with pytest.raises(ApprovalAlreadyDecided):
        await one.run(YES)
    assert works.ran("place") == 1


async def test_a_node_that_failed_behind_its_gate_does_not_run_again(works: Works) -> None:
    def fail(_state: Board) -> None:
        works.ledger.add(tool="node", text="fail")
        raise RuntimeError("stumbled")

    flow = Flow("f", state=Board).node("a", fail, pause=shown).end("a")
    one = works.process(flow)
    await one.run({})
    with pytest.raises(RuntimeError, match="stumbled"):
        await one.run(YES)
    with pytest.raises(ApprovalAlreadyDecided, match="failed"):
        await one.run(None)
    assert works.ran("fail") == 1


def two_gates(works: Works) -> Flow:
    return (
        Flow("two", state=Board)
        .node("a", works.node("a"), pause=shown)
        .node("b", works.node("b"), pause=shown)
        .node("c", works.node("c"))
        .start("a", "b", "c")
        .end("a", "b", "c")
    )


async def test_several_gates_without_a_store_are_a_usage_error(works: Works) -> None:
    with pytest.raises(ToolUsageError, match="before a, b are in one superstep"):
        await works.process(two_gates(works), port="signed").run({})
    assert [works.ran(name) for name in "abc"] == [0, 0, 0]


async def test_several_gates_are_asked_one_by_one_and_nothing_runs_before_the_last(
    works: Works,
) -> None:
    one = works.process(two_gates(works), store="lasting")
    for gate in "ab":
        paused = await one.run({} if gate == "a" else YES)
        assert [pending.node for pending in paused.pendings] == [gate]
        assert [works.ran(name) for name in "abc"] == [0, 0, 0]
    done = await one.run(YES)
    assert (done.status, done.steps, done.state.log) == ("done", 1, ["a", "b", "c"])
    assert [works.ran(name) for name in "abc"] == [1, 1, 1]


async def test_several_gates_of_which_one_is_denied_run_nothing(works: Works) -> None:
    one = works.process(two_gates(works), store="lasting")
    await one.run({})
    await one.run(YES)
    denied = await one.run(NO)
    assert (denied.status, denied.steps) == ("denied", 0)
    assert [works.ran(name) for name in "abc"] == [0, 0, 0]


async def test_the_recursion_limit_is_100_by_default(works: Works) -> None:
    ended = await works.process(works.looping(99)).run({})
    assert (ended.status, ended.steps) == ("done", 100)
    with pytest.raises(FlowLoopExceeded, match="recursion_limit of 100"):
        await works.process(works.looping(100)).run({})


async def test_a_recursion_limit_in_the_config_counts(works: Works) -> None:
    config = {**CONFIG, "recursion_limit": 3}
    with pytest.raises(FlowLoopExceeded, match="recursion_limit of 3"):
        await works.process(works.looping(5)).run({}, config)
    done = await works.process(works.looping(5)).run({}, {**CONFIG, "recursion_limit": 10})
    assert done.status == "done"


async def test_siblings_of_an_edited_gate_see_the_state_before_the_edit(works: Works) -> None:
    def look(state: Board) -> dict[str, Any]:
        return {"seen": [state.n]}

    flow = (
        Flow("f", state=Board)
        .node("gated", look, pause=shown)
        .node("sibling", look)
        .node("after", look)
        .start("gated", "sibling")
        .edge("gated", "after")
        .edge("sibling", "after")
        .end("after")
    )
    one = works.process(flow)
    await one.run({"n": 1})
    done = await one.run(EDIT)
    assert done.state.seen == [7, 1, 7]
    assert done.state.n == 7


async def test_an_edit_replaces_and_the_nodes_own_writes_merge_after_it(works: Works) -> None:
    flow = Flow("f", state=Board).node("a", works.node("a"), pause=shown).end("a")
    one = works.process(flow)
    await one.run({"log": ["given"]})
    done = await one.run(ApprovalDecision(kind="edit", edited_args={"log": ["edited"]}))
    assert done.state.log == ["edited", "a"]


@pytest.mark.parametrize("keys", ["missing", "foreign"])
async def test_a_missing_or_foreign_seal_is_a_flow_error_and_nothing_runs(
    works: Works, keys: str
) -> None:
    one = works.process(works.gated(), key=b"checkpoint-secret-one-0123456789")
    await one.run({})
    (asked,) = await one.asked()
    other = works.process(
        works.gated(),
        key=b"checkpoint-secret-two-0123456789" if keys == "foreign" else one.key,
    )
    if keys == "missing":
        _without_seals(works.saver)
    given = other.signed(asked) if works.port == "signed" else None
    with pytest.raises(FlowError, match="Nothing ran"):
        await other.app.ainvoke(given, CONFIG)
    assert works.ran("place") == 0
    if keys == "foreign":
        right = works.process(works.gated(), key=one.key)
        assert (await right.answer(asked)).status == "done"


def _without_seals(saver: Any) -> None:
    """Take ``aa_state`` out of every saved pause."""
    for writes in saver.writes.values():
        for at, (task, channel, (kind, raw), path) in list(writes.items()):
            if channel == "__interrupt__":
                (pause,) = saver.serde.loads_typed((kind, raw))
                pause.value.pop("aa_state", None)
                writes[at] = (task, channel, saver.serde.dumps_typed((pause,)), path)


@pytest.mark.parametrize("name", ["__start__", "__end__"])
async def test_a_node_with_langgraphs_own_names_does_not_compile(works: Works, name: str) -> None:
    flow = Flow("f", state=Board).node(name, works.node("x")).end(name)
    with pytest.raises(FlowCompileError, match=name):
        compile_flow(flow, executor=works.process(works.gated()).shop.executor)


async def test_once_per_run_holds_over_nodes_and_not_over_runs(works: Works) -> None:
    def once(text: str) -> str:
        works.ledger.add(tool="once", text=text)
        return f"once {text}"

    async def twice(state: Board, ctx: FlowContext) -> dict[str, Any]:
        return {"log": [await ctx.call("once", {"text": "x"}) for _ in range(2)]}

    flow = (
        Flow("f", state=Board)
        .node("a", twice)
        .node("b", Call("once", {"text": "x"}, into="receipt"))
        .edge("a", "b")
        .end("b")
    )
    extra = {"tools": [tool_of(once, "once")], "specs": [free("once", once_per_run=True)]}
    one = works.process(flow, shop=extra)
    done = await one.run({})
    assert done.state.log == ["once x", "once x"]
    assert done.state.receipt == "once x"
    assert works.ran("once") == 1
    await one.run({})
    assert works.ran("once") == 2


async def test_a_call_that_is_denied_and_not_caught_ends_the_run(works: Works) -> None:
    async def buy(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        return {"receipt": await ctx.call("pay", {"text": "x"})}

    flow = (
        Flow("f", state=Board)
        .node("buy", buy)
        .node("note", works.node("note"))
        .node("after", works.node("after"))
        .start("buy", "note")
        .edge("buy", "after")
        .edge("note", "after")
        .end("after")
    )
    one = works.process(flow)
    paused = await one.run({})
    assert paused.pending is not None
    assert (paused.pending.kind, paused.pending.arguments) == ("tool", {"text": "x"})
    denied = await one.run(NO)
    assert (denied.status, denied.steps, dict(denied.visits)) == ("denied", 1, {"note": 1})
    assert denied.state.log == ["note"]
    assert works.ran("pay") + works.ran("after") == 0


async def test_a_fork_asks_again_and_takes_no_used_answer(works: Works) -> None:
    works.port = "signed"
    one = works.process(works.gated())
    await one.run({})
    (asked,) = await one.asked()
    before = (await one.app.aget_state(CONFIG)).config
    await one.answer(asked)
    await one.app.ainvoke(None, before)
    (again,) = await one.asked()
    assert again.id != asked.id
    assert works.ran("place") == 1
    stale: Any = Command(resume={again.id: one.shop.port.resume_value(asked, YES)})
    with pytest.raises(ValidationError):
        await one.app.ainvoke(stale, CONFIG)
    assert works.ran("place") == 1
    assert (await one.answer(again)).status == "done"
    assert works.ran("place") == 2
