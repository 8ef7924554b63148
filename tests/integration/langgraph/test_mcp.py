"""Tools of a real MCP server, over stdio and streamable HTTP, behind the same gate."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from tests.support.graphs import ASK, CONFIG, Own
from tests.support.room import Rooms, error_of, open_questions, paired
from tests.support.script import Script, ai, call
from tests.support.toolkit import graph_of

from adapter import ApprovalDecision, Effects, Executor
from adapter.core.policy import Policy
from adapter.langgraph import AdapterMiddleware, registry_of, tool_node

SERVER = Path(__file__).resolve().parents[2] / "support" / "mcp_server.py"
PAY = call("pay", "p1", to="bob", amount=7)
ASKS = Policy(escalate={"pay": "money leaves"}, effects={"look": Effects(read_only=True)})


def stdio(ledger: Path, *more: str) -> dict[str, Any]:
    args = [str(SERVER), str(ledger), "stdio", *more]
    return {"transport": "stdio", "command": sys.executable, "args": args}


@contextmanager
def http(ledger: Path) -> Iterator[dict[str, Any]]:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, str(SERVER), str(ledger), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield {"transport": "streamable_http", "url": f"http://127.0.0.1:{port}/mcp"}
    finally:
        server.terminate()
        server.wait(10)


async def tools_of(connection: dict[str, Any]) -> list[BaseTool]:
    client = MultiServerMCPClient({"desk": connection})  # type: ignore[dict-item]
    for attempt in range(100):
        try:
            return await client.get_tools()
        except Exception:  # the server's process is still starting
            if attempt == 99 or connection["transport"] == "stdio":
                raise
            await asyncio.sleep(0.1)
    raise AssertionError


def effects(ledger: Path, tool: str) -> list[dict[str, Any]]:
    lines = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
    return [fact for fact in map(json.loads, lines) if fact["tool"] == tool]


async def asked(own: Own) -> Any:
    (question,) = open_questions(await own.graph.aget_state(CONFIG))
    return question


def answer(own: Own, question: Any, **more: Any) -> Command[Any]:
    decision = ApprovalDecision(kind=more.pop("kind", "approve"), **more)
    return Command(resume={question.id: own.approval.resume_value(question, decision)})


async def one_approval_is_one_effect(rooms: Rooms, ledger: Path, tools: list[BaseTool]) -> None:
    look = call("look", "l1", text="x")
    own = Own(rooms, ASKS, ai(PAY, look), tools=tools)
    await own.run()
    question = await asked(own)
    assert question.value["request"]["arguments"] == {"to": "bob", "amount": 7}
    assert effects(ledger, "pay") == []
    await own.run(Command(resume={question.id: {"approved": True}}))
    assert effects(ledger, "pay") == []
    question = await asked(own)
    resume = answer(own, question)
    ended = await own.run(resume)
    await own.run(resume)
    assert len(effects(ledger, "pay")) == 1
    paired(ended["messages"])
    found = {m.tool_call_id: m for m in ended["messages"] if isinstance(m, ToolMessage)}
    assert "paid 7 to bob" in str(found["p1"].content)


@pytest.mark.anyio
async def test_over_stdio_one_approval_is_one_effect(rooms: Rooms, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp.jsonl"
    await one_approval_is_one_effect(rooms, ledger, await tools_of(stdio(ledger)))


@pytest.mark.anyio
async def test_over_http_one_approval_is_one_effect(rooms: Rooms, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp.jsonl"
    with http(ledger) as connection:
        await one_approval_is_one_effect(rooms, ledger, await tools_of(connection))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments",
    [{"to": "bob", "amount": "7"}, {"to": "bob", "amount": True}, {"to": "bob"}],
    ids=repr,
)
async def test_arguments_of_a_plain_json_schema_are_not_coerced(
    rooms: Rooms, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    ledger = tmp_path / "mcp.jsonl"
    own = Own(
        rooms, Policy(), ai(call("pay", "p1", **arguments)), tools=await tools_of(stdio(ledger))
    )
    ended = await own.run()
    assert error_of(ended["messages"][-2])["kind"] == "ToolArgsInvalid"
    assert effects(ledger, "pay") == []


@pytest.mark.anyio
async def test_undeclared_arguments_are_refused_or_stripped(rooms: Rooms, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp.jsonl"
    tools = await tools_of(stdio(ledger))
    ghostly = ai(call("pay", "p1", to="bob", amount=7, force=True))
    strict = Own(rooms, Policy(ghost="refuse"), ghostly, tools=tools)
    ended = await strict.run()
    assert "force" in error_of(ended["messages"][-2])["message"]
    assert effects(ledger, "pay") == []
    stripping = Own(rooms, Policy(), ghostly, tools=tools, store=strict.store)
    await stripping.run()
    assert effects(ledger, "pay") == [{"tool": "pay", "to": "bob", "amount": 7}]


@pytest.mark.anyio
async def test_a_tool_redefined_between_question_and_answer_asks_again(
    rooms: Rooms, tmp_path: Path
) -> None:
    ledger = tmp_path / "mcp.jsonl"
    saver = InMemorySaver()
    before = Own(rooms, ASKS, ai(PAY), tools=await tools_of(stdio(ledger)), saver=saver)
    await before.run()
    question = await asked(before)
    tools = await tools_of(stdio(ledger, "redefined"))
    after = Own(rooms, ASKS, tools=tools, saver=saver, store=before.store)
    await after.run(answer(before, question))
    assert effects(ledger, "pay") == []
    assert "schema_changed" in [event.kind for event in await after.store.events("thread-1")]
    await after.run(answer(after, await asked(after)))
    assert len(effects(ledger, "pay")) == 1


@pytest.mark.anyio
async def test_results_of_a_server_are_masked_in_blocks_and_artifacts(
    rooms: Rooms, tmp_path: Path
) -> None:
    tools = await tools_of(stdio(tmp_path / "mcp.jsonl"))
    policy = Policy(results={"look": ["email"]})
    own = Own(rooms, policy, ai(call("look", "l1", text="x")), tools=tools)
    ended = await own.run()
    assert "ann@example.org" not in repr(ended)
    assert "***" in str(ended["messages"][-2].content)


@pytest.mark.anyio
async def test_in_a_synchronous_graph_a_servers_tools_work_and_ask(
    rooms: Rooms, tmp_path: Path
) -> None:
    ledger = tmp_path / "mcp.jsonl"
    lines = ai(PAY, call("look", "l1", text="x"))
    own = Own(rooms, ASKS, lines, tools=await tools_of(stdio(ledger)))
    await asyncio.to_thread(own.graph.invoke, ASK, CONFIG)
    question = await asked(own)
    assert effects(ledger, "pay") == []
    ended = await asyncio.to_thread(own.graph.invoke, answer(own, question), CONFIG)
    assert len(effects(ledger, "pay")) == 1
    found = {m.tool_call_id: m for m in ended["messages"] if isinstance(m, ToolMessage)}
    assert "paid 7 to bob" in str(found["p1"].content)
    assert "ann@example.org" in str(found["l1"].content)


@pytest.mark.anyio
@pytest.mark.parametrize("front", ["agent", "tool_node"])
async def test_in_a_synchronous_run_of_every_front_end_a_servers_tools_work(
    rooms: Rooms, tmp_path: Path, front: str
) -> None:
    tools = await tools_of(stdio(tmp_path / "mcp.jsonl"))
    registry = registry_of(tools, [Policy().spec(tool.name) for tool in tools])
    executor = Executor(registry, store=rooms.store("adapter.db"))
    lines = ai(PAY)
    app: Any
    if front == "agent":
        app = create_agent(Script.of(lines), tools, middleware=[AdapterMiddleware(executor)])
    else:
        app = graph_of(tool_node(registry, executor=executor))
    given = ASK if front == "agent" else {"messages": [lines]}
    ended = await asyncio.to_thread(app.invoke, given, CONFIG)
    assert "paid 7 to bob" in repr(ended["messages"])
    assert len(effects(tmp_path / "mcp.jsonl", "pay")) == 1


@pytest.mark.anyio
async def test_a_server_that_is_gone_is_a_tool_error_in_a_synchronous_graph(
    rooms: Rooms, tmp_path: Path
) -> None:
    ledger = tmp_path / "mcp.jsonl"
    with http(ledger) as connection:
        tools = await tools_of(connection)
    own = Own(rooms, Policy(), ai(PAY), tools=tools)
    ended = await asyncio.to_thread(own.graph.invoke, ASK, CONFIG)
    assert error_of(ended["messages"][-2])["kind"] == "ToolFailed"
    assert effects(ledger, "pay") == []


@pytest.mark.anyio
async def test_a_registry_takes_a_servers_tools(tmp_path: Path) -> None:
    tools = await tools_of(stdio(tmp_path / "mcp.jsonl"))
    specs = [ASKS.spec(tool.name) for tool in tools]
    assert registry_of(tools, specs).names == ("look", "pay")
    assert specs[0].effects.destructive  # what nobody declared
