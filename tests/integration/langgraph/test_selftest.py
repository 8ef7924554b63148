"""The self-test finds the ways around a gate that is not there, and none around ours."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel
from tests.support.graphs import Own
from tests.support.room import Rooms, money_tools, tool_of
from tests.support.script import Script
from typer.testing import CliRunner
from typing_extensions import override

from adapter.core.errors import ConfigurationError
from adapter.core.policy import Policy
from adapter.langgraph import tool_node
from adapter.selftest import assert_governed, load_graph, selftest

GATED = Policy(escalate={"send_money": "x"}, deny={"note": "no"})


def said(report: Any, severity: str) -> set[tuple[str, str]]:
    return {(one.attempt, one.tool) for one in report.findings if one.severity == severity}


@pytest.mark.anyio
async def test_nothing_is_found_in_an_agent_under_our_middleware(rooms: Rooms) -> None:
    room = rooms.paying()
    report = await selftest(room.agent)
    assert report.holes == []
    assert {
        ("honest call", "send_money"),
        ("goto", "send_money"),
        ("forged resume", "send_money"),
        ("update with resume", "send_money"),
        ("update with goto", "send_money"),
        ("jump_to", "send_money"),
        ("honest call", "note"),
        ("honest call", "look"),
        ("hidden tool", ""),
    } <= said(report, "ok")
    assert said(report, "warning") == said(report, "note") == set()
    assert rooms.ledger.all == []
    assert room.model.sent == []
    asked = await room.question()
    await room.decide(asked)
    assert rooms.ledger.paid == [100]  # the tools are the agent's own again


@pytest.mark.anyio
async def test_nothing_is_found_in_a_tool_node_under_our_wrapper(rooms: Rooms) -> None:
    own = Own(rooms, GATED)
    report = await selftest(own.graph)
    assert report.holes == []
    assert ("goto", "send_money") in said(report, "ok")
    assert rooms.ledger.all == []


def raw(rooms: Rooms, tools: list[BaseTool], **node: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": []})
    graph.add_node("tools", ToolNode(tools, **node))
    graph.add_edge(START, "model")
    graph.add_edge("model", "tools")
    return graph.compile()


@pytest.mark.anyio
async def test_a_raw_tool_node_is_a_hole_also_inside_a_subgraph(rooms: Rooms) -> None:
    tools = money_tools(rooms.ledger)[0]
    report = await selftest(raw(rooms, tools))
    assert {one.tool for one in report.holes} == {"send_money", "note", "look"}
    outer = StateGraph(MessagesState)
    outer.add_node("inner", raw(rooms, tools))
    outer.add_edge(START, "inner")
    inside = await selftest(outer.compile())
    assert {one.node for one in inside.holes} == {"inner|tools"}
    assert rooms.ledger.all == []


@pytest.mark.anyio
async def test_tools_of_every_kind_are_probed_and_none_runs(rooms: Rooms) -> None:
    class Args(BaseModel):
        text: str

    class Own(BaseTool):
        name: str = "own"
        description: str = "x"
        args_schema: Any = Args

        @override
        def _run(self, text: str) -> str:
            rooms.ledger.add(tool="own")
            return text

    async def later(text: str) -> str:
        rooms.ledger.add(tool="later")
        return text

    def blocks(text: str) -> Any:
        rooms.ledger.add(tool="blocks")
        return text, None

    tools = [
        Own(),
        tool_of(later, "later"),
        tool_of(blocks, "blocks", response_format="content_and_artifact"),
    ]
    report = await selftest(raw(rooms, tools))
    assert {one.tool for one in report.holes} == {"own", "later", "blocks"}
    assert rooms.ledger.all == []


@pytest.mark.anyio
async def test_handled_errors_are_a_warning(rooms: Rooms) -> None:
    own = Own(rooms, GATED, node={"handle_tool_errors": True})
    report = await selftest(own.graph)
    assert report.holes == []
    assert ("handle_tool_errors", "") in said(report, "warning")


class Swallow(AgentMiddleware[Any, Any, Any]):
    """Catches whatever comes, a pause included."""

    @override
    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except BaseException:  # noqa: BLE001 - that is what is wrong with it
            return ToolMessage("oops", tool_call_id=request.tool_call["id"])


class Bypass(AgentMiddleware[Any, Any, Any]):
    """Runs the tool itself, outside everything further in."""

    @override
    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await request.tool.ainvoke(request.tool_call)


@pytest.mark.anyio
async def test_middleware_outside_the_gate_is_found(rooms: Rooms) -> None:
    swallowed = await selftest(rooms.paying(before=[Swallow()]).agent)
    assert swallowed.holes == []
    assert ("swallowing middleware", "send_money") in said(swallowed, "warning")
    bypassed = await selftest(rooms.paying(before=[Bypass()]).agent)
    assert {one.tool for one in bypassed.holes} == {"send_money", "note", "look"}
    inside = await selftest(rooms.paying(after=[Swallow()]).agent)
    assert inside.holes == []
    assert said(inside, "warning") == set()


@pytest.mark.anyio
async def test_a_hidden_tool_of_other_middleware_is_tried_too(rooms: Rooms) -> None:
    class Brings(AgentMiddleware[Any, Any, Any]):
        tools = [tool_of(lambda text: text, "brought")]  # noqa: RUF012 - LangChain's own way

    report = await selftest(rooms.paying(after=[Brings()]).agent)
    assert report.holes == []
    assert ("honest call", "brought") in said(report, "ok")


@pytest.mark.anyio
async def test_what_cannot_be_tried_is_said(rooms: Rooms) -> None:
    class Odd(BaseModel):
        text: str

        @override
        def model_post_init(self, context: Any) -> None:
            raise ValueError("never")

    own = Own(rooms, Policy(), tools=[tool_of(lambda text: text, "odd", Odd)])
    assert ("honest call", "odd") in said(await selftest(own.graph), "note")
    empty = StateGraph(MessagesState)
    empty.add_node("a", lambda state: {})
    empty.add_edge(START, "a")
    assert said(await selftest(empty.compile()), "note") == {("tool nodes", "")}
    alone = StateGraph(MessagesState)
    alone.add_node("tools", ToolNode(money_tools(rooms.ledger)[0]))
    alone.add_edge(START, "tools")
    assert ("raw ToolNode", "look") in said(await selftest(alone.compile()), "hole")
    with pytest.raises(ConfigurationError, match="no compiled graph"):
        await selftest(empty)


@pytest.mark.anyio
async def test_our_own_tool_node_is_known(rooms: Rooms) -> None:
    room = rooms.paying()
    graph = StateGraph(MessagesState)
    graph.add_node(tool_node(room.executor.registry, executor=room.executor))
    graph.add_edge(START, "tools")
    assert said(await selftest(graph.compile(checkpointer=InMemorySaver())), "ok") == {
        ("tool_node", "")
    }


def test_a_test_fails_on_a_hole(rooms: Rooms) -> None:
    assert assert_governed(rooms.paying().agent).holes == []
    with pytest.raises(AssertionError, match="send_money by raw ToolNode"):
        assert_governed(raw(rooms, money_tools(rooms.ledger)[0]))


GRAPH = """
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

