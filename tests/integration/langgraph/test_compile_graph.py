"""The graph a flow compiles to: nodes, channels, edges, input, and LangGraph's own ways with it."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from pydantic import BaseModel
from tests.support.flows import CONFIG, Board, Works, shown
from tests.support.toolkit import NO, YES, Bench
from typing_extensions import TypedDict

from adapter import (
    ApprovalAlreadyDecided,
    ApprovalDecision,
    ConfigurationError,
    Executor,
    Merge,
    Registry,
    ToolUsageError,
)
from adapter.core.errors import FlowCompileError, FlowError
from adapter.flow import END, Call, Flow, FlowContext, Join, Map, Route
from adapter.langgraph import INTEGRATION, compile_flow, run_compiled
from adapter.langgraph.runflow import flow_result
from adapter.stores import MemoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def works(bench: Bench) -> Works:
    return Works(bench)


async def test_there_is_one_node_for_each_node_and_one_channel_for_each_field(
    works: Works,
) -> None:
    one = works.process(works.gated(siblings=("pack",)))
    assert set(one.graph.nodes) == {"plan", "place", "pack", "done"}
    own = {"aa_flow", "aa_visits", "aa_loop_counts"}
    assert set(one.graph.channels) == set(Board.model_fields) | own


async def test_a_join_is_deferred(works: Works) -> None:
    def joined(state: Board) -> dict[str, Any]:
        return {"n": len(state.log)}

    flow = (
        Flow("f", state=Board)
        .node("a", works.node("a"))
        .node("b", works.node("b"))
        .node("long", works.node("long"))
        .node("all", Join(joined))
        .start("a", "b")
        .edge("a", "all")
        .edge("b", "long")
        .edge("long", "all")
        .end("all")
    )
    one = works.process(flow)
    assert one.graph.nodes["all"].defer
    done = await one.run({})
    assert (done.state.n, dict(done.visits)) == (3, {"a": 1, "all": 1, "b": 1, "long": 1})


async def test_the_reserved_channels_count_visits_and_loops(works: Works) -> None:
    one = works.process(works.looping(3))
    done = await one.run({})
    values = (await one.app.aget_state(CONFIG)).values
    assert values["aa_visits"] == {"round": 3, "out": 1}
    assert values["aa_loop_counts"] == {"round->round": 2}
    assert dict(done.visits) == {"round": 3, "out": 1}


async def test_writes_merge_by_node_name_whatever_order_they_come_in(works: Works) -> None:
    async def slow(_state: Board) -> dict[str, Any]:
        for _ in range(20):
            await asyncio.sleep(0)
        return {"log": ["a"]}

    flow = (
        Flow("f", state=Board)
        .node("b", works.node("b"))
        .node("a", slow)
        .start("b", "a")
        .end("a", "b")
    )
    assert (await works.process(flow).run({})).state.log == ["a", "b"]


async def test_two_writers_of_a_field_without_a_rule_are_a_conflict(works: Works) -> None:
    def writer(value: int) -> Any:
        return lambda _state: {"n": value}

    flow = (
        Flow("f", state=Board)
        .node("a", writer(1))
        .node("b", writer(2))
        .start("a", "b")
        .end("a", "b")
    )
    one = works.process(flow)
    inputs: list[Any] = [{}, None]
    for given in inputs:  # and again when it goes on, with what the other one wrote before
        with pytest.raises(FlowError, match=r"superstep of a, b: merge conflict.*'n'"):
            await one.run(given)
    assert (await one.app.aget_state(CONFIG)).values["n"] in (1, 2)


async def test_they_are_one_also_where_the_other_ended_in_an_earlier_run(works: Works) -> None:
    async def asks(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        return {"receipt": await ctx.call("pay", {"text": "x"})}

    flow = (
        Flow("f", state=Board)
        .node("a", lambda _state: {"receipt": "mine"})
        .node("b", asks)
        .start("a", "b")
        .end("a", "b")
    )
    saver = InMemorySaver()
    await works.process(flow, store="shared", saver=saver).run({})
    later = works.process(flow, store="shared", saver=saver)
    for given in (YES, None):
        with pytest.raises(FlowError, match=r"superstep of a, b: merge conflict.*'receipt'"):
            await later.run(given)
    assert works.ran("pay") == 1


async def test_writes_that_a_rule_of_ones_own_refuses_fail_the_node_and_the_thread_stays_readable(
    works: Works,
) -> None:
    def picky(current: int | None, writes: list[int]) -> int:
        if len(set(writes)) > 1:
            msg = "they differ"
            raise ValueError(msg)
        return (current or 0) + writes[0]

    class Picky(BaseModel):
        n: Annotated[int, Merge.custom(picky)] = 0

    def flow(second: int) -> Flow:
        made = Flow("f", state=Picky).node("a", lambda _state: {"n": 1})
        return made.node("b", lambda _state: {"n": second}).start("a", "b").end("a", "b")

    one = works.process(flow(2), saver=InMemorySaver())
    with pytest.raises(FlowError, match="raised ValueError"):
        await one.run({})
    assert (await one.app.aget_state(CONFIG)).values["n"] == 1
    assert (await works.process(flow(1), saver=InMemorySaver()).run({})).state == Picky(n=1)


async def test_the_state_is_json_on_the_wire(works: Works) -> None:
    one = works.process(works.gated())
    await one.run(Board(log=["x"]))
    values = (await one.app.aget_state(CONFIG)).values
    assert values["log"] == ["x", "plan"]
    assert not [value for value in values.values() if isinstance(value, Board)]


@pytest.mark.parametrize(
    "given", [{"n": "many"}, {"nn": 1}, {"aa_flow": {"steps": 3}}, {"log": {"__overwrite__": 1}}]
)
async def test_input_that_is_no_state_is_refused_before_anything_runs(
    works: Works, given: Any
) -> None:
    one = works.process(works.gated())
    with pytest.raises(FlowError):
        await one.app.ainvoke(given, CONFIG)
    with pytest.raises(FlowError):
        await one.run(given)
    assert works.ran("plan") == 0


async def test_a_new_run_of_a_thread_begins_anew(works: Works) -> None:
    one = works.process(works.looping(3))
    first = await one.run({"log": ["first"]})
    assert first.state.log == ["first", "out"]
    await one.app.ainvoke({}, CONFIG)
    second = flow_result(one.app, await one.app.aget_state(CONFIG))
    assert (second.state.log, second.steps) == (["out"], first.steps)
    assert second.visits == first.visits


async def test_a_new_run_begins_anew_behind_a_denied_one(works: Works) -> None:
    one = works.process(works.gated())
    await one.run({})
    assert (await one.run(ApprovalDecision(approved=False))).status == "denied"
    await one.run({})
    assert (await one.run(YES)).status == "done"
    assert works.ran("place") == 1


async def test_update_state_in_a_nodes_name_follows_its_edges(works: Works) -> None:
    flow = (
        Flow("f", state=Board)
        .node("a", works.node("a"))
        .node("b", works.node("b"), pause=shown)
        .node("c", works.node("c"))
        .edge("a", "b")
        .edge("b", "c")
        .end("c")
    )
    one = works.process(flow)
    await one.run({})
    await one.app.aupdate_state(CONFIG, {"receipt": "by hand"}, as_node="b")
    done = await one.run(None)
    assert (done.status, done.state.receipt, done.state.log) == ("done", "by hand", ["a", "c"])
    assert works.ran("b") == 0


async def test_a_map_tells_the_custom_stream_how_far_it_is(works: Works) -> None:
    def items(_state: Board) -> list[dict[str, str]]:
        return [{"text": "x"}] * 3

    flow = Flow("f", state=Board).node("map", Map(items, tool="rate", into="seen")).end("map")
    one = works.process(flow)
    told = [part async for part in one.app.astream({}, CONFIG, stream_mode="custom")]
    assert [part["done"] for part in told] == [1, 2, 3]
    assert told[-1] == {"flow": "f", "node": "map", "visit": 1, "done": 3, "total": 3}


def test_it_runs_synchronously(works: Works) -> None:
    one = works.process(works.gated(siblings=("pack",)))
    one.app.invoke({}, CONFIG)
    paused = flow_result(one.app, one.app.get_state(CONFIG))
    assert paused.pending is not None
    value = one.shop.port.resume_value(paused.pending, YES)
    one.app.invoke(Command(resume={paused.pending.interrupt_id: value}), CONFIG)
    done = flow_result(one.app, one.app.get_state(CONFIG))
    assert (done.status, done.state.log) == ("done", ["plan", "pack", "place", "done"])


async def test_it_works_as_a_part_of_another_graph(works: Works) -> None:
    class Outer(TypedDict, total=False):
        n: int
        receipt: str

    inner = works.process(works.gated(), saver=None)
    app = inner.graph.compile()

    async def call(state: Outer) -> Outer:
        made = await app.ainvoke({"n": state["n"]})
        return {"receipt": ",".join(made["log"])}

    graph: Any = StateGraph(Outer)
    graph.add_node("call", call)
    graph.add_edge(START, "call")
    outer = graph.compile(checkpointer=InMemorySaver())
    await outer.ainvoke({"n": 1}, CONFIG)
    (asked,) = (await outer.aget_state(CONFIG)).tasks[0].interrupts
    assert works.ran("place") == 0
    done = await outer.ainvoke(inner.signed(asked), CONFIG)
    assert done["receipt"] == "plan,place,done"
    assert [works.ran(name) for name in ("plan", "place", "done")] == [1, 1, 1]


async def test_the_same_task_of_three_durabilities(works: Works) -> None:
    for durability in ("sync", "async", "exit"):
        config = {"configurable": {"thread_id": durability}}
        one = works.process(works.gated())
        await one.run({}, config, durability=durability)
        again = works.process(works.gated())
        assert (await again.run(YES, config, durability=durability)).status == "done"
    assert works.ran("place") == 3


@pytest.mark.parametrize("limit", [1, 2])
async def test_gates_open_where_not_all_nodes_of_a_superstep_run_at_once(
    works: Works, limit: int
) -> None:
    """A node that finds a gate not there yet pauses with it, and nothing waits for ever."""
    flow = Flow("f", state=Board)
    for name in ("a", "b", "c", "z"):
        flow.node(name, works.node(name), pause=shown if name in "bz" else None)
    flow.start("a", "b", "c", "z").end("a", "b", "c", "z")
    one = works.process(flow, store="lasting")
    config = {**CONFIG, "max_concurrency": limit}
    result = await one.run({}, config)
    for gate in ("b", "z"):
        assert [pending.node for pending in result.pendings] == [gate]
        assert [works.ran(name) for name in "abcz"] == [0, 0, 0, 0]
        result = await one.run(YES, config)
    assert (result.status, result.state.log) == ("done", ["a", "b", "c", "z"])
    assert [works.ran(name) for name in "abcz"] == [1, 1, 1, 1]


def test_gates_open_where_a_synchronous_graph_has_fewer_threads_than_nodes(works: Works) -> None:
    names = [f"n{number:02}" for number in range(40)]
    flow = Flow("f", state=Board).node("zz", works.node("zz"), pause=shown)
    for name in names:
        flow.node(name, works.node(name))
    flow.start("zz", *names).end("zz", *names)
    one = works.process(flow, store="lasting")
    given: Any = {}
    result: Any = None
    began = time.monotonic()
    for _ in range(10):
        one.app.invoke(given, CONFIG)
        result = flow_result(one.app, one.app.get_state(CONFIG))
        if result.status == "done":
            break
        given = None
        if result.pending is not None:
            assert works.ran("zz") + works.ran("n00") == 0
            value = one.shop.port.resume_value(result.pending, YES)
            given = Command(resume={result.pending.interrupt_id: value})
    assert result.status == "done"
    assert time.monotonic() - began < 60
    assert [works.ran(name) for name in ("zz", *names)] == [1] * 41


async def test_a_gate_beside_a_call_that_asks_is_open_in_later_runs(works: Works) -> None:
    async def buy(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        return {"receipt": await ctx.call("pay", {"text": "x"})}

    flow = (
        Flow("f", state=Board)
        .node("buy", buy)
        .node("gate", works.node("gate"), pause=shown)
        .start("buy", "gate")
        .end("buy", "gate")
    )
    for store in (None, "lasting"):
        config = {"configurable": {"thread_id": str(store)}}
        await works.process(flow, store=store).run({}, config)
        paused = await works.process(flow, store=store).run(YES, config)
        assert [pending.node for pending in paused.pendings] == ["buy"]
        done = await works.process(flow, store=store).run(YES, config)
        assert (done.status, done.state.receipt) == ("done", "paid x")
    assert [works.ran(name) for name in ("gate", "pay")] == [2, 2]


async def test_a_gated_node_with_calls_that_ask_is_asked_in_order(works: Works) -> None:
    async def buy(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        return {"log": [await ctx.call("pay", {"text": text}) for text in ("x", "y")]}

    flow = Flow("f", state=Board).node("buy", buy, pause=shown).end("buy")
    result = await works.process(flow).run({})
    kinds = []
    while result.pending is not None:
        kinds.append(result.pending.kind)
        result = await works.process(flow).run(YES)
    assert kinds == ["gate", "tool", "tool"]
    assert result.state.log == ["paid x", "paid y"]
    assert [works.ran(name) for name in ("x", "y")] == [1, 1]


async def test_a_flow_that_does_not_hold_is_refused(works: Works) -> None:
    executor = works.process(works.gated()).shop.executor
    flow = Flow("f", state=Board).node("a", Call("nothing")).end("a").edge("a", "b")
    with pytest.raises(FlowCompileError, match="2 faults"):
        compile_flow(flow, executor=executor)


async def test_a_short_key_is_refused(works: Works) -> None:
    executor = works.process(works.gated()).shop.executor
    with pytest.raises(ConfigurationError):
        compile_flow(works.gated(), executor=executor, checkpoint_key=b"short")


async def test_run_compiled_wants_a_compiled_flow_with_a_checkpointer(works: Works) -> None:
    graph = works.process(works.gated()).graph
    with pytest.raises(ToolUsageError, match="checkpointer"):
        await run_compiled(graph.compile(), {}, CONFIG)
    other: Any = StateGraph(Board).add_node("a", lambda _: {}).add_edge(START, "a")
    with pytest.raises(ToolUsageError, match="compile_flow"):
        await run_compiled(other.compile(checkpointer=InMemorySaver()), {}, CONFIG)


async def test_decisions_by_id_that_are_not_asked_are_refused(works: Works) -> None:
    one = works.process(works.gated())
    await one.run({})
    with pytest.raises(FlowError, match="does not ask"):
        await one.run({"0" * 32: YES})
    assert works.ran("place") == 0


async def test_a_decision_where_nothing_waits_says_so(works: Works) -> None:
    one = works.process(works.gated())
    with pytest.raises(ApprovalAlreadyDecided, match="Nothing waits here"):
        await one.run(YES)
    with pytest.raises(FlowError, match="it asks nothing"):
        await one.run({"0" * 32: YES})
    assert (await one.run({})).status == "paused"
    assert (await one.run(YES)).status == "done"


@pytest.mark.parametrize("given", [True, {"approved": True}])
async def test_what_is_no_decision_names_the_type_of_one(works: Works, given: Any) -> None:
    one = works.process(works.gated())
    await one.run({})
    with pytest.raises(ToolUsageError, match="A decision is an ApprovalDecision"):
        await one.run(given)
    assert works.ran("place") == 0


async def test_a_denied_gate_gives_the_reviewers_own_words(works: Works) -> None:
    one = works.process(works.gated())
    await one.run({})
    denied = await one.run(NO)
    assert (denied.status, denied.reason) == ("denied", NO.reason)


async def test_a_decision_for_a_port_that_takes_none_is_a_usage_error(works: Works) -> None:
    one = works.process(works.gated())
    await one.run({})
    one.graph.executor.port = object()  # type: ignore[assignment]
    with pytest.raises(ToolUsageError, match="own approval port"):
        await one.run(YES)
    assert works.ran("place") == 0


async def test_integration_compiles_too(works: Works) -> None:
    executor = works.process(works.gated()).shop.executor
    graph = INTEGRATION.compile_flow(works.gated(), executor=executor)
    assert set(graph.nodes) == {"plan", "place", "done"}


async def test_a_flow_without_tools_needs_no_executor() -> None:
    flow = Flow("f", state=Board).node("a", lambda _state: {"n": 1}).end("a")
    with pytest.warns(UserWarning, match="survives"):
        graph = compile_flow(flow)
    done = await run_compiled(graph.compile(checkpointer=InMemorySaver()), {}, CONFIG)
    assert done.state.n == 1


async def test_a_gate_without_a_port_is_told_so(works: Works) -> None:
    store = MemoryStore()
    works.bench.stores.append(store)
    executor = Executor(Registry([], {}), store=store)
    app = compile_flow(works.gated(), executor=executor).compile(checkpointer=InMemorySaver())
    with pytest.raises(ConfigurationError, match="approval port"):
        await run_compiled(app, {}, CONFIG)
    assert works.ran("place") == 0


async def test_a_gate_without_a_checkpointer_is_told_so(works: Works) -> None:
    app = works.process(works.gated()).graph.compile()
    with pytest.raises(ConfigurationError, match="checkpointer"):
        await app.ainvoke({})
    assert works.ran("place") == 0


async def test_routes_are_drawn(works: Works) -> None:
    flow = (
        Flow("f", state=Board)
        .node("a", works.node("a"))
        .node("b", works.node("b"))
        .edge("a", Route(lambda _state: "b", to=("b", END)))
        .end("b")
    )
    drawn = works.process(flow).app.get_graph()
    edges = {(edge.source, edge.target) for edge in drawn.edges}
    assert {("__start__", "a"), ("a", "b"), ("a", "__end__")} <= edges


async def test_a_gated_node_may_write_numbers_beyond_canonical_json(works: Works) -> None:
    def big(_state: Board) -> dict[str, Any]:
        return {"n": 2**60}

    flow = Flow("f", state=Board).node("big", big, pause=lambda _state: {}).end("big")
    one = works.process(flow)
    await one.run({})
    assert (await one.run(YES)).state.n == 2**60
