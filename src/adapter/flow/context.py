"""FlowContext: what a node's function knows of its visit, and how it calls tools.

A visit runs again after a pause or a failure; calls are recognised by their ids, which count up
in the order in which they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from adapter.core.batches import checked_concurrency, in_order
from adapter.core.errors import AdapterError, ApprovalPending, FlowError
from adapter.core.executor import Executor
from adapter.core.scope import task_scope
from adapter.core.types import JsonObject, ToolCall
from adapter.flow.wire import jsonable

__all__ = ["FlowContext", "IsPause", "is_pending", "never_asks"]

IsPause = Callable[[BaseException], bool]


def is_pending(error: BaseException) -> bool:
    """Tell whether an error means that a person is being waited for."""
    return isinstance(error, ApprovalPending)


def never_asks(executor: Executor, tool: str) -> bool:
    """Tell whether no call of a tool is ever put to a person."""
    spec = executor.registry.get(tool)
    ruled = executor.policy is not None and bool(executor.policy.rules(tool))
    return spec is not None and spec.approval is None and not ruled


class FlowContext:
    """The second argument of a node's function, of a hook, and of a join's.

    Attributes:
        flow: Name of the flow.
        node: Name of the node.
        visit: Which visit of the node this is, from 1; the same when it runs again.
        run_id: The run.
    """

    def __init__(
        self,
        *,
        flow: str,
        node: str,
        visit: int,
        run_id: str,
        executor: Executor,
        is_pause: IsPause = is_pending,
        part: str = "",
    ) -> None:
        """Begin a run of a visit, or of a part of it whose calls are named apart."""
        self.flow = flow
        self.node = node
        self.visit = visit
        self.run_id = run_id
        self._executor = executor
        self._is_pause = is_pause
        self._part = part
        self._made = 0
        self._pause: BaseException | None = None

    @property
    def where(self) -> str:
        """The node in words, for errors."""
        return f"flow {self.flow!r}, node {self.node!r}"

    def call_id(self, index: int) -> str:
        """Return the id of a call by its place in the visit."""
        return f"{self.node}:{self.visit}:{self._part}{index}"

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, id: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Await a tool's result.

        Args:
            tool: Its name.
            arguments: JSON, or values that have a JSON form.
            id: Names the call in the visit, the same on a re-run; by default its place in the
                order of calls, so give one where that order may differ.

        Raises:
            AdapterError: As ``Executor.run`` raises.
        """
        return self._run(self._named(tool, arguments or {}, id))

    async def _run(self, call: ToolCall) -> Any:
        try:
            return await self._executor.run(call)
        except Exception as error:
            self.saw(error)
            raise

    async def call_many(
        self,
        tool: str,
        arguments: Sequence[Mapping[str, Any]],
        *,
        concurrency: int | None = None,
    ) -> list[Any]:
        """Await a tool's results for several arguments, in their order.

        Args:
            tool: Its name.
            arguments: Of each call.
            concurrency: How many run at once; None for all. Those that a person must confirm
                run one at a time, after the others.

        Raises:
            AdapterError: As ``Executor.run`` raises; the first in order.
        """
        return await self.run_all(
            tool, [self._named(tool, given, None) for given in arguments], concurrency=concurrency
        )

    async def run_all(
        self,
        tool: str,
        calls: Sequence[ToolCall],
        *,
        concurrency: int | None,
        shown: tuple[type[AdapterError], ...] = (),
        finished: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> list[Any]:
        """Run calls of one tool in the executor's order; what ``call_many`` and a Map share.

        Args:
            tool: Its name.
            calls: With ids of their own.
            concurrency: How many that ask nobody run at once.
            shown: Errors that become results.
            finished: Awaited after each.
        """

        async def one(call: ToolCall) -> Any:
            try:
                made = await self._run(call)
            except shown as error:
                made = {"error": {"kind": error.kind, "message": error.message}}
            if finished is not None:
                await finished()
            return made

        asks_nobody = never_asks(self._executor, tool)
        return await in_order(
            calls,
            confirms=(lambda _call: False) if asks_nobody else self._executor.confirms,
            run=one,
            concurrency=checked_concurrency(concurrency),
        )

    def fitting(self, tool: str, values: JsonObject) -> JsonObject:
        """Return the values that a tool has arguments for."""
        schema = self._executor.registry.schemas[tool].json_schema
        return {name: values[name] for name in schema.get("properties", {}) if name in values}

    def saw(self, error: Exception) -> None:
        """Note a pause, so that a node whose code swallows it pauses all the same."""
        if self._is_pause(error):
            self._pause = error

    def held(self) -> None:
        """Raise the pause that the node's code swallowed, if it did.

        Raises:
            BaseException: That pause.
        """
        if self._pause is not None:
            raise self._pause

    def _named(self, tool: str, arguments: Mapping[str, Any], given: str | None) -> ToolCall:
        index, self._made = self._made, self._made + 1
        return self.tool_call(tool, arguments, given or self.call_id(index))

    def tool_call(self, tool: str, arguments: Mapping[str, Any], call_id: str) -> ToolCall:
        """Return a call with its arguments as JSON.

        Raises:
            FlowError: They are no mapping, or have no JSON form.
        """
        what = f"{self.where}: the arguments of {tool} (call {call_id})"
        if not isinstance(arguments, Mapping):
            msg = f"{what} must be a mapping, not a {type(arguments).__name__}."
            raise FlowError(msg)
        try:
            made: JsonObject = jsonable(dict(arguments))
        except ValueError as error:
            msg = f"{what} have no JSON form: {error}."
            raise FlowError(msg) from None
        return ToolCall(name=tool, arguments=made, id=call_id, message_id=self._visit)

    @property
    def _visit(self) -> str:
        """Name the visit in its run, whatever task of the host it runs in.

        A task may be lost with its checkpoint; an effect it had is found by this name.
        """
        scope = task_scope.get()
        run = "" if scope is None or scope.context is None else scope.context.place.turn_id
        return f"{run}:{self.node}:{self.visit}" if run else ""
