"""The executor of a flow that was given none: over memory, for functions and gates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapter.core.deferred import DeferredApproval
from adapter.core.errors import FlowError
from adapter.core.executor import Executor
from adapter.core.keys import KeyRing
from adapter.core.spec import Registry
from adapter.flow.checkpoint import own_keys
from adapter.flow.kinds import Call, Map
from adapter.flow.shape import Shape

__all__ = ["executor_of"]


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

    ring = own_keys() if checkpoint_key is None else KeyRing.from_secret(checkpoint_key)
    store = MemoryStore()
    try:
        yield Executor(Registry([], {}), store=store, approval=DeferredApproval(store, ring))
    finally:
        await store.aclose()
