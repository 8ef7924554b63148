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
from langgraph.types import Command, Send

from adapter.core.canonical import canonical_bytes, strict_loads
from adapter.core.errors import AdapterError, ToolUsageError
from adapter.core.masking import ResultMask

__all__ = [
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


def fits(result: Any, call_id: str) -> bool:
    """Tell whether a result answers this call once, and no other.

    A Command to a parent graph may leave the answer to that graph, and one of a state whose
    messages have another key has it there.
    """
    ids = [message.tool_call_id for message in _tool_messages(result)]
    if ids:
        return ids == [call_id]
    listed = result if isinstance(result, list) else [result]
    return any(isinstance(one, Command) and one.graph is not None for one in listed) or any(
        message.tool_call_id == call_id for message in _elsewhere(result)
    )


def _elsewhere(result: Any) -> list[ToolMessage]:
    """Return the ToolMessages that Commands write under other keys than ``messages``."""
    if isinstance(result, list):
        return [message for item in result for message in _elsewhere(item)]
    update = result.update if isinstance(result, Command) else None
    return [
        message
        for key, value in (update.items() if isinstance(update, dict) else ())
        if key != _MESSAGES
        for message in (value if isinstance(value, list) else [value])
        if isinstance(message, ToolMessage)
    ]


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
        ToolUsageError: It cannot be kept and given back: a value in a state update, or in what a
            Send hands over, that is neither JSON nor messages.
    """
    try:
        record = _recorded(result)
        canonical_bytes(record)
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        msg = (
            "The tool's result cannot be kept in the journal: results, state updates and Sends of "
            "governed tools must be JSON, or messages. The call is not run again."
        )
        raise ToolUsageError(msg) from error
    return record


def _recorded(result: Any) -> Any:
    if isinstance(result, ToolMessage):
        return {"message": _message(result)}
    if isinstance(result, list):
        return {"list": [_recorded(item) for item in result]}
    if isinstance(result, Command) and not result.resume:
        made = {"update": _update(result.update), "graph": result.graph, **_goto(result.goto)}
        return {"command": made}
    msg = f"{type(result).__name__} has no JSON form"
    raise TypeError(msg)


def _goto(wanted: Any) -> dict[str, Any]:
    """Return where a Command leads. A list of Sends is joined with others, one alone is not."""
    if isinstance(wanted, list):
        return {"goto": [_target(target) for target in wanted]}
    form, listed = ("tuple", wanted) if isinstance(wanted, tuple) else ("one", [wanted])
    return {"goto": [_target(target) for target in listed], "form": form}


def _target(target: Any) -> Any:
    if isinstance(target, str):
        return target
    if type(target) is not Send or getattr(target, "timeout", None) is not None:
        msg = "only a node's name, or a Send without a timeout, has a JSON form"
        raise TypeError(msg)
    arg = target.arg
    return {"node": target.node, **(_values(arg) if isinstance(arg, dict) else {"arg": arg})}


def _update(update: Any) -> Any:
    if isinstance(update, dict):
        rest = dict(update)
        found = rest.pop(_MESSAGES, None)
        if isinstance(found, BaseMessage):
            rest[_MESSAGES], found = found, None
        return {"messages": _listed(found), **_values(rest)}
    return None if update is None else {"messages": _listed(update), "keys": None}


def _values(given: dict[Any, Any]) -> dict[str, Any]:
    """Return a mapping's values, the messages apart from JSON, which may look like their form."""
    made: dict[str, Any] = {"keys": {}, "lists": {}, "single": {}}
    for key, value in given.items():
        if isinstance(value, BaseMessage):
            made["single"][key] = _message(value)
        elif type(value) is list and value and all(isinstance(m, BaseMessage) for m in value):
            made["lists"][key] = [_message(message) for message in value]
        else:
            made["keys"][key] = value
    return {name: part for name, part in made.items() if part or name == "keys"}


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
    else:
        _read(made)  # raises for a kind of message that could not be given back
    return made


def from_record(record: Any) -> Any:
    """Return the result a record was made from.

    Raises:
        ToolUsageError: Not a record of this module.
    """
    if isinstance(record, dict):
        if "message" in record:
            return _read(record["message"])
        if "list" in record:
            return [from_record(item) for item in record["list"]]
        if "command" in record:
            return _command(record["command"])
    msg = "The journal holds a result that this version cannot read."
    raise ToolUsageError(msg)


def _command(made: dict[str, Any]) -> Command[Any]:
    update: Any = made["update"]
    if update is not None:
        messages = None if update["messages"] is None else [_read(m) for m in update["messages"]]
        if update["keys"] is None:
            update = messages
        else:
            update = _mapping(update)
            if messages is not None:
                update[_MESSAGES] = messages
    goto: Any = [_targeted(target) for target in made["goto"]]
    form = made.get("form")
    goto = goto[0] if form == "one" else tuple(goto) if form == "tuple" else goto
    # ToolNode joins the Sends of Commands whose graph *is* this text.
    graph = Command.PARENT if made["graph"] == Command.PARENT else made["graph"]
    return Command(update=update, goto=goto, graph=graph)


def _targeted(target: Any) -> Any:
    if isinstance(target, str):
        return target
    return Send(target["node"], target["arg"] if "arg" in target else _mapping(target))


def _mapping(made: dict[str, Any]) -> dict[str, Any]:
    lists = {key: [_read(one) for one in found] for key, found in made.get("lists", {}).items()}
    single = {key: _read(one) for key, one in made.get("single", {}).items()}
    return {**made["keys"], **lists, **single}


def _read(made: dict[str, Any]) -> BaseMessage:
    if made["type"] == "remove":  # LangChain writes its empty content, and refuses to read it
        made = {**made, "data": {k: v for k, v in made["data"].items() if k != "content"}}
    return messages_from_dict([made])[0]


def result_messages(record: Any) -> list[ToolMessage]:
    """Return the ToolMessages a record holds, for repairing a history."""
    result = from_record(record)
    return [*_tool_messages(result), *_elsewhere(result)]


def to_call(result: Any, call_id: str, name: str) -> Any:
    """Return a recorded result to a call; one of another call as a message of this call's own.

    What a Command of the other call writes into the state, and where it leads, was that call's.
    """
    # Under another key ToolNode marks its call's answer by the tool's name; the rest may be the
    # history of a sub-agent.
    found = list(_tool_messages(result)) or [m for m in _elsewhere(result) if m.name == name]
    if not found or any(message.tool_call_id == call_id for message in found):
        return result
    return found[0].model_copy(update={"tool_call_id": call_id, "id": None, "name": name})


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
