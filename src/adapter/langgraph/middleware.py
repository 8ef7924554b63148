"""AdapterMiddleware: governed tool calls for create_agent. Thin; the executor does the work.

Put it first in the list of middleware: then every retry, limit or error handler runs inside its
gate and behind its fence, and sees the call only after it was claimed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ModelRequest,
    ModelResponse,
    OmitFromInput,
)
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from typing_extensions import override

from adapter.core.errors import (
    ConfigurationError,
    ModelVisibleError,
    ToolArgsInvalid,
    ToolFailed,
    ToolTimeout,
)
from adapter.core.executor import Executor
from adapter.core.types import ToolCall
from adapter.core.validation import Admission
from adapter.langgraph import history, results
from adapter.langgraph.bridge import run_sync
from adapter.langgraph.governed import ToolInvocation
from adapter.langgraph.surroundings import surroundings
from adapter.langgraph.turns import ModelTurn

__all__ = ["AdapterMiddleware", "AdapterState", "OnToolFailure"]

OnToolFailure = Literal["message", "raise"]
ToolResult = ToolMessage | Command[Any]


class AdapterState(AgentState[Any]):
    """What clients may read of the adapter's work; never read back by the adapter."""

    audit_log: NotRequired[Annotated[list[dict[str, Any]], OmitFromInput]]
    total_tool_calls: NotRequired[Annotated[int, OmitFromInput]]
    turn_id: NotRequired[Annotated[str, OmitFromInput]]


class AdapterMiddleware(AgentMiddleware[AdapterState, Any, Any]):
    """Runs every tool call of an agent through an Executor."""

    state_schema = AdapterState

    def __init__(self, executor: Executor, *, on_tool_failure: OnToolFailure = "message") -> None:
        """Take the executor.

        Args:
            executor: With a registry of exactly the agent's tools.
            on_tool_failure: ``message`` shows ToolFailed and ToolTimeout to the model (kind,
                class name, reference); ``raise`` ends the run.

        Raises:
            ConfigurationError: Another value of ``on_tool_failure``.
        """
        super().__init__()
        if on_tool_failure not in ("message", "raise"):
            msg = f"on_tool_failure is 'message' or 'raise', not {on_tool_failure!r}."
            raise ConfigurationError(msg)
        self._executor = executor
        self._turn = ModelTurn(executor)
        self._shown = (ModelVisibleError,)
        if on_tool_failure == "message":
            self._shown = (ModelVisibleError, ToolFailed, ToolTimeout)  # type: ignore[assignment]
        self._admissions: OrderedDict[str, tuple[Any, Admission]] = OrderedDict()

    @override
    def awrap_model_call(  # type: ignore[override]
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> Awaitable[Any]:
        """Govern one model call. Plain, not async: LangChain sends async hooks through threads."""
        return self._turn.call(request, handler)

    @override
    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> Any:
        """Govern one model call of a synchronous run."""

        async def inline(changed: ModelRequest[Any]) -> ModelResponse[Any]:
            return await asyncio.to_thread(handler, changed)

        return run_sync(self._turn.call(request, inline))

    @override
    def awrap_tool_call(  # type: ignore[override]
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolResult]],
    ) -> Awaitable[Any]:
        """Govern one tool call. Plain, not async: LangChain sends async hooks through threads."""
        return self._govern(request, ToolInvocation(request, handler, threaded=False))

    @override
    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]
    ) -> Any:
        """Govern one tool call of a synchronous run."""
        return run_sync(self._govern(request, ToolInvocation(request, handler, threaded=True)))

    async def _govern(self, request: ToolCallRequest, invocation: ToolInvocation) -> Any:
        messages = history.messages_of(request.state)
        index, message = history.last_ai(messages)
        call_id = request.tool_call["id"] or ""
        name = request.tool_call["name"]
        ctx = surroundings(request.runtime, history.turn_of(messages))
        try:
            if message is not None:
                earlier = history.result_of(messages, index, call_id)
                if earlier is not None and _proposed(message, request):
                    # Reached again by goto or jump_to after it was answered: the answer stands.
                    return earlier
            if message is None or not _proposed(message, request):
                error = ToolArgsInvalid(
                    "Not executed: this is not one of the tool calls in the model's last message."
                )
                await self._executor.refuse({call_id: error}, {call_id: name}, ctx)
                raise error
            admission = self._admit(messages, index, message)
            if call_id in admission.faults:
                error = admission.faults[call_id]  # type: ignore[assignment]
                await self._executor.refuse({call_id: error}, {call_id: name}, ctx)
                raise error
            call = ToolCall(
                name=name,
                arguments=request.tool_call["args"],
                id=call_id,
                message_id=message.id or "",
            )
            return await self._executor.run(
                call, ctx, invocation, arguments=admission.arguments[call_id]
            )
        except self._shown as error:
            return results.error_message(error, call_id, name)

    def _admit(self, messages: list[Any], index: int, message: AIMessage) -> Admission:
        """Admit the whole batch, once per message and not once per call of it."""
        answered = history.answered_ids(messages, index)
        asked = (
            [(call["id"], call["name"], call["args"]) for call in message.tool_calls],
            [bad.get("id") for bad in message.invalid_tool_calls],
            answered,
        )
        key = message.id or ""
        known = self._admissions.get(key)
        if known is not None and known[0] == asked:
            return known[1]
        admission = self._executor.admit(history.batch_of(message, answered))
        self._admissions[key] = (_copied(asked), admission)
        while len(self._admissions) > _REMEMBERED:
            self._admissions.popitem(last=False)
        return admission


_REMEMBERED = 256


def _copied(asked: Any) -> Any:
    """Copy what was admitted: other middleware changes messages in place."""
    return deepcopy(asked)


def _proposed(message: AIMessage, request: ToolCallRequest) -> bool:
    """Tell whether the model's message holds exactly this call."""
    call = request.tool_call
    return bool(call["id"]) and any(
        own["id"] == call["id"] and own["name"] == call["name"] and own["args"] == call["args"]
        for own in message.tool_calls
    )


# LangChain's tracing wrapper asks for each hook's signature at every call; computing it anew costs
# more than an audit event.
_hooks: tuple[Any, ...] = (AdapterMiddleware.awrap_model_call, AdapterMiddleware.awrap_tool_call)
for _hook in _hooks:
    _hook.__signature__ = inspect.signature(_hook)
