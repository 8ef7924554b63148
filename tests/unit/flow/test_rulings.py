"""The rules for flows that two good developers might have made differently, each by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.flow.kit import KEY, Item, Kit, Order, edit, logs, order

import adapter.flow
from adapter import Effects, Executor, FunctionTool, Registry, ToolSpec
from adapter.core.errors import ToolUsageError
from adapter.core.validation import PydanticSchema
from adapter.flow import Call, Flow, FlowCompileError, FlowContext, FlowLoopExceeded, Map, Route
from adapter.langgraph import LangGraphApproval
from adapter.stores import MemoryStore

pytestmark = pytest.mark.anyio


async def test_the_route_sees_the_input_state_plus_its_own_writes(kit: Kit) -> None:
    seen: list[Any] = []

    def choose(state: Order) -> str:
        seen.append((state.log, state.total))
        return "z"

    made = Flow("f", state=Order).start("a", "b").node("z", logs("z")).end("b", "z")
    made.node("a", lambda _state: {"log": "a", "total": 2})
    made.node("b", lambda _state: {"log": "b", "total": 5})
    made.edge("a", Route(choose, to="z"))
    done = await kit.run(made, {"log": ["given"], "total": 1})
    assert seen == [(["given", "a"], 3)]
    assert (done.state.log, done.state.total) == (["given", "a", "b", "z"], 8)


async def test_the_default_limit_is_a_hundred_supersteps(kit: Kit) -> None:
    made = Flow("f", state=Order).node("a", lambda _state: {"total": 1})
    made.edge("a", Route(lambda _state: "a", to="a", caps=1000))
    made.end("a")
    kept: list[str] = []
    with pytest.raises(FlowLoopExceeded, match="not over after 100 supersteps"):
        await kit.run(made, {}, on_checkpoint=kept.append)
    assert len(kept) == 100


@pytest.mark.parametrize("name", ["__start__", "__end__"])
def test_reserved_names_of_nodes_are_a_compile_error(name: str) -> None:
    with pytest.raises(FlowCompileError, match=f"node '{name}' has a reserved name"):
        Flow("f", state=Order).node(name, logs("x")).end(name).validate()


async def test_every_node_of_a_gated_superstep_waits_for_the_same_gates(kit: Kit) -> None:
    made = Flow("f", state=Order).start("a", "b", "c").end("a", "b", "c")
    made.node("a", Map("items", tool="note", into="log"))
    made.node("b", logs("b"), pause=lambda _state: {})
    made.node("c", Call("note", {"item": "c"}, into="log"))
    paused = await kit.run(made, {"items": [{"item": "a"}]})
    assert (paused.status, kit.ran) == ("paused", [])
    assert (await kit.decided(made, paused)).state.log == ["noted a", "b", "noted c"]


async def test_siblings_of_a_gate_with_edited_args_see_the_edited_state(kit: Kit) -> None:
    seen: list[str] = []
    made = Flow("f", state=Order).start("a", "b").end("a", "b")
    made.node("b", logs("b"), pause=lambda _state: {})
    made.node("a", lambda state: seen.append(state.note))
    done = await kit.decided(made, await kit.run(made, {"note": "old"}), edit(note="new"))
    assert (seen, done.state.note) == (["new"], "new")


async def test_the_newest_checkpoint_holds_all_earlier_progress(kit: Kit) -> None:
    async def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        made = [await ctx.call("note", {"item": "a"})]
        made.append(await ctx.call("pay", {"amount": 1}))
        made.append(await ctx.call("pay", {"amount": 2}))
        return {"log": made}

    made = Flow("f", state=Order).node("n", work).end("n")
    second = await kit.decided(made, await kit.run(made, {}))
    other = Kit()
    done = await other.decided(made, second)
    assert done.state.log == ["noted a", "paid 1", "paid 2"]
    assert other.ran == [("pay", 2)]
    await other.store.aclose()


async def test_once_per_run_holds_over_all_nodes_of_a_run() -> None:
    ran: list[str] = []

    def once(item: str) -> int:
        ran.append(item)
        return len(ran)

    spec = ToolSpec(name="once", effects=Effects(), approval=None, once_per_run=True)
    registry = Registry([spec], {"once": PydanticSchema(Item)}, {"once": FunctionTool(once)})
    store = MemoryStore()
    executor = Executor(registry, store=store)
    made = Flow("f", state=Order).node("a", Call("once", {"item": "x"}, into="total"))
    made.node("b", Call("once", {"item": "x"}, into="total")).edge("a", "b").end("b")
    assert (await made.run({}, executor=executor)).state.total == 2
    assert ran == ["x"]
    await made.run({}, executor=executor)
    assert ran == ["x", "x"]
    await store.aclose()


async def test_a_port_of_langgraph_asks_nothing_here_and_lets_reads_and_effects_run() -> None:
    kit = Kit()
    executor = kit.make(approval=LangGraphApproval(KEY))
    free = Flow("f", state=Order).node("n", Map("items", tool="note", into="log")).end("n")
    done = await free.run({"items": [{"item": "a"}]}, executor=executor)
    assert done.state.log == ["noted a"]
    with pytest.raises(ToolUsageError):
        await order().run({"items": []}, executor=executor)
    await kit.store.aclose()


# ------------------------------------------------------------------------- what importing loads


def in_a_process(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_flows_loads_no_langgraph_and_nothing_heavy(tmp_path: Path) -> None:
    code = """
import sys
import adapter.flow
for name in ("langgraph", "langchain", "langchain_core", "langsmith", "sqlalchemy", "alembic"):
    if name in sys.modules:
        print(name)
"""
    assert in_a_process(code, tmp_path) == ""


def test_a_flow_runs_where_langgraph_is_not_installed(tmp_path: Path) -> None:
    code = """
import asyncio, sys
for name in ("langgraph", "langchain", "langchain_core", "langgraph_sdk", "langsmith"):
    sys.modules[name] = None
from pydantic import BaseModel
from adapter import ApprovalDecision
from adapter.flow import Flow
class State(BaseModel):
    text: str = ""
flow = Flow("f", state=State).node("a", lambda s: {"text": "ran"}, pause=lambda s: {}).end("a")
async def main():
    paused = await flow.run({})
    done = await flow.run(checkpoint=paused.checkpoint, decision=ApprovalDecision(approved=True))
    print(paused.status, done.status, done.state.text)
asyncio.run(main())
"""
    assert in_a_process(code, tmp_path) == "paused done ran\n"


def test_every_public_name_is_there_and_in_order() -> None:
    names = adapter.flow.__all__
    assert all(hasattr(adapter.flow, name) for name in names)
    assert names == sorted(names, key=lambda name: (not name.isupper(), name))
