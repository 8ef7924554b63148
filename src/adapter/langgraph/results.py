"""Results on their way between LangChain's messages and the journal's JSON.

Only JSON crosses a store. A result that belongs to another call, or that could not be given back
the same, is refused before it enters the graph's state.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage, convert_to_messages
from langchain_core.messages.base import message_to_dict
from langchain_core.messages.utils import messages_from_dict
from langgraph.types import Command

from adapter.core.canonical import canonical_bytes, strict_loads
from adapter.core.errors import AdapterError, ToolUsageError
from adapter.core.masking import ResultMask

__all__ = [
    "belongs",
    "error_message",
    "fits",
    "for_call",
    "from_record",
    "is_error",
    "masked",
    "result_messages",
    "spelt_out",
    "stated_record",
    "text_message",
    "to_call",
    "to_record",
]

_MESSAGES = "messages"


def error_message(error: AdapterError, call_id: str, name: str) -> ToolMessage:
    """Return the error ToolMessage of one call: ``{"error": {"kind", "message"}}``."""
    content = json.dumps({"error": {"kind": error.kind, "message": error.message}})
    return ToolMessage(content, tool_call_id=call_id, name=name, status="error")


def text_message(text: str, call_id: str, name: str) -> ToolMessage:
    """Return a plain ToolMessage."""
    return ToolMessage(text, tool_call_id=call_id, name=name)


def stated_record(text: str, call_id: str, name: str) -> Any:
    """Return the record of a result that a person states for a call nobody saw the end of.

    Args:
        text: The result: plain text, or a JSON object or array, written as a tool's own would be.
        call_id: The tool call's id.
        name: The tool.
    """
    try:
        value = strict_loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False)
    return {"result": to_record(text_message(text, call_id, name))}


def belongs(result: Any, call_id: str) -> bool:
    """Tell whether a result carries no other call's id."""
    return all(message.tool_call_id == call_id for message in _tool_messages(result))


def fits(result: Any, call_id: str) -> bool:
    """Tell whether a result answers this call once, and no other.

    A Command to a parent graph may leave the answer to that graph, and one of a state whose
    messages have another key has it there.
    """
    ids = [message.tool_call_id for message in _tool_messages(result)]
    if ids:
        return ids == [call_id]
    return any(
        command.graph is not None or call_id in _elsewhere(command)
        for command in (result if isinstance(result, list) else [result])
        if isinstance(command, Command)
    )


def _elsewhere(command: Command[Any]) -> set[str]:
    update = command.update if isinstance(command.update, dict) else {}
    return {
        message.tool_call_id
        for value in update.values()
        if isinstance(value, list)
        for message in value
        if isinstance(message, ToolMessage)
    }


def spelt_out(result: Any) -> Any:
    """Return a tool's result with the messages of its Commands as objects, each list a list.

    LangGraph takes maps in one Command, and does not see them in a list of Commands.
    """
    if isinstance(result, list):
        return [spelt_out(item) for item in result]
    if isinstance(result, Command) and isinstance(result.update, dict):
        found = result.update.get(_MESSAGES)
        if found:
            listed = found if isinstance(found, list) else [found]
            update = {**result.update, _MESSAGES: convert_to_messages(listed)}
            return dataclasses.replace(result, update=update)
    return result


def is_error(result: Any) -> bool:
    """Tell whether a result reports an error."""
    return any(message.status == "error" for message in _tool_messages(result))


def _tool_messages(result: Any) -> Iterable[ToolMessage]:
    if isinstance(result, ToolMessage):
        yield result
    elif isinstance(result, list):
        for item in result:
            yield from _tool_messages(item)
    elif isinstance(result, Command):
        update = result.update
        found = update.get(_MESSAGES, []) if isinstance(update, dict) else update
        if isinstance(found, list):
            for message in convert_to_messages(found):
                if isinstance(message, ToolMessage):
                    yield message


def to_record(result: Any) -> Any:
    """Return the JSON form of a tool's result.

    Args:
        result: ToolMessage, Command, or a list of these.

    Raises:
        ToolUsageError: It cannot be kept and given back: a state update that is no JSON, a Send.
    """
    try:
        record = _recorded(result)
        canonical_bytes(record)
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        msg = (
            "The tool's result cannot be kept in the journal: results and state updates of "
            "governed tools must be JSON. The call is not run again."
        )
        raise ToolUsageError(msg) from error
    return record


