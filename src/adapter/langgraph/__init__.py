"""The LangGraph room: everything that imports LangGraph or LangChain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adapter.core.deferred import DeferredApproval
    from adapter.core.merge import Merge
    from adapter.langgraph.approval import LangGraphApproval
    from adapter.langgraph.bridge import run_sync
    from adapter.langgraph.channels import reducer
    from adapter.langgraph.compile import compile_flow
    from adapter.langgraph.compression import Compression, Compressor, langgraph_compressor
    from adapter.langgraph.governed import registry_of
    from adapter.langgraph.integration import INTEGRATION, bind_context, export_tool
    from adapter.langgraph.mending import mend_node
    from adapter.langgraph.middleware import AdapterMiddleware
    from adapter.langgraph.oneuse import one_use
    from adapter.langgraph.policing import PolicyMiddleware, adapter_middleware
    from adapter.langgraph.runflow import run_compiled
    from adapter.langgraph.tasks import fan_out, tool_task
    from adapter.langgraph.toolnode import tool_node
    from adapter.langgraph.wrappers import (
        PolicyGate,
        adapter_awrap_tool_call,
        adapter_wrap_tool_call,
        filter_tools,
    )

__all__ = [
    "INTEGRATION",
    "AdapterMiddleware",
    "Compression",
    "Compressor",
    "DeferredApproval",
    "LangGraphApproval",
    "Merge",
    "PolicyGate",
    "PolicyMiddleware",
    "adapter_awrap_tool_call",
    "adapter_middleware",
    "adapter_wrap_tool_call",
    "bind_context",
    "compile_flow",
    "export_tool",
    "fan_out",
    "filter_tools",
    "langgraph_compressor",
    "mend_node",
    "one_use",
    "reducer",
    "registry_of",
    "run_compiled",
    "run_sync",
    "tool_node",
    "tool_task",
]

_ROOMS = {
    "INTEGRATION": "adapter.langgraph.integration",
    "AdapterMiddleware": "adapter.langgraph.middleware",
    "Compression": "adapter.langgraph.compression",
    "Compressor": "adapter.langgraph.compression",
    "DeferredApproval": "adapter.core.deferred",
    "LangGraphApproval": "adapter.langgraph.approval",
    "Merge": "adapter.core.merge",
    "PolicyGate": "adapter.langgraph.wrappers",
    "PolicyMiddleware": "adapter.langgraph.policing",
    "adapter_awrap_tool_call": "adapter.langgraph.wrappers",
    "adapter_middleware": "adapter.langgraph.policing",
    "adapter_wrap_tool_call": "adapter.langgraph.wrappers",
    "bind_context": "adapter.langgraph.integration",
    "compile_flow": "adapter.langgraph.compile",
    "export_tool": "adapter.langgraph.integration",
    "fan_out": "adapter.langgraph.tasks",
    "filter_tools": "adapter.langgraph.wrappers",
    "langgraph_compressor": "adapter.langgraph.compression",
    "mend_node": "adapter.langgraph.mending",
    "one_use": "adapter.langgraph.oneuse",
    "reducer": "adapter.langgraph.channels",
    "registry_of": "adapter.langgraph.governed",
    "run_compiled": "adapter.langgraph.runflow",
    "run_sync": "adapter.langgraph.bridge",
    "tool_node": "adapter.langgraph.toolnode",
    "tool_task": "adapter.langgraph.tasks",
}


def __getattr__(name: str) -> Any:
    """Import a public name on use, so that the package imports without LangGraph."""
    from adapter.langgraph.lazy import load

    return load(name, _ROOMS)
