"""The self-test reads code of every shape for calls of a tool, and takes no other call for one."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import BaseTool
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import CachePolicy
from tests.support.graphs import Own
from tests.support.room import KEYS, Rooms, money_tools
from tests.support.script import Script
from typing_extensions import override

from adapter import Executor, Policy, ToolCall
from adapter.langgraph import LangGraphApproval, one_use, registry_of, tool_node
from adapter.selftest import selftest
from adapter.testing import assert_governed

pytestmark = pytest.mark.anyio

ALL = {"send_money", "note", "look"}
TOOLS: list[BaseTool] = []
BY_NAME: dict[str, BaseTool] = {}
NESTED: dict[str, dict[str, BaseTool]] = {}


@pytest.fixture
def executor(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> Executor:
    """Over tools that the globals of this module hold too, as in a program of one file."""
    tools, specs = money_tools(rooms.ledger)
    by_name = {tool.name: tool for tool in tools}
    shop: Any = ModuleType("selftest_shop")
    shop.send_money, shop.note, shop.look = tools
    monkeypatch.setitem(sys.modules, "selftest_shop", shop)
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "TOOLS", tools)
    monkeypatch.setattr(here, "BY_NAME", by_name)
    monkeypatch.setattr(here, "NESTED", {"paid": by_name})
    store = rooms.store("adapter.db")
    return Executor(registry_of(tools, specs), store=store, approval=LangGraphApproval(KEYS))


def beside(executor: Executor, node: Any, **options: Any) -> Any:
    """Return a graph with a second node beside a governed one."""
    graph: Any = StateGraph(MessagesState)
    graph.add_node(tool_node(executor.registry, executor=executor))
    graph.add_node("own", node, **options)
    graph.add_edge(START, "tools")
    graph.add_edge("tools", "own")
    return graph.compile()


def calls_of(state: Any) -> Any:
    return state["messages"][-1].tool_calls


# ------------------------------------------------------------------------- that call a tool


class BasicToolNode:
    """The node of LangGraph's tutorial."""

    def __init__(self, tools: list[BaseTool]) -> None:
        self.tools_by_name = {tool.name: tool for tool in tools}

    def __call__(self, inputs: Any) -> Any:
        outputs = []
        for call in inputs["messages"][-1].tool_calls:
            result = self.tools_by_name[call["name"]].invoke(call["args"])
            outputs.append(ToolMessage(result, tool_call_id=call["id"]))
        return {"messages": outputs}


class AsyncToolNode(BasicToolNode):
    @override
    async def __call__(self, inputs: Any) -> Any:
        call = inputs["messages"][-1].tool_calls[0]
        return {"messages": [await self.tools_by_name[call["name"]].ainvoke(call)]}


def comprehension_over_a_dict(state: Any) -> Any:
    return {"messages": [BY_NAME[call["name"]].invoke(call) for call in calls_of(state)]}


def comprehension_over_a_list(state: Any) -> Any:
    by_name = {tool.name: tool for tool in TOOLS}
    return {"messages": [by_name[call["name"]].invoke(call) for call in calls_of(state)]}


async def gathered(state: Any) -> Any:
    made = asyncio.gather(*(BY_NAME[call["name"]].ainvoke(call) for call in calls_of(state)))
    return {"messages": await made}


def by_index(state: Any) -> Any:
    return {"messages": [TOOLS[0].invoke({}), TOOLS[1].invoke({}), TOOLS[-1].invoke({})]}


def in_a_loop(state: Any) -> Any:
    made = []
    for place, tool in enumerate(TOOLS):
        made.append(tool.invoke({"text": str(place)}))
    return {"messages": made}


def by_get(state: Any) -> Any:
    found = BY_NAME.get("note") or next(iter(BY_NAME.values()))
    return {"messages": [found.invoke({})]}


def out_of_a_nested_dict(state: Any) -> Any:
    return {"messages": [NESTED["paid"][call["name"]].invoke(call) for call in calls_of(state)]}


def by_an_inner_function(state: Any) -> Any:
    def one(tool: Any, call: Any) -> Any:
        return tool.invoke(call)

    return {"messages": [one(BY_NAME[call["name"]], call) for call in calls_of(state)]}


def by_a_lambda(state: Any) -> Any:
    return {"messages": list(map(lambda tool: tool.invoke({}), TOOLS))}  # noqa: C417 - as written


def chosen(name: str) -> BaseTool:
    return BY_NAME[name]


def done(tool: BaseTool, arguments: Any) -> Any:
    return tool.invoke(arguments)


def helped(name: str, arguments: Any) -> Any:
    return BY_NAME[name].invoke(arguments)


def by_a_helper(state: Any) -> Any:
    return {"messages": [helped(call["name"], call) for call in calls_of(state)]}


def by_a_helper_that_is_given_the_tool(state: Any) -> Any:
    return {"messages": [done(tool, {}) for tool in TOOLS]}


def by_a_helper_that_returns_the_tool(state: Any) -> Any:
    return {"messages": [chosen(call["name"]).invoke(call) for call in calls_of(state)]}


