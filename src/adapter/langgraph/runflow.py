"""run_compiled: a compiled flow's run, begun or gone on with, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError
from langgraph.types import Command, Interrupt, PregelTask, StateSnapshot

from adapter.core.approvals import ApprovalDecision
from adapter.core.decisions import no_decision
from adapter.core.deferred import DeferredApproval
from adapter.core.editing import check_edit
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    FlowError,
    FlowLoopExceeded,
    StoreUnavailable,
    ToolUsageError,
)
from adapter.core.recording import sealed_request
from adapter.core.signing import APPROVAL_TYPE, USED, check_seal
from adapter.core.types import JsonObject
from adapter.flow.gating import check_edit_of
from adapter.flow.results import FlowResult, Pending
from adapter.langgraph.approval import LangGraphApproval
from adapter.langgraph.compile import FlowGraph
from adapter.langgraph.flowchannels import FLOW, VISITS
from adapter.langgraph.flowseal import STATE
from adapter.langgraph.flowvisit import WAITING_TYPE

__all__ = ["flow_result", "run_compiled"]

RECURSION_LIMIT = 100
"""Supersteps of one call, where the config does not say."""


async def run_compiled(
    app: Any,
    given: Any,
    config: RunnableConfig,
    **options: Any,
) -> FlowResult:
    """Begin a run of a compiled flow, or go on with one.

    Args:
        app: What ``compile_flow(…).compile(checkpointer=…)`` returned.
        given: A state (a model, or a mapping of fields) to begin with; an ApprovalDecision about
            the first pending question, or a mapping of interrupt id to ApprovalDecision; a
            Command; or None to go on.
        config: With the ``thread_id``. Without a ``recursion_limit`` it is 100.
        options: Further arguments of ``app.ainvoke``, such as ``durability`` or ``context``.

    Returns:
        How far it came; its ``checkpoint`` is None, since the checkpointer holds it.

    Raises:
        FlowLoopExceeded: A loop went past its cap, or the run past its recursion limit.
        FlowError: The state, a node's result, or a pause's progress does not hold.
        ApprovalAlreadyDecided: Nothing waits for a decision, or it was decided before.
        InvalidAnswer: An edit does not fit what is asked; it names the field, and nothing ran.
        ToolUsageError: This is no compiled flow with a checkpointer.
    """
    graph = _graph(app)
    asked: RunnableConfig = {"recursion_limit": RECURSION_LIMIT, **config}
    limit = asked["recursion_limit"]
    given = await _input(app, graph, given, asked)
    if isinstance(given, dict):
        asked["recursion_limit"] += 1  # LangGraph counts the start as a superstep, too
    again = len(graph.flow.nodes)
    while True:
        try:
            await app.ainvoke(given, asked, **options)
        except GraphRecursionError as error:
            result = await _result(app, asked)
            if result.status == "denied":
                return result
            msg = (
                f"flow {graph.flow.name!r} is not over after its recursion_limit of "
                f"{limit} supersteps. Raise it in the config, or cap its loops."
            )
            raise FlowLoopExceeded(msg) from error
        result = await _result(app, asked)
        if result.status != "paused" or result.pendings or not again:
            return result
        # Nodes that found a gate of their superstep not there yet: it is open or asks now.
        given, again = None, again - 1


def flow_result(app: Any, snapshot: StateSnapshot) -> FlowResult:
    """Return how far a run came, from ``app.get_state(config)``.

    Args:
        app: The compiled flow.
        snapshot: Its newest state.
    """
    graph = _graph(app)
    if _half_done(graph, snapshot):
        return _read(graph, app.get_state(snapshot.config))
    return _read(graph, snapshot)


async def _result(app: Any, config: RunnableConfig) -> FlowResult:
    return _read(_graph(app), await _snapshot(app, config))


async def _snapshot(app: Any, config: RunnableConfig) -> StateSnapshot:
    place = {key: value for key, value in config["configurable"].items() if key != "checkpoint_id"}
    snapshot = await app.aget_state({**config, "configurable": place})
    if _half_done(_graph(app), snapshot):
        return await app.aget_state(snapshot.config)  # type: ignore[no-any-return]
    return snapshot  # type: ignore[no-any-return]


def _half_done(graph: FlowGraph, snapshot: StateSnapshot) -> bool:
    """Tell whether the values hold writes of a superstep that has not ended.

    A paused run's state is the one its superstep began with; asked by its id, LangGraph gives it.
    """
    return bool(snapshot.next) and _denied(graph, snapshot) is None


def _denied(graph: FlowGraph, snapshot: StateSnapshot) -> str | None:
    """Return why the run was denied, if somebody who may say so said it."""
    thread = str(snapshot.config["configurable"]["thread_id"])
    return graph.wiring.told.denied(snapshot.values.get(FLOW), thread)


def _read(graph: FlowGraph, snapshot: StateSnapshot) -> FlowResult:
    fields = graph.flow.fields
    values = snapshot.values
    told = values.get(FLOW) or {}
    denied = _denied(graph, snapshot)
    pendings = _pendings(graph, snapshot)
    waits = denied is None and bool(snapshot.next)
    return FlowResult(
        status="denied" if denied is not None else "paused" if waits else "done",
        state=fields.load(
            {name: values[name] for name in fields if name in values},
            where=f"flow {graph.flow.name!r}",
        ),
        visits=dict(sorted((values.get(VISITS) or {}).items())),
        steps=int(told.get("steps", 0)),
        pendings=pendings,
        reason=denied,
    )


def _pendings(graph: FlowGraph, snapshot: StateSnapshot) -> tuple[Pending, ...]:
    if _denied(graph, snapshot) is not None:
        return ()
    found = [
        _pending(graph, snapshot, task, pause)
        for task in sorted(snapshot.tasks, key=lambda task: task.name)
        if task.result is None
        for pause in task.interrupts
        if not (
            isinstance(pause.value, Mapping)
            and (pause.value.get("type") == WAITING_TYPE or USED in pause.value)
        )
    ]
    first: dict[Any, Pending] = {}
    for one in found:
        first.setdefault(_call_of(graph, one), one)
    return tuple(first.values())


def _call_of(graph: FlowGraph, asked: Pending) -> Any:
    """Name the call a question is about: two nodes may wait for one that runs once in a run."""
    spec = graph.executor.registry.get(asked.tool)
    if asked.kind != "tool" or spec is None or not spec.once_per_run:
        return asked.interrupt_id
    return asked.tool, (asked.value.get("request") or {}).get("request_digest")


def _pending(
    graph: FlowGraph, snapshot: StateSnapshot, task: PregelTask, pause: Interrupt
) -> Pending:
    value = pause.value
    if isinstance(value, Mapping) and value.get("type") == APPROVAL_TYPE:
        made = Pending.of_value(dict(value), task.name, pause.id)
        return replace(made, key=str(_told(graph, snapshot, task, pause).get("key", "")))
    return Pending(
        kind="interrupt", node=task.name, tool="", arguments={}, interrupt_id=pause.id, value=value
    )


def _told(
    graph: FlowGraph, snapshot: StateSnapshot, task: PregelTask, pause: Interrupt
) -> JsonObject:
    """Return what a pause's seal holds; nothing where these keys do not open it."""
    place = snapshot.config["configurable"]
    inside = f"{place['checkpoint_ns']}|" if place.get("checkpoint_ns") else ""
    try:
        return graph.wiring.seal.read(
            pause.value.get(STATE), str(place["thread_id"]), f"{inside}{task.name}:{task.id}"
        )
    except StoreUnavailable:
        return {}


