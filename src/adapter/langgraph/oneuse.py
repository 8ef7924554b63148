"""one_use: a node of one's own in which each approval answer is used once.

LangGraph runs a paused node again from its first line. Inside a wrapped node every finished call
of the executor gives its recorded result instead of running again, in any process on the same
store; what stands between the calls is the node's own business.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from langchain_core.runnables import Runnable
from langgraph.errors import GraphInterrupt

from adapter.core.errors import ToolUsageError
from adapter.langgraph.scope import own_task
from adapter.langgraph.usedup import aspent, spent

__all__ = ["one_use"]

Node = TypeVar("Node", bound=Callable[..., Any])


def one_use(node: Node) -> Node:
    """Wrap a node, sync or async, with or without ``config`` and what else LangGraph passes.

    Inside, ``await executor.run(ToolCall(name=…, arguments=…, id=…))`` needs no context; give each
    call an id that is the same on every re-run. A synchronous node uses
    ``run_sync(executor.run(…))``.

    Args:
        node: A function, or an object that is called like one.

    Returns:
        The node to add to the graph, under the same name and signature.

    Raises:
        ToolUsageError: It is no function.
    """
    if isinstance(node, Runnable) or not callable(node):
        msg = "one_use wraps a function of the state; give it the function, not a Runnable."
        raise ToolUsageError(msg)
    call = getattr(node, "__call__", None)  # noqa: B004 - an object with an async __call__
    if inspect.iscoroutinefunction(node) or inspect.iscoroutinefunction(call):

        @wraps(node)
        async def again(state: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                with _own_node(state):
                    return await node(state, *args, **kwargs)
            except Exception as error:
                await aspent(error)
                raise

        return cast("Node", again)

    @wraps(node)
    def again_sync(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with _own_node(state):
                return node(state, *args, **kwargs)
        except Exception as error:
            spent(error)
            raise

    return cast("Node", again_sync)


@contextmanager
def _own_node(state: Any) -> Iterator[None]:
    with own_task(state, journaled=True) as scope:
        try:
            yield
        except GraphInterrupt as pause:
            if scope.unjournaled:
                msg = (
                    f"This node cannot pause: call {scope.unjournaled[0]!r} ran before the pause "
                    "with arguments that cannot be journaled, and would run again after it. Give "
                    "it JSON arguments, or a node of its own."
                )
                raise ToolUsageError(msg) from pause
            raise