def _recorded(result: Any) -> Any:
    if isinstance(result, ToolMessage):
        return {"message": _message(result)}
    if isinstance(result, list):
        return {"list": [_recorded(item) for item in result]}
    if isinstance(result, Command) and not result.resume:
        wanted: Any = result.goto
        goto = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        if not all(isinstance(name, str) for name in goto):
            msg = "a Send has no JSON form"
            raise TypeError(msg)
        return {"command": {"update": _update(result.update), "goto": goto, "graph": result.graph}}
    msg = f"{type(result).__name__} has no JSON form"
    raise TypeError(msg)


def _update(update: Any) -> Any:
    if isinstance(update, dict):
        return {
            "keys": {key: value for key, value in update.items() if key != _MESSAGES},
            "messages": _listed(update.get(_MESSAGES)),
        }
    if update is None:
        return None
    return {"messages": _listed(update), "keys": None}


def _listed(messages: Any) -> Any:
    if messages is None:
        return None
    return [_message(message) for message in convert_to_messages(messages)]


def _message(message: BaseMessage) -> Any:
    made = message_to_dict(message)
    if isinstance(message, ToolMessage):
        try:
            canonical_bytes(made["data"].get("artifact"))
        except (TypeError, ValueError, UnicodeEncodeError):
            # Never sent to the model, often an object: the content is what must come back.
            made["data"]["artifact"] = None
    return made


def from_record(record: Any) -> Any:
    """Return the result a record was made from.

    Raises:
        ToolUsageError: Not a record of this module.
    """
    if isinstance(record, dict):
        if "message" in record:
            return messages_from_dict([record["message"]])[0]
        if "list" in record:
            return [from_record(item) for item in record["list"]]
        if "command" in record:
            return _command(record["command"])
    msg = "The journal holds a result that this version cannot read."
    raise ToolUsageError(msg)


def _command(made: dict[str, Any]) -> Command[Any]:
    update: Any = made["update"]
    if update is not None:
        messages = None if update["messages"] is None else messages_from_dict(update["messages"])
        if update["keys"] is None:
            update = messages
        else:
            update = dict(update["keys"])
            if messages is not None:
                update[_MESSAGES] = messages
    return Command(update=update, goto=made["goto"], graph=made["graph"])


def result_messages(record: Any) -> list[ToolMessage]:
    """Return the ToolMessages a record holds, for repairing a history."""
    return list(_tool_messages(from_record(record)))


def to_call(result: Any, call_id: str, name: str) -> Any:
    """Return a recorded result to a call; one of another call as a message of this call's own.

    What a Command of the other call writes into the state, and where it leads, was that call's.
    """
    if belongs(result, call_id):
        return result
    found = next(iter(_tool_messages(result)))
    return found.model_copy(update={"tool_call_id": call_id, "id": None, "name": name})


def for_call(result: Any, call_id: str) -> ToolMessage | None:
    """Return a message as another call's result; None for what is no single good message."""
    if not isinstance(result, ToolMessage) or result.status == "error":
        return None
    return result.model_copy(update={"tool_call_id": call_id, "id": None})


def masked(result: Any, mask: ResultMask) -> Any:
    """Return a tool's result with its contents and artifacts masked.

    Args:
        result: ToolMessage, Command, or a list of these. A Command is returned as it is: what it
            writes into the state is the tool's own business, its messages included.
        mask: What to hide. An artifact that is no JSON cannot be searched, so it is dropped.
    """
    if isinstance(result, list):
        return [masked(item, mask) for item in result]
    if not isinstance(result, ToolMessage):
        return result
    content: Any = result.content
    content = mask.text(content) if isinstance(content, str) else mask.value(content)
    return result.model_copy(
        update={"content": content, "artifact": _masked_artifact(result.artifact, mask)}
    )


def _masked_artifact(artifact: Any, mask: ResultMask) -> Any:
    try:
        canonical_bytes(artifact)
    except (TypeError, ValueError, UnicodeEncodeError):
        return None
    return mask.value(artifact)
