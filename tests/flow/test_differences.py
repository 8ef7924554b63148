"""Where the compiled graph differs from the local runner, as the documentation says: nowhere else.

The table is in docs/flows.md; everything that is not here is a case that both must meet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from tests.flow.cases.functions import calling
from tests.flow.cases.gates import shown
from tests.flow.parity import YES, Case, edited
from tests.flow.runners import KEY, Process
from tests.flow.world import State, World

from adapter import (
    ApprovalAlreadyDecided,
    FlowError,
    FlowLoopExceeded,
    ToolUsageError,
)
from adapter.flow import Flow, FlowContext
from adapter.langgraph import compile_flow, run_compiled

CONFIG: Any = {"configurable": {"thread_id": "flow-1"}}


def see(state: State, ctx: FlowContext) -> dict[str, Any]:
    """Say what the node sees."""
    return {"table": {ctx.node: state.n}}


def two(*, gates: str) -> Flow:
    """Two nodes of one superstep, with gates before some."""
    flow = Flow("two", state=State)
    for name in "ab":
        flow = flow.node(name, see, pause=shown if name in gates else None)
    return flow.start("a", "b").end("a", "b")


def chain(count: int) -> Flow:
    """So many nodes in a row."""
    names = [f"n{number}" for number in range(count)]
    flow = Flow("chain", state=State)
    for name in names:
        flow = flow.node(name, see)
    for name, then in pairwise(names):
        flow = flow.edge(name, then)
    return flow.end(names[-1])


class Sides:
    """One flow on both sides, each with a process of its own."""

    def __init__(self) -> None:
        self.made: list[Process] = []
        self.saver = InMemorySaver()

    def process(self, flow: Flow, port: str = "deferred") -> Process:
        case = Case(id="difference", build=lambda world: flow)
        self.made.append(Process(case, World(), port, None))
        return self.made[-1]

    def app(self, process: Process, key: bytes = KEY) -> Any:
        graph = compile_flow(process.flow, executor=process.executor, checkpoint_key=key)
        return graph.compile(checkpointer=self.saver)

    async def close(self) -> None:
        for process in self.made:
            await process.close()


@pytest.fixture
async def sides() -> AsyncIterator[Sides]:
    made = Sides()
    yield made
    await made.close()


@pytest.mark.anyio
async def test_siblings_of_an_edited_gate_see_the_edit_here_and_not_in_a_graph(
    sides: Sides,
) -> None:
    flow = two(gates="a")
    process = sides.process(flow)
    paused = await flow.run({}, executor=process.executor)
    local = await flow.run(
        executor=process.executor, checkpoint=paused.checkpoint, decision=edited(n=7)
    )
    assert local.state.table == {"a": 7, "b": 7}

    app = sides.app(sides.process(flow, "signed"))
    await run_compiled(app, {}, CONFIG)
    compiled = await run_compiled(app, edited(n=7), CONFIG)
    assert compiled.state.table == {"a": 7, "b": 0}
    assert compiled.state.n == local.state.n == 7


class Sibling:
    """A node that waits beside one that fails, and what became of it."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.ended = ""

    async def work(self, state: State) -> dict[str, Any]:
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "done"
        return {}

    async def failing(self, state: State) -> dict[str, Any]:
        await self.begun.wait()
        msg = "a fails"
        raise ValueError(msg)

    def flow(self) -> Flow:
        flow = Flow("beside", state=State).node("a", self.failing).node("b", self.work)
        return flow.start("a", "b").end("a", "b")


@pytest.mark.anyio
async def test_siblings_of_a_node_that_fails_end_here_and_are_cancelled_in_a_graph(
    sides: Sides,
) -> None:
    here, there = Sibling(), Sibling()
    flow = here.flow()
    running = asyncio.ensure_future(flow.run({}, executor=sides.process(flow).executor))
    await here.begun.wait()
    await asyncio.wait({running}, timeout=0.01)
    assert not running.done()  # it waits for the sibling
    here.may_end.set()
    with pytest.raises(ValueError, match="a fails"):
        await running
    assert here.ended == "done"

    app = sides.app(sides.process(there.flow()))
    with pytest.raises(ValueError, match="a fails"):
        await run_compiled(app, {}, CONFIG)
    assert there.ended == "cancelled"


@pytest.mark.anyio
async def test_several_gates_need_a_lasting_store_where_resume_values_answer(
    sides: Sides,
) -> None:
    flow = two(gates="ab")
    process = sides.process(flow)
    local = await flow.run({}, executor=process.executor)
    assert [one.tool for one in local.pendings] == ["a"]

    deferred = await run_compiled(sides.app(sides.process(flow)), {}, CONFIG)
    assert [one.tool for one in deferred.pendings] == ["a"]

    other: Any = {"configurable": {"thread_id": "flow-2"}}
    with pytest.raises(ToolUsageError, match="a, b"):
        await run_compiled(sides.app(sides.process(flow, "signed")), {}, other)


@pytest.mark.anyio
async def test_a_fork_asks_again_and_the_used_answer_is_refused(sides: Sides) -> None:
    flow = two(gates="a")
    process = sides.process(flow, "signed")
    app = sides.app(process)
    paused = await run_compiled(app, {}, CONFIG)
    at_gate = (await app.aget_state(CONFIG)).config
    done = await run_compiled(app, YES, CONFIG)
    assert done.status == "done"
    with pytest.raises(ApprovalAlreadyDecided):
        await run_compiled(app, YES, CONFIG)
    asked = await run_compiled(app, None, at_gate)
    assert asked.status == "paused"
    assert asked.pending is not None
    assert paused.pending is not None
    assert asked.pending.value["binding"] != paused.pending.value["binding"]


