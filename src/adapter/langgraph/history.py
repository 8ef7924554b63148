"""Keeping a message history well formed: every tool call has exactly one result.

Pure functions over lists of messages. Which outcome a call had is looked up by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
)
from langchain_core.messages import ToolCall as ToolCallDict

from adapter.core.canonical import checked_json, digest
from adapter.core.errors import ToolArgsInvalid
from adapter.core.types import ToolCall
from adapter.core.validation import Batch

__all__ = [
    "Unanswered",
    "answered_ids",
    "batch_of",
    "calls_before",
    "checkpointable",
    "in_order",
    "last_ai",
    "messages_of",
    "name_of",
    "repaired",
    "result_of",
    "turn_of",
    "unanswered",
    "with_ids",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """Calls of one AI message that have no result."""

    index: int
    message: AIMessage
    calls: tuple[tuple[str, str], ...]


def messages_of(state: Any, key: str = "messages") -> list[BaseMessage]:
    """Return the messages of a state that is a dict, an object or a list."""
    if isinstance(state, list):
        return state
    named = type(state) is dict or isinstance(state, Mapping)  # the usual one first: it is quick
    found = state.get(key) if named else getattr(state, key, None)
    return list(found) if found else []


def turn_of(messages: Sequence[BaseMessage]) -> str:
    """Return the id of the newest human message, which names the turn."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            return message.id or ""
    return ""


def name_of(messages: Sequence[BaseMessage], index: int) -> str:
    """Return what tells the AI message at an index from others: its id, else its place and calls.

    A client, or a model, may leave the id empty; the same calls of the same turn are then taken for
    the same proposal, so that a replay finds what ran.
    """
    message = messages[index]
    if message.id:
        return message.id
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    facts = [turn_of(messages[:index]), repr([(c["id"], c["name"], c["args"]) for c in calls])]
    return f"unnamed:{digest('unnamed-message/v1', facts)}"


