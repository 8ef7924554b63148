"""The table of the tool node, row by row."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel
from tests.support.room import Text, free, gated, tool_of
from tests.support.script import unreadable
from tests.support.toolkit import (
    CONFIG,
    NO,
    Bench,
    answered,
    asked,
    asking,
    error_kind,
    graph_of,
    of,
    results,
)
from typing_extensions import TypedDict

from adapter import (
    ApprovalDenied,
    ApprovalPending,
    ConfigurationError,
    DeferredApproval,
    Effects,
    Executor,
    KeyRing,
    ToolError,
    ToolFailed,
    ToolSpec,
    ToolTimeout,
    ToolUsageError,
    current_context,
)
from adapter.core.spec import Registry
from adapter.core.validation import PydanticSchema
from adapter.langgraph import registry_of, tool_node

pytestmark = pytest.mark.anyio


async def test_the_example_free_calls_run_and_the_gated_one_waits(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    out = await app.ainvoke(asking(of("rate", "c1", text="ab"), of("pay", "c2", text="x")), CONFIG)
    (question,) = out["__interrupt__"]
    assert question.value["request"]["tool"] == "pay"
    assert (bench.ran("rate"), bench.ran("pay")) == (1, 0)
    out = await app.ainvoke(shop.answer(question), CONFIG)
    assert [message.content for message in out["messages"][1:]] == ["2.0", "paid x"]
    assert bench.ran("pay") == 1


async def test_a_node_without_a_name_is_called_tools_and_shows_its_tools(bench: Bench) -> None:
    shop = bench.shop()
    node = tool_node(shop.registry, executor=shop.executor)
    graph: Any = StateGraph(dict)
    graph.add_node(node)
    assert list(graph.nodes) == ["tools"]
    assert [one.name for one in node.tools] == ["rate", "note", "pay", "refund"]


async def test_call_id_is_the_tool_calls_or_names_the_task_and_the_index(bench: Bench) -> None:
    seen: list[str] = []

    def look(text: str) -> str:
        context = current_context()
        assert context is not None
        seen.append(context.call_id)
        return text

    shop = bench.shop(tools=[tool_of(look, "look")], specs=[free("look")])
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    calls = [of("look", "c1", text="a"), of("look", None, text="b")]
    out = await app.ainvoke(asking(*calls), CONFIG)
    assert seen[0] == "c1"
    assert seen[1].startswith("tools:")
    assert seen[1].endswith(":1")
    assert [message.tool_call_id for message in results(out)] == seen
    assert [call["id"] for call in out["messages"][0].tool_calls] == seen


async def test_a_missing_call_id_is_the_same_after_a_pause(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    await app.ainvoke(asking(of("pay", None, text="x"), of("note", None, text="n")), CONFIG)
    out = await answered(app, shop)
    assert (bench.ran("pay"), bench.ran("note")) == (1, 1)
    assert {call["id"] for call in out["messages"][0].tool_calls} == {
        message.tool_call_id for message in results(out)
    }


@pytest.mark.parametrize(
    ("configurable", "run_id"), [({"run_id": "run-7"}, "run-7"), ({}, "shop-1")]
)
async def test_run_id_is_the_configured_one_or_the_threads(
    bench: Bench, configurable: dict[str, str], run_id: str
) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    config = {"configurable": {"thread_id": "shop-1", **configurable}}
    out = await app.ainvoke(asking(of("pay", "c1", text="x")), config)
    assert out["__interrupt__"][0].value["request"]["run_id"] == run_id


async def test_run_id_inside_an_adapter_run_is_that_runs(bench: Bench) -> None:
    seen: list[tuple[str, str]] = []

    def inner(text: str) -> str:
        context = current_context()
        assert context is not None
        seen.append((context.run_id, context.thread_id))
        return text

    shop = bench.shop(tools=[tool_of(inner, "inner")], specs=[free("inner")])
    app = graph_of(tool_node(shop.registry, executor=shop.executor))

    async def outer(text: str) -> str:
        own: Any = {"configurable": {"thread_id": "inner-thread"}}
        await app.ainvoke(asking(of("inner", "i1", text=text)), own)
        return text

    house = bench.shop(tools=[tool_of(outer, "outer")], specs=[free("outer")])
    around = graph_of(tool_node(house.registry, executor=house.executor))
    config: Any = {"configurable": {"thread_id": "outer-thread", "run_id": "run-9"}}
    await around.ainvoke(asking(of("outer", "o1", text="x")), config)
    assert seen == [("run-9", "inner-thread")]


async def test_order_confirming_calls_run_one_at_a_time_after_the_others(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    calls = [
        of("pay", "c1", text="1"),
        of("note", "c2", text="n"),
        of("pay", "c3", text="3"),
        of("rate", "c4", text="r"),
    ]
    await app.ainvoke(asking(*calls), CONFIG)
    out: Any = None
    for waiting in ("c1", "c3"):
        (question,) = await asked(app)
        assert question.value["request"]["call_id"] == waiting
        out = await app.ainvoke(shop.answer(question), CONFIG)
    assert [fact["text"] for fact in bench.ledger.of("pay")] == ["1", "3"]
    assert bench.ran("note") == 1
    assert [message.tool_call_id for message in results(out)] == ["c1", "c2", "c3", "c4"]


@pytest.mark.parametrize(("cap", "most"), [(1, 1), (2, 2), (None, 4)])
async def test_order_concurrency_caps_the_others(bench: Bench, cap: int | None, most: int) -> None:
    running, peak = 0, 0
    gate = asyncio.Event()

    async def slow(text: str) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        if peak == most:
            gate.set()
        await gate.wait()
        running -= 1
        return text

    shop = bench.shop(tools=[tool_of(slow, "slow")], specs=[free("slow")])
    app = graph_of(tool_node(shop.registry, executor=shop.executor, concurrency=cap))
    out = await app.ainvoke(asking(*[of("slow", f"c{n}", text=f"{n}") for n in range(4)]), CONFIG)
    assert peak == most
    assert [message.content for message in results(out)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("cap", [0, -1, True, 1.5])
async def test_order_a_cap_that_is_none_is_refused(bench: Bench, cap: Any) -> None:
    shop = bench.shop()
    with pytest.raises(ToolUsageError, match="concurrency"):
        tool_node(shop.registry, executor=shop.executor, concurrency=cap)


def clumsy(error: Exception) -> Any:
    def clumsy(text: str) -> str:
        raise error

    return tool_of(clumsy, "clumsy")


async def test_model_visible_errors_are_error_messages(bench: Bench) -> None:
    shop = bench.shop(tools=[clumsy(ToolError("try a number"))], specs=[free("clumsy")])
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    calls = [of("clumsy", "c1", text="x"), of("note", "c2", text="n"), of("pay", "c3", text="p")]
    await app.ainvoke(asking(*calls), CONFIG)
    out = await answered(app, shop, NO)
    first, second, third = results(out)
    assert (error_kind(first), second.status) == ("ToolError", "success")
    assert error_kind(third) == ApprovalDenied.__name__
    assert bench.ran("pay") == 0


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (of("note", "c1", text=5), "ToolArgsInvalid"),
        (of("note", "c1", text="x", ghost=1), "ToolArgsInvalid"),
        (of("nobody", "c1"), "UnknownTool"),
    ],
)
async def test_model_visible_errors_bad_calls_and_unknown_tools(
    bench: Bench, call: Any, kind: str
) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    out = await app.ainvoke(asking(call, of("note", "c2", text="n")), CONFIG)
    first, second = results(out)
    assert (first.tool_call_id, error_kind(first)) == ("c1", kind)
    assert second.status == "error"
    assert bench.ran("note") == 0


async def test_model_visible_errors_one_for_each_duplicate_id(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    calls = [of("note", "c1", text="a"), of("note", "c1", text="b"), of("note", "c2", text="c")]
    out = await app.ainvoke(asking(*calls), CONFIG)
    assert [message.tool_call_id for message in results(out)] == ["c1", "c2"]
    assert {error_kind(message) for message in results(out)} == {"ToolArgsInvalid"}
    assert bench.ran("note") == 0


async def test_model_visible_errors_also_for_arguments_that_were_no_json(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    state = {"messages": [AIMessage("", invalid_tool_calls=[unreadable("note", None)])]}
    out = await app.ainvoke(state, CONFIG)
    (message,) = results(out)
    assert error_kind(message) == "ToolArgsInvalid"
    assert message.tool_call_id == out["messages"][0].invalid_tool_calls[0]["id"]


async def test_a_tool_of_the_executor_that_the_node_lacks_is_unknown_there(bench: Bench) -> None:
    shop = bench.shop()
    tools, specs = bench.tools()
    small = registry_of(tools[:1], specs[:1])
    app = graph_of(tool_node(small, executor=shop.executor))
    out = await app.ainvoke(asking(of("note", "c1", text="n")), CONFIG)
    assert error_kind(results(out)[0]) == "UnknownTool"
    assert bench.ran("note") == 0


async def test_a_tool_the_executor_lacks_is_a_configuration_error(bench: Bench) -> None:
    shop = bench.shop()
    other = registry_of([clumsy(ToolError("x"))], [free("clumsy")])
    with pytest.raises(ConfigurationError, match="clumsy"):
        tool_node(other, executor=shop.executor)


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_other_errors_tool_failed_is_raised_and_a_sibling_is_not_repeated(
    bench: Bench, how: str
) -> None:
    shop = bench.shop(tools=[clumsy(ValueError("secret"))], specs=[free("clumsy")])
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    state = asking(of("clumsy", "c1", text="x"), of("note", "c2", text="n"))

    async def run() -> Any:
        if how == "sync":
            return await asyncio.to_thread(app.invoke, state, CONFIG)
        return await app.ainvoke(state, CONFIG)

    with pytest.raises(ToolFailed, match="ValueError"):
        await run()
    with pytest.raises(ToolFailed):
        await app.ainvoke(None, CONFIG)
    assert bench.ran("note") == 1


async def test_other_errors_tool_timeout_is_raised(bench: Bench) -> None:
    async def hang(text: str) -> str:
        await asyncio.Event().wait()
        return text

    shop = bench.shop(
        tools=[tool_of(hang, "hang")],
        specs=[free("hang", Effects(read_only=True), timeout=0.05)],
    )
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    with pytest.raises(ToolTimeout):
        await app.ainvoke(asking(of("hang", "c1", text="x")), CONFIG)


async def test_other_errors_are_messages_where_asked_for(bench: Bench) -> None:
    shop = bench.shop(tools=[clumsy(ValueError("secret"))], specs=[free("clumsy")])
    node = tool_node(shop.registry, executor=shop.executor, on_tool_failure="message")
    out = await graph_of(node).ainvoke(asking(of("clumsy", "c1", text="x")), CONFIG)
    (message,) = results(out)
    assert error_kind(message) == "ToolFailed"
    assert "secret" not in str(message.content)
    odd: Any = "quiet"
    with pytest.raises(ConfigurationError, match="on_tool_failure"):
        tool_node(shop.registry, executor=shop.executor, on_tool_failure=odd)


async def test_other_errors_approval_pending_of_a_deferred_port_is_raised(bench: Bench) -> None:
    store = bench.store()
    shop = bench.shop(store=store, port=DeferredApproval(store, KeyRing.random()))
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    with pytest.raises(ApprovalPending):
        await app.ainvoke(asking(of("pay", "c1", text="x")), CONFIG)


async def test_graph_interrupt_and_cancelled_error_pass_unwrapped(bench: Bench) -> None:
    started = asyncio.Event()

    async def chat(text: str) -> str:
        return str(interrupt({"question": text}))

    async def hang(text: str) -> str:
        started.set()
        await asyncio.Event().wait()
        return text

    shop = bench.shop(
        tools=[tool_of(chat, "chat"), tool_of(hang, "hang")],
        specs=[free("chat"), free("hang", Effects(read_only=True))],
    )
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    out = await app.ainvoke(asking(of("chat", "c1", text="who?")), CONFIG)
    assert out["__interrupt__"][0].value == {"question": "who?"}
    out = await app.ainvoke(Command(resume="me"), CONFIG)
    assert results(out)[0].content == "me"

    other: Any = {"configurable": {"thread_id": "other"}}
    run = asyncio.create_task(app.ainvoke(asking(of("hang", "h1", text="x")), other))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_graph_interrupt_passes_through_run_and_run_many(bench: Bench) -> None:
    async def pauses(text: str) -> str:
        raise GraphInterrupt

    from adapter.testing import make_call, make_context

    shop = bench.shop(tools=[tool_of(pauses, "pauses")], specs=[free("pauses")])
    call = make_call("pauses", text="x")
    with pytest.raises(GraphInterrupt):
        await shop.executor.run(call, make_context("t1"))
    with pytest.raises(GraphInterrupt):
        await shop.executor.run_many([call], make_context("t2"))


class Typed(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    seen: int


class Modelled(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages]
    seen: int = 0


class Chat(TypedDict):
    talk: Annotated[list[AnyMessage], add_messages]


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize(
    ("schema", "key"), [(Typed, "messages"), (Modelled, "messages"), (Chat, "talk")]
)
async def test_states_of_every_kind_in_sync_and_async_graphs(
    bench: Bench, schema: Any, key: str, how: str
) -> None:
    shop = bench.shop()
    node = tool_node(shop.registry, executor=shop.executor, messages_key=key)
    app = graph_of(node, schema=schema)
    state = {key: asking(of("note", None, text="n"), of("refund", "c2", text="x"))["messages"]}
    if how == "sync":
        await asyncio.to_thread(app.invoke, state, CONFIG)
        (question,) = await asked(app)
        out = await asyncio.to_thread(app.invoke, shop.answer(question), CONFIG)
    else:
        await app.ainvoke(state, CONFIG)
        out = await answered(app, shop)
    assert [message.content for message in results(out, key)] == ['{"noted": "n"}', "refunded x"]
    assert (bench.ran("note"), bench.ran("refund")) == (1, 1)


async def test_a_plain_list_of_messages_is_a_state_too(bench: Bench) -> None:
    shop = bench.shop()
    node = tool_node(shop.registry, executor=shop.executor)

    async def around(state: Any) -> Any:
        return {"messages": await node.ainvoke(state["messages"])}

    out = await graph_of(around).ainvoke(asking(of("note", None, text="n")), CONFIG)
    assert results(out)[0].content == '{"noted": "n"}'


async def test_a_state_without_an_ai_message_is_a_usage_error(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    with pytest.raises(ToolUsageError, match="messages_key"):
        await app.ainvoke({"messages": []}, CONFIG)


async def test_a_call_that_has_its_result_is_left_alone(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    state = asking(of("note", "c1", text="a"), of("note", "c2", text="b"))
    state["messages"].append(ToolMessage("done before", tool_call_id="c1"))
    out = await app.ainvoke(state, CONFIG)
    assert [message.content for message in results(out)] == ["done before", '{"noted": "b"}']
    assert bench.ran("note") == 1


def host_tools(bench: Bench) -> list[Any]:
    @tool
    def with_runtime(text: str, runtime: ToolRuntime) -> str:
        """Use the runtime."""
        bench.ledger.add(tool="with_runtime", id=runtime.tool_call_id)
        return f"{len(runtime.state['messages'])} messages"

    @tool
    def with_state(text: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Use the state."""
        return f"{len(state['messages'])} messages"

    @tool
    def with_store(text: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
        """Use the store."""
        store.put(("shop",), "x", {"text": text})
        return "kept"

    @tool
    def with_command(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Return a command."""
        said = ToolMessage("by command", tool_call_id=tool_call_id)
        return Command(update={"messages": [said], "seen": 7})

    @tool(response_format="content_and_artifact")
    def with_artifact(text: str) -> tuple[str, dict[str, int]]:
        """Return an artifact."""
        return text, {"n": 1}

    @tool
    def with_blocks(text: str) -> list[Any]:
        """Return content blocks."""
        return [{"type": "text", "text": text}]

    return [with_runtime, with_state, with_store, with_command, with_artifact, with_blocks]


@pytest.mark.parametrize("kind", ["free", "gated"])
@pytest.mark.parametrize("how", ["sync", "async"])
async def test_tools_that_take_what_the_host_fills_in_and_return_every_kind(
    bench: Bench, kind: str, how: str
) -> None:
    tools = host_tools(bench)
    make = gated if kind == "gated" else free
    shop = bench.shop(tools=tools, specs=[make(one.name) for one in tools])
    graph: Any = StateGraph(Typed)
    graph.add_node(tool_node(shop.registry, executor=shop.executor))
    graph.add_edge(START, "tools")
    from langgraph.checkpoint.memory import InMemorySaver

    memory = InMemoryStore()
    app = graph.compile(checkpointer=InMemorySaver(), store=memory)
    given: Any = asking(*[of(one.name, one.name, text="x") for one in tools])

    async def run(what: Any) -> Any:
        if how == "sync":
            return await asyncio.to_thread(app.invoke, what, CONFIG)
        return await app.ainvoke(what, CONFIG)

    out = await run(given)
    while open_now := await asked(app):
        out = await run(shop.answer(open_now[0]))
    found = {message.tool_call_id: message for message in results(out)}
    assert found["with_runtime"].content == "1 messages"
    assert found["with_state"].content == "1 messages"
    assert found["with_store"].content == "kept"
    kept = memory.get(("shop",), "x")
    assert kept is not None
    assert kept.value == {"text": "x"}
    assert found["with_command"].content == "by command"
    assert out["seen"] == 7
    assert found["with_artifact"].artifact == {"n": 1}
    assert found["with_blocks"].content == [{"type": "text", "text": "x"}]
    assert bench.ran("with_runtime") == 1


@pytest.mark.parametrize("effects", [Effects(read_only=True), Effects()], ids=["read", "effect"])
async def test_sends_to_a_parent_graph_of_several_calls_are_all_followed(
    bench: Bench, effects: Effects
) -> None:
    def hand_over(text: str) -> Any:
        return Command(graph=Command.PARENT, goto=[Send("desk", {"text": text})])

    shop = bench.shop(tools=[tool_of(hand_over, "hand_over")], specs=[free("hand_over", effects)])
    node = tool_node(shop.registry, executor=shop.executor)
    seen: list[str] = []
    inner: Any = StateGraph(Typed)
    inner.add_node(node)
    inner.add_edge(START, "tools")
    outer: Any = StateGraph(Typed)
    outer.add_node("inner", inner.compile(), destinations=("desk",))
    outer.add_node("desk", lambda given: seen.append(given["text"]))
    outer.add_edge(START, "inner")
    calls = [of("hand_over", "c1", text="a"), of("hand_over", "c2", text="b")]
    await outer.compile().ainvoke({**asking(*calls), "seen": 0}, CONFIG)
    assert sorted(seen) == ["a", "b"]
    assert issubclass(ParentCommand, Exception)


async def test_no_executor_warns_that_nothing_survives_and_works(bench: Bench) -> None:
    tools, specs = bench.tools()
    with pytest.warns(UserWarning, match="survives"):
        node = tool_node(registry_of(tools, specs))
    app = graph_of(node)
    await app.ainvoke(asking(of("pay", "c1", text="x")), CONFIG)
    (question,) = await asked(app)
    port: Any = node.executor.port
    from tests.support.toolkit import YES

    await app.ainvoke(Command(resume={question.id: port.resume_value(question, YES)}), CONFIG)
    assert bench.ran("pay") == 1


async def test_a_registry_of_plain_functions_has_tools_too(bench: Bench) -> None:
    def double(text: str) -> str:
        """Double it."""
        return text * 2

    async def triple(text: str) -> str:
        return text * 3

    specs = [
        ToolSpec(name=one.__name__, effects=Effects(), approval=None, function=one)
        for one in (double, triple)
    ]
    registry = registry_of([], specs)
    executor = Executor(registry, store=bench.store())
    node = tool_node(registry, executor=executor)
    out = await graph_of(node).ainvoke(
        asking(of("double", "c1", text="a"), of("triple", "c2", text="b")), CONFIG
    )
    assert [message.content for message in results(out)] == ["aa", "bbb"]


@pytest.mark.parametrize("given", ["text", StructuredTool.from_function(print, name="other")])
async def test_a_spec_that_carries_no_tool_of_its_name_is_refused(given: Any) -> None:
    spec = ToolSpec(name="x", effects=Effects(), approval=None, function=given)
    with pytest.raises(ConfigurationError, match="ToolSpec 'x'"):
        registry_of([], [spec])


async def test_a_registry_without_implementations_is_refused(bench: Bench) -> None:
    registry = Registry([free("note")], {"note": PydanticSchema(Text)})
    with pytest.raises(ConfigurationError, match="registry_of"):
        tool_node(registry, executor=Executor(registry, store=bench.store()))


async def test_core_functions_become_tools(bench: Bench) -> None:
    from adapter import FunctionTool

    def note(text: str) -> str:
        return f"noted {text}"

    registry = Registry(
        [free("note")], {"note": PydanticSchema(Text)}, {"note": FunctionTool(note)}
    )
    node = tool_node(registry, executor=Executor(registry, store=bench.store()))
    out = await graph_of(node).ainvoke(asking(of("note", "c1", text="a")), CONFIG)
    assert results(out)[0].content == "noted a"
