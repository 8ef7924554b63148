"""The tables of docs/langgraph.md: rows that hold for every way of running a governed call.

Each test is named after its table and row. Rows of one way alone are in the files beside this one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt, ParentCommand, is_invalid_resume
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.types import Command, Interrupt, interrupt
from pydantic import ValidationError
from tests.support.graphs import ASK, Own
from tests.support.graphs import CONFIG as OWN_CONFIG
from tests.support.room import (
    KEYS,
    SECRET,
    Rooms,
    error_of,
    free,
    gated,
    open_questions,
    paired,
    tool_of,
)
from tests.support.script import Script, ai, call
from tests.support.toolkit import (
    CONFIG,
    NO,
    YES,
    Bench,
    FailsOnce,
    Shop,
    answered,
    asked,
    asking,
    direct,
    graph_of,
    of,
    results,
)
from typing_extensions import TypedDict

from adapter import (
    ApprovalAlreadyDecided,
    ApprovalDecision,
    ApprovalDenied,
    ApprovalPending,
    CallInDoubt,
    DeferredApproval,
    Effects,
    Merge,
    Policy,
    ToolError,
    current_context,
)
from adapter.core.errors import InvalidAnswer
from adapter.core.signing import check_seal
from adapter.langgraph import (
    Compression,
    LangGraphApproval,
    adapter_awrap_tool_call,
    fan_out,
    langgraph_compressor,
    one_use,
    reducer,
    tool_node,
    tool_task,
)
from adapter.testing import make_call, make_context

pytestmark = pytest.mark.anyio


class State(TypedDict, total=False):
    messages: list[Any]
    items: list[Any]
    said: Annotated[list[Any], reducer(Merge.append)]


@dataclass(frozen=True)
class Way:
    """One way of paying: what to build, what to give it, and what it said in the end."""

    build: Callable[[Shop], Any]
    given: Callable[[str], Any]
    said: Callable[[Any], list[Any]]


def by_node(shop: Shop) -> Any:
    return tool_node(shop.registry, executor=shop.executor)


def by_task(shop: Shop) -> Any:
    spec = shop.registry.get("pay")
    assert spec is not None
    return tool_task(spec, executor=shop.executor, into="said")


def by_own(shop: Shop) -> Any:
    async def own(state: Any) -> Any:
        text = state["items"][0]["text"]
        return {"said": [await shop.executor.run(direct("pay", "c1", text=text))]}

    return one_use(own)


def paying(build: Callable[[Shop], Any], shop: Shop, saver: Any = None) -> Any:
    """A graph whose work is one call of the gated tool."""
    if build is by_node:
        return graph_of(build(shop), saver)
    graph: Any = StateGraph(State)
    graph.add_node("pay", build(shop))
    if build is by_task:
        graph.add_conditional_edges(START, fan_out("pay", "items"), ["pay"])
    else:
        graph.add_edge(START, "pay")
    return graph.compile(checkpointer=saver or InMemorySaver())


def items(text: str) -> Any:
    return {"items": [{"text": text}]}


WAYS = {
    "tool_node": Way(
        by_node,
        lambda text: asking(of("pay", "c1", text=text)),
        lambda out: [message.content for message in results(out)],
    ),
    "tool_task": Way(by_task, items, lambda out: out["said"]),
    "one_use": Way(by_own, items, lambda out: out["said"]),
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))


async def paused(way: Way, shop: Shop, saver: Any = None, text: str = "x") -> tuple[Any, Interrupt]:
    app = paying(way.build, shop, saver)
    await app.ainvoke(way.given(text), CONFIG)
    (question,) = await asked(app)
    return app, question


# ------------------------------------------------------------------------ functions


async def test_functions_tool_node_shows_tools_as_a_model_is_given_them(bench: Bench) -> None:
    def look(text: str, runtime: ToolRuntime) -> str:
        """Look it up."""
        return text

    shop = bench.shop(tools=[StructuredTool.from_function(look)], specs=[free("look")])
    node = tool_node(shop.registry, executor=shop.executor)
    shown = convert_to_openai_tool(node.tools[-1])["function"]
    assert (shown["name"], shown["description"]) == ("look", "Look it up.")
    assert list(shown["parameters"]["properties"]) == ["text"]


async def test_functions_reducer_sees_nodes_by_name_then_sends_in_their_order(
    bench: Bench,
) -> None:
    seen: list[list[Any]] = []

    def rule(current: Any, writes: Any) -> Any:
        seen.append(list(writes))
        return [*(current or []), *writes]

    made: Any = TypedDict
    schema: Any = made("Own", {"items": list[Any], "said": Annotated[list[Any], reducer(rule)]})
    shop = bench.shop()
    spec = shop.registry.get("rate")
    assert spec is not None
    graph: Any = StateGraph(schema)
    graph.add_node("plan", lambda state: {})
    for name in ("zeta", "alpha"):
        graph.add_node(name, lambda state, name=name: {"said": name})
        graph.add_edge("plan", name)
    graph.add_node(tool_task(spec, executor=shop.executor, into="said"))
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", fan_out("rate", "items"), ["rate"])
    sent = [{"text": "aaa"}, {"text": "a"}, {"text": "aa"}]
    await graph.compile().ainvoke({"items": sent})
    assert seen == [["alpha", "zeta", 3.0, 1.0, 2.0]]


@pytest.mark.parametrize("how", ["async", "sync"])
@pytest.mark.parametrize("by", ["messages", "tokens", "summary"])
async def test_functions_langgraph_compressor_in_an_own_node_keeps_the_state_whole(
    how: str, by: str
) -> None:
    policy = {
        "messages": Compression(max_messages=4),
        "tokens": Compression(max_tokens=60),
        "summary": Compression(
            summarize_with=Script.of(*[AIMessage(f"summary {n}") for n in range(20)]),
            trigger=("messages", 6),
            keep=("messages", 2),
        ),
    }[by]
    compress = langgraph_compressor(policy)
    model = Script.of(*[ai(call("look", f"c{n}", text="x" * 20)) for n in range(6)])

    def node(state: MessagesState) -> Any:
        short = compress([SystemMessage("s"), *state["messages"]])
        return {"messages": [model.invoke(short)]}

    async def anode(state: MessagesState) -> Any:
        short = await compress.acompress([SystemMessage("s"), *state["messages"]])
        return {"messages": [await model.ainvoke(short)]}

    def looked(state: MessagesState) -> Any:
        message: Any = state["messages"][-1]
        return {"messages": [ToolMessage("y" * 20, tool_call_id=message.tool_calls[0]["id"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", anode if how == "async" else node)
    graph.add_node("tools", looked)
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__"
    )
    graph.add_edge("tools", "model")
    app = graph.compile()
    given = {"messages": [HumanMessage("go")]}
    ended = (
        await app.ainvoke(given) if how == "async" else await asyncio.to_thread(app.invoke, given)
    )
    assert len(ended["messages"]) == 14
    assert max(len(sent) for sent in model.sent) < 14
    assert len(model.sent[-1]) < 10
    for sent in model.sent:
        paired(sent)
        assert isinstance(sent[0], SystemMessage)
        assert "go" in [m.content for m in sent if isinstance(m, HumanMessage)]
    if by == "summary":
        assert "summary" in repr(model.sent[-1])


# ------------------------------------------------------------------------ tool node


async def test_tool_node_call_id_is_the_tasks_namespace_and_the_index(bench: Bench) -> None:
    seen: list[Any] = []

    def look(text: str) -> str:
        seen.append(current_context())
        return text

    shop = bench.shop(tools=[tool_of(look, "look")], specs=[free("look")])
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    await app.ainvoke(asking(of("look", "c1", text="a"), of("look", None, text="b")), CONFIG)
    second = next(ctx for ctx in seen if ctx.call_id != "c1")
    task = second.place.checkpoint_ns
    assert task.startswith("tools:")
    assert second.call_id == f"{task}:1"
    assert second.thread_id == "shop-1"


async def test_tool_node_a_model_visible_error_has_a_kind_and_a_message_and_no_more(
    bench: Bench,
) -> None:
    def fail(text: str) -> str:
        raise ToolError("sold out")

    shop = bench.shop(tools=[tool_of(fail, "fail")], specs=[free("fail")])
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    (message,) = results(await app.ainvoke(asking(of("fail", "c1", text="a")), CONFIG))
    assert (message.status, message.tool_call_id, message.name) == ("error", "c1", "fail")
    assert json.loads(str(message.content)) == {
        "error": {"kind": "ToolError", "message": "sold out"}
    }


def door_of(shop: Shop, door: str, tool: str) -> Any:
    """One call through a method of the executor."""
    made = make_call(tool, text="x")
    if door == "run":
        return shop.executor.run(made, make_context("t1"))
    return shop.executor.run_many([made], make_context("t1"))


DOORS = pytest.mark.parametrize("door", ["run", "run_many"])
KINDS = pytest.mark.parametrize("read", [False, True], ids=["effect", "read"])


@pytest.mark.parametrize(
    "raised", [GraphInterrupt(), ParentCommand(Command(goto="x"))], ids=["pause", "jump"]
)
@KINDS
@DOORS
async def test_tool_node_a_pause_or_jump_passes_through_every_method_unwrapped(
    bench: Bench, raised: BaseException, read: bool, door: str
) -> None:
    async def bubble(text: str) -> str:
        raise raised

    effects = Effects(read_only=read)
    shop = bench.shop(tools=[tool_of(bubble, "bubble")], specs=[free("bubble", effects)])
    with pytest.raises(type(raised)) as caught:
        await door_of(shop, door, "bubble")
    assert caught.value is raised


@KINDS
@DOORS
async def test_tool_node_a_cancellation_passes_through_every_method_unwrapped(
    bench: Bench, read: bool, door: str
) -> None:
    entered = asyncio.Event()

    async def hang(text: str) -> str:
        entered.set()
        await asyncio.Event().wait()
        return text

    effects = Effects(read_only=read)
    tools, specs = [tool_of(hang, "hang")], [free("hang", effects)]
    shop = bench.shop(tools=tools, specs=specs, cancel_grace=0.05)
    run = asyncio.ensure_future(door_of(shop, door, "hang"))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


# ---------------------------------------------------------- approvals and resume values


@EVERY_WAY
async def test_interrupt_value_is_json_with_a_type_a_binding_a_request_and_a_seal(
    bench: Bench, way: Way
) -> None:
    _, question = await paused(way, bench.shop())
    value = json.loads(json.dumps(question.value))
    assert set(value) == {"type", "binding", "request", "seal"}
    assert value["type"] == "agent_adapter.approval"
    assert len(bytes.fromhex(value["binding"])) == 32
    assert (value["request"]["tool"], value["request"]["kind"]) == ("pay", "tool")
    assert value["request"]["arguments"] == {"text": "x"}
    check_seal(KEYS, value)
    signed = LangGraphApproval(KEYS).resume_value(question, YES)
    assert signed["binding"] == value["binding"]
    assert len(bytes.fromhex(signed["mac"])) == 32


@EVERY_WAY
@pytest.mark.parametrize(
    ("decision", "said", "ran"),
    [
        (YES, "paid x", ["x"]),
        (ApprovalDecision(kind="edit", edited_args={"text": "less"}), "paid less", ["less"]),
        (ApprovalDecision(kind="respond", response="by hand"), "by hand", []),
    ],
    ids=["approve", "edit", "respond"],
)
async def test_resume_value_bound_and_signed_applies_once(
    bench: Bench, way: Way, decision: ApprovalDecision, said: str, ran: list[str]
) -> None:
    shop = bench.shop()
    app, question = await paused(way, shop)
    out = await app.ainvoke(shop.answer(question, decision), CONFIG)
    assert way.said(out) == [said]
    assert [fact["text"] for fact in bench.ledger.of("pay")] == ran
    assert await asked(app) == []


async def other_question(bench: Bench, shop: Shop, way: Way, what: str) -> Any:
    """A good answer to a question that differs in one thing only."""
    thread: Any = {"configurable": {"thread_id": "other" if what == "run" else "shop-1"}}
    tool = "refund" if what == "tool" else "pay"
    text = "y" if what == "arguments" else "x"
    call_id = "c9" if what == "call" else "c1"

    async def own(state: Any) -> Any:
        return {"said": [await shop.executor.run(direct(tool, call_id, text=text))]}

    graph: Any = StateGraph(State)
    graph.add_node("pay", one_use(own))
    graph.add_edge(START, "pay")
    app = graph.compile(checkpointer=InMemorySaver())
    await app.ainvoke(items("x"), thread)
    (question,) = await asked(app, thread)
    return shop.sign(question)


@EVERY_WAY
@pytest.mark.parametrize("what", ["run", "tool", "arguments", "call"])
async def test_resume_value_with_another_binding_is_an_invalid_resume(
    bench: Bench, way: Way, what: str
) -> None:
    shop = bench.shop()
    foreign = await other_question(bench, shop, way, what)
    app, question = await paused(way, shop)
    await refused(bench, app, shop, question, foreign, way)


SPOILT: dict[str, Callable[[Any], Any]] = {
    "bare": lambda value: {"approved": True},
    "true": lambda value: True,
    "no mac": lambda value: {key: part for key, part in value.items() if key != "mac"},
    "wrong mac": lambda value: {**value, "mac": "0" * len(value["mac"])},
    "altered": lambda value: {
        **value,
        "decision": {**value["decision"], "kind": "edit", "edited_args": {"text": "more"}},
    },
}


@EVERY_WAY
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=list(SPOILT))
async def test_resume_value_bare_or_not_signed_is_an_invalid_resume(
    bench: Bench, way: Way, spoil: Callable[[Any], Any]
) -> None:
    shop = bench.shop()
    app, question = await paused(way, shop)
    await refused(bench, app, shop, question, spoil(shop.sign(question)), way)


async def refused(
    bench: Bench, app: Any, shop: Shop, question: Interrupt, value: Any, way: Way
) -> None:
    """The value is refused, nothing is saved, and the question can still be answered."""
    saved = deepcopy(app.checkpointer.writes)
    with pytest.raises(ValidationError) as caught:
        await app.ainvoke(Command(resume={question.id: value}), CONFIG)
    assert is_invalid_resume(caught.value)
    assert "'mac'" not in str(caught.value)
    resumes = [one for one in flat(app.checkpointer.writes) if one not in flat(saved)]
    assert not [one for one in resumes if one[1] == "__resume__"]
    assert bench.ran("pay") == 0
    (still,) = await asked(app)
    assert still.id == question.id
    await app.ainvoke(shop.answer(question), CONFIG)
    assert bench.ran("pay") == 1


def flat(writes: Any) -> list[Any]:
    return [(key, part[1], part[2]) for key, parts in writes.items() for part in parts.values()]


@EVERY_WAY
async def test_resume_value_again_by_a_replay_of_the_paused_checkpoint_is_already_decided(
    bench: Bench, way: Way
) -> None:
    shop = bench.shop()
    app, question = await paused(way, shop)
    then = (await app.aget_state(CONFIG)).config
    await app.ainvoke(shop.answer(question), CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(shop.answer(question), then)
    assert bench.ran("pay") == 1


@EVERY_WAY
async def test_resume_value_again_in_another_process_is_already_decided(
    bench: Bench, way: Way
) -> None:
    saver = InMemorySaver()
    first = bench.shop(store=bench.store("shared"))
    app, question = await paused(way, first, saver)
    then = (await app.aget_state(CONFIG)).config
    second = bench.shop(store=bench.store("shared"))
    await app.ainvoke(first.answer(question), CONFIG)
    other = paying(way.build, second, saver)
    with pytest.raises(ApprovalAlreadyDecided):
        await other.ainvoke(second.answer(question), then)
    assert bench.ran("pay") == 1


@EVERY_WAY
async def test_resume_value_again_by_two_resumes_at_once_runs_the_tool_once(
    bench: Bench, way: Way
) -> None:
    shop = bench.shop()
    app, question = await paused(way, shop)
    ends = await asyncio.gather(
        *[app.ainvoke(shop.answer(question), CONFIG) for _ in range(4)], return_exceptions=True
    )
    assert bench.ran("pay") == 1
    assert any(isinstance(end, dict) for end in ends)


# ------------------------------------------------------------------------------- ports


@EVERY_WAY
async def test_port_without_keys_resumes_in_its_own_process_only(bench: Bench, way: Way) -> None:
    saver = InMemorySaver()
    store = bench.store("shared")
    mine = bench.shop(store=store, port=LangGraphApproval())
    app, question = await paused(way, mine, saver)
    other = bench.shop(store=bench.store("shared"), port=LangGraphApproval())
    there = paying(way.build, other, saver)
    with pytest.raises(ValidationError):
        await there.ainvoke(mine.answer(question), CONFIG)
    assert bench.ran("pay") == 0
    await app.ainvoke(mine.answer(question), CONFIG)
    assert bench.ran("pay") == 1


@EVERY_WAY
async def test_port_with_one_secret_in_every_process_resumes_in_any(bench: Bench, way: Way) -> None:
    saver = InMemorySaver()
    mine = bench.shop(store=bench.store("shared"), port=LangGraphApproval(SECRET))
    _, question = await paused(way, mine, saver)
    other = bench.shop(store=bench.store("shared"), port=LangGraphApproval(SECRET))
    there = paying(way.build, other, saver)
    desk = LangGraphApproval(SECRET)
    value = desk.resume_value({"id": question.id, "value": question.value}, YES)
    await there.ainvoke(Command(resume={question.id: value}), CONFIG)
    assert bench.ran("pay") == 1


@EVERY_WAY
async def test_port_deferred_decides_by_the_store_alone(bench: Bench, way: Way) -> None:
    store = bench.store()
    shop = bench.shop(store=store, port=DeferredApproval(store, KEYS))
    app = paying(way.build, shop)
    with pytest.raises(ApprovalPending):
        await app.ainvoke(way.given("x"), CONFIG)
    (row,) = await shop.port.pending()
    signed = LangGraphApproval(KEYS).resume_value({"value": row.decision["sealed"]}, YES)
    with pytest.raises(ApprovalPending):
        await app.ainvoke(Command(resume=signed), CONFIG)
    assert bench.ran("pay") == 0
    await shop.port.record(row, YES)
    out = await app.ainvoke(None, CONFIG)
    assert way.said(out) == ["paid x"]
    assert bench.ran("pay") == 1


async def test_port_deferred_a_run_cancelled_while_the_tool_runs_is_in_doubt(bench: Bench) -> None:
    entered = asyncio.Event()

    async def slow(text: str) -> str:
        bench.ledger.add(tool="slow")
        entered.set()
        await asyncio.Event().wait()
        return text

    store = bench.store()
    shop = bench.shop(
        tools=[tool_of(slow, "slow")],
        specs=[gated("slow")],
        store=store,
        port=DeferredApproval(store, KEYS),
        cancel_grace=0.05,
    )

    async def own(state: Any) -> Any:
        return {"said": [await shop.executor.run(direct("slow", "s", text="x"))]}

    app = graph_of(one_use(own), schema=State)
    with pytest.raises(ApprovalPending):
        await app.ainvoke(items("x"), CONFIG)
    (row,) = await shop.port.pending()
    await shop.port.record(row, YES)
    run = asyncio.create_task(app.ainvoke(None, CONFIG))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    with pytest.raises(CallInDoubt):
        await app.ainvoke(None, CONFIG)
    assert bench.ran("slow") == 1


# -------------------------------------------------------------------- in a one_use node


async def test_one_use_a_failure_of_own_code_before_the_call_keeps_the_answer(
    bench: Bench,
) -> None:
    shop = bench.shop()
    stumble = FailsOnce()
    runs = 0

    async def own(state: State) -> Any:
        nonlocal runs
        runs += 1
        noted = await shop.executor.run(direct("note", "n", text="x"))
        if runs > 1:
            stumble()
        return {"said": [noted, await shop.executor.run(direct("pay", "p", text="y"))]}

    app = graph_of(one_use(own), schema=State)
    await app.ainvoke(items("x"), CONFIG)
    (question,) = await asked(app)
    with pytest.raises(RuntimeError, match="stumbled"):
        await app.ainvoke(shop.answer(question), CONFIG)
    assert bench.ran("pay") == 0
    out = await app.ainvoke(shop.answer(question), CONFIG)
    assert out["said"] == [{"noted": "x"}, "paid y"]
    assert (bench.ran("note"), bench.ran("pay")) == (1, 1)


async def test_one_use_a_raw_interrupt_that_shifts_the_answers_is_mended_by_a_fork(
    bench: Bench,
) -> None:
    shop = bench.shop()
    raw = False

    async def own(state: State) -> Any:
        said = [interrupt("raw")] if raw else []
        said.append(await shop.executor.run(direct("pay", "p", text="1")))
        return {"said": said}

    app = graph_of(one_use(own), schema=State)
    await app.ainvoke(items("x"), CONFIG)
    (question,) = await asked(app)
    raw = True
    await app.ainvoke(shop.answer(question), CONFIG)
    assert bench.ran("pay") == 0
    raw = False
    first = [one async for one in app.aget_state_history(CONFIG)][-1]
    fork = await app.aupdate_state(first.config, items("x"), as_node=START)
    await app.ainvoke(None, fork)
    out = await answered(app, shop)
    assert out["said"] == ["paid 1"]
    assert bench.ran("pay") == 1


async def test_one_use_a_failure_after_the_tool_keeps_its_result_for_a_run_without_input(
    bench: Bench,
) -> None:
    stumble = FailsOnce()
    armed = False

    async def hook(made: Any, ctx: Any) -> None:
        if armed and made.name == "pay":
            stumble()

    shop = bench.shop(after_tool=[hook])
    app, question = await paused(WAYS["one_use"], shop)
    armed = True
    with pytest.raises(RuntimeError, match="stumbled"):
        await app.ainvoke(shop.answer(question), CONFIG)
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(shop.answer(question), CONFIG)
    assert (await app.ainvoke(None, CONFIG))["said"] == ["paid x"]
    assert bench.ran("pay") == 1


@EVERY_WAY
async def test_a_denied_call_is_told_or_raised_as_its_way_says(bench: Bench, way: Way) -> None:
    shop = bench.shop()
    app, question = await paused(way, shop)
    if way is WAYS["tool_node"]:
        out = await app.ainvoke(shop.answer(question, NO), CONFIG)
        assert error_of(results(out)[0])["kind"] == "ApprovalDenied"
    else:
        with pytest.raises(ApprovalDenied):
            await app.ainvoke(shop.answer(question, NO), CONFIG)
    assert bench.ran("pay") == 0


# ------------------------------------------- a policy over any graph: what runs, approvals


class Counted(MessagesState):
    count: Annotated[int, reducer(Merge.sum)]


async def test_what_runs_a_command_is_passed_on_with_its_update_and_its_way(rooms: Rooms) -> None:
    def jump(text: str, runtime: ToolRuntime) -> Command[Any]:
        """Jump."""
        told = ToolMessage('{"email": "a@b.c"}', tool_call_id=runtime.tool_call_id)
        return Command(update={"messages": [told], "count": 2}, goto="away")

    wrap = adapter_awrap_tool_call(Policy(results={"*": ["email"]}), store=rooms.store())
    node = ToolNode([StructuredTool.from_function(jump)], awrap_tool_call=wrap)
    graph: Any = StateGraph(Counted)
    graph.add_node("tools", node, destinations=("away",))
    graph.add_node("away", lambda state: {"count": 40})
    graph.add_edge(START, "tools")
    given = {"messages": [HumanMessage("x"), ai(call("jump", "j1", text="x"))], "count": 0}
    ended = await graph.compile().ainvoke(given)
    assert ended["count"] == 42
    assert "a@b.c" in str(ended["messages"][-1].content)


@pytest.mark.parametrize("how", ["async", "sync"])
async def test_what_runs_a_call_before_the_interrupted_one_does_not_run_again(
    rooms: Rooms, how: str
) -> None:
    """One task for the whole message, run again on resume: the journal has the first call."""
    line = ai(call("note", "n1", text="x"), call("send_money", "c1", to="bob", amount=5))
    own = Own(rooms, Policy(escalate={"send_money": "x"}), line)
    await own.run(how=how)
    (question,) = open_questions(await own.graph.aget_state(OWN_CONFIG))
    value = own.approval.resume_value(question, YES)
    ended = await own.run(Command(resume={question.id: value}), how=how)
    paired(ended["messages"])
    assert len(rooms.ledger.of("note")) == 1
    assert rooms.ledger.paid == [5]


async def own_paused(rooms: Rooms, **more: Any) -> tuple[Own, Interrupt]:
    line = ai(call("send_money", "c1", to="bob", amount=5))
    own = Own(rooms, Policy(escalate={"send_money": "x"}), line, **more)
    await own.run(ASK)
    (question,) = open_questions(await own.graph.aget_state(OWN_CONFIG))
    return own, question


async def test_approvals_a_forged_value_in_the_checkpoints_admits_nothing(rooms: Rooms) -> None:
    """Who writes the checkpoint store, but holds no key, cannot approve."""
    own, question = await own_paused(rooms)
    saver = own.graph.checkpointer
    state = await own.graph.aget_state(OWN_CONFIG)
    no = own.approval.resume_value(question, NO)
    turned = {**no, "decision": {**no["decision"], "kind": "approve", "approved": True}}
    for value in (True, {"approved": True}, turned):
        await saver.aput_writes(state.config, [("__resume__", [value])], state.tasks[0].id)
        await own.run(None)
        assert own.ledger.paid == []


async def test_approvals_a_request_altered_in_the_checkpoints_is_not_signed(rooms: Rooms) -> None:
    own, question = await own_paused(rooms)
    altered = deepcopy(question.value)
    altered["request"]["arguments"]["amount"] = 1
    with pytest.raises(InvalidAnswer):
        own.approval.resume_value({"id": question.id, "value": altered}, YES)
    own.approval.resume_value(question, YES)


@pytest.mark.parametrize("how", ["again", "time travel"])
async def test_approvals_one_replayed_admits_nothing(rooms: Rooms, how: str) -> None:
    own, question = await own_paused(rooms)
    then = (await own.graph.aget_state(OWN_CONFIG)).config
    answer: Command[Any] = Command(resume={question.id: own.approval.resume_value(question, YES)})
    await own.run(answer)
    assert own.ledger.paid == [5]
    if how == "again":
        await own.run(answer)
    else:
        with pytest.raises(ApprovalAlreadyDecided):
            await own.run(answer, config=then)
    assert own.ledger.paid == [5]


async def test_approvals_a_resume_from_an_older_checkpoint_admits_nothing(rooms: Rooms) -> None:
    """The newest checkpoint is removed from the store: the graph stands where it stood before."""
    own, question = await own_paused(rooms)
    saver = own.graph.checkpointer
    head = (await own.graph.aget_state(OWN_CONFIG)).config["configurable"]["checkpoint_id"]
    del saver.storage["thread-1"][""][head]
    own.model.then(ai(call("send_money", "c1", to="bob", amount=5)), ai(text="done"))
    value = own.approval.resume_value(question, YES)
    for resume in ({question.id: value}, value):
        await own.run(Command(resume=resume))
        assert own.ledger.paid == []
    (another,) = open_questions(await own.graph.aget_state(OWN_CONFIG))
    assert another.value["binding"] != question.value["binding"]


async def test_approvals_a_no_is_signed_like_a_yes(rooms: Rooms) -> None:
    own, question = await own_paused(rooms)
    await own.run(Command(resume={question.id: "no"}))
    (still,) = open_questions(await own.graph.aget_state(OWN_CONFIG))
    assert still.id == question.id
    value = own.approval.resume_value(question, NO)
    ended = await own.run(Command(resume={question.id: value}))
    found = next(m for m in ended["messages"] if isinstance(m, ToolMessage))
    assert error_of(found)["kind"] == "ApprovalDenied"
    assert own.ledger.paid == []