def last_ai(messages: Sequence[BaseMessage]) -> tuple[int, AIMessage | None]:
    """Return the newest AI message and its index."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AIMessage):
            return index, message
    return -1, None


def calls_before(messages: Sequence[BaseMessage], call_id: str | None) -> int:
    """Return how many calls of the newest AI message are written before one of them."""
    _, message = last_ai(messages)
    ids = [] if message is None else [call["id"] for call in message.tool_calls]
    return ids.index(call_id) if call_id in ids else 0


def _answered(messages: Sequence[BaseMessage], index: int) -> set[str]:
    """Return the ids that have a result between an AI message and the next one."""
    found: set[str] = set()
    for message in messages[index + 1 :]:
        if isinstance(message, AIMessage):
            break
        if isinstance(message, ToolMessage):
            found.add(message.tool_call_id)
    return found


def result_of(messages: Sequence[BaseMessage], index: int, call_id: str) -> ToolMessage | None:
    """Return the result a call of the AI message at an index has already."""
    for message in messages[index + 1 :]:
        if isinstance(message, AIMessage):
            return None
        if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
            return message
    return None


def _listed(message: AIMessage) -> list[tuple[str, str]]:
    calls = [(call["id"] or "", call["name"]) for call in message.tool_calls]
    calls += [(bad.get("id") or "", bad.get("name") or "") for bad in message.invalid_tool_calls]
    return list(dict(calls).items())


def unanswered(messages: Sequence[BaseMessage]) -> list[Unanswered]:
    """Return every AI message that has calls without a result."""
    found = []
    for index, message in enumerate(messages):
        if not isinstance(message, AIMessage) or not (
            message.tool_calls or message.invalid_tool_calls
        ):
            continue
        answered = _answered(messages, index)
        open_calls = tuple(call for call in _listed(message) if call[0] not in answered)
        if open_calls:
            found.append(Unanswered(index=index, message=message, calls=open_calls))
    return found


def repaired(
    messages: Sequence[BaseMessage], results: Mapping[int, Sequence[ToolMessage]]
) -> list[BaseMessage]:
    """Return the history with every result right after the message that called for it.

    Providers refuse anything else: a message between a call and its result, a second result, a
    result nobody called for. Those are moved, or left out.

    Args:
        messages: The history.
        results: New results by index of the AI message.
    """
    made: list[BaseMessage] = []
    waiting: list[BaseMessage] = []
    wanted: set[str] = set()
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage):
            made.extend(waiting)
            waiting = []
            wanted = {call_id for call_id, _ in _listed(message)}
            made.append(message)
            given = results.get(index, ())
            made.extend(given)
            wanted -= {result.tool_call_id for result in given}
        elif isinstance(message, ToolMessage):
            if message.tool_call_id in wanted:
                wanted.discard(message.tool_call_id)
                made.append(message)
                if not wanted:
                    made.extend(waiting)
                    waiting = []
        elif wanted:
            waiting.append(message)
        else:
            made.append(message)
    return [*made, *waiting]


def in_order(messages: Sequence[BaseMessage]) -> bool:
    """Tell whether every result directly follows the message that called for it, once."""
    wanted: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in wanted:
                return False
            wanted.discard(message.tool_call_id)
        elif wanted:
            return False
        elif isinstance(message, AIMessage):
            wanted = {call_id for call_id, _ in _listed(message)}
    return not wanted


def with_ids(message: AIMessage) -> AIMessage:
    """Return an AI message whose calls all have an id, and each id once.

    A missing id becomes ``<AI message id>:<index>``; a later duplicate is removed.
    """
    given = [call["id"] for call in message.tool_calls]
    given += [bad.get("id") for bad in message.invalid_tool_calls]
    if all(given) and len(set(given)) == len(given):
        return message
    calls: list[ToolCallDict] = []
    bad: list[InvalidToolCall] = []
    seen: set[str] = set()
    changed = False
    for index, call in enumerate(message.tool_calls):
        call_id = call["id"]
        if not call_id:
            call_id = f"{message.id}:{index}"
            changed = True
        if call_id in seen:
            changed = True
            continue
        seen.add(call_id)
        calls.append({**call, "id": call_id})
    for index, unreadable in enumerate(message.invalid_tool_calls):
        call_id = unreadable.get("id")
        if not call_id:
            call_id = f"{message.id}:invalid-{index}"
            changed = True
        if call_id in seen:
            changed = True
            continue
        seen.add(call_id)
        bad.append({**unreadable, "id": call_id})
    if not changed:
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": bad})


def checkpointable(message: AIMessage) -> AIMessage:
    """Return a refused message whose arguments a checkpoint can hold.

    An integer beyond 64 bits, say, would end the run before the model reads the refusal. Such
    arguments never run, and become empty.
    """
    calls = [
        call if _is_json(call["args"]) else {**call, "args": {}} for call in message.tool_calls
    ]
    if calls == message.tool_calls:
        return message
    return message.model_copy(update={"tool_calls": calls})


def _is_json(value: object) -> bool:
    try:
        checked_json(value)
    except ToolArgsInvalid:
        return False
    return True


def batch_of(message: AIMessage, answered: set[str]) -> Batch:
    """Return the calls of an AI message that have no result yet."""
    fallback = message.id or ""
    return Batch(
        calls=tuple(
            ToolCall(
                name=call["name"],
                arguments=call["args"],
                id=call["id"] or f"{fallback}:{index}",
                message_id=fallback,
            )
            for index, call in enumerate(message.tool_calls)
            if call["id"] not in answered
        ),
        unparsable=tuple(
            (bad.get("id") or f"{fallback}:invalid-{index}", bad.get("name") or "")
            for index, bad in enumerate(message.invalid_tool_calls)
            if bad.get("id") not in answered
        ),
    )


def answered_ids(messages: Sequence[BaseMessage], index: int) -> set[str]:
    """Return the ids of calls of the AI message at an index that have a result."""
    return _answered(messages, index)
