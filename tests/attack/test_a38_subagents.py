"""A38: gated tools inside subgraphs and sub-agents pause through the parent, by id."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Interrupt
from tests.support.graphs import ASK, CONFIG, Own
from tests.support.room import Room, Rooms, error_of, free, open_questions, paired, pay, tool_of
from tests.support.script import ai, call

from adapter.core.policy import Policy

HOW = pytest.mark.parametrize("how", ["async", "sync"])


def desk(rooms: Rooms, *lines: Any, how: str, **options: Any) -> tuple[Room, Room]:
    """An agent with one tool, which asks another agent, whose tools are gated."""
    inner = rooms(*lines, saver="inherit", agent={"name": "inner"})

    async def delegate(text: str) -> str:
        ended = await inner.agent.ainvoke({"messages": [HumanMessage(text)]})
        return str(ended["messages"][-1].content)

    def delegate_sync(text: str) -> str:
        ended = inner.agent.invoke({"messages": [HumanMessage(text)]})
        return str(ended["messages"][-1].content)

    body = delegate if how == "async" else delegate_sync
    outer = rooms(
        options.pop("line", ai(call("delegate", "d1", text="pay"))),
        tools=[tool_of(body, "delegate")],
        specs=[free("delegate")],
        thread="outer",
        **options,
    )
    return outer, inner


async def run(room: Room, given: Any, how: str) -> Any:
    return await room.run(given) if how == "async" else room.agent.invoke(given, room.config)


def questions(found: Any) -> list[Interrupt]:
    return list(found.get("__interrupt__", []))


@pytest.mark.anyio
@HOW
async def test_a38_an_agent_called_from_a_tool_pauses_through_its_parent(
    rooms: Rooms, how: str
) -> None:
    outer, inner = desk(rooms, ai(pay()), how=how)
    paused = await run(outer, ASK, how)
    assert rooms.ledger.paid == []
    (asked,) = questions(paused)
    assert asked.value["request"]["tool"] == "send_money"
    bad = await run(outer, Command(resume={asked.id: {"approved": True}}), how)
    assert rooms.ledger.paid == []
    (again,) = questions(bad)
    assert again.id == asked.id
    ended = await run(outer, Command(resume={asked.id: inner.sign(asked)}), how)
    assert rooms.ledger.paid == [100]
    paired(ended["messages"])
    assert questions(ended) == []
    await run(outer, Command(resume={asked.id: inner.sign(asked)}), how)
    assert rooms.ledger.paid == [100]


@pytest.mark.anyio
async def test_a38_two_sub_agents_paused_in_parallel_are_answered_by_id(rooms: Rooms) -> None:
    def line(messages: Any) -> Any:
        return ai(pay("c1", 7 if messages[-1].content == "first" else 8))

    both = ai(call("delegate", "d1", text="first"), call("delegate", "d2", text="second"))
    outer, inner = desk(rooms, line, line, how="async", line=both)
    paused = await outer.run(ASK)
    found = {asked.value["request"]["arguments"]["amount"]: asked for asked in questions(paused)}
    assert set(found) == {7, 8}
    assert len({asked.id for asked in found.values()}) == 2
    assert rooms.ledger.paid == []
    swapped = {found[7].id: inner.sign(found[8]), found[8].id: inner.sign(found[7])}
    await outer.resume(swapped)
    assert rooms.ledger.paid == []
    await outer.resume({found[8].id: inner.sign(found[8])})
    assert rooms.ledger.paid == [8]
    ended = await outer.resume({found[7].id: inner.sign(found[7], "reject", reason="no")})
    assert rooms.ledger.paid == [8]
    paired(ended["messages"])


@pytest.mark.anyio
async def test_a38_an_inner_tool_is_not_reachable_from_outside(rooms: Rooms) -> None:
    outer, _ = desk(rooms, how="async", line=ai(pay()))
    await outer.run(ASK)
    assert rooms.ledger.all == []
    assert error_of((await outer.results())["c1"])["kind"] == "UnknownTool"


def nested(inner: Any, saver: Any) -> Any:
    middle = StateGraph(MessagesState)
    middle.add_node("inner", inner)
    middle.add_edge(START, "inner")
    outer = StateGraph(MessagesState)
    outer.add_node("middle", middle.compile())
    outer.add_edge(START, "middle")
    return outer.compile(checkpointer=saver)


@pytest.mark.anyio
@HOW
async def test_a38_a_tool_node_of_ones_own_two_subgraphs_down(rooms: Rooms, how: str) -> None:
    own = Own(rooms, Policy(escalate={"send_money": "x"}), ai(pay()), saver=False)
    graph = nested(own.graph, InMemorySaver())

    async def go(given: Any) -> Any:
        return await graph.ainvoke(given, CONFIG) if how == "async" else graph.invoke(given, CONFIG)

    await go(ASK)
    (asked,) = open_questions(await graph.aget_state(CONFIG))
    await go(Command(resume={asked.id: True}))
    assert own.ledger.paid == []
    from adapter import ApprovalDecision

    value = own.approval.resume_value(asked, ApprovalDecision(kind="approve"))
    ended = await go(Command(resume={asked.id: value}))
    assert own.ledger.paid == [100]
    paired(ended["messages"])


@pytest.mark.anyio
async def test_a38_a_clients_goto_does_not_reach_into_a_subgraph(rooms: Rooms) -> None:
    own = Own(rooms, Policy(escalate={"send_money": "x"}), ai(pay()), saver=False)
    graph = nested(own.graph, InMemorySaver())
    await graph.ainvoke(ASK, CONFIG)
    paused = await graph.ainvoke(Command(goto="middle"), CONFIG)
    assert own.ledger.paid == []
    assert paused is not None
