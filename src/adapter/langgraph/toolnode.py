"""tool_node: a graph's own node that runs the last message's tool calls, governed.

Ids, order and the form of results are here; what happens to each call is CallTurn's and the
executor's, and the tools are run by LangGraph's ToolNode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, Send
from typing_extensions import override

from adapter.core.batches import checked_concurrency, in_order
from adapter.core.errors import ToolUsageError
from adapter.core.executor import Executor
from adapter.core.spec import Registry
from adapter.core.types import CallContext, ToolCall
from adapter.core.validation import Batch, admit
from adapter.langgraph import history, results
from adapter.langgraph.calls import CallTurn
from adapter.langgraph.direct import tools_of
from adapter.langgraph.governed import ToolInvocation
from adapter.langgraph.nodes import GovernedNode, OnToolFailure, executor_for, shown_errors
from adapter.langgraph.scope import here

__all__ = ["GovernedToolNode", "tool_node"]


def tool_node(
    registry: Registry,
    *,
    executor: Executor | None = None,
    messages_key: str = "messages",
    concurrency: int | None = None,
    on_tool_failure: OnToolFailure = "raise",
) -> GovernedToolNode:
    """Return a node that runs the tool calls of the last AIMessage.

    Args:
        registry: The tools of this node, made with ``registry_of``; others are unknown here.
        executor: None for one in memory, with a warning.
        messages_key: Where the state's messages are.
        concurrency: How many calls that ask nobody run at once; None for all.
        on_tool_failure: ``raise`` ToolFailed and ToolTimeout from the node, or show them to the
            model as a ``message``.

    Raises:
        ConfigurationError: A tool without implementation, or one the executor does not have.
        ToolUsageError: A concurrency that is none.
    """
    return GovernedToolNode(
        registry, executor_for(registry, executor), messages_key, concurrency, on_tool_failure
    )


class GovernedToolNode(GovernedNode):
    """The node. ``add_node(node)`` names it ``tools``.

    Attributes:
        tools: The tools' definitions, for ``bind_tools``.
        executor: What governs the calls.
    """

    name = "tools"

    def __init__(
        self,
        registry: Registry,
        executor: Executor,
        messages_key: str,
        concurrency: int | None,
        on_tool_failure: OnToolFailure,
    ) -> None:
        """Build the node; ``tool_node`` says what each argument is."""
        self.tools: list[BaseTool] = tools_of(registry)
        self.executor = executor
        self._registry = registry
        policy = executor.policy
        self._unnamed = [name for name in registry.names if policy and policy.denied(name)]
        self._key = messages_key
        self._concurrency = checked_concurrency(concurrency)
        self._calls = CallTurn(
            executor, shown_errors(on_tool_failure), messages_key=messages_key, one_task=True
        )
        self._node = ToolNode(
            self.tools,
            messages_key=messages_key,
            awrap_tool_call=self._governed,
            handle_tool_errors=False,
        )

    async def _governed(self, request: ToolCallRequest, handler: Any) -> Any:
        return await self._calls.run(request, ToolInvocation(request, handler, threaded=False))

    @override
    async def _run(self, given: Any, config: RunnableConfig | None) -> Any:
        messages = history.messages_of(given, self._key)
        index, found = history.last_ai(messages)
        if found is None:
            msg = f"tool_node found no AIMessage under {self._key!r}; give messages_key=."
            raise ToolUsageError(msg)
        ctx = here(given, self._key)
        message = _identified(found, ctx.place.checkpoint_ns)
        made: list[BaseMessage] = []
        if message is not found:
            messages[index] = message
            given = _with_messages(given, self._key, messages)
            if message.id:
                made.append(history.with_ids(message))
        batch = history.batch_of(message, history.answered_ids(messages, index))
        refused = await self._refused(batch, message, ctx)
        if refused is not None:
            once = history.checkpointable(history.with_ids(message))
            if message.id and once is not found:
                made = [once]
            return self._update(given, [*made, *refused], [])

        async def run(call: ToolCall) -> Any:
            return await self._node.ainvoke(_alone(call, given), config)

        outputs = await in_order(
            batch.calls, confirms=self.executor.confirms, run=run, concurrency=self._concurrency
        )
        commands: list[Command[Any]] = []
        for output in outputs:
            for part in output if isinstance(output, list) else [output]:
                if isinstance(part, Command):
                    commands.append(part)
                else:
                    made.extend(part[self._key])
        return self._update(given, made, commands)

    async def _refused(
        self, batch: Batch, message: AIMessage, ctx: CallContext
    ) -> list[BaseMessage] | None:
        """Return an error for each distinct call where the batch is not sound."""
        faults = self.executor.admit(batch).faults
        if any(self._registry.get(call.name) is None for call in batch.calls):
            # Not of this node, whatever else the executor has: only its own are named.
            faults = admit(batch, self._registry, strip=True, unnamed=self._unnamed).faults
        if not faults:
            return None
        names = {call.id: call.name for call in batch.calls} | dict(batch.unparsable)
        where = replace(ctx, metadata={"message_id": message.id or ""})
        await self.executor.refuse(faults, names, where)
        return [
            results.error_message(error, call_id, names[call_id])
            for call_id, error in faults.items()
        ]

    def _update(
        self, given: Any, messages: Sequence[BaseMessage], commands: Sequence[Command[Any]]
    ) -> Any:
        listed = list(messages)
        if isinstance(given, list):
            return [*([listed] if listed else []), *_joined(commands)] if commands else listed
        if not commands:
            return {self._key: listed}
        return [*([{self._key: listed}] if listed else []), *_joined(commands)]


def _identified(message: AIMessage, namespace: str) -> AIMessage:
    """Return the message with an id for each call that has none, the same on every re-run."""
    calls = [
        call if call["id"] else {**call, "id": f"{namespace}:{number}"}
        for number, call in enumerate(message.tool_calls)
    ]
    bad = [
        call if call.get("id") else {**call, "id": f"{namespace}:invalid-{number}"}
        for number, call in enumerate(message.invalid_tool_calls)
    ]
    if calls == message.tool_calls and bad == message.invalid_tool_calls:
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": bad})


def _with_messages(state: Any, key: str, messages: list[BaseMessage]) -> Any:
    """Return the state with other messages, whatever kind of state it is."""
    if isinstance(state, list):
        return messages
    if isinstance(state, Mapping):
        return {**state, key: messages}
    made = copy(state)
    object.__setattr__(made, key, messages)
    return made


def _alone(call: ToolCall, state: Any) -> dict[str, Any]:
    """Return ToolNode's input for one call with the state its tool may read."""
    made = {"name": call.name, "args": call.arguments, "id": call.id, "type": "tool_call"}
    return {"__type": "tool_call_with_context", "tool_call": made, "state": state}


def _joined(commands: Sequence[Command[Any]]) -> list[Command[Any]]:
    """Return the commands; LangGraph follows one command to a parent, so their Sends are one."""
    own: list[Command[Any]] = []
    sends: list[Send] = []
    for command in commands:
        goto: Any = command.goto
        if (
            command.graph == Command.PARENT
            and isinstance(goto, list)
            and goto
            and all(isinstance(target, Send) for target in goto)
        ):
            sends += goto
        else:
            own.append(command)
    if sends:
        own.append(Command(graph=Command.PARENT, goto=sends))
    return own
