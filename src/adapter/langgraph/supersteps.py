"""What the adapter reads of LangGraph's internals around a task, under a version test.

Its superstep, its run, and what the checkpointer holds of it. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Interrupt

from adapter.langgraph.bridge import is_bridged
from adapter.langgraph.host import CHECKPOINTER, NAMESPACE, can_pause

__all__ = [
    "Superstep",
    "last_pause",
    "pauses_at",
    "replace_pauses",
    "run_of",
    "shown_pauses",
    "start_input",
    "superstep",
    "write_channels",
]

_TASK_ID = "__pregel_task_id"
_READ = "__pregel_read"
_SEND = "__pregel_send"
_START = "__start__"
_INTERRUPT = "__interrupt__"
_CHECKPOINT_MAP = "checkpoint_map"
_BRANCH_TO = "branch:to:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Superstep:
    """The superstep that the running task belongs to.

    Attributes:
        run: An object that only the tasks of this graph in this run share.
        namespace: The graph's own checkpoint namespace; empty for the outermost graph.
        checkpoint_id: The checkpoint the superstep began with.
        active: Those of the names asked about whose nodes run in it, by LangGraph's own
            triggers and not by what any state says.
    """

    run: Any
    namespace: str
    checkpoint_id: str
    active: tuple[str, ...]


def superstep(conf: Mapping[str, Any], names: Iterable[str]) -> Superstep:
    """Return the running task's superstep.

    Args:
        conf: The configurable part of its config.
        names: Nodes of its graph.
    """
    reader: Any = conf[_READ]
    channels = reader.args[1]
    namespace = str(conf.get(NAMESPACE, "")).rpartition("|")[0]
    triggers = {name: channels.get(f"{_BRANCH_TO}{name}") for name in names}
    return Superstep(
        run=channels,
        namespace=namespace,
        checkpoint_id=str((conf.get(_CHECKPOINT_MAP) or {}).get(namespace, "")),
        active=tuple(sorted(name for name, made in triggers.items() if made.is_available())),
    )


def start_input(conf: Mapping[str, Any]) -> Any:
    """Return what the run was begun with, as its caller gave it; for a branch at the start."""
    return conf[_READ](_START, False)


def run_of(conf: Mapping[str, Any]) -> str:
    """Name the run that begins here: by the task of its start, which its input alone decides.

    A start that is run again from the same saved input, after a crash, begins the same run.
    """
    return str(conf[NAMESPACE])


def write_channels(conf: Mapping[str, Any], writes: Sequence[tuple[str, Any]]) -> None:
    """Write channels as a part of the running task."""
    conf[_SEND](list(writes))


def replace_pauses(conf: Mapping[str, Any], pauses: Iterable[Interrupt]) -> None:
    """Have the running task, about to fail, leave these pauses in the place of its last ones."""
    conf[_SEND]([(_INTERRUPT, tuple(pauses))])


def pauses_at(conf: Mapping[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """Return the checkpointer and the config that finds the running task's last pause.

    Returns:
        None where the graph keeps no checkpoints.
    """
    saver = conf.get(CHECKPOINTER)
    if not can_pause(conf) or not hasattr(saver, "aget_tuple"):
        return None
    here = superstep(conf, ())
    place = {"checkpoint_ns": here.namespace, "checkpoint_id": here.checkpoint_id}
    return saver, {"configurable": {"thread_id": conf["thread_id"], **place}}


async def shown_pauses(conf: Mapping[str, Any]) -> tuple[Interrupt, ...]:
    """Return the pauses of the running task that people see: what an unaddressed answer is for."""
    at = pauses_at(conf)
    if at is None:
        return ()
    saver, place = at
    if is_bridged():  # a synchronous graph: its checkpointer may have no other way, or another loop
        return last_pause(conf, await asyncio.to_thread(saver.get_tuple, place))
    return last_pause(conf, await saver.aget_tuple(place))


def last_pause(conf: Mapping[str, Any], found: CheckpointTuple | None) -> tuple[Interrupt, ...]:
    """Return the newest pauses of the running task, as the checkpointer holds them.

    Args:
        conf: The configurable part of its config.
        found: What the checkpointer holds at ``pauses_at``.
    """
    if found is None:
        return ()
    mine = [
        value
        for task, channel, value in found.pending_writes or ()
        if task == conf.get(_TASK_ID) and channel == _INTERRUPT
    ]
    return tuple(mine[-1]) if mine else ()
