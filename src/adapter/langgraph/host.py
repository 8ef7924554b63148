"""What the adapter reads of LangGraph's internals about a task, under a version test.

Everything here is about one running task: which answers it has, how they came, how many
questions it asked. What is around the task is in ``supersteps``. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from typing import Any

from langgraph.config import get_config
from langgraph.types import Interrupt

__all__ = [
    "CHECKPOINTER",
    "NAMESPACE",
    "TaskAnswers",
    "apart",
    "bare_answer",
    "can_pause",
    "configurable",
    "drop_bare_answer",
    "first_number",
    "is_sent",
    "own_pad",
    "pause_id",
    "resume_map",
    "run_control",
    "running_task",
    "task_answers",
    "task_scratchpad",
]

_RESUME_MAP = "__pregel_resume_map"
_SCRATCHPAD = "__pregel_scratchpad"
_OF_A_CALL = 10_000
NAMESPACE = "checkpoint_ns"
CHECKPOINTER = "__pregel_checkpointer"
_RUNTIME = "__pregel_runtime"
_PUSH = "__pregel_push"
_SEND = "__pregel_send"
_RESUME = "__resume__"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAnswers:
    """The answers one task has at this moment.

    Attributes:
        asked: How many questions the task asked before now.
        saved: How many answers come from the checkpoint.
        keyed: How many answers there are with this run's own, addressed by id.
        values: Those answers, as they were given.
        bare: Whether an unaddressed answer waits for the next question. In a run that brings
            answers by id it is of an earlier run, and none.
        namespace: The task's checkpoint namespace.
    """

    asked: int
    saved: int
    keyed: int
    values: tuple[Any, ...]
    bare: bool
    namespace: str

    @property
    def delivery(self) -> str | None:
        """How the next question's answer comes, if it comes: saved, keyed or bare."""
        if self.asked < self.saved:
            return "saved"
        if self.asked < self.keyed:
            return "keyed"
        return "bare" if self.bare else None


def configurable() -> Mapping[str, Any]:
    """Return the configurable part of the running task's config."""
    return get_config().get("configurable", {})


def resume_map(conf: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return this run's answers by interrupt id; empty when it brings none by id."""
    found = conf.get(_RESUME_MAP)
    return found if isinstance(found, Mapping) else {}


def run_control(conf: Mapping[str, Any]) -> Any:
    """Return the object that LangGraph makes for each run and all its steps share, or None."""
    return getattr(conf.get(_RUNTIME), "control", None)


def can_pause(conf: Mapping[str, Any]) -> bool:
    """Tell whether the running graph keeps checkpoints; a thread id alone says nothing of it."""
    return bool(conf.get(CHECKPOINTER))


def task_scratchpad(conf: Mapping[str, Any]) -> Any:
    """Return LangGraph's notes on the running task, or None outside a task."""
    return conf.get(_SCRATCHPAD)


def running_task() -> Any:
    """Return LangGraph's notes on the task that runs here, or None outside a graph."""
    try:
        return task_scratchpad(configurable())
    except RuntimeError:
        return None


def first_number(name: str) -> int:
    """Return the first of the numbers that a call has for the graphs and questions below it."""
    # 48 bits: LangGraph asks for the length of what is numbered, which Python bounds at 63.
    return (int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:6]) + 1) * (
        _OF_A_CALL
    )


def apart(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the config with a place of its own for the graphs that run below it.

    LangGraph numbers the graphs a task starts, and finds each one's checkpoints by its number. A
    call that is not run again, because its result is recorded, would give its number to the next.

    Args:
        config: Of the running task.
        name: What has the place, the same on every run of the task.
    """
    conf = config.get("configurable") or {}
    pad = task_scratchpad(conf)
    if pad is None:
        return dict(config)
    numbers = count(first_number(name))
    own = replace(pad, subgraph_counter=numbers.__next__)
    return {**config, "configurable": {**conf, _SCRATCHPAD: own}}


def own_pad(
    conf: Mapping[str, Any], *, numbers: Any, answers: Any, bare: bool
) -> dict[str, Any] | None:
    """Return a task's config with other numbers and answers for what asks below it.

    Args:
        conf: The configurable part of the config.
        numbers: Counts the questions.
        answers: What is there for them; LangGraph saves none of it.
        bare: Whether an unaddressed answer is one of them.

    Returns:
        The configurable part; None outside a task.
    """
    pad = task_scratchpad(conf)
    if pad is None:
        return None
    made = replace(
        pad,
        interrupt_counter=numbers,
        resume=answers,
        get_null_resume=pad.get_null_resume if bare else _nothing,
    )
    send: Any = conf.get(_SEND)

    def sent(writes: Sequence[tuple[str, Any]]) -> None:
        others = [write for write in writes if write[0] != _RESUME]
        if others:
            send(others)

    return {**conf, _SCRATCHPAD: made, _SEND: sent}


def _nothing(_consume: bool = False) -> None:
    """Have no unaddressed answer."""


def task_answers(conf: Mapping[str, Any]) -> TaskAnswers:
    """Read the running task's answers without taking any.

    Raises:
        KeyError: Outside a task.
    """
    pad = conf[_SCRATCHPAD]
    namespace = str(conf.get(NAMESPACE, ""))
    given = resume_map(conf)
    have = len(pad.resume)
    saved = have
    if (
        have
        and given
        and (pause_id(namespace, have - 1) in given or pause_id(namespace, 0) in given)
    ):
        saved = have - 1
    return TaskAnswers(
        asked=_count(pad.interrupt_counter),
        saved=saved,
        keyed=have,
        values=tuple(pad.resume),
        bare=not given and _waits(pad),
        namespace=namespace,
    )


def _waits(pad: Any) -> bool:
    """Tell whether an unaddressed answer waits: LangGraph shows it also after it was taken."""
    value = pad.get_null_resume(False)
    return value is not None and not any(given is value for given in pad.resume)


def bare_answer(conf: Mapping[str, Any]) -> Any:
    """Return the unaddressed answer that waits for the task's next question, without taking it."""
    return conf[_SCRATCHPAD].get_null_resume(False)


def drop_bare_answer(conf: Mapping[str, Any]) -> None:
    """Take the unaddressed answer away, so that no question of this task gets it."""
    conf[_SCRATCHPAD].get_null_resume(True)


def pause_id(namespace: str, answered: int) -> str:
    """Return the id LangGraph gives a task's pause after so many answers."""
    return Interrupt.from_ns(None, f"{namespace}|{answered}" if answered else namespace).id


def _count(counter: Any) -> int:
    """Return a LazyAtomicCounter's next value without advancing it."""
    step = counter._counter  # noqa: SLF001 - no public way to look without counting
    if step is None:
        return 0
    # itertools.count shows its next value in its repr only; copying it is deprecated.
    return int(repr(step.__self__).removeprefix("count(").removesuffix(")"))


def is_sent(config: Mapping[str, Any]) -> bool:
    """Tell whether a Send started the running task, with a state of the sender's making."""
    path: Any = (config.get("metadata") or {}).get("langgraph_path")
    return bool(path) and path[0] == _PUSH
