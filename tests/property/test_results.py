"""Records of tools' results: what is given back is what was returned, or it is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.types import Command, Send

from adapter.core.canonical import canonical_bytes, loads
from adapter.core.errors import ToolUsageError
from adapter.langgraph import results

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
# What a record is made of, as a tool's own value.
lookalikes = st.sampled_from(
    [
        {"message": {"type": "ai", "data": {"content": "x"}}},
        {"node": "a", "keys": {}},
        {"node": "a", "arg": 1},
        [{"type": "tool", "data": {"content": "x", "tool_call_id": "c"}}],
    ]
)
ids = st.none() | texts.filter(bool)
messages: st.SearchStrategy[BaseMessage] = st.one_of(
    st.builds(HumanMessage, content=texts, id=ids),
    st.builds(AIMessage, content=texts, id=ids),
    st.builds(SystemMessage, content=texts, id=ids),
    texts.map(lambda key: RemoveMessage(id=key)),
    st.builds(ToolMessage, content=texts, tool_call_id=texts, artifact=json_values, id=ids),
)
keys = st.sampled_from(["messages", "msgs", "keys", "lists", "single", "arg", "node"]) | texts
values = json_values | lookalikes | messages | st.lists(messages, min_size=1, max_size=3)
mappings = st.dictionaries(keys, values, max_size=4)
updates = st.none() | st.dictionaries(
    keys.filter(lambda key: key != "messages"), values, max_size=4
)
with_messages = st.builds(
    lambda update, found: {**update, "messages": found},
    updates.map(lambda update: update or {}),
    messages | st.lists(messages, max_size=3),
)
sends = st.builds(Send, texts, json_values | lookalikes | mappings)
targets = texts | sends
commands: st.SearchStrategy[Any] = st.builds(
    Command,
    update=updates | with_messages | st.lists(messages, max_size=3),
    goto=targets | st.lists(targets, max_size=3) | st.lists(targets, max_size=3).map(tuple),
    graph=st.none() | texts | st.just(Command.PARENT),
)
TOLD = ToolMessage("did", tool_call_id="c1", name="act")


def again(result: Any) -> Any:
    """The result as another process reads it."""
    return results.from_record(loads(canonical_bytes(results.to_record(result))))


@given(commands | st.lists(commands, max_size=3))
def test_a_command_comes_back_as_it_was(result: Any) -> None:
    assert again(result) == result


@pytest.mark.parametrize("goto", [Send("a", 1), [Send("a", 1)], (Send("a", 1),), "a", ["a"], ()])
def test_one_target_a_list_and_a_tuple_stay_what_they_are(goto: Any) -> None:
    assert again(Command(goto=goto)).goto == goto


def test_a_parent_graph_is_the_very_text_that_tool_nodes_look_for() -> None:
    assert again(Command(graph=Command.PARENT, goto=[Send("a", {})])).graph is Command.PARENT


class Odd(BaseMessage):
    type: str = "odd"


@pytest.mark.parametrize(
    "result",
    [
        Command(update={"at": object()}),
        Command(update={"msgs": [TOLD, "text"]}),
        Command(update={"deep": {"msgs": [TOLD]}}),
        Command(update={"msgs": (TOLD,)}),
        Command(update={1: TOLD}),
        Command(update={"msgs": [Odd(content="x")]}),
        Command(update={"one": HumanMessage("x", additional_kwargs={"at": object()})}),
        Command(goto=Send("desk", object())),
        Command(goto=Send("desk", TOLD)),
        Command(goto=Send("desk", [TOLD])),
        Command(goto=Send("desk", {"deep": {"msgs": [TOLD]}})),
        Command(goto=Send("desk", {}, timeout=timedelta(seconds=1))),
        Command(goto=["a", 1]),
        Command(resume="yes"),
    ],
)
def test_what_could_not_be_given_back_is_refused(result: Any) -> None:
    with pytest.raises(ToolUsageError, match="cannot be kept in the journal"):
        results.to_record(result)


@pytest.mark.parametrize(
    "result",
    [
        Command(update={"at": 1}),
        Command(update={"msgs": [TOLD, TOLD]}),
        Command(update={"deep": {"msgs": ["text"]}}),
        Command(update={"one": HumanMessage("x", additional_kwargs={"at": 1})}),
        Command(goto=Send("desk", None)),
        Command(goto=Send("desk", {"msgs": [TOLD], "one": TOLD, "at": 1})),
        Command(goto=["a", Send("b", [1])]),
    ],
)
def test_its_neighbours_are_given_back(result: Any) -> None:
    assert again(result) == result


def test_a_removal_comes_back_from_records_of_earlier_versions_too() -> None:
    data = {"id": "m1", "content": "", "additional_kwargs": {}, "type": "remove"}
    made = {"keys": {}, "messages": [{"type": "remove", "data": data}]}
    record: Any = {"command": {"update": made, "goto": [], "graph": None}}
    assert results.from_record(record).update == {"messages": [RemoveMessage(id="m1")]}


def test_records_of_earlier_versions_are_read() -> None:
    told = {"type": "tool", "data": {"content": "did", "tool_call_id": "c1", "name": "act"}}
    made: Any = {"keys": {"seen": 7}, "messages": [told]}
    record: Any = {"command": {"update": made, "goto": ["away"], "graph": None}}
    assert results.from_record(record) == Command(
        update={"seen": 7, "messages": [TOLD]}, goto=["away"]
    )
    record = {"command": {"update": {"keys": None, "messages": [told]}, "goto": [], "graph": None}}
    assert results.from_record(record) == Command(update=[TOLD], goto=[])
    record = {"command": {"update": None, "goto": [], "graph": Command.PARENT}}
    assert results.from_record({"list": [record]}) == [Command(graph=Command.PARENT, goto=[])]


def test_a_command_without_other_messages_is_recorded_as_before() -> None:
    made = results.to_record(Command(update={"seen": 7, "messages": []}, goto=["away"]))
    assert made == {
        "command": {
            "update": {"keys": {"seen": 7}, "messages": []},
            "goto": ["away"],
            "graph": None,
        }
    }


@pytest.mark.parametrize("value", [TOLD, [TOLD]], ids=["one", "list"])
@pytest.mark.parametrize("key", ["messages", "msgs"])
def test_a_repaired_history_finds_the_answer_under_any_key(key: str, value: Any) -> None:
    if key == "messages":
        value = [TOLD]
    record = results.to_record(Command(update={key: value}))
    assert results.result_messages(record) == [TOLD]


def test_an_answer_under_another_key_goes_to_another_call_as_its_message() -> None:
    inner = ToolMessage("of a sub-agent", tool_call_id="s1", name="other")
    result: Any = Command(update={"history": [inner], "msgs": [TOLD], "seen": 7})
    assert results.fits(result, "c1")
    assert not results.fits(result, "c2")
    assert results.to_call(result, "c1", "act") is result
    given_back = results.to_call(result, "c2", "act")
    assert (given_back.content, given_back.tool_call_id) == ("did", "c2")


def test_a_command_to_a_parent_with_a_sub_agents_history_stays_its_own_calls() -> None:
    inner = ToolMessage("of a sub-agent", tool_call_id="s1", name="other")
    result: Any = Command(update={"history": [inner]}, graph=Command.PARENT)
    assert results.fits(result, "c1")
    assert results.to_call(again(result), "c1", "act") == result
