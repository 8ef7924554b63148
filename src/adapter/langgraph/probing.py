"""Tries the known ways around the gate on a user's own graph, in process, with harmless tools.

Every tool of every ToolNode is replaced by a probe for the time of the test: it runs nothing and
notes whether the adapter had claimed the call. No model is called: the messages are made here.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langchain_core.tools import BaseTool
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from adapter.langgraph.attempts import Prober
from adapter.langgraph.findings import Finding, Report
from adapter.langgraph.flownode import FlowNode
from adapter.langgraph.nodes import GovernedNode
from adapter.langgraph.probes import probes
from adapter.langgraph.reaching import held_by
from adapter.langgraph.toolnode import GovernedToolNode

__all__ = ["Finding", "Report", "probe_graph"]

_DEPTH = 5  # of graphs inside graphs


async def probe_graph(graph: Any) -> Report:
    """Try every known way around the gate.

    Args:
        graph: A compiled graph.

    Returns:
        What was found; ``report.holes`` is empty where the gate held. Questions asked meanwhile
        stay in the graph's own store, under threads named ``selftest-...``; `adapter selftest`
        has the graph make one in memory.
    """
    walk = _Walk(Report())
    await walk.graph(graph, "")
    if not walk.report.tried:
        walk.report.add(
            "note", "tool nodes", "", "", "This graph has no ToolNode; nothing was tried."
        )
    return walk.report


class _Walk:
    """One way through a graph and all that its code holds; everything is tried once."""

    def __init__(self, report: Report, seen: set[int] | None = None) -> None:
        self.report = report
        self._seen = set[int]() if seen is None else seen

    def _new(self, thing: Any) -> bool:
        known = id(thing) in self._seen
        self._seen.add(id(thing))
        return not known

    async def graph(self, graph: Any, around: str) -> None:
        """Try every node of a graph."""
        if not self._new(graph):
            return
        nodes = [
            (name, part)
            for name, node in getattr(graph, "nodes", {}).items()
            for part in _parts(getattr(node, "bound", None))
        ]
        # The nodes that are there to be seen come first: code may hold the same tool node again.
        for name, part in nodes:
            if isinstance(part, ToolNode) and self._new(part):
                await self._probed(graph, name, around + name, part)
        for name, part in nodes:
            if isinstance(part, Pregel):
                await self.graph(part, f"{around}{name}|")
            elif not isinstance(part, ToolNode):
                await self._code(name, part, around)
        for name, node in getattr(graph, "nodes", {}).items():
            self._cached(graph, name, node, around)
        for name, branches in getattr(getattr(graph, "builder", None), "branches", {}).items():
            for branch in branches.values():
                await self._code(f"{name} (its edges)", branch.path, around)

    def _cached(self, graph: Any, name: str, node: Any, around: str) -> None:
        """Report a node whose results LangGraph gives again, in other threads too."""
        policies = [getattr(one, "cache_policy", None) for one in (node, graph)]
        parts = _parts(getattr(node, "bound", None))
        if any(policies) and any(_governs(part) for part in parts):
            self.report.add("hole", "cache_policy", around + name, "", _CACHED)

    async def _code(self, name: str, part: Any, around: str) -> None:
        """Try what the code of a node holds."""
        where = around + name
        if isinstance(part, GovernedNode | FlowNode):
            self.report.add("ok", "tool_node", where, "", "the adapter's own node")
        tools = part.tools if isinstance(part, GovernedToolNode) else []
        await self._tools(tools, where)
        held = held_by(part)
        for node in held.nodes:
            if self._new(node):
                await self._probed(_around(node), "tools", where, node)
        for graph in held.graphs:
            await self.graph(graph, f"{where}|")
        for tool, use in held.tools.items():
            severity, text = _CALLED[use]
            made = Finding(severity=severity, attempt="own node", node=where, tool=tool, text=text)
            if made not in self.report.findings:  # a step is read alone, and in its sequence
                self.report.findings.append(made)

    async def _probed(self, graph: Any, node: str, shown: str, tools: ToolNode) -> None:
        await self._tools(list(tools.tools_by_name.values()), shown)
        with probes(tools) as runs:
            await Prober(graph, node, shown, tools, runs, self.report).all()

    async def _tools(self, tools: list[BaseTool], shown: str) -> None:
        """Try the agents that tools call: reached through a governed call, but not governed."""
        for tool in tools:
            for graph in held_by(tool).graphs:
                inner = Report()
                await _Walk(inner, self._seen).graph(graph, f"{shown}|{tool.name}|")
                for one in inner.findings:
                    if one.severity == "hole":
                        text = f"{one.text} It is reached through a call of {tool.name} only."
                        self.report.add("warning", one.attempt, one.node, one.tool, text)
                    else:
                        self.report.findings.append(one)


_CALLED: dict[str, Any] = {
    "calls": (
        "hole",
        "The code of the node, or of middleware in it, calls the tool outside the adapter. Call "
        "it by executor.run in one_use(node), or leave the calls to tool_node.",
    ),
    "may call": (
        "warning",
        "The node's own code holds the tool, and could call it outside the adapter; this was not "
        "tried. Bind tools to a model outside the node, and call them by executor.run.",
    ),
}


_CACHED = (
    "LangGraph gives the node's result again for an equal input, in other threads and to other "
    "users too: no call is asked about, recorded or counted then. Remove the cache_policy; for a "
    "tool that only reads, use ToolSpec(cache_ttl=...)."
)


def _governs(part: Any, depth: int = 0) -> bool:
    """Tell whether a node, or what it runs, runs tool calls."""
    if isinstance(part, GovernedNode | FlowNode | ToolNode):
        return True
    if depth > _DEPTH:
        return False
    if isinstance(part, Pregel):
        inner = [one for node in part.nodes.values() for one in _parts(node.bound)]
        return any(_governs(one, depth + 1) for one in inner)
    held = held_by(part)
    return held.governs or any(_governs(one, depth + 1) for one in (*held.nodes, *held.graphs))


def _parts(bound: Any) -> list[Any]:
    return [bound, *getattr(bound, "steps", [])]


def _around(node: ToolNode) -> Any:
    """Return a graph of one ToolNode, which some code runs by itself."""
    key = node._messages_key  # noqa: SLF001 - there is no public name
    made: Any = TypedDict
    schema = made("State", {key: Annotated[list[Any], add_messages]})
    graph: Any = StateGraph(schema)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    return graph.compile()
