"""Tools in the place of tools: each hands a call on to the real one, under a condition of its own.

Decides nothing; `governed` says which is put where.
"""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool
from pydantic import ConfigDict
from typing_extensions import override

from adapter.core.errors import ToolUsageError
from adapter.core.invoke import Fence
from adapter.langgraph import results
from adapter.langgraph.bridge import run_sync
from adapter.langgraph.direct import injected_names
from adapter.langgraph.ownpauses import OwnPauses

__all__ = ["Fenced", "Placed", "Waited", "face", "is_asynchronous", "known_injected"]


class _StandIn(BaseTool):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    inner: BaseTool

    @override
    def _run(self, *_args: Any, **_kwargs: Any) -> Any:
        msg = "A governed tool is invoked with a tool call only."
        raise ToolUsageError(msg)


class Fenced(_StandIn):
    """A tool that passes its fence before it runs: once, with the claimed arguments only."""

    fence: Fence
    injected: frozenset[str]

    @override
    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        self._enter(input)
        try:
            result = results.spelt_out(self.inner.invoke(input, config, **kwargs))
        except BaseException as error:
            self.fence.saw(error)
            raise
        self.fence.returns(result)
        return result

    @override
    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        self._enter(input)
        try:
            result = results.spelt_out(await self.inner.ainvoke(input, config, **kwargs))
        except BaseException as error:
            self.fence.saw(error)
            raise
        self.fence.returns(result)
        return result

    def _enter(self, call: Any) -> None:
        arguments = call.get("args") if isinstance(call, dict) else None
        if not isinstance(arguments, dict):
            msg = "A governed tool is invoked with a tool call only."
            raise ToolUsageError(msg)
        self.fence.consume({k: v for k, v in arguments.items() if k not in self.injected})


class Waited(_StandIn):
    """An asynchronous tool for a synchronous graph: it runs on the adapter's own event loop."""

    @override
    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return run_sync(self.inner.ainvoke(input, config, **kwargs))


class Placed(_StandIn):
    """A tool whose own graphs and questions are told apart from those of its task's other calls."""

    own: OwnPauses

    @override
    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        placed: Any = self.own.config(config or {})
        return self.inner.invoke(input, placed, **kwargs)

    @override
    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        placed: Any = self.own.config(config or {})
        return await self.inner.ainvoke(input, placed, **kwargs)


def is_asynchronous(tool: BaseTool) -> bool:
    """Tell whether a tool has an asynchronous body only, as those of an MCP server have."""
    return getattr(tool, "coroutine", None) is not None and getattr(tool, "func", None) is None


def face(tool: BaseTool) -> dict[str, Any]:
    """Return what ToolNode reads of a tool, for a proxy of it."""
    names = ("name", "description", "args_schema", "return_direct", "response_format")
    return {name: getattr(tool, name) for name in names}


_REMEMBERED = 512
_INJECTED: dict[int, tuple[BaseTool, frozenset[str]]] = {}


def known_injected(tool: BaseTool) -> frozenset[str]:
    """Look each tool's signature up once."""
    known = _INJECTED.get(id(tool))
    if known is None or known[0] is not tool:
        if len(_INJECTED) >= _REMEMBERED:
            _INJECTED.clear()
        known = _INJECTED[id(tool)] = (tool, injected_names(tool) | {"runtime"})
    return known[1]
