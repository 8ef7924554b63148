"""INTEGRATION: the one object by which code that knows no framework finds this one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from adapter.core.errors import ConfigurationError
from adapter.core.executor import Executor
from adapter.core.spec import ToolSpec
from adapter.core.types import CallContext, ToolCall
from adapter.flow.definition import Flow
from adapter.langgraph.compile import FlowGraph, compile_flow
from adapter.langgraph.governed import registry_of
from adapter.langgraph.scope import here
from adapter.langgraph.toolnode import GovernedToolNode, tool_node

__all__ = ["INTEGRATION", "Integration", "bind_context", "export_tool"]


def export_tool(spec: ToolSpec, *, executor: Executor | None = None) -> GovernedToolNode:
    """Return a tool_node of one tool.

    Args:
        spec: Carries its tool as ``function``.
        executor: None for one in memory, with a warning.

    Raises:
        ConfigurationError: The spec carries no tool.
    """
    if spec.function is None:
        msg = (
            f"ToolSpec {spec.name!r} carries no tool: give it function=, or use tool_node with a "
            "registry."
        )
        raise ConfigurationError(msg)
    return tool_node(registry_of([], [spec]), executor=executor)


def bind_context(tool_call: ToolCall | dict[str, Any] | None = None) -> CallContext:
    """Return where a call made by the running task stands, for ``executor.run(call, ctx)``.

    Args:
        tool_call: The call, as a ToolCall or as LangChain's dict; None for no call in particular.

    Raises:
        ToolUsageError: No LangGraph task runs here.
    """
    ctx = here()
    if tool_call is None:
        return ctx
    given = tool_call.id if isinstance(tool_call, ToolCall) else tool_call.get("id")
    return replace(ctx, call_id=given or f"{ctx.place.checkpoint_ns}:0")


@dataclass(frozen=True, slots=True)
class Integration:
    """What a framework offers: tools and flows as its own things, and where a call stands."""

    name: str

    def export_tool(self, spec: ToolSpec, *, executor: Executor | None = None) -> GovernedToolNode:
        """Return a node of one tool, as ``export_tool``."""
        return export_tool(spec, executor=executor)

    def bind_context(self, tool_call: ToolCall | dict[str, Any] | None = None) -> CallContext:
        """Return where a call stands, as ``bind_context``."""
        return bind_context(tool_call)

    def compile_flow(
        self, flow: Flow, *, executor: Executor | None = None, checkpoint_key: bytes | None = None
    ) -> FlowGraph:
        """Return a flow as a StateGraph, as ``compile_flow``."""
        return compile_flow(flow, executor=executor, checkpoint_key=checkpoint_key)


INTEGRATION = Integration("langgraph")