def with_an_import_inside(state: Any) -> Any:
    from selftest_shop import look, note, send_money  # type: ignore[import-not-found]

    return {"messages": [send_money.invoke({}), note.invoke({}), look.invoke({})]}


def with_a_module_imported_inside(state: Any) -> Any:
    import selftest_shop as shop

    return {"messages": [shop.send_money.invoke({}), shop.note.invoke({}), shop.look.invoke({})]}


def through_the_body(state: Any) -> Any:
    return {"messages": [BY_NAME[call["name"]].func(**call["args"]) for call in calls_of(state)]}  # type: ignore[attr-defined]


def with_retries(state: Any) -> Any:
    return {"messages": [tool.with_retry().invoke({}) for tool in TOOLS]}


def by_a_tool_node_made_inside(state: Any) -> Any:
    return ToolNode(TOOLS).invoke(state)


def by_an_agent_made_inside(state: Any) -> Any:
    return create_react_agent("model", TOOLS).invoke(state)


def given_tools(state: Any, tools: Any) -> Any:
    return {"messages": [tool.invoke({}) for tool in tools]}


def given_one(state: Any, tool: Any, *, other: Any, last: Any) -> Any:
    return {"messages": [tool.invoke({}), other.invoke({}), last.invoke({})]}


CALLING: dict[str, Callable[[], Any]] = {
    "an object": lambda: BasicToolNode(TOOLS),
    "an async object": lambda: AsyncToolNode(TOOLS),
    "an object in one_use": lambda: one_use(AsyncToolNode(TOOLS)),
    "a partial's list": lambda: functools.partial(given_tools, tools=TOOLS),
    "a partial's tools": lambda: functools.partial(
        functools.partial(given_one, other=TOOLS[1]), tool=TOOLS[0], last=TOOLS[2]
    ),
    "a step of a sequence": lambda: RunnableLambda(lambda s: s) | RunnableLambda(by_a_helper),
    "a step beside others": lambda: RunnableParallel(messages=RunnableLambda(by_a_helper)),
    **{
        one.__name__: functools.partial(lambda node: node, one)
        for one in (
            comprehension_over_a_dict,
            comprehension_over_a_list,
            gathered,
            by_index,
            in_a_loop,
            out_of_a_nested_dict,
            by_an_inner_function,
            by_a_lambda,
            by_a_helper,
            by_a_helper_that_is_given_the_tool,
            by_a_helper_that_returns_the_tool,
            by_get,
            with_an_import_inside,
            with_a_module_imported_inside,
            through_the_body,
            with_retries,
            by_a_tool_node_made_inside,
            by_an_agent_made_inside,
        )
    },
}


@pytest.mark.parametrize("name", CALLING)
async def test_a_node_beside_the_gate_that_calls_tools_is_a_hole(
    rooms: Rooms, executor: Executor, name: str
) -> None:
    report = await selftest(beside(executor, CALLING[name]()))
    assert sorted((one.node, one.tool) for one in report.holes) == [("own", n) for n in sorted(ALL)]
    assert rooms.ledger.all == []


async def test_code_without_source_is_read_by_its_names(executor: Executor) -> None:
    names: dict[str, Any] = {"TOOLS": TOOLS, "calls_of": calls_of}
    code = "def node(state):\n    return [t.invoke(c) for c in state.tool_calls for t in TOOLS]\n"
    exec(code, names)
    assert {one.tool for one in (await selftest(beside(executor, names["node"]))).holes} == ALL


async def test_an_edge_that_calls_a_tool_is_a_hole(rooms: Rooms) -> None:
    tools = money_tools(rooms.ledger)[0]

    def route(state: Any) -> str:
        return str(tools[2].invoke({"text": "x"}))

    graph: Any = StateGraph(MessagesState)
    graph.add_node("speak", lambda state: {})
    graph.add_conditional_edges(START, route, {"x": "speak"})
    report = await selftest(graph.compile())
    assert [(one.node, one.tool) for one in report.holes] == [("__start__ (its edges)", "look")]


# ------------------------------------------------------------------------------- middleware


class InvokesOne(AgentMiddleware[Any, Any, Any]):
    def __init__(self, tool: BaseTool) -> None:
        super().__init__()
        self.tool = tool

    @override
    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.tool.invoke({"text": "x"})
        return handler(request)


class InvokesShown(AgentMiddleware[Any, Any, Any]):
    @override
    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        for tool in request.tools:
            await tool.ainvoke({"text": "x"})
        return await handler(request)


class Reads(AgentMiddleware[Any, Any, Any]):
    @override
    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        kept = [tool for tool in request.tools if tool.name != "note"]
        return await handler(request.override(tools=kept))


@pytest.mark.parametrize("place", ["before", "after"])
async def test_middleware_that_runs_a_tool_around_the_model_is_a_hole(
    rooms: Rooms, place: Any
) -> None:
    look = money_tools(rooms.ledger)[0][2]
    one = await selftest(rooms.paying(**{place: [InvokesOne(look)]}).agent)
    assert {(found.node, found.tool) for found in one.holes} == {("model", "look")}


