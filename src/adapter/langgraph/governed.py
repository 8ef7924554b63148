"""LangChain tools seen by the executor: their schemas, and one invocation under its fence.

The only room that calls a tool. It decides nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.prebuilt.tool_node import ToolCallRequest
from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from adapter.core.errors import ConfigurationError, ToolUsageError
from adapter.core.invoke import Fence
from adapter.core.jsonarguments import JsonSchema
from adapter.core.masking import ResultMask
from adapter.core.spec import ArgumentSchema, Registry, ToolSpec
from adapter.core.types import JsonObject, JsonValue
from adapter.core.validation import PydanticSchema
from adapter.langgraph import results
from adapter.langgraph.direct import GovernedTool, as_tool, injected_names

__all__ = ["ToolInvocation", "registry_of"]


def registry_of(tools: Iterable[BaseTool], specs: Iterable[ToolSpec]) -> Registry:
    """Match LangChain tools with their specs.

    Args:
        tools: Every tool of the agent; those that specs carry as their ``function`` may be left
            out.
        specs: One for each.

    Raises:
        ConfigurationError: A tool without a spec, a spec without a tool, or a tool whose
            arguments could be validated otherwise than they are shown.
    """
    listed = tuple(specs)
    given = list(tools)
    for tool in given:
        if not isinstance(tool, BaseTool):
            name = getattr(tool, "__name__", type(tool).__name__)
            msg = (
                f"{name} is no LangChain tool yet: give StructuredTool.from_function({name}), or "
                "put @tool above it."
            )
            raise ConfigurationError(msg)
    names = {tool.name for tool in given}
    given += [
        as_tool(spec.function, spec.name)
        for spec in listed
        if spec.function is not None and spec.name not in names
    ]
    schemas = {}
    for tool in given:
        if tool.name in schemas:
            msg = f"Two tools are named {tool.name!r}; names must differ."
            raise ConfigurationError(msg)
        schemas[tool.name] = _schema(tool)
    cached = {spec.name for spec in listed if spec.cache_ttl is not None}
    for tool in given:
        injected = injected_names(tool) if tool.name in cached else frozenset()
        if injected:
            msg = (
                f"ToolSpec {tool.name!r} has a cache_ttl, and its tool is given more than its "
                f"arguments ({', '.join(sorted(injected))}), which no cache key covers. Leave "
                "cache_ttl out."
            )
            raise ConfigurationError(msg)
    return Registry(listed, schemas, {tool.name: GovernedTool(tool) for tool in given})


def _schema(tool: BaseTool) -> ArgumentSchema:
    shown: Any = tool.tool_call_schema
    full: Any = tool.args_schema
    if isinstance(shown, dict):
        return JsonSchema(shown, tool=tool.name)
    renamed = [
        name
        for name, field in shown.model_fields.items()
        if field.alias not in (None, name) or field.validation_alias not in (None, name)
    ]
    if renamed:
        msg = (
            f"Tool {tool.name!r} renames arguments by aliases ({', '.join(renamed)}): what the "
            "model is shown and what the tool accepts would differ. Remove the aliases."
        )
        raise ConfigurationError(msg)
    json_schema = shown.model_json_schema()
    same = (
        inspect.isclass(full)
        and issubclass(full, BaseModel)
        and full.model_fields.keys() == shown.model_fields.keys()
    )
    # The tool's own model has its validators; the shown one is a subset without them.
    return PydanticSchema(full if same else shown, json_schema)


class _Fenced(BaseTool):
    """A tool that passes its fence before it runs: once, with the claimed arguments only."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    inner: BaseTool
    fence: Fence
    injected: frozenset[str]

    @override
    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        self._enter(input)
        try:
            return self.inner.invoke(input, config, **kwargs)
        except BaseException as error:
            self.fence.saw(error)
            raise

    @override
    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        self._enter(input)
        try:
            return await self.inner.ainvoke(input, config, **kwargs)
        except BaseException as error:
            self.fence.saw(error)
            raise

    def _enter(self, call: Any) -> None:
        arguments = call.get("args") if isinstance(call, dict) else None
        if not isinstance(arguments, dict):
            msg = "A governed tool is invoked with a tool call only."
            raise ToolUsageError(msg)
        self.fence.consume({k: v for k, v in arguments.items() if k not in self.injected})

    @override
    def _run(self, *_args: Any, **_kwargs: Any) -> Any:
        msg = "A governed tool is invoked with a tool call only."
        raise ToolUsageError(msg)


