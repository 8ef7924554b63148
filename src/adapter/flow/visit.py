"""One visit of one node: hooks, attempts, calls, writes, and where its edges lead.

Both runners share it. It knows no store and no graph: whoever runs a visit gives its calls their
place (a TaskScope), merges its writes, and deals with its pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from adapter.core.errors import FlowError, FlowLoopExceeded
from adapter.core.executor import Executor
from adapter.core.types import JsonObject, JsonValue
from adapter.flow.attempts import Attempts
from adapter.flow.context import FlowContext, IsPause, is_pending, never_asks
from adapter.flow.kinds import END, Call, Map, Node, Route
from adapter.flow.results import FlowProgress
from adapter.flow.shape import Shape
from adapter.flow.steps import pair
from adapter.flow.work import call_function, done, run_work

__all__ = ["OnProgress", "Visited", "journaled", "visit"]

OnProgress = Callable[[FlowProgress], Any]
"""Told of each finished item of a Map; sync or async."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visited:
    """How a visit ended.

    Attributes:
        writes: JSON, by field; several of one field are merged in this order.
        targets: Where the node's edges lead, sorted; END is left out.
        counts: How often each of its capped choices was made so far, these included.
    """

    writes: dict[str, list[JsonValue]] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """Return its JSON form."""
        return {"writes": self.writes, "targets": list(self.targets), "counts": self.counts}

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Read the JSON form."""
        return cls(
            writes={name: list(made) for name, made in value["writes"].items()},
            targets=tuple(value["targets"]),
            counts=dict(value["counts"]),
        )


def journaled(node: Node, executor: Executor) -> bool:
    """Tell whether a visit's reads must be recorded: what its code decides by them may not change.

    A Call or Map of a read-only tool that never asks has no code and never pauses.
    """
    if not isinstance(node.work, Call | Map):
        return True
    spec = executor.registry.get(node.work.tool)
    read_only = spec is not None and spec.effects.read_only
    return not (read_only and never_asks(executor, node.work.tool))


async def visit(
    flow: Shape,
    node: Node,
    values: JsonObject,
    *,
    executor: Executor,
    number: int,
    run_id: str,
    counts: Mapping[str, int] | None = None,
    is_pause: IsPause = is_pending,
    on_progress: OnProgress | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Visited:
    """Run a node once. Calls inside take their place from the task scope around this.

    Args:
        flow: The flow.
        node: One of its nodes.
        values: JSON of the state as the superstep began.
        executor: Governs the node's calls.
        number: Which visit it is, from 1.
        run_id: The run.
        counts: How often each capped choice was made before, by ``pair``.
        is_pause: Which errors are the host's way of waiting for a person: those pass through.
        on_progress: Told of a Map's items.
        sleep: How to wait between attempts.

    Raises:
        FlowError: What the node returned does not hold, or it did not end in time.
        FlowLoopExceeded: A route went past its cap.
        Exception: Whatever the node raised; a note says which node.
    """

    def context(part: str = "") -> FlowContext:
        return FlowContext(
            flow=flow.name,
            node=node.name,
            visit=number,
            run_id=run_id,
            executor=executor,
            is_pause=is_pause,
            part=part,
        )

    async def once() -> dict[str, list[JsonValue]]:
        return await run_work(flow, node, values, context(), on_progress)

    where = context().where
    try:
        for index, hook in enumerate(node.before):
            await _hook(flow, hook, values, context(f"before{index}:"))
        writes = await Attempts(node=node, where=where, is_pause=is_pause, sleep=sleep).run(once)
        after = values
        if node.after or flow.routes(node.name):
            after = _merged(flow, values, writes, where)
        for index, hook in enumerate(node.after):
            await _hook(flow, hook, after, context(f"after{index}:"))
        targets, chosen = await _targets(flow, node, after, dict(counts or {}))
    except Exception as error:
        if not is_pause(error) and not isinstance(error, FlowError):
            error.add_note(f"{where}, visit {number}")
        raise
    return Visited(writes=writes, targets=targets, counts=chosen)


async def _hook(
    flow: Shape, hook: Callable[..., Any], values: JsonObject, context: FlowContext
) -> None:
    await call_function(hook, flow.fields.load(values, where=context.where), context)
    context.held()


def _merged(
    flow: Shape, values: JsonObject, writes: Mapping[str, Sequence[JsonValue]], where: str
) -> JsonObject:
    try:
        return flow.fields.apply(values, [writes])
    except FlowError as error:
        msg = f"{where}: {error.message}"
        raise FlowError(msg) from error


async def _targets(
    flow: Shape, node: Node, values: JsonObject, counts: dict[str, int]
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return where a node's edges lead, and the counts of the choices made."""
    found = set(flow.static(node.name))
    changed: dict[str, int] = {}
    for route in flow.routes(node.name):
        state = flow.fields.load(values, where=f"flow {flow.name!r}, node {node.name!r}")
        for name in _chosen(flow, node, route, await done(route.choose(state))):
            target = _capped(flow, node, route, name, counts)
            if route.cap(target) is not None:
                key = pair(node.name, target)
                changed[key] = counts[key] = counts.get(key, 0) + 1
            found.add(target)
    return tuple(sorted(found - {END})), changed


def _chosen(flow: Shape, node: Node, route: Route, said: Any) -> list[str]:
    names = [said] if isinstance(said, str) else said
    listed = isinstance(names, list | tuple | set | frozenset)
    if not listed or not all(isinstance(name, str) for name in names):
        msg = (
            f"flow {flow.name!r}, the Route from {node.name!r} returned a {type(said).__name__}; "
            "return a node's name, several, or END."
        )
        raise FlowError(msg)
    unknown = sorted(set(names) - set(route.to))
    if unknown:
        msg = (
            f"flow {flow.name!r}, the Route from {node.name!r} chose {', '.join(unknown)}, which "
            f"is none of its targets: {', '.join(route.to)}."
        )
        raise FlowError(msg)
    return sorted(set(names))


def _capped(flow: Shape, node: Node, route: Route, name: str, counts: Mapping[str, int]) -> str:
    """Return the target, or where to go instead of one past its cap."""
    for target in (name, route.otherwise):
        if target is None:
            continue
        cap = route.cap(target)
        if cap is None or counts.get(pair(node.name, target), 0) < cap:
            return target
    msg = (
        f"flow {flow.name!r}, the Route from {node.name!r} chose {name!r} more often than its cap "
        f"of {route.cap(name)}. Raise caps=, or say otherwise=."
    )
    raise FlowLoopExceeded(msg)