async def _input(app: Any, graph: FlowGraph, given: Any, config: RunnableConfig) -> Any:
    if given is None or isinstance(given, Command):
        return given
    if isinstance(given, bool) or (
        isinstance(given, Mapping) and "approved" in set(given) - set(graph.flow.fields)
    ):
        raise no_decision(given)
    by_id = isinstance(given, Mapping) and bool(given)
    if by_id and all(isinstance(one, ApprovalDecision) for one in given.values()):
        return await _decided(app, graph, dict(given), config)
    if isinstance(given, ApprovalDecision):
        return await _decided(app, graph, given, config)
    values = graph.flow.fields.initial(given)
    return {**values, FLOW: graph.wiring.told.read(values)}


async def _decided(
    app: Any,
    graph: FlowGraph,
    given: ApprovalDecision | dict[str, ApprovalDecision],
    config: RunnableConfig,
) -> Command[Any] | None:
    snapshot = await _snapshot(app, config)
    asked = {
        one.interrupt_id or "": one
        for one in _pendings(graph, snapshot)
        if one.kind in ("tool", "gate")
    }
    if isinstance(given, ApprovalDecision):
        if not asked:
            msg = (
                "Nothing waits here: no question of this thread is open. It was decided before, "
                "or not asked; or the thread_id is another one."
            )
            raise ApprovalAlreadyDecided(msg)
        given = {next(iter(asked)): given}
    unknown = sorted(set(given) - set(asked))
    if unknown:
        asks = ", ".join(asked) or "nothing"
        msg = f"This thread does not ask {', '.join(unknown)}; it asks {asks}."
        raise FlowError(msg)
    port = graph.executor.port
    for name, decision in given.items():
        check_edit_of(graph.flow.name, asked[name].node, asked[name].kind, decision)
        check_edit(asked[name].value, decision)
    if isinstance(port, DeferredApproval):
        await _recall(graph, snapshot)
        for name, decision in given.items():
            await _record(port, asked[name], decision)
        return None
    if isinstance(port, LangGraphApproval):
        return Command(
            resume={
                name: port.resume_value(Interrupt(asked[name].value, id=name), decision)
                for name, decision in given.items()
            }
        )
    msg = (
        "This executor's own approval port decides; give run_compiled None once it has, or a "
        "Command it takes."
    )
    raise ToolUsageError(msg)


