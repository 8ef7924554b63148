"""Where a call stands, read from LangGraph's runtime: thread, task, run, user.

Only fields the server fills in and a client cannot spoof are read for identity.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from adapter.core.ids import new_id
from adapter.core.types import CallContext, Place, current_context, opened
from adapter.langgraph.host import can_pause, configurable, run_control

__all__ = ["surroundings"]

_OpenContext, _OpenPlace = opened(CallContext), opened(Place)


def surroundings(runtime: Any, turn_id: str, *, ids: Callable[[], str] = new_id) -> CallContext:
    """Return the context of what runs here.

    Args:
        runtime: LangGraph's Runtime or ToolRuntime.
        turn_id: Id of the newest human message.
        ids: Source of a token for a run that has no id of its own.
    """
    info = getattr(runtime, "execution_info", None)
    conf = configurable()
    run = getattr(info, "run_id", None) or conf.get("run_id")
    saved = getattr(info, "thread_id", None)
    thread = saved if saved is not None else conf.get("thread_id")
    token = str(run) if run else f"attempt-{ids()}"
    # Without a thread nothing is shared with any other run, counters included; all of one run is.
    thread_id = str(thread) if thread is not None else f"run:{run or _named(conf, token)}"
    server = getattr(runtime, "server_info", None)
    user = getattr(getattr(server, "user", None), "identity", None)
    place = _OpenPlace(
        thread_id=thread_id,
        checkpoint_ns=str(getattr(info, "checkpoint_ns", "") or ""),
        task_id=str(getattr(info, "task_id", "") or ""),
        turn_id=turn_id,
        durable=saved is not None and can_pause(conf),
        turnless=False,
    )
    place.__class__ = Place
    made = _OpenContext(
        place=place,
        run_id=_display(conf, run) or thread_id,
        run_token=token,
        call_id="",
        idempotency_key="",
        user=None if user is None else str(user),
        metadata={},
        context=_context(getattr(runtime, "context", None)),
    )
    made.__class__ = CallContext
    return made  # type: ignore[no-any-return]


def _context(said: Any) -> Mapping[str, Any]:
    """Return what the run's caller set, whatever the graph's context schema makes of it."""
    if said is None:
        return {}
    if isinstance(said, Mapping):
        return said
    if is_dataclass(said) and not isinstance(said, type):
        return {part.name: getattr(said, part.name) for part in fields(said)}
    return dict(said) if isinstance(said, BaseModel) else {}


def _display(conf: Mapping[str, Any], run: Any) -> str | None:
    """Return the run's id for display and ledger: that of the call this graph runs inside first."""
    outer = current_context()
    if outer is not None:
        return outer.run_id
    return str(conf.get("run_id") or run or "") or None


_runs: OrderedDict[int, tuple[Any, str]] = OrderedDict()
_REMEMBERED = 4096


def _named(conf: Mapping[str, Any], token: str) -> str:
    """Name a run that has neither a thread nor an id, the same at each of its steps."""
    control = run_control(conf)
    if control is None:
        return token
    # the object is kept, so that its place in memory names no other run meanwhile
    _, name = _runs.setdefault(id(control), (control, token))
    while len(_runs) > _REMEMBERED:
        _runs.popitem(last=False)
    return name
