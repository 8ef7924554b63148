"""LangChain tools seen by the executor: their schemas, and one invocation under its fence.

The only room that calls a tool. It decides nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, get_args

from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.prebuilt.tool_node import ToolCallRequest
from pydantic import AliasChoices, BaseModel

from adapter.core.errors import ConfigurationError
from adapter.core.invoke import Fence
from adapter.core.jsonarguments import JsonSchema
from adapter.core.masking import ResultMask
from adapter.core.spec import ArgumentSchema, Registry, ToolSpec
from adapter.core.types import JsonObject, JsonValue
from adapter.core.validation import PydanticSchema
from adapter.langgraph import results
from adapter.langgraph.direct import GovernedTool, as_tool, injected_names
from adapter.langgraph.ownpauses import OwnPauses
from adapter.langgraph.standins import (
    Fenced,
    Placed,
    Waited,
    face,
    is_asynchronous,
    known_injected,
)

__all__ = ["ToolInvocation", "registry_of"]


def registry_of(tools: Iterable[BaseTool], specs: Iterable[ToolSpec]) -> Registry:
    """Match LangChain tools with their specs.

    Args:
        tools: Every tool of the agent; those that specs carry as their ``function`` may be left
            out.
        specs: One for each.

    Raises:
        ConfigurationError: A tool without a spec, a spec without a tool, something else in the
            place of either, or a tool whose arguments could be validated otherwise than they are
            shown.
    """
    listed = _several("specs", specs, ToolSpec)
    for number, spec in enumerate(listed):
        if not isinstance(spec, ToolSpec):
            msg = (
                f"specs[{number}] is no ToolSpec but a {type(spec).__name__}: each element is a "
                "ToolSpec(…) by itself, without brackets around it (with a comma inside they make "
                "a tuple)."
            )
            raise ConfigurationError(msg)
    given = list(_several("tools", tools, BaseTool))
    for number, tool in enumerate(given):
        if not isinstance(tool, BaseTool):
            raise ConfigurationError(_no_tool(number, tool))
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


def _no_tool(number: int, given: object) -> str:
    if not inspect.isroutine(given):
        kind = type(given).__name__
        return f"tools[{number}] is no LangChain tool but a {kind}: tools come first, specs second."
    name = given.__name__
    return (
        f"{name} is no LangChain tool yet: give StructuredTool.from_function({name}), or put @tool "
        "above it."
    )


def _several(name: str, given: Any, kind: type) -> tuple[Any, ...]:
    """Return what is given as several, where it is."""
    if isinstance(given, kind) or not isinstance(given, Iterable):
        msg = (
            f"{name} must be a list of every {kind.__name__}, not a {type(given).__name__}: write "
            f"registry_of(tools, specs) with a list for each, [] for none."
        )
        raise ConfigurationError(msg)
    return tuple(given)


def _schema(tool: BaseTool) -> ArgumentSchema:
    shown: Any = tool.tool_call_schema
    full: Any = tool.args_schema
    if isinstance(shown, dict):
        return JsonSchema(shown, tool=tool.name)
    renamed = sorted(_renamed(full, shown=shown.model_fields))
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


def _renamed(model: Any, *, shown: Any = None, seen: frozenset[Any] = frozenset()) -> set[str]:
    """Return the fields, nested ones too, that are not accepted under the name they have."""
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        return {name for part in get_args(model) for name in _renamed(part, seen=seen)}
    if model in seen:
        return set()
    config: Any = model.model_config
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    found: set[str] = set()
    for name, field in model.model_fields.items():
        lost = shown is not None and name not in shown
        wanted = field.validation_alias or field.alias
        choices = wanted.choices if isinstance(wanted, AliasChoices) else [wanted]
        if wanted is not None and (lost or not (by_name or name in choices)):
            found.add(name)
        if not lost:  # else the host fills it in
            found |= _renamed(field.annotation, seen=seen | {model})
    return found


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
        self._shared = self._kept = False
        self._own = OwnPauses(self._id)

    def share_task(self, *, asks: bool) -> None:
        """Say that other calls run in the same task, and not all of them on each run of it.

        Args:
            asks: A person must decide about one of them, so the task runs again.
        """
        self._shared, self._kept = True, asks

    @property
    def cancellable(self) -> bool:
        """A coroutine can be stopped, a thread cannot."""
        tool = self._request.tool
        if self._threaded or tool is None:
            return False
        return bool(getattr(tool, "coroutine", None)) or (
            type(tool)._arun is not BaseTool._arun and not hasattr(tool, "func")  # noqa: SLF001
        )

    @property
    def kept(self) -> bool:
        """Whether a person is asked about a call of the same task."""
        return self._kept

    def invoke(self, arguments: JsonObject, fence: Fence | None) -> Awaitable[Any]:
        """Run the tool with these arguments, through the fence if there is one."""
        request = self._request
        changes: dict[str, Any] = {}
        # 1 == 1.0 == True for Python, not for a tool: compare what is written, not what is equal.
        if repr(arguments) != repr(request.tool_call["args"]):
            changes["tool_call"] = {**request.tool_call, "args": arguments}
        tool = own = request.tool
        if tool is not None and self._threaded and is_asynchronous(tool):
            tool = changes["tool"] = Waited.model_construct(**face(tool), inner=tool)
        if tool is not None and self._shared:
            tool = changes["tool"] = Placed.model_construct(**face(tool), inner=tool, own=self._own)
            placed: Any = self._own.config(request.runtime.config)
            request = replace(request, runtime=replace(request.runtime, config=placed))
        if tool is not None and own is not None and fence is not None:
            changes["tool"] = Fenced.model_construct(
                **face(tool),
                inner=tool,
                fence=fence,
                injected=known_injected(own),
            )
        return self._checked(request.override(**changes) if changes else request)

    async def _checked(self, request: ToolCallRequest) -> Any:
        if self._threaded:
            result = await asyncio.to_thread(self._handler, request)
        else:
            result = await self._handler(request)
        if not results.fits(result, self._id):
            msg = "the tool did not return exactly one result, for its own tool call"
            raise ValueError(msg)
        return result

    def is_pause(self, error: BaseException) -> bool:
        """Whether LangGraph is pausing, jumping or refusing a resume, and not failing."""
        return isinstance(error, GraphBubbleUp) or is_invalid_resume(error)

    async def recall(self, outcome: JsonValue) -> None:
        """Take up what the tool was told before it paused."""
        if self._shared:
            await self._own.recall(outcome)

    def told(self, pause: BaseException) -> JsonValue:
        """Return what the tool has been told; alone in its task, LangGraph keeps it."""
        return self._own.told(pause) if self._shared else None

    def failed(self, result: Any) -> bool:
        """Whether the result is an error message."""
        return results.is_error(result)

    def record(self, result: Any) -> JsonValue:
        """Return the journal's form."""
        return results.to_record(result)

    def replay(self, recorded: JsonValue) -> Any:
        """Return the message or command again; to another call of the run, its message alone."""
        return results.to_call(results.from_record(recorded), self._id, self._name)

    def share(self, recorded: JsonValue) -> Any | None:
        """Return another call's message under this call's id; a Command is its own call's only."""
        return results.for_call(results.from_record(recorded), self._id)

    def masked(self, result: Any, mask: ResultMask) -> Any:
        """Return the messages masked; a Command as it is."""
        return results.masked(result, mask)

    def responded(self, text: str) -> Any:
        """Return the reviewer's text as the tool's result."""
        return results.text_message(text, self._id, self._name)
