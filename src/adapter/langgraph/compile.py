"""compile_flow: a flow as a StateGraph, with the results of the local runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from adapter.core.executor import Executor
from adapter.core.spec import Registry
from adapter.flow.checkpoint import sealer_for
from adapter.flow.definition import Flow
from adapter.langgraph.flowchannels import FLOW, beginning, schemas
from adapter.langgraph.flowmeeting import Wiring
from adapter.langgraph.flownode import FlowNode
from adapter.langgraph.flowseal import TaskSeal
from adapter.langgraph.flowtold import Told
from adapter.langgraph.nodes import executor_for
from adapter.langgraph.scope import here
from adapter.langgraph.supersteps import run_of, start_input, superstep, write_channels

__all__ = ["FlowGraph", "compile_flow"]


class FlowGraph(StateGraph[Any, Any, Any, Any]):
    """The graph of a flow; ``compile`` it like any other.

    Attributes:
        flow: The flow.
        executor: What governs its calls.
        wiring: What its nodes share.
    """

    def __init__(self, flow: Flow, wiring: Wiring) -> None:
        """Build the graph; ``compile_flow`` says what is what."""
        state, given = schemas(flow, wiring.told)
        super().__init__(state, input_schema=given)
        # The start writes validated values itself (see ``beginning``), and no input as it came.
        self.schemas[given] = {}
        self.flow = flow
        self.executor = wiring.executor
        self.wiring = wiring
        for name, node in flow.nodes.items():
            static, routes = flow.static(name), flow.routes(name)
            leads = {target for route in routes for target in route.targets} - set(static)
            if name in flow.ends:
                leads.add(END)
            self.add_node(
                name,
                FlowNode(wiring, node),
                defer=node.is_join,
                destinations=tuple(sorted(leads)) or None,
            )
            for target in static:
                self.add_edge(name, target)
        self.add_conditional_edges(START, _beginning(flow, wiring.told), list(flow.starts))


def _beginning(flow: Flow, told: Told) -> Callable[..., list[str]]:
    def begin(_state: Any, config: RunnableConfig) -> list[str]:
        conf = config.get("configurable", {})
        begun = told.begun(here().thread_id, run_of(conf))
        write_channels(conf, beginning(flow, start_input(conf), begun, told))
        superstep(conf, ()).run[FLOW].ends = True
        return list(flow.starts)

    return begin


def compile_flow(
    flow: Flow,
    *,
    executor: Executor | None = None,
    checkpoint_key: bytes | None = None,
    gate_wait: float = 10.0,
) -> FlowGraph:
    """Return a flow as a StateGraph: one node for each of its nodes, one channel for each field.

    Args:
        flow: The flow.
        executor: Governs every call and gate; None for one in memory, with a warning.
        checkpoint_key: Secret of 16 or more bytes that seals a paused node's progress; by default
            the keys of the executor's port, else random ones of this process.
        gate_wait: Seconds within which the gated nodes of a superstep have to show up before the
            others pause with them; how long a reviewer takes does not count.

    Raises:
        FlowCompileError: The flow is not well formed, or names an unknown tool.
        ConfigurationError: The secret is short or a placeholder.
    """
    if executor is None:
        executor = executor_for(Registry([], {}), None)
    flow.validate(executor.registry)
    sealer = sealer_for(executor, checkpoint_key)
    seal = TaskSeal(flow=flow.name, digest=flow.digest, executor=executor, sealer=sealer)
    lasting = executor.port is not None or checkpoint_key is not None
    told = Told(flow=flow.name, keys=sealer.keys, lasting=lasting)
    wiring = Wiring(flow=flow, executor=executor, seal=seal, told=told, wait=gate_wait)
    return FlowGraph(flow, wiring)
