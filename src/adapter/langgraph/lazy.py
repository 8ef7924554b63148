"""Importing public names on use, with the cure when LangGraph is missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

__all__ = ["load"]


def load(name: str, rooms: Mapping[str, str]) -> Any:
    """Return a public name of the package.

    Raises:
        AttributeError: There is no such name.
        ImportError: LangGraph or LangChain is not installed; the message has the pip command.
    """
    if name not in rooms:
        msg = f"module 'adapter.langgraph' has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        return getattr(import_module(rooms[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("langgraph", "langchain", "langchain_core"):
            raise
        msg = f'{name} needs LangGraph: pip install "agent-adapter[langgraph]".'
        raise ImportError(msg) from error
