"""PolicyMiddleware: the wrappers' policy as a create_agent middleware.

Offers the model only what the policy does not refuse outright, and governs every model and tool
call as AdapterMiddleware does, over the tools the agent turns out to have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from typing_extensions import override

from adapter.core.policy import Policy
from adapter.langgraph.admissions import Admissions
from adapter.langgraph.bridge import in_thread, run_sync
from adapter.langgraph.governed import ToolInvocation
from adapter.langgraph.middleware import AdapterState
from adapter.langgraph.turns import ModelTurn
from adapter.langgraph.wrappers import PolicyGate, filter_tools

__all__ = ["PolicyMiddleware", "adapter_middleware"]


class PolicyMiddleware(AgentMiddleware[AdapterState, Any, Any]):
    """Runs every tool call of an agent under a policy. Put it first in the list."""

    state_schema = AdapterState

    def __init__(self, gate: PolicyGate) -> None:
        """Take the gate."""
        super().__init__()
        self._gate = gate

    def _turn(self, request: ModelRequest[Any]) -> tuple[ModelTurn, ModelRequest[Any]]:
        tools = [tool for tool in request.tools if isinstance(tool, BaseTool)]
        offered = filter_tools(request.tools, self._gate.policy)
        executor = self._gate.executor(tools)
        return ModelTurn(executor, Admissions(executor)), request.override(tools=offered)

    @override
    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> Any:
        """Govern one model call."""
        turn, offered = self._turn(request)
        return await turn.call(offered, handler)

    @override
    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> Any:
        """Govern one model call of a synchronous run."""
        turn, offered = self._turn(request)
        return run_sync(turn.call(offered, in_thread(handler)))

    @override
    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Govern one tool call."""
        return await self._gate.run(request, ToolInvocation(request, handler, threaded=False))

    @override
    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Govern one tool call of a synchronous run."""
        return self._gate.wrap_tool_call(request, handler)


def adapter_middleware(policy: Policy, **options: Any) -> PolicyMiddleware:
    """Return a create_agent middleware that keeps a policy.

    Args:
        policy: Rules over all tools.
        options: As of ``PolicyGate``: ``store``, ``approval``, ``specs``, ``budgets``, ...
    """
    return PolicyMiddleware(PolicyGate(policy, **options))
