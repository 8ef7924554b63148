"""RES-06: a shorter list for the model, the whole history in the state; in agents and own nodes."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from tests.support.room import Rooms, paired, pay
from tests.support.script import Script, ai, call

from adapter.core.errors import ConfigurationError
from adapter.langgraph import Compression, langgraph_compressor

HOW = pytest.mark.parametrize("how", ["async", "sync"])


def looks(count: int) -> list[AIMessage]:
    return [ai(call("look", f"l{number}", text=f"{number}")) for number in range(count)]


async def say(room: Any, text: str, how: str) -> Any:
    given = {"messages": [HumanMessage(text)]}
    if how == "async":
        return await room.agent.ainvoke(given, room.config)
    return room.agent.invoke(given, room.config)


@pytest.mark.anyio
@HOW
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("policy", [Compression(max_messages=4), Compression(max_tokens=40)])
async def test_the_model_gets_less_and_the_state_keeps_all(
    rooms: Rooms, how: str, where: str, policy: Compression
) -> None:
    where_: dict[str, Any] = {where: [langgraph_compressor(policy)]}
    room = rooms(*looks(6), **where_)
    await say(room, "first", how)
    await say(room, "second", how)
    for sent in room.model.sent:
        paired(sent)
    assert len(room.model.sent[6]) < 13
    assert len(await room.messages()) == 16
    await room.results()


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_call_left_open_is_mended_in_the_whole_history(rooms: Rooms, where: str) -> None:
    where_: dict[str, Any] = {where: [langgraph_compressor(Compression(max_messages=2))]}
    room = rooms(*looks(3), ai(pay()), **where_)
    await room.say("first")
    assert len(await room.asked()) == 1
    before = await room.messages()
    await room.say("never mind")
    after = await room.messages()
    assert [m.id for m in after[: len(before)]] == [m.id for m in before]
    await room.results()
    for sent in room.model.sent:
        paired(sent)
    assert [event["kind"] for event in await room.events("void")] == ["void"]


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["before", "after"])
async def test_shortening_does_not_renew_a_budget(rooms: Rooms, where: str) -> None:
    from adapter import Budgets

    where_: dict[str, Any] = {where: [langgraph_compressor(Compression(max_messages=1))]}
    room = rooms(*looks(8), budgets=Budgets(model_calls_per_turn=3), **where_)
    await room.say()
    assert len(room.model.sent) == 3


@pytest.mark.anyio
@HOW
async def test_a_summary_is_made_by_langchains_own_and_built_upon(rooms: Rooms, how: str) -> None:
    scribe = Script.of(*[AIMessage(f"summary {n}") for n in range(9)])
    policy = Compression(summarize_with=scribe, trigger=("messages", 6), keep=("messages", 2))
    room = rooms(*looks(6), after=[langgraph_compressor(policy)])
    await say(room, "first", how)
    for sent in room.model.sent:
        paired(sent)
        assert [m.content for m in sent if isinstance(m, HumanMessage)][-1] == "first"
    assert "summary" in str(room.model.sent[-1][0].content)
    assert 1 <= len(scribe.sent) < 4
    assert "summary 0" in str(scribe.sent[-1])
    assert len(await room.messages()) == 14


@pytest.mark.anyio
@HOW
async def test_it_works_in_a_node_of_ones_own(how: str) -> None:
    compress = langgraph_compressor(Compression(max_messages=3))
    model = Script.of()

    async def anode(state: MessagesState) -> Any:
        messages = [SystemMessage("be good"), *state["messages"]]
        return {"messages": [await model.ainvoke(await compress.acompress(messages))]}

    def node(state: MessagesState) -> Any:
        return {"messages": [model.invoke(compress([SystemMessage("s"), *state["messages"]]))]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", anode if how == "async" else node)
    graph.add_edge(START, "model")
    app: Any = graph.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    ended: Any = None
    for number in range(4):
        given = {"messages": [HumanMessage(str(number))]}
        ended = await app.ainvoke(given, config) if how == "async" else app.invoke(given, config)
    assert len(ended["messages"]) == 8
    assert [len(sent) for sent in model.sent] == [2, 2, 2, 2]
    assert all(isinstance(sent[0], SystemMessage) for sent in model.sent)


def test_a_list_of_system_messages_only_is_left_alone() -> None:
    messages = [SystemMessage("a"), SystemMessage("b")]
    assert langgraph_compressor(Compression(max_messages=1))(messages) == messages
    assert not any(isinstance(message, RemoveMessage) for message in messages)


@pytest.mark.parametrize("fields", [{}, {"max_messages": 0}, {"max_tokens": -1}])
def test_a_policy_that_shortens_nothing_or_to_nothing_is_refused(fields: Any) -> None:
    with pytest.raises(ConfigurationError, match="Compression"):
        Compression(**fields)