class ToolInvocation:
    """One call's way to its tool, for ToolNode's wrappers."""

    def __init__(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Any],
        *,
        threaded: bool,
    ) -> None:
        """Take the request and the handler that runs it.

        Args:
            request: As ToolNode gives it.
            handler: ToolNode's, or the next wrapper's.
            threaded: The handler is synchronous and goes to a worker thread.
        """
        self._request = request
        self._handler = handler
        self._threaded = threaded
        self._id: str = request.tool_call["id"] or ""
        self._name: str = request.tool_call["name"]

    @property
    def cancellable(self) -> bool:
        """A coroutine can be stopped, a thread cannot."""
        tool = self._request.tool
        if self._threaded or tool is None:
            return False
        return bool(getattr(tool, "coroutine", None)) or (
            type(tool)._arun is not BaseTool._arun and not hasattr(tool, "func")  # noqa: SLF001
        )

    def invoke(self, arguments: JsonObject, fence: Fence | None) -> Awaitable[Any]:
        """Run the tool with these arguments, through the fence if there is one."""
        request = self._request
        changes: dict[str, Any] = {}
        # 1 == 1.0 == True for Python, not for a tool: compare what is written, not what is equal.
        if repr(arguments) != repr(request.tool_call["args"]):
            changes["tool_call"] = {**request.tool_call, "args": arguments}
        if fence is not None and request.tool is not None:
            changes["tool"] = _Fenced.model_construct(
                name=request.tool.name,
                description=request.tool.description,
                args_schema=request.tool.args_schema,
                return_direct=request.tool.return_direct,
                response_format=request.tool.response_format,
                inner=request.tool,
                fence=fence,
                injected=_known_injected(request.tool),
            )
        return self._checked(request.override(**changes) if changes else request)

    async def _checked(self, request: ToolCallRequest) -> Any:
        if self._threaded:
            result = await asyncio.to_thread(self._handler, request)
        else:
            result = await self._handler(request)
        if not results.belongs(result, self._id):
            msg = "the tool returned a result for another tool call"
            raise ValueError(msg)
        return result

    def is_pause(self, error: BaseException) -> bool:
        """Whether LangGraph is pausing, jumping or refusing a resume, and not failing."""
        return isinstance(error, GraphBubbleUp) or is_invalid_resume(error)

    def failed(self, result: Any) -> bool:
        """Whether the result is an error message."""
        return results.is_error(result)

    def record(self, result: Any) -> JsonValue:
        """Return the journal's form."""
        return results.to_record(result)

    def replay(self, recorded: JsonValue) -> Any:
        """Return the message or command again."""
        return results.from_record(recorded)

    def share(self, recorded: JsonValue) -> Any | None:
        """Return another call's message under this call's id; a Command is its own call's only."""
        return results.for_call(results.from_record(recorded), self._id)

    def masked(self, result: Any, mask: ResultMask) -> Any:
        """Return the messages masked; a Command as it is."""
        return results.masked(result, mask)

    def responded(self, text: str) -> Any:
        """Return the reviewer's text as the tool's result."""
        return results.text_message(text, self._id, self._name)


_REMEMBERED = 512
_INJECTED: dict[int, tuple[BaseTool, frozenset[str]]] = {}


def _known_injected(tool: BaseTool) -> frozenset[str]:
    """Look each tool's signature up once."""
    known = _INJECTED.get(id(tool))
    if known is None or known[0] is not tool:
        if len(_INJECTED) >= _REMEMBERED:
            _INJECTED.clear()
        known = _INJECTED[id(tool)] = (tool, injected_names(tool) | {"runtime"})
    return known[1]