async def _recall(graph: FlowGraph, snapshot: StateSnapshot) -> None:
    """Give the requests of another process to a store that does not know them."""
    for task in snapshot.tasks:
        for pause in task.interrupts:
            if isinstance(pause.value, Mapping):
                told = _told(graph, snapshot, task, pause)
                if told:
                    await graph.wiring.seal.adopt(told)


async def _record(port: DeferredApproval, asked: Pending, decision: ApprovalDecision) -> None:
    """Decide a request as it was shown; past its deadline it decides nothing, and the run ends.

    Raises:
        ApprovalAlreadyDecided: It was decided, used or closed before.
        FlowError: Its pause was sealed with another key.
        InvalidAnswer: What was shown is not what the server asks.
    """
    if not asked.key:
        msg = (
            f"node {asked.node!r}: the progress in its pause does not open: it was altered, it "
            "belongs to another version of the flow, or it was sealed with another key "
            "(checkpoint_key=, or the keys of the executor's port). Nothing was recorded."
        )
        raise FlowError(msg)
    shown = check_seal(port.keys, asked.value)
    row = await port.store.get(asked.key)
    if row is None or sealed_request(row).get("binding") != shown["binding"]:
        msg = "This question was decided or closed before; nothing was changed. Go on with None."
        raise ApprovalAlreadyDecided(msg)
    with suppress(ApprovalExpired):
        await port.record(row, decision)


def _graph(app: Any) -> FlowGraph:
    graph = getattr(app, "builder", None)
    if not isinstance(graph, FlowGraph) or not app.checkpointer:
        msg = (
            "run_compiled takes a compiled flow with a checkpointer: "
            "compile_flow(flow, executor=…).compile(checkpointer=…)."
        )
        raise ToolUsageError(msg)
    return graph
