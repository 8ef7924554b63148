"""What the adapter's own graph nodes share: sync over async, and an executor when none is given."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from functools import cache
from typing import Any, Literal

from langchain_core.runnables import Runnable, RunnableConfig
from typing_extensions import override

from adapter.core.confirming import check_registry
from adapter.core.errors import (
    AdapterError,
    ConfigurationError,
    ModelVisibleError,
    ToolFailed,
    ToolTimeout,
)
from adapter.core.executor import Executor
from adapter.core.spec import Registry
from adapter.langgraph.approval import LangGraphApproval
from adapter.langgraph.bridge import run_sync
from adapter.langgraph.usedup import aspent, spent
from adapter.stores.memory import MemoryStore

__all__ = ["GovernedNode", "OnToolFailure", "executor_for", "shown_errors"]

OnToolFailure = Literal["message", "raise"]


class GovernedNode(Runnable[Any, Any]):
    """A node for sync and async graphs whose work is one coroutine."""

    name: str | None = None

    @abstractmethod
    async def _run(self, given: Any, config: RunnableConfig | None) -> Any: ...

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **_kwargs: Any) -> Any:
        """Run in a synchronous graph."""
        try:
            return run_sync(self._run(input, config))
        except Exception as error:
            spent(error)
            raise

    @override
    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **_kwargs: Any
    ) -> Any:
        """Run in an asynchronous graph."""
        try:
            return await self._run(input, config)
        except Exception as error:
            await aspent(error)
            raise


def shown_errors(on_tool_failure: OnToolFailure) -> tuple[type[AdapterError], ...]:
    """Return the errors that become results instead of being raised.

    Raises:
        ConfigurationError: Another value.
    """
    if on_tool_failure not in ("message", "raise"):
        msg = f"on_tool_failure is 'message' or 'raise', not {on_tool_failure!r}."
        raise ConfigurationError(msg)
    if on_tool_failure == "message":
        return (ModelVisibleError, ToolFailed, ToolTimeout)
    return (ModelVisibleError,)


def executor_for(registry: Registry, executor: Executor | None) -> Executor:
    """Return the executor, or one over memory where none was given.

    Raises:
        ConfigurationError: The executor's registry lacks a tool, or has another one of its name;
            or the tools are no registry.
    """
    check_registry(registry)
    if executor is None:
        warnings.warn(
            "No executor was given: approvals, journal and audit are in memory, and nothing of "
            "them survives this process. Give executor=Executor(registry, store=open_store(...), "
            "approval=LangGraphApproval(keys)).",
            stacklevel=3,
        )
        store, approval = _in_memory()
        return Executor(registry, store=store, approval=approval)
    for name in registry.names:
        known = executor.registry
        if known.get(name) is None or known.digests(name) != registry.digests(name):
            msg = (
                f"The executor has no tool {name!r}, or another one of this name: build it over "
                "the same registry."
            )
            raise ConfigurationError(msg)
    return executor


@cache
def _in_memory() -> tuple[MemoryStore, LangGraphApproval]:
    """One store and one port for every node without an executor, so that one port signs for all."""
    return MemoryStore(), LangGraphApproval()
