"""INTEGRATION and what the package offers by name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tests.support.room import KEYS
from tests.support.toolkit import CONFIG, Bench, asking, graph_of, of, results

from adapter import ConfigurationError, Effects, Executor, ToolCall, ToolSpec
from adapter.langgraph import (
    INTEGRATION,
    LangGraphApproval,
    bind_context,
    export_tool,
    registry_of,
)


def double(text: str) -> str:
    """Double it."""
    return text * 2


SPEC = ToolSpec(name="double", effects=Effects(), approval=None, function=double)


@pytest.mark.anyio
async def test_export_tool_is_a_tool_node_of_one_tool(bench: Bench) -> None:
    executor = Executor(
        registry_of([], [SPEC]), store=bench.store(), approval=LangGraphApproval(KEYS)
    )
    node = INTEGRATION.export_tool(SPEC, executor=executor)
    assert [tool.name for tool in node.tools] == ["double"]
    out = await graph_of(node).ainvoke(asking(of("double", "c1", text="a")), CONFIG)
    assert results(out)[0].content == "aa"
    with pytest.warns(UserWarning, match="survives"):
        assert export_tool(SPEC).tools[0].description == "Double it."


@pytest.mark.anyio
async def test_export_tool_of_a_spec_without_a_tool_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="function="):
        export_tool(ToolSpec(name="x", effects=Effects(), approval=None))


@pytest.mark.parametrize(
    ("given", "call_id"),
    [
        (None, ""),
        ({"name": "x", "args": {}, "id": "c1"}, "c1"),
        (ToolCall(name="x", arguments={}, id="c2"), "c2"),
        ({"name": "x", "args": {}, "id": None}, "own:…:0"),
    ],
)
@pytest.mark.anyio
async def test_bind_context_says_where_a_call_stands(given: Any, call_id: str) -> None:
    seen: list[Any] = []

    async def own(state: Any) -> Any:
        seen.extend([bind_context(given), INTEGRATION.bind_context(given)])
        return {}

    await graph_of(own, schema=dict).ainvoke({"x": 1}, CONFIG)
    for context in seen:
        assert context.thread_id == "shop-1"
        assert context.place.checkpoint_ns.startswith("own:")
        assert context.call_id.startswith(call_id[:4])
        assert context.call_id.endswith(call_id[-2:])


def test_every_public_name_loads_in_any_order_and_stays_what_it_is() -> None:
    code = (
        "import adapter.langgraph as room\n"
        "first = {name: getattr(room, name) for name in room.__all__}\n"
        "again = {name: getattr(room, name) for name in reversed(room.__all__)}\n"
        "assert first == again\n"
        "assert not any(type(found).__name__ == 'module' for found in again.values())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
