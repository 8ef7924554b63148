"""A24: budgets with approvals; forks, new threads, written state and sub-agents get no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, RemoveMessage
from tests.support.room import Room, Rooms, SendMoney, error_of, free, gated, pay, tool_of
from tests.support.script import Script, ai, call

from adapter import Budgets, Effects
from adapter.langgraph import AdapterMiddleware

pytestmark = pytest.mark.anyio


async def history(room: Room) -> list[Any]:
    return [state async for state in room.agent.aget_state_history(room.config)]


async def approve_all(room: Room) -> None:
    while asked := await room.asked():
        await room.decide(asked[0])


async def test_a24_one_tool_call_a_turn_with_approvals(rooms: Rooms) -> None:
    room = rooms(ai(pay("c1", 1)), ai(pay("c2", 2)), budgets=Budgets(tool_calls_per_turn=1))
    await room.say()
    await approve_all(room)
    assert room.ledger.paid == [1]


async def test_a24_a_fork_of_an_early_checkpoint_goes_on_counting(rooms: Rooms) -> None:
    def again(_messages: Any) -> Any:
        return ai(call("note", None, text="x"))

    room = rooms(*[again] * 40, budgets=Budgets(tool_calls_per_turn=3, model_calls_per_turn=4))
    await room.say()
    assert len(room.ledger.of("note")) == 3
    made = len(room.model.sent)
    for state in await history(room):
        if state.next and state.values.get("messages"):
            await room.run(None, state.config)
    assert len(room.ledger.of("note")) == 3
    assert len(room.model.sent) == max(made, 4)


async def test_a24_a_fork_with_a_gated_call_asks_nobody_about_it(rooms: Rooms) -> None:
    room = rooms(*[ai(pay(f"c{n}", n)) for n in range(9)], budgets=Budgets(tool_calls_per_turn=1))
    await room.say()
    before = next(state for state in await history(room) if state.next == ("model",))
    await approve_all(room)
    await room.run(None, before.config)
    assert await room.asked() == []
    assert room.ledger.paid == [0]


async def test_a24_writing_the_state_gives_nothing_back(rooms: Rooms) -> None:
    budgets = Budgets(tool_calls_per_thread=2, model_calls_per_thread=6)
    room = rooms(*[ai(call("note", f"n{n}", text="x")) for n in range(20)], budgets=budgets)
    await room.say()
    for n in range(3):
        messages = (await room.agent.aget_state(room.config)).values["messages"]
        wiped: Any = [RemoveMessage(id=message.id) for message in messages]
        await room.agent.aupdate_state(
            room.config,
            {
                "messages": [*wiped, HumanMessage(f"new {n}")],
                "total_tool_calls": 0,
                "turn_id": f"t{n}",
            },
            as_node="__start__",
        )
        await room.run(None)
    assert len(room.ledger.of("note")) == 2
    assert len(room.model.sent) <= 6


async def test_a24_new_threads_of_one_user_share_the_budget(rooms: Rooms) -> None:
    room = rooms(
        *[line for n in range(9) for line in (ai(pay(f"c{n}", n)), ai(text="end"))],
        budgets=Budgets(tool_calls_per_user=2),
    )
    who = SimpleNamespace(identity="bob")
    for n in range(4):
        mine = room.on(f"thread-{n}")
        config: Any = {"configurable": {"thread_id": mine.thread, "langgraph_auth_user": who}}
        await mine.run({"messages": [HumanMessage("x")]}, config)
        for asked in await mine.asked():
            await mine.resume({asked.id: room.sign(asked)}, config)
    assert room.ledger.paid == [0, 1]


async def test_a24_a_second_executor_on_the_store_knows_what_was_used(rooms: Rooms) -> None:
    budgets = Budgets(tool_calls_per_thread=1)
    first = rooms(ai(pay("c1", 1)), store="adapter.db", budgets=budgets)
    await first.say()
    await approve_all(first)
    second = rooms(ai(pay("c2", 2)), store="adapter.db", saver=first.saver, budgets=budgets)
    await second.say()
    assert await second.asked() == []
    assert error_of((await second.results())["c2"])["kind"] == "BudgetExceeded"
    assert first.ledger.paid == [1]


async def test_a24_sub_agents_use_the_budget_of_their_thread(rooms: Rooms) -> None:
    """A sub-agent has its own human message, thus a turn; its thread is the same."""

    def send_money(to: str, amount: int) -> str:
        rooms.ledger.add(tool="send_money", to=to, amount=amount)
        return "sent"

    send = tool_of(send_money, "send_money", SendMoney)
    inner: list[Any] = []

    async def task(text: str) -> str:
        await inner[0].ainvoke({"messages": [HumanMessage(text)]})
        return "done"

    room = rooms(
        ai(*[call("task", f"t{n}", text=str(n)) for n in range(3)]),
        tools=[tool_of(task, "task"), send],
        specs=[free("task"), gated("send_money", approval=None)],
        budgets=Budgets(tool_calls_per_thread=5),
    )
    lines = [ai(*[pay(f"p{n}-{k}", k) for k in range(2)]) for n in range(9)]
    inner.append(
        create_agent(Script.of(*lines), [send], middleware=[AdapterMiddleware(room.executor)])
    )
    await room.say()
    # three tasks and two payments
    assert len(room.ledger.paid) == 2


async def test_a24_a_read_that_a_client_goes_back_to_is_counted_again(rooms: Rooms) -> None:
    def look(text: str) -> str:
        rooms.ledger.add(tool="look")
        return "seen"

    room = rooms(
        ai(call("look", "r1", text="x")),
        *[ai(text="done")] * 20,
        tools=[tool_of(look, "look")],
        specs=[free("look", effects=Effects(read_only=True))],
        budgets=Budgets(tool_calls_per_turn=3),
    )
    await room.say()
    before = next(one for one in await history(room) if one.next == ("tools",))
    for _ in range(9):
        await room.run(None, before.config)
    assert len(rooms.ledger.of("look")) == 3
    assert len(await room.events("started")) == 3
