"""Tools called by a program itself, without a host: a function, its arguments, its own result.

The executor's stages are the same as for a model's call; only the way to the tool is shorter.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.core.canonical import canonical_bytes
from adapter.core.errors import ApprovalAlreadyDecided, ToolUsageError
from adapter.core.invoke import Fence, Invocation
from adapter.core.masking import ResultMask
from adapter.core.types import JsonObject, JsonValue, ToolCall

__all__ = ["FunctionInvocation", "FunctionTool", "Unjournaled", "is_plain", "plain"]


def is_plain(value: object) -> bool:
    """Tell whether a value consists of JSON's own types, whatever their size."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(is_plain(item) for item in value)
    return value is None or isinstance(value, str | int | float)


def plain(value: Any) -> Any:
    """Return a result as the journal would give it back: tuples are lists."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool that is a function, plain or async; its parameters are its arguments."""

    function: Callable[..., Any]

    def invocation(self, call: ToolCall) -> Invocation:  # noqa: ARG002 - the protocol's
        """Return one call's way to the function."""
        return FunctionInvocation(self.function)


class FunctionInvocation:
    """One call of a function; results are kept and given back as they are."""

    kept = False

    def __init__(self, function: Callable[..., Any]) -> None:
        """Take the function."""
        self._function = function

    @property
    def cancellable(self) -> bool:
        """A coroutine can be stopped, a thread cannot."""
        return inspect.iscoroutinefunction(self._function)

    async def invoke(self, arguments: JsonObject, fence: Fence | None) -> Any:
        """Run the function, through the fence if there is one."""
        if fence is not None:
            fence.consume(arguments)
        try:
            return plain(await self._run(arguments))
        except BaseException as error:
            if fence is not None:
                fence.saw(error)
            raise

    async def _run(self, arguments: JsonObject) -> Any:
        if self.cancellable:
            return await self._function(**arguments)
        return await asyncio.to_thread(self._function, **arguments)

    def is_pause(self, error: BaseException) -> bool:  # noqa: ARG002 - the protocol's
        """Whether the host is pausing; a function has none."""
        return False

    async def recall(self, outcome: JsonValue) -> None:
        """Take up nothing."""

    def told(self, pause: BaseException) -> JsonValue:  # noqa: ARG002 - the protocol's
        """Return nothing: the host keeps what there is."""
        return None

    def failed(self, result: Any) -> bool:  # noqa: ARG002 - the protocol's
        """Whether the result reports an error; a function raises instead."""
        return False

    def record(self, result: Any) -> JsonValue:
        """Return the result, if the journal can hold it."""
        try:
            canonical_bytes(result)
        except (TypeError, ValueError, UnicodeEncodeError) as error:
            msg = (
                "The tool's result cannot be kept in the journal: results of governed tools must "
                "be JSON. The call is not run again."
            )
            raise ToolUsageError(msg) from error
        return result

    def replay(self, recorded: JsonValue) -> Any:
        """Return a recorded result."""
        return recorded

    def responded(self, text: str) -> Any:
        """Return the reviewer's words as the result."""
        return text

    def share(self, recorded: JsonValue) -> Any | None:
        """Return another call's result."""
        return recorded

    def masked(self, result: Any, mask: ResultMask) -> Any:
        """Return the result with a mask over it."""
        return mask.text(result) if isinstance(result, str) else mask.value(result)


class Unjournaled:
    """A call whose arguments have no JSON form: it runs, and is never recognised again.

    The executor sees a placeholder for the arguments; the tool gets the real ones.
    """

    kept = False

    def __init__(self, inner: Invocation, arguments: Mapping[str, Any]) -> None:
        """Take the real way to the tool and the real arguments."""
        self._inner = inner
        self._arguments = dict(arguments)

    @property
    def cancellable(self) -> bool:
        """As the tool is."""
        return self._inner.cancellable

    async def invoke(self, arguments: JsonObject, fence: Fence | None) -> Any:
        """Run the tool with the real arguments."""
        if fence is not None:
            fence.consume(arguments)
        try:
            return await self._inner.invoke(self._arguments, None)
        except BaseException as error:
            if fence is not None:
                fence.saw(error)
            raise

    def is_pause(self, error: BaseException) -> bool:
        """As the host says."""
        return self._inner.is_pause(error)

    async def recall(self, outcome: JsonValue) -> None:
        """Take up nothing."""

    def told(self, pause: BaseException) -> JsonValue:  # noqa: ARG002 - the protocol's
        """Return nothing: the host keeps what there is."""
        return None

    def failed(self, result: Any) -> bool:
        """As the host says."""
        return self._inner.failed(result)

    def record(self, result: Any) -> JsonValue:  # noqa: ARG002 - it is never given back
        """Keep nothing of a result that nobody could ask for again."""
        return {"unjournaled": True}

    def replay(self, recorded: JsonValue) -> Any:  # noqa: ARG002 - the protocol's
        """Refuse: whether this is the same call cannot be told.

        Raises:
            ApprovalAlreadyDecided: Always.
        """
        msg = (
            "A call of this id ran before, and its arguments cannot be journaled, so whether this "
            "is the same one cannot be told; it does not run again. Give JSON arguments, or give "
            "the call a node of its own; to go on, fork the thread or write the result with "
            "update_state."
        )
        raise ApprovalAlreadyDecided(msg)

    def responded(self, text: str) -> Any:
        """Return the reviewer's words; nobody is asked about such a call."""
        return self._inner.responded(text)

    def share(self, recorded: JsonValue) -> Any | None:  # noqa: ARG002 - the protocol's
        """Share nothing."""
        return None

    def masked(self, result: Any, mask: ResultMask) -> Any:
        """As the host does."""
        return self._inner.masked(result, mask)
