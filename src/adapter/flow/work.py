"""What each kind of node does: a function, a call, a call for each item, a join."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from adapter.core.errors import (
    AdapterError,
    FlowError,
    ModelVisibleError,
    ToolFailed,
    ToolTimeout,
)
from adapter.core.merge import Merge
from adapter.core.types import JsonObject, JsonValue
from adapter.flow.context import FlowContext
from adapter.flow.kinds import Call, Map, Node
from adapter.flow.results import FlowProgress
from adapter.flow.shape import Shape
from adapter.flow.wire import jsonable, listed

__all__ = ["call_function", "done", "run_work"]

_AT_ONCE = 256
"""Items of a Map that work at once where it does not say: time limits count from the start, so
thousands that start together would wait for each other until they are over."""

_SHOWN: tuple[type[AdapterError], ...] = (ModelVisibleError, ToolFailed, ToolTimeout)


async def done(value: Any) -> Any:
    """Return a value, awaited where it is a coroutine."""
    return await value if inspect.isawaitable(value) else value


async def call_function(function: Callable[..., Any], state: Any, context: FlowContext) -> Any:
    """Call a function of the state, with the context where it takes one.

    A plain function runs in a thread: it may block.
    """
    arguments = (state, context) if _takes_context(function) else (state,)
    call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
        return await function(*arguments)
    return await done(await asyncio.to_thread(function, *arguments))


def _takes_context(function: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False  # a builtin that does not say
    places = [
        one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    if len(places) < 2:
        return False
    # `lambda state, key=key:` has a second parameter that is no context.
    return places[1].default is places[1].empty or places[1].name == "ctx"


async def run_work(
    flow: Shape,
    node: Node,
    values: JsonObject,
    context: FlowContext,
    on_progress: Callable[[FlowProgress], Any] | None,
) -> dict[str, list[JsonValue]]:
    """Do a node's work once.

    Args:
        flow: The flow.
        node: The node.
        values: JSON of the state.
        context: Of this attempt.
        on_progress: Told of a Map's items.

    Returns:
        Its writes.
    """
    work = node.work
    if isinstance(work, Map):
        writes = await _map(flow, work, values, context, on_progress)
    elif isinstance(work, Call):
        writes = await _call(flow, work, values, context)
    elif work.function is None:
        return {}
    else:
        state = flow.fields.load(values, where=context.where)
        returned = await call_function(work.function, state, context)
        writes = flow.fields.update(returned, values, where=context.where)
    context.held()
    return writes


async def _call(
    flow: Shape, work: Call, values: JsonObject, context: FlowContext
) -> dict[str, list[JsonValue]]:
    arguments = work.arguments
    if arguments is None:
        arguments = context.fitting(work.tool, values)
    elif callable(arguments):
        arguments = await done(arguments(flow.fields.load(values, where=context.where)))
    shown = _SHOWN if work.on_tool_failure == "message" else ()
    call = context.tool_call(work.tool, arguments, context.call_id(0))
    made = await context.run_all(work.tool, [call], concurrency=None, shown=shown)
    return _written(flow, work.into, made, context, many=False)


async def _map(
    flow: Shape,
    work: Map,
    values: JsonObject,
    context: FlowContext,
    on_progress: Callable[[FlowProgress], Any] | None,
) -> dict[str, list[JsonValue]]:
    items = await _items(flow, work, values, context)
    calls = []
    for index, item in enumerate(items):
        given = item if work.arguments is None else await done(work.arguments(item))
        if not isinstance(given, Mapping):
            what = "item" if work.arguments is None else "what arguments= made of item"
            over = work.over if isinstance(work.over, str) else "over"
            msg = (
                f"{context.where}: {what} {index} of {over!r} is no mapping of arguments but a "
                f"{type(given).__name__}."
            )
            if work.arguments is None:
                msg += (
                    f" Say what {work.tool} gets of an item: "
                    "Map(…, arguments=lambda item: {'name': item})."
                )
            raise FlowError(msg)
        calls.append(context.tool_call(work.tool, given, context.call_id(index)))
    count = 0

    async def finished() -> None:
        nonlocal count
        count += 1
        told = FlowProgress(
            flow=context.flow,
            node=context.node,
            visit=context.visit,
            done=count,
            total=len(calls),
        )
        await done(on_progress(told) if on_progress is not None else None)

    made = await context.run_all(
        work.tool,
        calls,
        concurrency=work.concurrency or _AT_ONCE,
        shown=_SHOWN if work.on_tool_failure == "message" else (),
        finished=None if on_progress is None else finished,
    )
    return _written(flow, work.into, made, context, many=True)


async def _items(flow: Shape, work: Map, values: JsonObject, context: FlowContext) -> list[Any]:
    if isinstance(work.over, str):
        if work.arguments is None:
            found = values[work.over] if work.over in values else flow.fields[work.over].default()
        else:
            found = getattr(flow.fields.load(values, where=context.where), work.over)
        found = [] if found is None else found
    else:
        found = await done(work.over(flow.fields.load(values, where=context.where)))
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        over = repr(work.over) if isinstance(work.over, str) else "over"
        msg = f"{context.where}: {over} holds no list of items but a {type(found).__name__}."
        raise FlowError(msg)
    items = listed(found)
    return [_json_item(item) for item in items] if work.arguments is None else items


def _json_item(item: Any) -> Any:
    """Return an item as JSON, or as it is where it has no JSON form: the call names the fault."""
    try:
        return jsonable(item)
    except ValueError:
        return item


def _written(
    flow: Shape, into: str | None, results: list[Any], context: FlowContext, *, many: bool
) -> dict[str, list[JsonValue]]:
    """Return the writes of results: a list for ``last`` and ``append``, else one for each."""
    if into is None:
        return {}
    field = flow.fields[into]
    try:
        if many and field.rule in (Merge.append, Merge.last):
            return {into: [field.read(results, wire=True)]}
        return {into: [field.write(result, wire=True) for result in results]}
    except FlowError as error:
        msg = f"{context.where}: the result does not fit its field: {error.message}."
        raise FlowError(msg) from None
