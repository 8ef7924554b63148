"""tool_task and fan_out: one governed call for each item, as tasks of the graph.

Thin: a task is a Send, its call goes through the executor like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import get_runtime
from langgraph.types import Send
from typing_extensions import override

from adapter.core.errors import ToolUsageError
from adapter.core.executor import Executor
from adapter.core.outcomes import error_outcome
from adapter.core.spec import ToolSpec
from adapter.core.types import ToolCall
from adapter.langgraph.governed import registry_of
from adapter.langgraph.nodes import GovernedNode, OnToolFailure, executor_for, shown_errors
from adapter.langgraph.scope import own_task

__all__ = ["ToolTask", "fan_out", "tool_task"]


def tool_task(
    spec: ToolSpec,
    *,
    executor: Executor | None = None,
    into: str,
    on_tool_failure: OnToolFailure = "raise",
) -> ToolTask:
    """Return a target for Send that runs one tool with the Send's argument.

    Args:
        spec: The tool. Without an executor it must carry its ``function``.
        executor: None for one in memory, with a warning.
        into: State key the result is written to, as ``{into: value}``.
        on_tool_failure: ``raise`` what goes wrong with an item, or write
            ``{"error": {"kind", "message"}}`` as its result.

    Raises:
        ConfigurationError: The spec carries no function, or the executor lacks the tool.
    """
    if executor is None or executor.registry.get(spec.name) is None:
        executor = executor_for(registry_of([], [spec]), executor)
    return ToolTask(spec.name, executor, into, on_tool_failure)


class ToolTask(GovernedNode):
    """The node; its name is the tool's.

    Attributes:
        executor: What governs the call.
    """

    def __init__(
        self, tool: str, executor: Executor, into: str, on_tool_failure: OnToolFailure
    ) -> None:
        """Build the node; ``tool_task`` says what each argument is."""
        self.name = tool
        self.executor = executor
        self._tool = tool
        self._into = into
        spec = executor.registry.get(tool)
        self._once = spec is not None and spec.once_per_run
        self._shown = shown_errors(on_tool_failure) if on_tool_failure != "raise" else ()

    @override
    async def _run(self, given: Any, config: RunnableConfig | None) -> Any:
        if not isinstance(given, Mapping):
            msg = f"tool_task({self._tool}) runs with a mapping of arguments; Send it one."
            raise ToolUsageError(msg)
        with own_task(given) as scope:
            place = scope.context.place.checkpoint_ns if scope.context is not None else ""
            call = ToolCall(
                name=self._tool,
                arguments=dict(given),
                id=f"{place}:0",
                message_id=_step() if self._once else "",
            )
            try:
                value = await self.executor.run(call)
            except self._shown as error:
                value = error_outcome(error)
        return {self._into: value}


def _step() -> str:
    """Name what the Sends of one step have in common, and those of a fork do not."""
    info = get_runtime().execution_info
    return "" if info is None else f"step:{info.checkpoint_id}"


def fan_out(
    target: str, over: str | Callable[[Any], Iterable[Mapping[str, Any]]]
) -> Callable[[Any], list[Send]]:
    """Return the path of a conditional edge: one Send to the target for each item.

    Args:
        target: The node each item is sent to.
        over: State key of the items, or a function of the state that returns them.

    Returns:
        A function of the state; no items send nothing.
    """

    def path(state: Any) -> list[Send]:
        what = over if isinstance(over, str) else getattr(over, "__name__", "over")
        found = _read(state, over) if isinstance(over, str) else over(state)
        if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
            msg = f"fan_out({target!r}): {what!r} holds no list of items."
            raise ToolUsageError(msg)
        sends = []
        for index, item in enumerate(found):
            if not isinstance(item, Mapping):
                msg = (
                    f"fan_out({target!r}): item {index} of {what!r} is no mapping of arguments "
                    f"but a {type(item).__name__}."
                )
                raise ToolUsageError(msg)
            sends.append(Send(target, dict(item)))
        return sends

    # LangGraph names a branch after its function, and two of one node need two names.
    path.__name__ = path.__qualname__ = f"fan_out_{target}"
    return path


def _read(state: Any, key: str) -> Any:
    found = state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)
    return [] if found is None else found
