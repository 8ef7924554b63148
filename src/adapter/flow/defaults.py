"""The executor of a flow: whether its port can ask here, and one over memory if there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapter.core.deferred import DeferredApproval
from adapter.core.errors import FlowError, ToolUsageError
from adapter.core.executor import Executor
from adapter.core.spec import Registry
from adapter.flow.checkpoint import given_keys, own_keys
from adapter.flow.kinds import Call, Map, Node
from adapter.flow.shape import Shape

__all__ = ["check_port", "executor_of"]


def check_port(flow: Shape, executor: Executor) -> None:
    """Refuse a flow that certainly asks where the executor's port asks in a graph only.

    Raises:
        ToolUsageError: Names what asks; nothing ran.
    """
    if executor.port is None or not executor.port.in_graph:
        return
    asks = [node.name for node in flow.nodes.values() if node.gated or _asks(node, executor)]
    if asks:
        msg = (
            f"Flow {flow.name!r} asks a person at {', '.join(asks)}, and this executor's port, "
            f"{type(executor.port).__name__}, asks in a running LangGraph graph only. Give "
            "flow.run an Executor(…, approval=DeferredApproval(store, keys)), or run the flow by "
            "compile_flow. Nothing ran."
        )
        raise ToolUsageError(msg)


def _asks(node: Node, executor: Executor) -> bool:
    if not isinstance(node.work, Call | Map):
        return False
    spec = executor.registry.get(node.work.tool)
    return spec is not None and spec.approval is not None and spec.approval.when is None


@asynccontextmanager
async def executor_of(
    flow: Shape, executor: Executor | None, checkpoint_key: bytes | None
) -> AsyncIterator[Executor]:
    """Yield the executor, or one over memory: what it has to keep travels in the checkpoint.

    Raises:
        FlowError: The flow calls tools, and nobody says which.
    """
    if executor is not None:
        yield executor
        return
    called = {node.work.tool for node in flow.nodes.values() if isinstance(node.work, Call | Map)}
    if called:
        msg = (
            f"Flow {flow.name!r} calls the tools {', '.join(sorted(called))}: give run(…, "
            "executor=Executor(registry, store=…, approval=DeferredApproval(store, keys)))."
        )
        raise FlowError(msg)
    from adapter.stores.memory import MemoryStore

    ring = own_keys() if checkpoint_key is None else given_keys(checkpoint_key)
    store = MemoryStore()
    try:
        yield Executor(Registry([], {}), store=store, approval=DeferredApproval(store, ring))
    finally:
        await store.aclose()
