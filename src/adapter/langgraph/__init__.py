"""The LangGraph room: everything that imports LangGraph or LangChain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adapter.langgraph.approval import LangGraphApproval
    from adapter.langgraph.governed import registry_of
    from adapter.langgraph.middleware import AdapterMiddleware

__all__ = ["AdapterMiddleware", "LangGraphApproval", "registry_of"]

_ROOMS = {
    "AdapterMiddleware": "adapter.langgraph.middleware",
    "LangGraphApproval": "adapter.langgraph.approval",
    "registry_of": "adapter.langgraph.governed",
}


def __getattr__(name: str) -> Any:
    """Import a public name on use, so that the package imports without LangGraph."""
    from adapter.langgraph.lazy import load

    return load(name, _ROOMS)
