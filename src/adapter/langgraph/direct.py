"""LangChain tools called by a program itself: the tool's own result, not a message about it.

The way tool_task and nodes of one's own reach a tool. What the host fills in (state, store,
runtime, call id) is filled in by LangGraph's ToolNode here too. Decides nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool
from langchain_core.tools.base import _is_injected_arg_type
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from adapter.core.errors import ConfigurationError, ToolUsageError
from adapter.core.functions import FunctionInvocation, FunctionTool
from adapter.core.invoke import Invocation
from adapter.core.masking import ResultMask
from adapter.core.scope import task_scope
from adapter.core.spec import Registry
from adapter.core.types import JsonObject, JsonValue, ToolCall
from adapter.langgraph import results
from adapter.langgraph.host import running_task
from adapter.langgraph.ownpauses import OwnPauses

__all__ = ["GovernedTool", "as_tool", "injected_names", "tools_of"]


def as_tool(given: Any, name: str) -> BaseTool:
    """Return a LangChain tool from one, or from a function.

    Raises:
        ConfigurationError: It is neither, or has another name.
    """
    if isinstance(given, BaseTool):
        if given.name != name:
            msg = f"ToolSpec {name!r} carries a tool named {given.name!r}; the names must agree."
            raise ConfigurationError(msg)
        return given
    if not callable(given):
        msg = f"ToolSpec {name!r}: function must be a LangChain tool or a function."
        raise ConfigurationError(msg)
    how: dict[str, Any] = (
        {"coroutine": given} if inspect.iscoroutinefunction(given) else {"func": given}
    )
    words = inspect.getdoc(given) or name
    return StructuredTool.from_function(**how, name=name, description=words)


def tools_of(registry: Registry) -> list[BaseTool]:
    """Return the tools of a registry, in its order.

    Raises:
        ConfigurationError: A tool has no implementation.
    """
    found = []
    for spec in registry:
        made = registry.implementations.get(spec.name)
        if isinstance(made, GovernedTool):
            found.append(made.tool)
        elif isinstance(made, FunctionTool):
            found.append(as_tool(made.function, spec.name))
        else:
            msg = (
                f"The registry has no implementation of {spec.name}: make it with "
                "registry_of(tools, specs)."
            )
            raise ConfigurationError(msg)
    return found


def injected_names(tool: BaseTool) -> frozenset[str]:
    """Return names of arguments the host fills in, which no signature covers."""
    inner = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool._run  # noqa: SLF001
    hints = dict(get_type_hints(inner, include_extras=True))
    schema: Any = tool.get_input_schema()
    hints |= {name: field.annotation for name, field in schema.model_fields.items()}
    names = {name for name, hint in hints.items() if _is_injected_arg_type(hint)}
    shown: Any = tool.tool_call_schema
    if inspect.isclass(shown) and issubclass(shown, BaseModel):
        names |= schema.model_fields.keys() - shown.model_fields.keys()
    return frozenset(names)


@dataclass(frozen=True)
class GovernedTool:
    """A LangChain tool as a registry's implementation."""

    tool: BaseTool
    _injected: list[frozenset[str]] = field(default_factory=list, compare=False, repr=False)

    def invocation(self, call: ToolCall) -> Invocation:
        """Return one call's way to the tool."""
        return _DirectInvocation(self.tool, call, injected=bool(self.injected))

    @property
    def injected(self) -> frozenset[str]:
        """Names of arguments the host fills in; looked up once."""
        if not self._injected:
            self._injected.append(injected_names(self.tool))
        return self._injected[0]


class _DirectInvocation(FunctionInvocation):
    """One direct call of a LangChain tool."""

    def __init__(self, tool: BaseTool, call: ToolCall, *, injected: bool) -> None:
        super().__init__(tool.ainvoke)
        self._tool = tool
        self._call = call
        self._host_fills_in = injected
        self._own = OwnPauses(call.id)
        # Taken now: where the tool begins, the front end's scope ends.
        scope = task_scope.get()
        self._state = {} if scope is None or scope.state is None else scope.state
        inside = running_task() is not None  # else the local runner of a flow
        self._beside_others = inside and scope is not None and scope.journaled

    @property
    @override
    def cancellable(self) -> bool:
        """A coroutine can be stopped, a thread cannot."""
        tool = self._tool
        return bool(getattr(tool, "coroutine", None)) or (
            type(tool)._arun is not BaseTool._arun and not hasattr(tool, "func")  # noqa: SLF001
        )

    @override
    async def _run(self, arguments: JsonObject) -> Any:
        config: Any = self._own.config(get_config()) if self._beside_others else None
        if not self._host_fills_in:
            return await self._tool.ainvoke(arguments, config)
        taken = _Taken.model_construct(
            name=self._tool.name,
            description=self._tool.description,
            args_schema=self._tool.args_schema,
            inner=self._tool,
            found=[],
        )

        async def through(request: ToolCallRequest, handler: Callable[..., Any]) -> Any:
            return await handler(request.override(tool=taken))

        node = ToolNode([self._tool], awrap_tool_call=through, handle_tool_errors=False)
        call = {"name": self._tool.name, "args": arguments, "id": self._call.id}
        await node.ainvoke(
            {
                "__type": "tool_call_with_context",
                "tool_call": {**call, "type": "tool_call"},
                "state": self._state,
            },
            config,
        )
        return taken.found[0]

    @override
    def is_pause(self, error: BaseException) -> bool:
        return isinstance(error, GraphBubbleUp) or is_invalid_resume(error)

    @override
    async def recall(self, outcome: JsonValue) -> None:
        if self._beside_others:
            await self._own.recall(outcome)

    @override
    def told(self, pause: BaseException) -> JsonValue:
        return self._own.told(pause) if self._beside_others else None

    @override
    def failed(self, result: Any) -> bool:
        return results.is_error(result)

    @override
    def record(self, result: Any) -> JsonValue:
        if isinstance(result, ToolMessage | Command):
            return results.to_record(result)
        return {"value": super().record(result)}

    @override
    def replay(self, recorded: JsonValue) -> Any:
        if isinstance(recorded, dict) and "value" in recorded:
            return recorded["value"]
        return results.from_record(recorded)

    @override
    def share(self, recorded: JsonValue) -> Any | None:
        if isinstance(recorded, dict) and "value" in recorded:
            return recorded["value"]
        return None

    @override
    def masked(self, result: Any, mask: ResultMask) -> Any:
        if isinstance(result, ToolMessage | Command):
            return results.masked(result, mask)
        return super().masked(result, mask)


class _Taken(BaseTool):
    """Stands in for a tool inside ToolNode, and takes its result before it becomes a message."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    inner: BaseTool
    found: list[Any]

    @override
    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        given = input if _wants_id(self.inner) else input["args"]
        self.found.append(await self.inner.ainvoke(given, config, **kwargs))
        return ToolMessage("", tool_call_id=input["id"])

    @override
    def _run(self, *_args: Any, **_kwargs: Any) -> Any:
        msg = "A governed tool is invoked asynchronously only."
        raise ToolUsageError(msg)


def _wants_id(tool: BaseTool) -> bool:
    schema: Any = tool.get_input_schema()
    return any(
        isinstance(part, InjectedToolCallId) or part is InjectedToolCallId
        for made in schema.model_fields.values()
        for part in made.metadata
    )
