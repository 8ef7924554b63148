"""What happens around each tool call, where it runs: is it the model's, is its batch sound, go.

Runs admission on the whole batch again, because goto, jump_to and update_state go around the hooks
that ran it first. Decides nothing else; the executor does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from adapter.core.canonical import canonical_bytes
from adapter.core.errors import AdapterError, ToolArgsInvalid
from adapter.core.executor import Executor
from adapter.core.types import CallContext, JsonObject, ToolCall
from adapter.langgraph import history, results
from adapter.langgraph.admissions import Admissions
from adapter.langgraph.governed import ToolInvocation
from adapter.langgraph.host import is_sent, running_task
from adapter.langgraph.scope import front_end
from adapter.langgraph.surroundings import surroundings

__all__ = ["CallTurn"]

NO_ID = "Not executed: this tool call has no id. Send it again with one."
SKIPPED = "Not executed: another tool call in this message has no id. Send this one again."

_HOST_EDITS = "hitl_edited_tool_calls"
"""Where LangChain's own review keeps what its reviewer made of a call."""


class _Crowd:
    """The calls of one task that run."""

    def __init__(self) -> None:
        self.running = 0
        self.leaving: list[asyncio.Future[None]] = []
        self.silent: list[asyncio.Future[None]] = []
        self.shown: GraphInterrupt | None = None

    def let_go(self) -> None:
        """Let those that wait leave, the first first: a node shows one pause, and it is that.

        Last leave those that have no question themselves and wait for another's answer.
        """
        for turn in (*self.leaving, *self.silent):
            if not turn.done():
                turn.set_result(None)


class CallTurn:
    """Tool calls under governance."""

    def __init__(
        self,
        executor: Executor,
        shown: tuple[type[AdapterError], ...],
        *,
        messages_key: str = "messages",
        admissions: Admissions | None = None,
        one_task: bool = False,
    ) -> None:
        """Take the executor, and the errors that become messages for the model.

        Args:
            executor: What governs the calls.
            shown: The errors.
            messages_key: Where the state's messages are.
            admissions: Those of the model's turn, where there is one.
            one_task: The calls of a message always share a task, also one that a Send started.
        """
        self._executor = executor
        self._key = messages_key
        self._shown = shown
        self._one_task = one_task
        self._crowds: dict[int, _Crowd] = {}
        self._admissions = admissions or Admissions(executor)

    async def run(self, request: ToolCallRequest, invocation: ToolInvocation) -> Any:
        """Take one call through admission and the executor's stages.

        Returns:
            The tool's result, a recorded one, or an error message for the model.
        """
        with front_end():
            return await self._run(request, invocation)

    @asynccontextmanager
    async def _beside_others(self) -> AsyncIterator[None]:
        """Leave a task with a pause or an error only when no other call of it runs any more.

        A ToolNode leaves at the first one. The others would go on behind it, and the task's next
        run would find them in progress.
        """
        key = id(running_task())
        crowd = self._crowds.setdefault(key, _Crowd())
        crowd.running += 1
        turn: asyncio.Future[None] | None = None
        failed: Exception | None = None
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again below, in its turn
            failed = error
            turn = asyncio.get_running_loop().create_future()
            if _is_silent(error):
                crowd.silent.append(turn)
            else:
                crowd.leaving.append(turn)
                if isinstance(error, GraphInterrupt):
                    crowd.shown = crowd.shown or error
        finally:
            crowd.running -= 1
            if crowd.running == 0:
                self._crowds.pop(key, None)
                crowd.let_go()
            if turn is not None:
                await asyncio.sleep(0)  # the last one, too, leaves after those that wait
                await turn
        if failed is None:
            return
        if _is_silent(failed) and crowd.shown is not None:
            # Whichever pause a node leaves with is all that LangGraph keeps of them.
            raise GraphInterrupt(*crowd.shown.args) from None
        raise failed

    async def _run(self, request: ToolCallRequest, invocation: ToolInvocation) -> Any:
        messages = history.messages_of(request.state, self._key)
        call_id = request.tool_call["id"] or ""
        name = request.tool_call["name"]
        ctx = surroundings(request.runtime, history.turn_of(messages))
        index, message = history.last_ai(messages)
        if message is not None and _sick(message, history.answered_ids(messages, index)):
            return await self._refused_whole(message, index, messages, request, ctx)
        try:
            edit = _edits(request.state).get(call_id)
            if message is None or not _proposed(message, request, edit):
                await self._refuse(
                    ToolArgsInvalid(
                        "Not executed: this is not one of the tool calls in the model's last "
                        "message."
                    ),
                    request,
                    ctx,
                )
            else:
                earlier = history.result_of(messages, index, call_id)
                if earlier is not None:
                    # Reached again by goto or jump_to after it was answered: the answer stands.
                    return earlier
                return await self._admitted(
                    messages, index, message, request, invocation, ctx, edit
                )
        except self._shown as error:
            return results.error_message(error, call_id, name)

    async def _admitted(
        self,
        messages: list[BaseMessage],
        index: int,
        message: AIMessage,
        request: ToolCallRequest,
        invocation: ToolInvocation,
        ctx: CallContext,
        edit: Any,
    ) -> Any:
        call_id = request.tool_call["id"] or ""
        answered = history.answered_ids(messages, index)
        admission = self._admissions.of(message, answered)
        if call_id in admission.faults:
            await self._refuse(admission.faults[call_id], request, ctx)
        edited: JsonObject | None = None if edit is None else edit["args"]
        call = ToolCall(
            name=request.tool_call["name"],
            arguments=request.tool_call["args"] if edited is None else edited,
            id=call_id,
            message_id=history.name_of(messages, index),
        )
        valid = admission.arguments[call_id] if edited is None else None
        single = len(message.tool_calls) == 1
        alone = single or is_sent(request.runtime.config)
        if not alone or (self._one_task and not single):
            invocation.share_task(asks=self._admissions.asks(message, answered))
        if self._one_task or alone:
            return await self._executor.run(call, ctx, invocation, arguments=valid)
        async with self._beside_others():
            return await self._executor.run(call, ctx, invocation, arguments=valid)

    async def _refused_whole(
        self,
        message: AIMessage,
        index: int,
        messages: list[BaseMessage],
        request: ToolCallRequest,
        ctx: CallContext,
    ) -> Command[Any]:
        """Answer every call of a message that no node could answer call by call.

        Each of its calls gives the same messages, under the same ids, so they are there once.
        """
        batch = history.batch_of(message, history.answered_ids(messages, index))
        mended = history.with_ids(message)
        if mended is message:
            faults = self._executor.admit(batch).faults
        else:
            nameless = {call.id for call in batch.calls} - {c["id"] for c in message.tool_calls}
            faults = self._executor.admit(batch).faults or {
                call.id: ToolArgsInvalid(NO_ID if call.id in nameless else SKIPPED)
                for call in batch.calls
            }
        names = {call.id: call.name for call in batch.calls} | dict(batch.unparsable)
        where = replace(ctx, metadata={"message_id": message.id or ""})
        await self._executor.refuse(faults, names, where)
        answers: list[BaseMessage] = [
            results.error_message(error, call_id, names[call_id]).model_copy(
                update={"id": f"{message.id}:{call_id}:refused"}
            )
            for call_id, error in faults.items()
        ]
        found = [history.checkpointable(mended), *answers]
        return Command(update=found if isinstance(request.state, list) else {self._key: found})

    async def _refuse(self, error: Any, request: ToolCallRequest, ctx: CallContext) -> None:
        call_id = request.tool_call["id"] or ""
        await self._executor.refuse({call_id: error}, {call_id: request.tool_call["name"]}, ctx)
        raise error


