"""Harmless tools in the place of a ToolNode's own: each notes whether the adapter runs the call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode

from adapter.core.types import current_context

__all__ = ["Runs", "probes"]


@dataclass(slots=True)
class Runs:
    """Runs of one probe: for each, whether the adapter was running the call."""

    governed: list[bool] = field(default_factory=list)


@contextmanager
def probes(node: ToolNode) -> Iterator[dict[str, Runs]]:
    """Put probes in the place of a node's tools."""
    originals = dict(node._tools_by_name)  # noqa: SLF001 - there is no public way to replace one
    runs = {name: Runs() for name in originals}
    node._tools_by_name.update(  # noqa: SLF001
        {name: _probe(tool, runs[name]) for name, tool in originals.items()}
    )
    try:
        yield runs
    finally:
        node._tools_by_name.clear()  # noqa: SLF001
        node._tools_by_name.update(originals)  # noqa: SLF001


def _probe(tool: BaseTool, runs: Runs) -> BaseTool:
    """Return a tool with the same name, schema and signature that does nothing but note."""
    result: Any = "selftest" if tool.response_format == "content" else ("selftest", None)

    def note() -> Any:
        runs.governed.append(current_context() is not None)
        return result

    update = {
        part: _body(original, note)
        for part in ("func", "coroutine")
        if (original := getattr(tool, part, None)) is not None
    }
    if update:
        return tool.model_copy(update=update)
    kind = type(tool)
    bodies = {name: _body(getattr(kind, name), note) for name in ("_run", "_arun")}
    made = tool.model_copy()
    made.__class__ = type(kind.__name__, (kind,), bodies)
    return made


def _body(original: Callable[..., Any], note: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function with the same signature that only notes."""
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def later(*_args: Any, **_kwargs: Any) -> Any:
            return note()

        return later

    @functools.wraps(original)
    def plain(*_args: Any, **_kwargs: Any) -> Any:
        return note()

    return plain
