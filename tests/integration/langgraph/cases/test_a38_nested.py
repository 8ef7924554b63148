"""A38: agents inside tools of agents, each over every front end."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from tests.support.front_ends import EVERYWHERE, Desk, FrontEnd, desk, over
from tests.support.room import Rooms, error_of, free, gated, paired, pay, tool_of
from tests.support.script import Line, ai, call

from adapter import CallInProgress, Executor, ToolCall
from adapter.langgraph import one_use, registry_of

pytestmark = pytest.mark.anyio


def asking(inner: Desk, name: str, how: str) -> Any:
    """A tool that asks another agent."""

    def ask(text: str) -> str:
        ended = inner.agent.invoke({"messages": [HumanMessage(text)]})
        return str(ended["messages"][-1].content)

    async def aask(text: str) -> str:
        ended = await inner.agent.ainvoke({"messages": [HumanMessage(text)]})
        return str(ended["messages"][-1].content)

    return tool_of(aask if how == "async" else ask, name)


def payer(rooms: Rooms, end: FrontEnd, *lines: Line) -> Desk:
    return desk(rooms, end, *lines, saver="inherit")


def boss(
    rooms: Rooms, end: FrontEnd, inner: Desk, *calls: Any, name: str = "ask", **more: Any
) -> Desk:
    spec = more.pop("spec", free(name))
    return desk(rooms, end, ai(*calls), tools=[asking(inner, name, end.how)], specs=[spec], **more)


async def asked(room: Desk) -> list[Any]:
    """What is open, wherever below the room's own graph."""
    state = await room.agent.aget_state(room.config, subgraphs=True)
    return [question for task in state.tasks for question in task.interrupts]


@EVERYWHERE
async def test_a38_three_agents_deep_one_approval_is_one_effect(
    rooms: Rooms, end: FrontEnd
) -> None:
    bottom = payer(rooms, end, ai(pay("c1", 7), call("note", "n1", text="x")))
    middle = boss(rooms, end, bottom, call("ask", "a1", text="pay"), saver="inherit")
    top = boss(rooms, end, middle, call("ask2", "b1", text="pay"), name="ask2")
    await top.say()
    (question,) = await asked(top)
    assert question.value["request"]["tool"] == "send_money"
    for bad in ({"approved": True}, "yes", top.sign(question, "reject") | {"mac": "0"}):
        await top.resume({question.id: bad})
        assert top.ledger.paid == []
    answer: Any = Command(resume={question.id: top.sign(question)})
    ended = await top.run(answer)
    assert ended["messages"][-1].content == "done"
    assert top.ledger.paid == [7]
    assert len(top.ledger.of("note")) == 1
    paired(await top.messages())
    await top.run(answer)
    assert top.ledger.paid == [7]


@EVERYWHERE
@pytest.mark.parametrize("first", [0, -1], ids=["first first", "last first"])
async def test_a38_two_sub_agents_of_one_message_are_answered_in_any_order(
    rooms: Rooms, end: FrontEnd, first: int
) -> None:
    """At the same time in create_agent; one after the other in a node of one's own."""

    def line(messages: Any) -> Any:
        return ai(pay("c1", 7 if messages[-1].content == "seven" else 8))

    inner = payer(rooms, end, line, line)
    calls = [call("ask", "a1", text="seven"), call("ask", "a2", text="eight")]
    top = boss(rooms, end, inner, *calls)
    await top.say()
    seen: list[str] = []
    order: list[int] = []
    for _ in range(2):
        question = (await asked(top))[first]
        seen.append(question.id)
        order.append(question.value["request"]["arguments"]["amount"])
        await top.decide(question)
        assert top.ledger.paid == order
    assert await asked(top) == []
    assert sorted(order) == [7, 8]
    assert len(set(seen)) == 2
    assert set(await top.results()) == {"a1", "a2"}


@EVERYWHERE
async def test_a38_a_gated_tool_around_an_agent_with_a_gated_tool_asks_twice(
    rooms: Rooms, end: FrontEnd
) -> None:
    inner = payer(rooms, end, ai(pay("c1", 7)))
    top = boss(rooms, end, inner, call("ask", "a1", text="pay"), spec=gated("ask"))
    await top.say()
    (outer,) = await asked(top)
    assert outer.value["request"]["tool"] == "ask"
    await top.decide(outer)
    (question,) = await asked(top)
    assert question.value["request"]["tool"] == "send_money"
    await top.resume({question.id: top.sign(outer)})
    assert top.ledger.paid == []
    await top.decide((await asked(top))[0])
    assert top.ledger.paid == [7]
    await top.results()


@pytest.mark.parametrize("together", [False, True])
async def test_a38_two_sub_agents_of_one_node_of_ones_own_keep_their_places(
    rooms: Rooms, together: bool
) -> None:
    """The first is not run again once it is done; the second is still itself."""

    def line(messages: Any) -> Any:
        return ai(pay("c1", 7 if messages[-1].content == "seven" else 8))

    end = FrontEnd("middleware", "async")
    inner = payer(rooms, end, line, line)
    executor = Executor(
        registry_of([asking(inner, "ask", "async")], [free("ask")]),
        store=inner.store,
        approval=inner.approval,
    )

    async def both(state: Any) -> Any:
        calls = [
            ToolCall(name="ask", arguments={"text": text}, id=text) for text in ("seven", "eight")
        ]
        if together:
            said = await executor.run_many(calls)
        else:
            said = [await executor.run(one) for one in calls]
        return {"messages": [AIMessage(f"both {said}")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("both", one_use(both))
    graph.add_edge(START, "both")
    top = replace(inner, agent=graph.compile(checkpointer=InMemorySaver()))
    await top.say()
    for _ in range(2):
        (question,) = await asked(top)
        amount = question.value["request"]["arguments"]["amount"]
        await top.decide(question)
        assert top.ledger.paid[-1:] == [amount]
    assert sorted(top.ledger.paid) == [7, 8]
    assert (await top.messages())[-1].content == "both ['done', 'done']"


@EVERYWHERE
async def test_a38_an_inner_tool_is_unknown_to_the_outer_agent(rooms: Rooms, end: FrontEnd) -> None:
    inner = payer(rooms, end, ai(pay("c1", 7)))
    top = boss(rooms, end, inner, pay("c9", 9))
    await top.say()
    assert await asked(top) == []
    assert top.ledger.all == []
    assert error_of((await top.results())["c9"])["kind"] == "UnknownTool"


@over("middleware", "tool_node", "wrapper", how=["async"])
@pytest.mark.parametrize("where", ["tools", "model"])
async def test_a38_a_clients_goto_reaches_no_inner_tool_ungated(
    rooms: Rooms, end: FrontEnd, where: str
) -> None:
    """Where a client sends the outer graph is the same for sync and async.

    Sent to the tools beside the task that waits there, one of the two finds the other's claim.
    """
    inner = payer(rooms, end, ai(pay("c1", 7)))
    top = boss(rooms, end, inner, call("ask", "a1", text="pay"))
    await top.say()
    beside = where == "tools" and end.kind == "middleware"
    with pytest.raises(CallInProgress) if beside else nullcontext():
        await top.run(Command(goto=where))
    forged = {"messages": [ai(pay("forged", 5), id="forged")]}
    await top.run(Command(goto="tools", update=forged))
    assert top.ledger.all == []
