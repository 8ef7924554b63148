"""AdapterMiddleware: governed tool calls for create_agent. Thin; the executor does the work.

Put it first in the list of middleware: then every retry, limit or error handler runs inside its
gate and behind its fence, and sees the call only after it was claimed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ModelRequest,
    ModelResponse,
    OmitFromInput,
)
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from typing_extensions import override

from adapter.core.errors import (
    AdapterError,
    ConfigurationError,
    ModelVisibleError,
    ToolFailed,
    ToolTimeout,
)
from adapter.core.executor import Executor
from adapter.langgraph.admissions import Admissions
from adapter.langgraph.bridge import in_thread, run_sync
from adapter.langgraph.calls import CallTurn
from adapter.langgraph.channels import Newest
from adapter.langgraph.governed import ToolInvocation
from adapter.langgraph.turns import ModelTurn

__all__ = ["AdapterMiddleware", "AdapterState", "OnToolFailure"]

OnToolFailure = Literal["message", "raise"]
ToolResult = ToolMessage | Command[Any]


class AdapterState(AgentState[Any]):
    """What clients may read of the adapter's work; never read back by the adapter."""

    audit_log: NotRequired[Annotated[list[dict[str, Any]], OmitFromInput, Newest]]
    audit_head: NotRequired[Annotated[dict[str, Any], OmitFromInput, Newest]]
    total_tool_calls: NotRequired[Annotated[int, OmitFromInput, Newest]]
    turn_id: NotRequired[Annotated[str, OmitFromInput, Newest]]


class AdapterMiddleware(AgentMiddleware[AdapterState, Any, Any]):
    """Runs every tool call of an agent through an Executor."""

    state_schema = AdapterState

    def __init__(self, executor: Executor, *, on_tool_failure: OnToolFailure = "message") -> None:
        """Take the executor.

        Args:
            executor: With a registry of exactly the agent's tools.
            on_tool_failure: ``message`` shows ToolFailed and ToolTimeout to the model (kind,
                class name, reference); ``raise`` ends the run.

        Raises:
            ConfigurationError: Another value of ``on_tool_failure``.
        """
        super().__init__()
        if on_tool_failure not in ("message", "raise"):
            msg = f"on_tool_failure is 'message' or 'raise', not {on_tool_failure!r}."
            raise ConfigurationError(msg)
        shown: tuple[type[AdapterError], ...] = (ModelVisibleError,)
        if on_tool_failure == "message":
            shown = (ModelVisibleError, ToolFailed, ToolTimeout)
        admissions = Admissions(executor)
        self._model = ModelTurn(executor, admissions)
        self._calls = CallTurn(executor, shown, admissions=admissions)
        for name in ("awrap_model_call", "awrap_tool_call"):
            setattr(self, name, _quick(getattr(self, name)))

    @override
    def awrap_model_call(  # type: ignore[override]
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> Awaitable[Any]:
        """Govern one model call. Plain, not async: LangChain sends async hooks through threads."""
        return self._model.call(request, handler)

    @override
    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> Any:
        """Govern one model call of a synchronous run."""
        return run_sync(self._model.call(request, in_thread(handler)))

    @override
    def awrap_tool_call(  # type: ignore[override]
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolResult]],
    ) -> Awaitable[Any]:
        """Govern one tool call. Plain, not async: LangChain sends async hooks through threads."""
        return self._calls.run(request, ToolInvocation(request, handler, threaded=False))

    @override
    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]
    ) -> Any:
        """Govern one tool call of a synchronous run."""
        return run_sync(self._calls.run(request, ToolInvocation(request, handler, threaded=True)))


_HOOK = inspect.Signature(
    [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in ("request", "handler")
    ]
)


def _quick(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a hook that knows its signature.

    LangChain's tracing wrapper asks for it at every call, and of a bound method it is made anew.
    """

    def call(request: Any, handler: Any) -> Any:
        return hook(request, handler)

    call.__signature__ = _HOOK  # type: ignore[attr-defined]
    return call