def _is_silent(error: Exception) -> bool:
    """Tell whether a call pauses without a question, because it waits for another's answer."""
    return isinstance(error, GraphInterrupt) and not (error.args and error.args[0])


def _sick(message: AIMessage, answered: set[str]) -> bool:
    """Tell whether one result for each call would not do: ids that lack or repeat, no JSON."""
    if not message.id:
        return False
    bad = message.invalid_tool_calls
    lost = bool(bad) and any(one.get("id") not in answered for one in bad)
    return lost or history.with_ids(message) is not message


def _edits(state: Any) -> Mapping[str, Any]:
    """Return calls a reviewer of LangChain's own review replaced, by call id."""
    named = type(state) is dict or isinstance(state, Mapping)
    found = state.get(_HOST_EDITS) if named else None
    if found is None or not isinstance(found, Mapping):
        return {}
    return {
        call_id: edit
        for call_id, edit in found.items()
        if isinstance(edit, Mapping) and isinstance(edit.get("args"), dict)
    }


def _proposed(message: AIMessage, request: ToolCallRequest, edit: Any) -> bool:
    """Tell whether the model's message holds this call, as proposed or as the host's edit of it.

    An edit keeps the tool: under another name it would be another tool's call.
    """
    call = request.tool_call
    own = next((one for one in message.tool_calls if call["id"] and one["id"] == call["id"]), None)
    if own is None or own["name"] != call["name"]:
        return False
    if edit is None:
        return _same(own["args"], call["args"])
    return edit.get("name") == own["name"] and (
        _same(own["args"], call["args"]) or _same(edit["args"], call["args"])
    )


def _same(one: Any, other: Any) -> bool:
    """Compare as JSON: True is not 1, and the order of keys says nothing."""
    if one != other:
        return False
    return repr(one) == repr(other) or _canonical(one) == _canonical(other)


def _canonical(value: Any) -> bytes | None:
    try:
        return canonical_bytes(value)
    except ValueError:
        return None