@pytest.mark.anyio
async def test_a_fork_does_not_repeat_an_effect_that_needed_no_approval(sides: Sides) -> None:
    world = World()
    flow = Flow("effect", state=State).node("a", calling("note", "x")).node("b", see)
    case = Case(id="effect", build=lambda _world: flow.edge("a", "b").end("b"))
    process = Process(case, world, "signed", None)
    sides.made.append(process)
    app = sides.app(process)
    await run_compiled(app, {}, CONFIG)
    before = [one.config async for one in app.aget_state_history(CONFIG) if one.next == ("a",)]
    again = await run_compiled(app, None, before[0])
    assert again.status == "done"
    assert again.state.rates == ["noted x"]
    assert world.ran == [("note", "x")]
    await run_compiled(app, {}, CONFIG)
    assert world.ran == [("note", "x")] * 2


@pytest.mark.anyio
async def test_the_checkpoint_is_the_results_here_and_the_checkpointers_in_a_graph(
    sides: Sides,
) -> None:
    flow = two(gates="a")
    local = await flow.run({}, executor=sides.process(flow).executor)
    assert local.checkpoint
    assert local.pending is not None
    assert local.pending.interrupt_id is None
    compiled = await run_compiled(sides.app(sides.process(flow, "signed")), {}, CONFIG)
    assert compiled.checkpoint is None
    assert compiled.pending is not None
    assert compiled.pending.interrupt_id


@pytest.mark.anyio
async def test_another_key_is_a_flow_error_on_both_sides_and_nothing_runs(sides: Sides) -> None:
    flow = two(gates="a")
    process = sides.process(flow)
    paused = await flow.run({}, executor=process.executor, checkpoint_key=KEY)
    with pytest.raises(FlowError):
        await flow.run(
            executor=process.executor,
            checkpoint=paused.checkpoint,
            decision=YES,
            checkpoint_key=KEY[::-1],
        )
    app = sides.app(sides.process(flow, "signed"))
    await run_compiled(app, {}, CONFIG)
    with pytest.raises(FlowError):
        await run_compiled(sides.app(sides.process(flow, "signed"), KEY[::-1]), YES, CONFIG)
    done = await run_compiled(app, YES, CONFIG)
    assert done.visits == {"a": 1, "b": 1}


@pytest.mark.anyio
async def test_run_compiled_counts_the_flows_steps_and_the_graph_itself_its_start_too(
    sides: Sides,
) -> None:
    flow = chain(4)
    process = sides.process(flow, "signed")
    local = await flow.run({}, executor=process.executor, max_steps=4)
    limited: Any = {**CONFIG, "recursion_limit": 4}
    compiled = await run_compiled(sides.app(process), {}, limited)
    assert local.steps == compiled.steps == 4
    short: Any = {"configurable": {"thread_id": "short"}, "recursion_limit": 3}
    with pytest.raises(FlowLoopExceeded):
        await run_compiled(sides.app(process), {}, short)
    plain: Any = {"configurable": {"thread_id": "plain"}, "recursion_limit": 4}
    with pytest.raises(GraphRecursionError):
        await sides.app(process).ainvoke({}, plain)


@pytest.mark.anyio
async def test_a_step_around_a_pause_counts_here_and_not_in_a_graph(sides: Sides) -> None:
    flow = Flow("steps", state=State).node("a", see).node("b", see, pause=shown).node("c", see)
    flow.edge("a", "b").edge("b", "c").end("c")
    process = sides.process(flow)
    with pytest.raises(FlowLoopExceeded):
        await flow.run({}, executor=process.executor, max_steps=1)
    paused = await flow.run({}, executor=process.executor, max_steps=2)
    decided: Any = {"executor": process.executor, "checkpoint": paused.checkpoint}
    with pytest.raises(FlowLoopExceeded):
        await flow.run(**decided, decision=YES, max_steps=1)
    assert (await flow.run(**decided, max_steps=2)).status == "done"

    app = sides.app(process)
    limited: Any = {**CONFIG, "recursion_limit": 1}
    assert (await run_compiled(app, {}, limited)).status == "paused"
    assert (await run_compiled(app, YES, limited)).status == "done"


@pytest.mark.anyio
async def test_calls_that_wait_at_the_same_time_are_asked_at_once_here_and_in_turn_in_a_graph(
    sides: Sides,
) -> None:
    async def work(_state: State, ctx: FlowContext) -> dict[str, Any]:
        calls = [ctx.call("pay", {"text": name}, id=name) for name in "xyz"]
        return {"rates": list(await asyncio.gather(*calls))}

    flow = Flow("gather", state=State).node("a", work).end("a")
    local = await flow.run({}, executor=sides.process(flow).executor)
    assert len(local.pendings) == 3
    app = sides.app(sides.process(flow))
    compiled = await run_compiled(app, {}, CONFIG)
    for _ in "xyz":
        assert len(compiled.pendings) == 1
        compiled = await run_compiled(app, YES, CONFIG)
    assert compiled.state.rates == ["paid x", "paid y", "paid z"]
