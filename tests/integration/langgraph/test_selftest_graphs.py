"""The self-test's verdict on graphs as people build them: governed ones and holed ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel, Field
from tests.support.graphs import Own
from tests.support.room import KEYS, Rooms, free, gated, money_tools, tool_of
from tests.support.script import Script
from typing_extensions import TypedDict, override

from adapter import Executor, Policy, ToolCall
from adapter.flow import Call, Flow, FlowContext
from adapter.langgraph import (
    AdapterMiddleware,
    LangGraphApproval,
    PolicyGate,
    adapter_awrap_tool_call,
    adapter_middleware,
    adapter_wrap_tool_call,
    compile_flow,
    one_use,
    registry_of,
    tool_node,
    tool_task,
)
from adapter.selftest import selftest
from adapter.testing import assert_governed

pytestmark = pytest.mark.anyio

ALL = {"send_money", "note", "look"}
GATED = Policy(escalate={"send_money": "x"})


def options(rooms: Rooms) -> dict[str, Any]:
    return {"store": rooms.store("adapter.db"), "approval": LangGraphApproval(KEYS)}


def governed(rooms: Rooms) -> Executor:
    tools, specs = money_tools(rooms.ledger)
    return Executor(registry_of(tools, specs), **options(rooms))


def tools_of(rooms: Rooms) -> list[BaseTool]:
    return money_tools(rooms.ledger)[0]


def graph_of(step: Any, name: str = "tools", schema: Any = MessagesState) -> Any:
    graph: Any = StateGraph(schema)
    graph.add_node("model", lambda state: {})
    graph.add_node(name, step)
    graph.add_edge(START, "model")
    graph.add_edge("model", name)
    return graph.compile()


# ------------------------------------------------------------------------------ that hold


def under_middleware(rooms: Rooms) -> Any:
    return rooms.paying().agent


def under_a_policy(rooms: Rooms) -> Any:
    middleware = [adapter_middleware(GATED, **options(rooms))]
    return create_agent(Script.of(), tools_of(rooms), middleware=middleware)


def under_both_wrappers(rooms: Rooms) -> Any:
    return Own(rooms, GATED).graph


def sync_wrapper_alone(rooms: Rooms) -> Any:
    """A synchronous wrapper serves asynchronous runs too."""
    wrap = adapter_wrap_tool_call(GATED, **options(rooms))
    return graph_of(ToolNode(tools_of(rooms), wrap_tool_call=wrap))


def our_tool_node(rooms: Rooms) -> Any:
    executor = governed(rooms)
    return graph_of(tool_node(executor.registry, executor=executor))


def our_tool_task(rooms: Rooms) -> Any:
    executor = governed(rooms)
    spec = executor.registry.get("note")
    assert spec is not None
    return graph_of(tool_task(spec, executor=executor, into="out"), "note")


def one_use_node(rooms: Rooms) -> Any:
    executor = governed(rooms)

    async def sell(state: Any) -> Any:
        call = ToolCall(name="note", arguments={"text": "x"}, id="n")
        return {"messages": [await executor.run(call)]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("sell", one_use(sell))
    graph.add_node(tool_node(executor.registry, executor=executor))
    graph.add_edge(START, "sell")
    return graph.compile()


def governed_subgraph(rooms: Rooms) -> Any:
    return graph_of(Own(rooms, GATED, saver=False).graph, "inner")


def a_node_that_binds_tools_outside(rooms: Rooms) -> Any:
    executor = governed(rooms)
    bound = Script.of().bind(tools=[{"name": "note"}])

    def speak(state: Any) -> Any:
        return {"messages": [bound.invoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("speak", speak)
    graph.add_node(tool_node(executor.registry, executor=executor))
    graph.add_edge(START, "speak")
    graph.add_edge("speak", "tools")
    return graph.compile()


def retries_inside_the_gate(rooms: Rooms) -> Any:
    return rooms.paying(after=[ToolRetryMiddleware(max_retries=2, initial_delay=0)]).agent


class Notes(BaseModel):
    text: str = "x"
    told: str = ""


def a_compiled_flow(rooms: Rooms) -> Any:
    async def write(state: Notes, ctx: FlowContext) -> Any:
        return {"told": await ctx.call("note", {"text": state.text})}

    flow = (
        Flow("notes", state=Notes)
        .node("look", Call("look", into="told"))
        .node("write", write)
        .edge("look", "write")
        .end("write")
    )
    return compile_flow(flow, executor=governed(rooms)).compile()


def retries_before_the_gate(rooms: Rooms) -> Any:
    """It neither swallows a pause nor repeats a run: the claim holds."""
    return rooms.paying(before=[ToolRetryMiddleware(max_retries=2, initial_delay=0)]).agent


def a_pydantic_state_with_its_own_key(rooms: Rooms) -> Any:
    class Talk(BaseModel):
        talk: Annotated[list[Any], add_messages]

    gate = PolicyGate(GATED, **options(rooms))
    node = ToolNode(
        tools_of(rooms),
        messages_key="messages",
        wrap_tool_call=gate.wrap_tool_call,
        awrap_tool_call=gate.awrap_tool_call,
    )

    class Both(Talk):
        messages: Annotated[list[Any], add_messages] = Field(default_factory=list)

    return graph_of(node, schema=Both)


def a_governed_node_that_nothing_leads_to(rooms: Rooms) -> Any:
    gate = PolicyGate(GATED, **options(rooms))
    graph: Any = StateGraph(MessagesState)
    graph.add_node(
        "tools",
        ToolNode(
            tools_of(rooms),
            wrap_tool_call=gate.wrap_tool_call,
            awrap_tool_call=gate.awrap_tool_call,
        ),
    )
    graph.add_edge(START, "tools")
    return graph.compile()


HOLD: list[Callable[[Rooms], Any]] = [
    under_middleware,
    under_a_policy,
    under_both_wrappers,
    sync_wrapper_alone,
    our_tool_node,
    our_tool_task,
    one_use_node,
    governed_subgraph,
    a_node_that_binds_tools_outside,
    retries_inside_the_gate,
    retries_before_the_gate,
    a_compiled_flow,
    a_pydantic_state_with_its_own_key,
    a_governed_node_that_nothing_leads_to,
]


@pytest.mark.parametrize("build", HOLD, ids=lambda build: build.__name__)
async def test_a_graph_that_holds_has_no_hole_and_no_warning(
    rooms: Rooms, build: Callable[[Rooms], Any]
) -> None:
    graph = build(rooms)
    report = assert_governed(graph)
    assert [one for one in report.findings if one.severity in ("hole", "warning", "note")] == []
    assert rooms.ledger.all == []


# ------------------------------------------------------------------------------ with a hole


def raw_agent(rooms: Rooms) -> Any:
    return create_agent(Script.of(), tools_of(rooms))


def raw_tool_node(rooms: Rooms) -> Any:
    return graph_of(ToolNode(tools_of(rooms)))


def raw_and_handles_errors(rooms: Rooms) -> Any:
    return graph_of(ToolNode(tools_of(rooms), handle_tool_errors=True))


def raw_right_after_the_start(rooms: Rooms) -> Any:
    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools_of(rooms)))
    graph.add_edge(START, "tools")
    return graph.compile()


def async_wrapper_alone(rooms: Rooms) -> Any:
    """A synchronous run goes past it."""
    wrap = adapter_awrap_tool_call(GATED, **options(rooms))
    return graph_of(ToolNode(tools_of(rooms), awrap_tool_call=wrap))


def raw_in_a_subgraph(rooms: Rooms) -> Any:
    return graph_of(raw_tool_node(rooms), "inner")


def raw_in_a_subgraph_that_code_runs(rooms: Rooms) -> Any:
    inner = raw_tool_node(rooms)

    def step(state: Any) -> Any:
        return inner.invoke(state)

    return graph_of(step, "step")


def raw_in_a_tool_node_that_code_runs(rooms: Rooms) -> Any:
    inner = ToolNode(tools_of(rooms))

    async def step(state: Any) -> Any:
        return await inner.ainvoke(state)

    return graph_of(step, "step")


def a_node_that_calls_by_name(rooms: Rooms) -> Any:
    by_name = {tool.name: tool for tool in tools_of(rooms)}

    def step(state: Any) -> Any:
        made = []
        for call in state["messages"][-1].tool_calls:
            tool = by_name[call["name"]]
            made.append(ToolMessage(tool.invoke(call["args"]), tool_call_id=call["id"]))
        return {"messages": made}

    return graph_of(step, "step")


def a_node_that_calls_through_a_helper(rooms: Rooms) -> Any:
    listed = tools_of(rooms)

    async def ran(call: Any) -> Any:
        found = next(tool for tool in listed if tool.name == call["name"])
        return ToolMessage(await found.ainvoke(call["args"]), tool_call_id=call["id"])

    class Step:
        async def __call__(self, state: Any) -> Any:
            return {"messages": [await ran(call) for call in state["messages"][-1].tool_calls]}

        async def method(self, state: Any) -> Any:
            return await self(state)

    async def step(state: Any, run: Any) -> Any:
        return {"messages": [await run(call) for call in state["messages"][-1].tool_calls]}

    return graph_of(functools.partial(step, run=ran), "step")


def a_method_that_calls_its_own_tools(rooms: Rooms) -> Any:
    class Desk:
        def __init__(self, tools: list[BaseTool]) -> None:
            self.tools = {tool.name: tool for tool in tools}

        def step(self, state: Any) -> Any:
            calls = state["messages"][-1].tool_calls
            return {"messages": [self.tools[c["name"]].invoke(c) for c in calls]}

    return graph_of(Desk(tools_of(rooms)).step, "step")


def a_one_use_node_that_calls_the_tool_itself(rooms: Rooms) -> Any:
    executor = governed(rooms)
    send_money, note, look = tools_of(rooms)

    async def step(state: Any) -> Any:
        await executor.run(ToolCall(name="note", arguments={"text": "x"}, id="n"))
        await send_money.ainvoke({"to": "bob", "amount": 1})
        note.invoke({"text": "x"})
        return {"messages": [look.invoke({"text": "x"})]}

    return graph_of(one_use(step), "step")


def a_compiled_flow_whose_node_calls_tools_itself(rooms: Rooms) -> Any:
    send_money, note, look = tools_of(rooms)

    async def write(state: Notes) -> Any:
        await send_money.ainvoke({"to": "bob", "amount": 1})
        await note.ainvoke({"text": state.text})
        return {"told": await look.ainvoke({"text": state.text})}

    flow = Flow("notes", state=Notes).node("write", write).end("write")
    return compile_flow(flow, executor=governed(rooms)).compile()


class Bypass(AgentMiddleware[Any, Any, Any]):
    """Runs the tool itself, outside everything further in."""

    @override
    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await request.tool.ainvoke(request.tool_call)


def middleware_that_runs_tools_before_the_gate(rooms: Rooms) -> Any:
    return rooms.paying(before=[Bypass()]).agent


HOLED: list[Callable[[Rooms], Any]] = [
    raw_agent,
    raw_tool_node,
    raw_and_handles_errors,
    raw_right_after_the_start,
    async_wrapper_alone,
    raw_in_a_subgraph,
    raw_in_a_subgraph_that_code_runs,
    raw_in_a_tool_node_that_code_runs,
    a_node_that_calls_by_name,
    a_node_that_calls_through_a_helper,
    a_method_that_calls_its_own_tools,
    a_one_use_node_that_calls_the_tool_itself,
    a_compiled_flow_whose_node_calls_tools_itself,
    middleware_that_runs_tools_before_the_gate,
]


@pytest.mark.parametrize("build", HOLED, ids=lambda build: build.__name__)
async def test_a_graph_with_a_hole_is_named_with_every_tool_and_none_runs(
    rooms: Rooms, build: Callable[[Rooms], Any]
) -> None:
    graph = build(rooms)
    report = await selftest(graph)
    assert {one.tool for one in report.holes} == ALL
    with pytest.raises(AssertionError, match="send_money"):
        assert_governed(graph)
    assert rooms.ledger.all == []


# ------------------------------------------------------------------- what weakens the gate


class Swallow(AgentMiddleware[Any, Any, Any]):
    """Catches whatever comes, a pause included."""

    @override
    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except BaseException:  # noqa: BLE001 - that is what is wrong with it
            return ToolMessage("oops", tool_call_id=request.tool_call["id"])


def swallowing_middleware_first(rooms: Rooms) -> Any:
    return rooms.paying(before=[Swallow()]).agent


def a_tool_node_that_handles_errors(rooms: Rooms) -> Any:
    return Own(rooms, GATED, node={"handle_tool_errors": True}).graph


def a_node_that_binds_tools_itself(rooms: Rooms) -> Any:
    executor, listed, model = governed(rooms), tools_of(rooms), Script.of()

    def speak(state: Any) -> Any:
        return {"messages": [model.bind_tools(listed).invoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("speak", speak)
    graph.add_node(tool_node(executor.registry, executor=executor))
    graph.add_edge(START, "speak")
    graph.add_edge("speak", "tools")
    return graph.compile()


def a_raw_agent_inside_a_governed_tool(rooms: Rooms) -> Any:
    expert = create_agent(Script.of(), tools_of(rooms))

    def ask(text: str) -> str:
        found = expert.invoke({"messages": [HumanMessage(text)]})
        return str(found["messages"][-1].content)

    tool = StructuredTool.from_function(ask, description="Ask.")
    executor = Executor(registry_of([tool], [gated("ask")]), **options(rooms))
    return create_agent(Script.of(), [tool], middleware=[AdapterMiddleware(executor)])


WEAK: dict[Callable[[Rooms], Any], str] = {
    swallowing_middleware_first: "swallowing middleware",
    a_tool_node_that_handles_errors: "handle_tool_errors",
    a_node_that_binds_tools_itself: "own node",
    a_raw_agent_inside_a_governed_tool: "raw ToolNode",
}


@pytest.mark.parametrize("build", WEAK, ids=lambda build: build.__name__)
async def test_what_weakens_the_gate_is_a_warning_and_no_hole(
    rooms: Rooms, build: Callable[[Rooms], Any]
) -> None:
    report = assert_governed(build(rooms))
    assert WEAK[build] in {one.attempt for one in report.findings if one.severity == "warning"}
    assert rooms.ledger.all == []


async def test_a_governed_agent_inside_a_governed_tool_is_tried_too(rooms: Rooms) -> None:
    expert = rooms.paying().agent

    async def ask(text: str) -> str:
        return str(await expert.ainvoke({"messages": [HumanMessage(text)]}))

    tool = tool_of(ask, "ask")
    executor = Executor(registry_of([tool], [free("ask")]), **options(rooms))
    report = assert_governed(graph_of(tool_node(executor.registry, executor=executor)))
    assert {one.node for one in report.findings} == {"tools", "tools|ask|tools"}
    assert {one.severity for one in report.findings} == {"ok"}


def test_a_graph_with_nothing_to_try_fails_a_test_and_says_so(rooms: Rooms) -> None:
    with pytest.raises(AssertionError, match="nothing was tried"):
        assert_governed(graph_of(lambda state: {}))


async def test_code_is_read_and_never_run(rooms: Rooms) -> None:
    ran: list[str] = []

    class Talk(TypedDict):
        messages: list[AIMessage]

    def step(state: Talk) -> Any:
        ran.append("step")
        return tools_of(rooms)[0].invoke({"to": "bob", "amount": 1})

    await selftest(graph_of(RunnableLambda(step), "step"))
    assert ran == []
    assert rooms.ledger.all == []