async def test_middleware_that_runs_the_models_tools_is_a_hole(rooms: Rooms) -> None:
    report = await selftest(rooms.paying(after=[InvokesShown()]).agent)
    assert {(found.node, found.tool) for found in report.holes} == {("model", n) for n in ALL}
    assert rooms.ledger.all == []


async def test_middleware_that_only_chooses_tools_is_none(rooms: Rooms) -> None:
    report = assert_governed(rooms.paying(after=[Reads()]).agent)
    assert {one.severity for one in report.findings} == {"ok"}


# ----------------------------------------------------------------------------- that do not


async def test_nodes_that_use_the_executor_are_no_holes(rooms: Rooms, executor: Executor) -> None:
    model = Script.of()

    class Desk:
        def __init__(self, tools: list[BaseTool]) -> None:
            self.tools = {tool.name: tool for tool in tools}

        async def __call__(self, state: Any) -> Any:
            return {"messages": [await ran(c) for c in calls_of(state) if c["name"] in self.tools]}

    async def ran(call: Any) -> Any:
        return await executor.run(ToolCall(name=call["name"], arguments=call["args"], id="x"))

    async def named(state: Any) -> Any:
        known = {tool.name for tool in TOOLS}
        found = [call for call in calls_of(state) if call["name"] in known]
        return {"messages": [ToolMessage(await ran(one), tool_call_id="x") for one in found]}

    def spoken(state: Any) -> Any:
        listed = ", ".join(f"{tool.name}: {tool.description}" for tool in TOOLS)
        return {"messages": [model.invoke([*state["messages"], ("user", listed)])]}

    nodes = [one_use(Desk(TOOLS)), one_use(named), functools.partial(spoken), lambda s: calls_of(s)]
    for node in nodes:
        report = assert_governed(beside(executor, node))
        assert {one.severity for one in report.findings} == {"ok"}, report.findings


async def test_of_two_lambdas_on_a_line_each_is_read_alone(executor: Executor) -> None:
    both: list[Any] = [lambda state: BY_NAME["note"].invoke({}), lambda state: {}]
    assert {one.tool for one in (await selftest(beside(executor, both[0]))).holes} == {"note"}
    assert assert_governed(beside(executor, both[1])).holes == []


async def test_a_list_is_not_taken_for_its_neighbours(executor: Executor) -> None:
    def one_of_three(state: Any) -> Any:
        return {"messages": [TOOLS[1].invoke({})]}

    report = await selftest(beside(executor, one_of_three))
    assert [one.tool for one in report.holes] == ["note"]
    assert {one.severity for one in report.findings} == {"ok", "hole"}


async def test_a_property_and_a_default_dict_are_not_run_or_filled(executor: Executor) -> None:
    from collections import defaultdict

    made: defaultdict[str, list[Any]] = defaultdict(list)

    class Odd:
        @property
        def tools(self) -> Any:
            raise AssertionError

    odd = Odd()

    def step(state: Any) -> Any:
        return {"messages": [odd.tools, made["new"]]}

    assert_governed(beside(executor, step))
    assert made == {}


# ------------------------------------------------------------------------------- node caches


def cached(rooms: Rooms, executor: Executor, kind: str) -> Any:
    policy: Any = {"cache_policy": CachePolicy()}
    graph: Any = StateGraph(MessagesState)

    async def run(state: Any) -> Any:
        return {"messages": [await executor.run(ToolCall(name="note", arguments={}, id="x"))]}

    nodes = {
        "tool_node": tool_node(executor.registry, executor=executor),
        "ToolNode": Own(rooms, Policy(), saver=False).graph.nodes["tools"].bound,
        "one_use": one_use(run),
        "subgraph": beside(executor, lambda state: {}),
    }
    graph.add_node("speak", lambda state: {})
    graph.add_node("node", nodes.get(kind, nodes["tool_node"]), **(policy if kind in nodes else {}))
    graph.add_node("idle", lambda state: {}, **({} if kind in nodes else policy))
    graph.add_edge(START, "speak")
    graph.add_edge("speak", "node")
    graph.add_edge("node", "idle")
    graph.add_edge("idle", END)
    return graph.compile(checkpointer=InMemorySaver(), cache=InMemoryCache())


@pytest.mark.parametrize("kind", ["tool_node", "ToolNode", "one_use", "subgraph"])
async def test_a_cache_policy_on_a_governed_node_is_a_hole(
    rooms: Rooms, executor: Executor, kind: str
) -> None:
    report = await selftest(cached(rooms, executor, kind))
    assert [(one.attempt, one.node) for one in report.holes] == [("cache_policy", "node")]
    assert "Remove the cache_policy" in report.holes[0].text


async def test_a_cache_policy_on_another_node_is_none(rooms: Rooms, executor: Executor) -> None:
    report = assert_governed(cached(rooms, executor, "idle"))
    assert {one.severity for one in report.findings} == {"ok"}