@tool
def pay(amount: int) -> str:
    "Pay."
    raise AssertionError

def make():
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": []})
    graph.add_node("tools", ToolNode([pay]))
    graph.add_edge(START, "model")
    graph.add_edge("model", "tools")
    return graph.compile()

async def later():
    return make()

graph = make()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_graph.py").write_text(GRAPH, "utf-8")
    graphs = {"own": "./own_graph.py:graph", "rich": {"path": "./own_graph.py:make"}}
    (tmp_path / "langgraph.json").write_text(json.dumps({"graphs": graphs}), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("own_graph", "selftest_own_graph"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "name", ["own", "rich", "own_graph:graph", "own_graph.py:make", "./own_graph.py:later"]
)
def test_the_command_loads_a_graph_as_it_is_named(project: Path, name: str) -> None:
    from adapter.cli.app import app

    done = CliRunner().invoke(app, ["selftest", name])
    assert done.exit_code == 1
    assert "HOLE: raw ToolNode: tools pay: The tool ran outside the adapter." in done.stdout
    assert "1 holes" in done.stdout


def test_the_command_ends_well_where_the_gate_holds(
    project: Path, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adapter import selftest as room_of_selftest

    room = rooms.paying()
    monkeypatch.setattr(room_of_selftest, "load_graph", lambda name: room.agent)
    from adapter.cli.app import app

    done = CliRunner().invoke(app, ["selftest", "own", "--all"])
    assert done.exit_code == 0, done.stdout
    assert "ok: goto: tools send_money: did not run" in done.stdout
    assert "0 holes" in done.stdout


STORED = """
from langchain.agents import create_agent
from tests.support.room import KEYS, gated, tool_of
from tests.support.script import Script

from adapter import Executor
from adapter.langgraph import AdapterMiddleware, LangGraphApproval, registry_of
from adapter.stores import open_store

def pay(amount: int) -> str:
    raise AssertionError

tools = [tool_of(pay, "pay")]
store = open_store("sqlite:///live.db")
registry = registry_of(tools, [gated("pay")])
executor = Executor(registry, store=store, approval=LangGraphApproval(KEYS))
graph = create_agent(Script.of(), tools, middleware=[AdapterMiddleware(executor)])
"""


def test_the_command_writes_nothing_to_the_graphs_own_store(project: Path) -> None:
    (project / "own_graph.py").write_text(STORED, "utf-8")
    from adapter.cli.app import app

    done = CliRunner().invoke(app, ["selftest", "own", "--all"])
    asyncio.run(sys.modules["selftest_own_graph"].store.aclose())
    assert done.exit_code == 0, done.stdout
    assert "ok: honest call: tools pay: asks a person" in done.stdout
    assert "Tried over a store in memory." in done.stdout
    assert not (project / "live.db").exists()
    assert_governed(load_graph("own"))  # outside the command the same graph writes its file
    asyncio.run(sys.modules["selftest_own_graph"].store.aclose())
    assert (project / "live.db").exists()


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("other", "exports no graph 'other'; it exports: own, rich"),
        ("own_graph:nothing", "no variable 'nothing'"),
        ("no_such_module_here:graph", "cannot be loaded"),
        ("./none.py:graph", "cannot be loaded"),
    ],
)
def test_a_graph_that_is_not_there_is_named(project: Path, name: str, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        load_graph(name)


def test_a_missing_langgraph_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no readable langgraph\.json"):
        load_graph("own", folder=tmp_path)


def test_an_agent_without_a_gate_is_a_hole(rooms: Rooms) -> None:
    agent = create_agent(Script.of(), money_tools(rooms.ledger)[0])
    with pytest.raises(AssertionError, match="raw ToolNode"):
        assert_governed(agent)
