"""Nodes of one's own: the table of re-runs, row by row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import is_invalid_resume
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.runtime import Runtime
from langgraph.types import Command, Interrupt, RetryPolicy, interrupt
from pydantic import BaseModel, ValidationError
from tests.support.room import KEYS, Clock, free, gated, tool_of
from tests.support.toolkit import (
    CONFIG,
    NO,
    Bench,
    FailsOnce,
    Shop,
    answered,
    asked,
    asking,
    direct,
    graph_of,
    of,
)
from typing_extensions import TypedDict

from adapter import (
    ApprovalAlreadyDecided,
    ApprovalDecision,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalRule,
    ConfigurationError,
    Effects,
    ToolArgsInvalid,
    ToolCall,
    ToolUsageError,
    UnknownTool,
)
from adapter.langgraph import LangGraphApproval, bind_context, one_use, run_sync, tool_node
from adapter.stores import MemoryStore

pytestmark = pytest.mark.anyio


class State(TypedDict, total=False):
    messages: list[Any]
    said: list[Any]


def nothing() -> None:
    """Fail at no place."""


def seller(
    shop: Shop,
    before: Callable[[], None] = nothing,
    between: Callable[[], None] = nothing,
    after: Callable[[], None] = nothing,
) -> Any:
    """A node that reads, writes, asks, and goes on."""

    async def sell(state: State) -> State:
        before()
        read = await shop.executor.run(direct("rate", "r", text="abc"))
        noted = await shop.executor.run(direct("note", "n", text="x"))
        between()
        paid = await shop.executor.run(direct("pay", "p", text="y"))
        after()
        return {"said": [read, noted, paid]}

    return sell


SAID = [3.0, {"noted": "x"}, "paid y"]


async def test_an_answer_is_used_once_and_finished_calls_replay(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(one_use(seller(shop)), schema=State)
    await app.ainvoke({}, CONFIG)
    assert (bench.ran("rate"), bench.ran("note"), bench.ran("pay")) == (1, 1, 0)
    out = await answered(app, shop)
    assert out["said"] == SAID
    assert (bench.ran("rate"), bench.ran("note"), bench.ran("pay")) == (1, 1, 1)


async def test_nodes_sync_and_async_with_and_without_config(bench: Bench) -> None:
    shop = bench.shop()
    seen: list[Any] = []

    async def plain(state: State) -> State:
        return {"said": [await shop.executor.run(direct("pay", "p", text="1"))]}

    async def configured(state: State, config: RunnableConfig) -> State:
        seen.append(config["configurable"]["thread_id"])
        return {"said": [await shop.executor.run(direct("pay", "p", text="2"))]}

    def sync(state: State) -> State:
        return {"said": [run_sync(shop.executor.run(direct("pay", "p", text="3")))]}

    def sync_all(state: State, config: RunnableConfig, *, runtime: Runtime[Any]) -> State:
        seen.append(runtime.execution_info is not None)
        return {"said": [run_sync(shop.executor.run(direct("pay", "p", text="4")))]}

    class Callable:
        async def __call__(self, state: State) -> State:
            return {"said": [await shop.executor.run(direct("pay", "p", text="5"))]}

    nodes: list[Any] = [plain, configured, sync, sync_all, Callable()]
    for number, node in enumerate(nodes, 1):
        graph: Any = StateGraph(State)
        graph.add_node("own", one_use(node))
        graph.add_edge(START, "own")
        app = graph.compile(checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": f"t{number}"}}
        await app.ainvoke({}, config)
        (question,) = await asked(app, config)
        out = await app.ainvoke(shop.answer(question), config)
        assert out["said"] == [f"paid {number}"]
    assert seen == ["t2", "t2", True, True]
    assert bench.ran("pay") == 5


def test_a_sync_graph_with_a_sync_node(bench: Bench) -> None:
    shop = bench.shop()

    def sync(state: State) -> State:
        calls = [direct("note", "n", text="x"), direct("pay", "p", text="y")]
        return {"said": run_sync(shop.executor.run_many(calls))}

    app = graph_of(one_use(sync), schema=State)
    app.invoke({}, CONFIG)
    ((question,),) = [task.interrupts for task in app.get_state(CONFIG).tasks]
    out = app.invoke(shop.answer(question), CONFIG)
    assert out["said"] == [{"noted": "x"}, "paid y"]
    assert (bench.ran("note"), bench.ran("pay")) == (1, 1)


async def test_the_node_keeps_its_name_and_its_own_state_type(bench: Bench) -> None:
    async def sell(state: State) -> State:
        """Sell."""
        return {}

    wrapped = one_use(sell)
    assert (wrapped.__name__, wrapped.__doc__) == ("sell", "Sell.")
    assert wrapped.__annotations__ == sell.__annotations__


@pytest.mark.parametrize("given", [RunnableLambda(lambda state: state), "text"])
async def test_what_is_no_function_is_refused(given: Any) -> None:
    with pytest.raises(ToolUsageError, match="one_use wraps a function"):
        one_use(given)


# ------------------------------------------------------------------- outside one_use


async def test_langgraph_approval_outside_one_use_is_a_usage_error_before_it_asks(
    bench: Bench,
) -> None:
    shop = bench.shop()

    async def bare(state: State) -> State:
        await shop.executor.run(direct("pay", "p", text="x"), bind_context())
        return {}

    app = graph_of(bare, schema=State)
    with pytest.raises(ToolUsageError, match="one_use"):
        await app.ainvoke({}, CONFIG)
    assert await shop.store.requested() == ()
    assert bench.ran("pay") == 0


async def test_a_call_that_asks_nobody_works_outside_one_use(bench: Bench) -> None:
    shop = bench.shop()

    async def bare(state: State) -> State:
        ctx = bind_context()
        return {"said": [await shop.executor.run(direct("note", "n", text="x"), ctx)]}

    out = await graph_of(bare, schema=State).ainvoke({}, CONFIG)
    assert out["said"] == [{"noted": "x"}]


async def test_a_call_without_a_place_is_a_usage_error(bench: Bench) -> None:
    shop = bench.shop()

    async def bare(state: State) -> State:
        await shop.executor.run(direct("note", "n", text="x"))
        return {}

    with pytest.raises(ToolUsageError, match="bind_context"):
        await graph_of(bare, schema=State).ainvoke({}, CONFIG)
    with pytest.raises(ToolUsageError, match="bind_context"):
        await shop.executor.run(direct("note", "n", text="x"))
    with pytest.raises(ToolUsageError, match="inside a running LangGraph task"):
        bind_context()
    assert bench.ran("note") == 0


async def test_a_gated_call_from_inside_a_tool_is_refused_and_does_not_hang(bench: Bench) -> None:
    shop = bench.shop()

    async def greedy(text: str) -> str:
        return str(await shop.executor.run(direct("pay", "p", text=text), bind_context()))

    house = bench.shop(tools=[tool_of(greedy, "greedy")], specs=[free("greedy")])

    async def sell(state: State) -> State:
        await house.executor.run(direct("greedy", "g", text="x"))
        return {}

    with pytest.raises(Exception, match="ToolUsageError"):
        await graph_of(one_use(sell), schema=State).ainvoke({}, CONFIG)
    assert bench.ran("pay") == 0


# --------------------------------------------------------------------- resume values


async def test_bound_and_signed_the_decision_applies_and_edited_args_run(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(one_use(seller(shop)), schema=State)
    await app.ainvoke({}, CONFIG)
    edited = ApprovalDecision(kind="edit", edited_args={"text": "less"})
    out = await answered(app, shop, edited)
    assert out["said"][-1] == "paid less"
    assert [fact["text"] for fact in bench.ledger.of("pay")] == ["less"]


async def test_a_rejection_reaches_the_nodes_code(bench: Bench) -> None:
    shop = bench.shop()

    async def sell(state: State) -> State:
        try:
            return {"said": [await shop.executor.run(direct("pay", "p", text="x"))]}
        except ApprovalDenied as error:
            return {"said": [error.message]}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({}, CONFIG)
    out = await answered(app, shop, NO)
    assert "refused" in out["said"][0]
    assert bench.ran("pay") == 0


async def test_a_response_is_the_result(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(one_use(seller(shop)), schema=State)
    await app.ainvoke({}, CONFIG)
    out = await answered(app, shop, ApprovalDecision(kind="respond", response="paid by hand"))
    assert out["said"][-1] == "paid by hand"
    assert bench.ran("pay") == 0


def bare(value: Any) -> Any:
    return {"approved": True}


def unsigned(value: Any) -> Any:
    return {key: part for key, part in value.items() if key != "mac"}


def forged(value: Any) -> Any:
    return {**value, "mac": "0" * len(value["mac"])}


def elsewhere(value: Any) -> Any:
    return {**value, "binding": "0" * 64}


@pytest.mark.parametrize("spoil", [bare, unsigned, forged, elsewhere])
async def test_a_value_that_is_not_bound_and_signed_is_an_invalid_resume(
    bench: Bench, spoil: Callable[[Any], Any]
) -> None:
    shop = bench.shop()
    app = graph_of(one_use(seller(shop)), schema=State)
    await app.ainvoke({}, CONFIG)
    (question,) = await asked(app)
    with pytest.raises(ValidationError) as caught:
        await app.ainvoke(Command(resume={question.id: spoil(shop.sign(question))}), CONFIG)
    assert is_invalid_resume(caught.value)
    assert bench.ran("pay") == 0
    out = await app.ainvoke(shop.answer(question), CONFIG)
    assert out["said"] == SAID


async def test_the_same_answer_again_by_two_resumes_at_once_runs_the_tool_once(
    bench: Bench,
) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(text: str) -> str:
        bench.ledger.add(tool="slow")
        entered.set()
        await release.wait()
        return text

    shop = bench.shop(tools=[tool_of(slow, "slow")], specs=[gated("slow")])

    async def sell(state: State) -> State:
        return {"said": [await shop.executor.run(direct("slow", "s", text="x"))]}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({}, CONFIG)
    (question,) = await asked(app)
    first = asyncio.create_task(app.ainvoke(shop.answer(question), CONFIG))
    await entered.wait()
    with pytest.raises(Exception, match="running this call right now"):
        await app.ainvoke(shop.answer(question), CONFIG)
    release.set()
    assert (await first)["said"] == ["x"]
    assert bench.ran("slow") == 1


async def test_the_same_answer_again_by_a_replay_of_the_paused_checkpoint(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(one_use(seller(shop)), schema=State)
    await app.ainvoke({}, CONFIG)
    (question,) = await asked(app)
    paused = (await app.aget_state(CONFIG)).config
    await app.ainvoke(shop.answer(question), CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(shop.answer(question), paused)
    assert bench.ran("pay") == 1


async def test_the_same_answer_again_in_another_process(bench: Bench) -> None:
    saver = InMemorySaver()
    first = bench.shop(store=bench.store("shared"))
    app = graph_of(one_use(seller(first)), saver, State)
    await app.ainvoke({}, CONFIG)
    (question,) = await asked(app)
    paused = (await app.aget_state(CONFIG)).config
    await app.ainvoke(first.answer(question), CONFIG)
    second = bench.shop(store=bench.store("shared"))
    other = graph_of(one_use(seller(second)), saver, State)
    with pytest.raises(ApprovalAlreadyDecided):
        await other.ainvoke(second.answer(question), paused)
    assert bench.ran("pay") == 1


async def test_a_fork_asks_again_and_takes_no_used_answer(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(one_use(seller(shop)), schema=State)
    await app.ainvoke({"messages": []}, CONFIG)
    (question,) = await asked(app)
    await app.ainvoke(shop.answer(question), CONFIG)
    first = [state async for state in app.aget_state_history(CONFIG)][-1]
    fork = await app.aupdate_state(first.config, {"messages": []}, as_node=START)
    await app.ainvoke(None, fork)
    (new,) = await asked(app)
    assert new.id != question.id
    with pytest.raises(ValidationError):
        await app.ainvoke(Command(resume={new.id: shop.sign(question)}), CONFIG)
    assert bench.ran("pay") == 1


# ------------------------------------------------------------------- the re-run table


async def test_re_run_in_the_same_process_replays_and_claims_answers_first(bench: Bench) -> None:
    shop = bench.shop()

    async def sell(state: State) -> State:
        first = await shop.executor.run(direct("pay", "p1", text="1"))
        second = await shop.executor.run(direct("refund", "p2", text="2"))
        return {"said": [first, second]}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({}, CONFIG)
    await answered(app, shop)
    out = await answered(app, shop)
    assert out["said"] == ["paid 1", "refunded 2"]
    assert (bench.ran("pay"), bench.ran("refund")) == (1, 1)


async def test_re_run_fails_and_the_hosts_retry_is_refused(bench: Bench) -> None:
    shop = bench.shop()
    node = one_use(seller(shop, after=FailsOnce()))
    app = graph_of(
        node,
        schema=State,
        retry_policy=RetryPolicy(initial_interval=0.001, retry_on=RuntimeError),
    )
    await app.ainvoke({}, CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await answered(app, shop)
    assert bench.ran("pay") == 1


async def test_re_run_fails_and_continuing_without_input_gives_the_recorded_result(
    bench: Bench,
) -> None:
    shop = bench.shop()
    app = graph_of(one_use(seller(shop, after=FailsOnce())), schema=State)
    await app.ainvoke({}, CONFIG)
    (question,) = await asked(app)
    with pytest.raises(RuntimeError, match="stumbled"):
        await app.ainvoke(shop.answer(question), CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(shop.answer(question), CONFIG)
    out = await app.ainvoke(None, CONFIG)
    assert out["said"] == SAID
    assert bench.ran("pay") == 1


async def test_a_finished_result_the_journal_cannot_hold_is_a_usage_error_and_spent(
    bench: Bench,
) -> None:
    def odd(text: str) -> object:
        bench.ledger.add(tool="odd")
        return object()

    shop = bench.shop(tools=[tool_of(odd, "odd")], specs=[gated("odd")])

    async def sell(state: State) -> State:
        await shop.executor.run(direct("odd", "o", text="x"))
        return {}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({}, CONFIG)
    (question,) = await asked(app)
    with pytest.raises(ToolUsageError, match="journal"):
        await app.ainvoke(shop.answer(question), CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(shop.answer(question), CONFIG)
    with pytest.raises(Exception, match="not run again"):
        await app.ainvoke(None, CONFIG)
    assert bench.ran("odd") == 1


class Where(BaseModel):
    path: Path


def filing(bench: Bench, effects: Effects) -> Shop:
    def file(path: Path) -> str:
        bench.ledger.add(tool="file", path=str(path))
        return "filed"

    return bench.shop(tools=[tool_of(file, "file", Where)], specs=[free("file", effects)])


@pytest.mark.parametrize("effects", [Effects(), Effects(read_only=True)])
async def test_arguments_that_cannot_be_journaled_then_a_pause_is_a_usage_error(
    bench: Bench, effects: Effects
) -> None:
    shop = filing(bench, effects)

    async def sell(state: State) -> State:
        await shop.executor.run(direct("file", "f", path=Path("x")))
        return {"said": [await shop.executor.run(direct("pay", "p", text="y"))]}

    app = graph_of(one_use(sell), schema=State)
    with pytest.raises(ToolUsageError, match="cannot pause"):
        await app.ainvoke({}, CONFIG)
    assert await asked(app) == []
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(None, CONFIG)
    assert bench.ran("pay") == 0
    if not effects.read_only:
        assert bench.ran("file") == 1


async def test_arguments_that_cannot_be_journaled_then_a_raw_pause(bench: Bench) -> None:
    shop = filing(bench, Effects())

    async def sell(state: State) -> State:
        await shop.executor.run(direct("file", "f", path=Path("x")))
        return {"said": [interrupt("well?")]}

    app = graph_of(one_use(sell), schema=State)
    with pytest.raises(ToolUsageError, match="cannot pause"):
        await app.ainvoke({}, CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(None, CONFIG)
    assert bench.ran("file") == 1


async def test_arguments_that_cannot_be_journaled_work_without_a_pause(bench: Bench) -> None:
    shop = filing(bench, Effects())

    async def sell(state: State) -> State:
        return {"said": [await shop.executor.run(direct("file", "f", path=Path("x")))]}

    out = await graph_of(one_use(sell), schema=State).ainvoke({}, CONFIG)
    assert out["said"] == ["filed"]
    assert bench.ledger.of("file") == [{"tool": "file", "path": "x"}]


async def test_arguments_that_are_json_are_journaled_also_where_the_tool_wants_a_path(
    bench: Bench,
) -> None:
    shop = filing(bench, Effects())

    async def sell(state: State) -> State:
        await shop.executor.run(direct("file", "f", path="x"))
        return {"said": [await shop.executor.run(direct("pay", "p", text="y"))]}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({}, CONFIG)
    out = await answered(app, shop)
    assert out["said"] == ["paid y"]
    assert bench.ran("file") == 1


async def test_arguments_that_cannot_be_journaled_cannot_be_approved(bench: Bench) -> None:
    def file(path: Path) -> str:
        return "filed"

    shop = bench.shop(tools=[tool_of(file, "file", Where)], specs=[gated("file")])

    async def sell(state: State) -> State:
        await shop.executor.run(direct("file", "f", path=Path("x")))
        return {}

    with pytest.raises(ToolUsageError, match="nobody could sign"):
        await graph_of(one_use(sell), schema=State).ainvoke({}, CONFIG)


async def test_arguments_that_cannot_be_journaled_are_validated(bench: Bench) -> None:
    shop = filing(bench, Effects())

    async def sell(state: State) -> State:
        await shop.executor.run(direct("file", "f", path=Path("x"), ghost=1))
        return {}

    with pytest.raises(ToolArgsInvalid, match="ghost"):
        await graph_of(one_use(sell), schema=State).ainvoke({}, CONFIG)
    assert bench.ran("file") == 0


async def test_a_raw_interrupt_beside_it_hands_no_approval_to_another_call(bench: Bench) -> None:
    shop = bench.shop()
    runs = 0

    async def sell(state: State) -> State:
        nonlocal runs
        runs += 1
        said: list[Any] = []
        if runs > 1:  # asks raw where it did not before: every later position is another
            said.append(interrupt("raw"))
        said.append(await shop.executor.run(direct("pay", "p1", text="1")))
        said.append(await shop.executor.run(direct("refund", "p2", text="2")))
        return {"said": said}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({}, CONFIG)
    (question,) = await asked(app)
    await app.ainvoke(shop.answer(question), CONFIG)
    assert bench.ran("refund") == 0
    assert bench.ran("pay") == 0
    texts = [fact["text"] for fact in bench.ledger.all]
    assert texts == []


async def test_a_raw_interrupt_that_is_always_asked_keeps_its_place(bench: Bench) -> None:
    shop = bench.shop()

    async def sell(state: State) -> State:
        name = interrupt("who?")
        return {"said": [name, await shop.executor.run(direct("pay", "p", text=name))]}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({}, CONFIG)
    (raw,) = await asked(app)
    await app.ainvoke(Command(resume={raw.id: "bob"}), CONFIG)
    out = await answered(app, shop)
    assert out["said"] == ["bob", "paid bob"]


async def test_a_new_process_replays_finished_calls_too(bench: Bench) -> None:
    saver = InMemorySaver()
    first = bench.shop(store=bench.store("shared"))
    app = graph_of(one_use(seller(first)), saver, State)
    await app.ainvoke({}, CONFIG)
    (question,) = await asked(app)

    second = bench.shop(store=bench.store("shared"))
    other = graph_of(one_use(seller(second)), saver, State)
    out = await other.ainvoke(second.answer(question), CONFIG)
    assert out["said"] == SAID
    assert (bench.ran("rate"), bench.ran("note"), bench.ran("pay")) == (1, 1, 1)


# ------------------------------------------------ answers that LangGraph lost, and their ids


@dataclass
class Lost:
    """A thread whose first call ran, and whose answer LangGraph has no more."""

    shop: Shop
    app: Any
    sync: bool
    first: Interrupt

    async def run(self, given: Any) -> Any:
        if self.sync:
            return await asyncio.to_thread(self.app.invoke, given, CONFIG)
        return await self.app.ainvoke(given, CONFIG)

    async def shown(self) -> Interrupt:
        (question,) = await asked(self.app)
        return question


def two_payments(shop: Shop, way: str, between: Callable[[], None]) -> tuple[Any, Any]:
    """A node that pays twice, and its input."""
    if way == "tool_node":
        calls = [of("pay", "p1", text="a"), of("pay", "p2", text="b")]
        return tool_node(shop.registry, executor=shop.executor), asking(*calls, id="m1")
    first, second = direct("pay", "p1", text="a"), direct("pay", "p2", text="b")

    async def sell(state: State) -> State:
        await shop.executor.run(first)
        between()
        return {"said": [await shop.executor.run(second)]}

    def sell_sync(state: State) -> State:
        run_sync(shop.executor.run(first))
        between()
        return {"said": [run_sync(shop.executor.run(second))]}

    return one_use(sell_sync if way == "sync" else sell), {"messages": []}


async def lost(bench: Bench, way: str, cause: str, *, mode: Any = "raise") -> Lost:
    """Pay once and lose the answer, in a retry within the run or with a write of a crash."""
    shop = bench.shop(store=bench.store("lasting"), port=LangGraphApproval(KEYS, on_invalid=mode))
    retried = cause == "retry"
    node, given = two_payments(shop, way, FailsOnce() if retried else nothing)
    how: Any = {}
    if retried:
        how["retry_policy"] = RetryPolicy(initial_interval=0.001, retry_on=RuntimeError)
    saver = InMemorySaver()
    app = graph_of(node, saver, State, **how)
    sync = way == "sync"
    await (asyncio.to_thread(app.invoke, given, CONFIG) if sync else app.ainvoke(given, CONFIG))
    (question,) = await asked(app)
    one = Lost(shop, app, sync, question)
    before = deepcopy(dict(saver.writes))
    with pytest.raises(ApprovalAlreadyDecided) if retried else nullcontext():
        await one.run(shop.answer(question))
    if not retried:
        saver.writes.clear()
        saver.writes.update(before)
    assert bench.ran("pay") == 1
    return one


LOST = pytest.mark.parametrize(
    ("way", "cause"),
    [
        ("async", "retry"),
        ("sync", "retry"),
        ("async", "crash"),
        ("sync", "crash"),
        ("tool_node", "crash"),
    ],
)


def paid(bench: Bench) -> list[str]:
    return [fact["text"] for fact in bench.ledger.of("pay")]


@LOST
async def test_a_question_with_the_id_of_a_lost_answer_is_answered_by_it(
    bench: Bench, way: str, cause: str
) -> None:
    one = await lost(bench, way, cause)
    await one.run(None)
    second = await one.shown()
    assert second.value["request"]["call_id"] == "p2"
    assert second.id == one.first.id
    out = await one.run(one.shop.answer(second))
    assert paid(bench) == ["a", "b"]
    assert await asked(one.app) == []
    assert out.get("said", ["paid b"]) == ["paid b"]


@LOST
async def test_its_no_reaches_the_second_call_only(bench: Bench, way: str, cause: str) -> None:
    one = await lost(bench, way, cause)
    await one.run(None)
    with nullcontext() if way == "tool_node" else pytest.raises(ApprovalDenied):
        await one.run(one.shop.answer(await one.shown(), NO))
    assert paid(bench) == ["a"]


@LOST
async def test_the_first_calls_answer_under_the_shared_id_is_refused(
    bench: Bench, way: str, cause: str
) -> None:
    one = await lost(bench, way, cause)
    await one.run(None)
    second = await one.shown()
    edited = ApprovalDecision(kind="edit", edited_args={"text": "c"})
    for decision in (ApprovalDecision(approved=True), NO, edited):
        with pytest.raises(ApprovalAlreadyDecided):
            await one.run(Command(resume={second.id: one.shop.sign(one.first, decision)}))
    assert paid(bench) == ["a"]
    still = await one.shown()
    assert "used" not in still.value
    await one.run(one.shop.answer(still))
    assert paid(bench) == ["a", "b"]


@LOST
@pytest.mark.parametrize("mode", ["raise", "ask"])
async def test_a_bad_answer_under_the_shared_id_is_one_to_the_question_that_is_shown(
    bench: Bench, way: str, cause: str, mode: str
) -> None:
    one = await lost(bench, way, cause, mode=mode)
    await one.run(None)
    second = await one.shown()
    for spoil in (bare, unsigned, forged, elsewhere):
        with pytest.raises(ValidationError) if mode == "raise" else nullcontext():
            await one.run(Command(resume={second.id: spoil(one.shop.sign(second))}))
    assert paid(bench) == ["a"]
    still = await one.shown()
    assert ("refused" in still.value) is (mode == "ask")
    await one.run(one.shop.answer(still))
    assert paid(bench) == ["a", "b"]


@pytest.mark.parametrize("way", ["async", "sync"])
async def test_a_question_whose_answer_a_retry_used_says_so(bench: Bench, way: str) -> None:
    one = await lost(bench, way, "retry")
    listed = await one.shown()
    assert listed.id == one.first.id
    assert listed.value["used"]["code"] == "already_decided"


@pytest.mark.parametrize("way", ["async", "sync"])
async def test_a_retry_in_a_run_with_an_id_goes_on_to_the_next_question(
    bench: Bench, way: str
) -> None:
    shop = bench.shop()
    node, given = two_payments(shop, way, FailsOnce())
    policy = RetryPolicy(initial_interval=0.001, retry_on=RuntimeError)
    app = graph_of(node, schema=State, retry_policy=policy)
    await app.ainvoke(given, CONFIG)
    (first,) = await asked(app)
    await app.ainvoke(shop.answer(first), {**CONFIG, "run_id": uuid4()})
    (second,) = await asked(app)
    assert second.value["request"]["call_id"] == "p2"
    assert "refused" not in second.value
    assert second.id != first.id
    assert paid(bench) == ["a"]
    await app.ainvoke(shop.answer(second), CONFIG)
    assert paid(bench) == ["a", "b"]


def asking_shop(bench: Bench) -> Shop:
    """The shop with a gated tool that asks a question of its own."""

    def confirm(text: str) -> str:
        bench.ledger.add(tool="confirm", text=text, said=interrupt("sure?"))
        return text

    return bench.shop(tools=[tool_of(confirm, "confirm")], specs=[gated("confirm")])


async def test_the_answer_of_a_call_whose_tool_asks_stays_its_own_behind_a_lost_one(
    bench: Bench,
) -> None:
    shop, stumble = asking_shop(bench), FailsOnce()

    async def sell(state: State) -> State:
        await shop.executor.run(direct("pay", "p1", text="a"))
        stumble()
        return {"said": [await shop.executor.run(direct("confirm", "c", text="b"))]}

    policy = RetryPolicy(initial_interval=0.001, retry_on=RuntimeError)
    app = graph_of(one_use(sell), schema=State, retry_policy=policy)
    await app.ainvoke({"messages": []}, CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await answered(app, shop)
    await app.ainvoke(None, CONFIG)
    await answered(app, shop)
    (own,) = await asked(app)
    assert own.value == "sure?"
    await app.ainvoke(None, CONFIG)
    out = await app.ainvoke(Command(resume={own.id: "yes"}), CONFIG)
    assert out["said"] == ["b"]
    assert [fact["said"] for fact in bench.ledger.of("confirm")] == ["yes"]
    assert paid(bench) == ["a"]


@pytest.mark.parametrize("way", ["async", "sync", "tool_node"])
async def test_a_call_whose_tool_asks_is_not_asked_about_again_after_a_lost_answer(
    bench: Bench, way: str
) -> None:
    shop, saver = asking_shop(bench), InMemorySaver()

    async def sell(state: State) -> State:
        return {"said": [await shop.executor.run(direct("confirm", "c", text="a"))]}

    def sell_sync(state: State) -> State:
        return {"said": [run_sync(shop.executor.run(direct("confirm", "c", text="a")))]}

    node: Any = one_use(sell_sync if way == "sync" else sell)
    given: Any = {"messages": []}
    if way == "tool_node":
        node = tool_node(shop.registry, executor=shop.executor)
        given = asking(of("confirm", "c", text="a"), id="m1")
    app = graph_of(node, saver, State)
    await app.ainvoke(given, CONFIG)
    (question,) = await asked(app)
    before = deepcopy(dict(saver.writes))
    await app.ainvoke(shop.answer(question), CONFIG)
    saver.writes.clear()
    saver.writes.update(before)
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(shop.answer(question), CONFIG)
    await app.ainvoke(None, CONFIG)
    (own,) = await asked(app)
    assert own.value == "sure?"
    approval: Any = Command(resume={own.id: shop.sign(question)})
    if way == "tool_node":
        with pytest.raises(ApprovalAlreadyDecided):
            await app.ainvoke(approval, CONFIG)
    else:
        await app.ainvoke(approval, CONFIG)  # no tool gets to see one: it asks again
        assert [one.id for one in await asked(app)] == [own.id]
    assert bench.ran("confirm") == 0
    await app.ainvoke(Command(resume={own.id: "yes"}), CONFIG)
    assert [fact["said"] for fact in bench.ledger.of("confirm")] == ["yes"]
    assert await asked(app) == []


@pytest.mark.parametrize("way", ["async", "sync", "tool_node"])
async def test_a_late_answer_is_none_to_the_next_question_which_is_answered_by_its_own(
    bench: Bench, way: str
) -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    bench.stores.append(store)
    soon = gated("soon", approval=ApprovalRule(name="soon", ttl=10))
    shop = bench.shop(
        tools=[tool_of(lambda text: bench.ledger.add(tool="soon"), "soon")],
        specs=[soon],
        store=store,
        port=LangGraphApproval(KEYS, clock=clock),
        clock=clock,
    )

    async def sell(state: State) -> State:
        with suppress(ApprovalExpired):
            await shop.executor.run(direct("soon", "s", text="a"))
        return {"said": [await shop.executor.run(direct("pay", "p", text="b"))]}

    def sell_sync(state: State) -> State:
        with suppress(ApprovalExpired):
            run_sync(shop.executor.run(direct("soon", "s", text="a")))
        return {"said": [run_sync(shop.executor.run(direct("pay", "p", text="b")))]}

    node: Any = one_use(sell_sync if way == "sync" else sell)
    given: Any = {"messages": []}
    if way == "tool_node":
        node = tool_node(shop.registry, executor=shop.executor)
        given = asking(of("soon", "s", text="a"), of("pay", "p", text="b"), id="m1")
    app = graph_of(node, schema=State)
    await app.ainvoke(given, CONFIG)
    (first,) = await asked(app)
    late = shop.answer(first)
    clock.advance(11)
    await app.ainvoke(late, CONFIG)
    (second,) = await asked(app)
    assert second.value["request"]["call_id"] == "p"
    assert (bench.ran("soon"), bench.ran("pay")) == (0, 0)
    await app.ainvoke(late, CONFIG)
    await answered(app, shop)
    assert (bench.ran("soon"), bench.ran("pay")) == (0, 1)
    assert await asked(app) == []


async def test_an_answer_kept_for_a_second_call_is_not_taken_for_a_lost_first(
    bench: Bench,
) -> None:
    """A hook fails before the second claim: its answer is kept, in the first one's place."""
    stumble, armed = FailsOnce(), False

    async def hook(call: ToolCall, ctx: Any) -> None:
        if armed:
            stumble()

    shop = bench.shop(before_tool=[hook])
    node, given = two_payments(shop, "async", between := FailsOnce())
    policy = RetryPolicy(initial_interval=0.001, retry_on=KeyError)
    between.error = KeyError
    app = graph_of(node, schema=State, retry_policy=policy)
    await app.ainvoke(given, CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await answered(app, shop)
    await app.ainvoke(None, CONFIG)
    armed = True
    with pytest.raises(RuntimeError, match="stumbled"):
        await answered(app, shop)
    assert paid(bench) == ["a"]
    await app.ainvoke(None, CONFIG)
    assert paid(bench) == ["a", "b"]


async def test_a_raw_question_with_the_id_of_a_lost_answer_gets_its_own(bench: Bench) -> None:
    shop, stumble = bench.shop(), FailsOnce()

    async def sell(state: State) -> State:
        await shop.executor.run(direct("pay", "p1", text="a"))
        stumble()
        return {"said": [interrupt("who?")]}

    policy = RetryPolicy(initial_interval=0.001, retry_on=RuntimeError)
    app = graph_of(one_use(sell), schema=State, retry_policy=policy)
    await app.ainvoke({"messages": []}, CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await answered(app, shop)
    await app.ainvoke(None, CONFIG)
    (raw,) = await asked(app)
    assert raw.value == "who?"
    out = await app.ainvoke(Command(resume={raw.id: "bob"}), CONFIG)
    assert out["said"] == ["bob"]
    assert paid(bench) == ["a"]


async def test_three_calls_in_one_task_after_a_lost_answer(bench: Bench) -> None:
    shop, stumble = bench.shop(), FailsOnce()

    async def sell(state: State) -> State:
        for text in ("a", "b", "c"):
            await shop.executor.run(direct("pay", text, text=text))
            stumble()
        return {}

    policy = RetryPolicy(initial_interval=0.001, retry_on=RuntimeError)
    app = graph_of(one_use(sell), schema=State, retry_policy=policy)
    await app.ainvoke({"messages": []}, CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await answered(app, shop)
    await app.ainvoke(None, CONFIG)
    for so_far in (["a", "b"], ["a", "b", "c"]):
        await answered(app, shop)
        assert paid(bench) == so_far
    assert await asked(app) == []


# ------------------------------------------- failures before and after the answer is used


async def test_a_failing_before_tool_hook_keeps_the_answer(bench: Bench) -> None:
    stumble = FailsOnce()
    armed = False

    async def hook(call: ToolCall, ctx: Any) -> None:
        if armed and call.name == "pay":
            stumble()

    shop = bench.shop(before_tool=[hook])
    app = graph_of(one_use(seller(shop)), schema=State)
    await app.ainvoke({}, CONFIG)
    armed = True
    with pytest.raises(RuntimeError, match="stumbled"):
        await answered(app, shop)
    assert bench.ran("pay") == 0
    out = await app.ainvoke(None, CONFIG)
    assert out["said"] == SAID
    assert bench.ran("pay") == 1


async def test_an_outage_of_the_store_before_the_claim_keeps_the_answer(bench: Bench) -> None:
    from adapter import StoreUnavailable

    shop = bench.shop()
    store: Any = shop.store
    real, down = store.claim, True

    async def claim(wanted: Any) -> Any:
        if down and wanted.answer is not None:
            raise StoreUnavailable("the store is down")
        return await real(wanted)

    store.claim = claim
    app = graph_of(one_use(seller(shop)), schema=State)
    await app.ainvoke({}, CONFIG)
    with pytest.raises(StoreUnavailable):
        await answered(app, shop)
    down = False
    out = await app.ainvoke(None, CONFIG)
    assert out["said"] == SAID
    assert bench.ran("pay") == 1


async def test_a_failure_after_the_answer_was_used_spends_it(bench: Bench) -> None:
    def pay_badly(text: str) -> str:
        bench.ledger.add(tool="pay_badly")
        raise ValueError(text)

    shop = bench.shop(tools=[tool_of(pay_badly, "pay_badly")], specs=[gated("pay_badly")])

    async def sell(state: State) -> State:
        return {"said": [await shop.executor.run(direct("pay_badly", "p", text="x"))]}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({"messages": []}, CONFIG)
    (question,) = await asked(app)
    with pytest.raises(Exception, match="pay_badly failed"):
        await app.ainvoke(shop.answer(question), CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(shop.answer(question), CONFIG)
    assert bench.ran("pay_badly") == 1
    await app.aupdate_state(CONFIG, {"said": ["paid by hand"]}, as_node="sell")
    assert (await app.ainvoke(None, CONFIG))["said"] == ["paid by hand"]


async def test_a_run_cancelled_while_the_tool_runs_is_not_repeated(bench: Bench) -> None:
    entered = asyncio.Event()

    async def slow(text: str) -> str:
        bench.ledger.add(tool="slow")
        entered.set()
        await asyncio.Event().wait()
        return text

    shop = bench.shop(tools=[tool_of(slow, "slow")], specs=[gated("slow")], cancel_grace=0.05)

    async def sell(state: State) -> State:
        return {"said": [await shop.executor.run(direct("slow", "s", text="x"))]}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({}, CONFIG)
    (question,) = await asked(app)
    run = asyncio.create_task(app.ainvoke(shop.answer(question), CONFIG))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(shop.answer(question), CONFIG)
    assert bench.ran("slow") == 1


# -------------------------------------------------------------------- the executor's doors


async def test_run_many_asks_one_at_a_time_after_the_others(bench: Bench) -> None:
    shop = bench.shop()
    calls = [
        direct("pay", "p1", text="1"),
        direct("note", "n", text="x"),
        direct("pay", "p2", text="2"),
    ]

    async def sell(state: State) -> State:
        return {"said": await shop.executor.run_many(calls, concurrency=1)}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({}, CONFIG)
    assert bench.ran("note") == 1
    await answered(app, shop)
    out = await answered(app, shop)
    assert out["said"] == ["paid 1", {"noted": "x"}, "paid 2"]
    assert (bench.ran("note"), bench.ran("pay")) == (1, 2)


async def test_tools_that_take_what_the_host_fills_in(bench: Bench) -> None:
    @tool
    def with_runtime(text: str, runtime: ToolRuntime) -> str:
        """Use the runtime."""
        return f"{text} {runtime.tool_call_id} {len(runtime.state['messages'])}"

    @tool
    def with_state(text: str, state: Annotated[dict[str, Any], InjectedState]) -> dict[str, int]:
        """Use the state."""
        return {"messages": len(state["messages"])}

    @tool
    def with_id(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Return a command."""
        return Command(update={"said": [tool_call_id]})

    tools = [with_runtime, with_state, with_id]
    shop = bench.shop(tools=tools, specs=[free(one.name) for one in tools])
    seen: list[Any] = []

    async def sell(state: State) -> State:
        calls = [direct(one.name, one.name, text="x") for one in tools]
        seen.extend(await shop.executor.run_many(calls))
        return {"said": [await shop.executor.run(direct("pay", "p", text="y"))]}

    app = graph_of(one_use(sell), schema=State)
    await app.ainvoke({"messages": ["a", "b"]}, CONFIG)
    assert seen[:2] == ["x with_runtime 2", {"messages": 2}]
    assert seen[2].update == {"said": ["with_id"]}
    await answered(app, shop)
    assert seen[3:5] == seen[:2]
    assert seen[5].update == {"said": ["with_id"]}


async def test_unknown_tools_and_missing_implementations(bench: Bench) -> None:
    from tests.support.room import Text

    from adapter import Executor, Registry
    from adapter.core.validation import PydanticSchema
    from adapter.testing import make_context

    shop = bench.shop()
    with pytest.raises(UnknownTool):
        await shop.executor.run(direct("nobody", "n"), make_context())
    registry = Registry([free("note")], {"note": PydanticSchema(Text)})
    executor = Executor(registry, store=bench.store())
    with pytest.raises(ConfigurationError, match="registry_of"):
        await executor.run(direct("note", "n", text="x"), make_context())


async def test_results_of_direct_calls_are_masked_and_cached_like_all_others(bench: Bench) -> None:
    from tests.support.room import Text

    from adapter import Policy

    @tool(args_schema=Text)
    def read(text: str) -> dict[str, str]:
        """Read."""
        bench.ledger.add(tool="read")
        return {"text": text, "pin": "1234"}

    @tool(args_schema=Text)
    def command(text: str) -> Command[Any]:
        """Return a command."""
        return Command(update={"said": [text]})

    specs = [
        free("read", Effects(read_only=True), cache_ttl=60.0),
        free("command", Effects(read_only=True), cache_ttl=60.0),
    ]
    policy = Policy(results={"read": ["pin"], "command": ["pin"]})
    shop = bench.shop(tools=[read, command], specs=specs, policy=policy)
    seen: list[Any] = []

    async def look(state: State) -> State:
        for number in range(2):
            call = direct("read", f"r{number}", text="x")
            seen.append(await shop.executor.run(call, bind_context()))
            call = direct("command", f"c{number}", text="x")
            made = await shop.executor.run(call, bind_context())
            assert made.update == {"said": ["x"]}
        return {}

    await graph_of(look, schema=State).ainvoke({}, CONFIG)
    assert seen == [{"text": "x", "pin": "***"}] * 2
    assert bench.ran("read") == 1
