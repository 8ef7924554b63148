"""A spent budget asks a person for a raise: signed, bound, used once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from tests.support.room import Clock, Room, Rooms, copy_thread, error_of, paired, pay
from tests.support.script import ai, call

from adapter import (
    ApprovalAlreadyDecided,
    Budgets,
    ConfigurationError,
    Executor,
    InvalidAnswer,
    Registry,
)
from adapter.langgraph.spending import closing
from adapter.stores import MemoryStore

pytestmark = pytest.mark.anyio

TURN, FOREVER = closing("turn:t:u:model_calls"), closing("thread:t:model_calls")


def notes(count: int) -> list[AIMessage]:
    return [ai(call("note", f"n{n}", text=str(n))) for n in range(count)]


def asking(**limits: Any) -> Budgets:
    return Budgets(on_exceeded="ask", **limits)


async def counted(room: Room, scope: str) -> int:
    return (await room.store.charge([], show=[scope])).used[scope]


async def raised(room: Room, scope: str = "thread:thread-1:model_calls") -> int:
    return await counted(room, f"raise:{scope}")


async def said(room: Room) -> str:
    messages = await room.messages()
    paired(messages)
    assert isinstance(messages[-1], AIMessage)
    return str(messages[-1].content)


@pytest.fixture
async def paused(rooms: Rooms) -> Room:
    """A thread with two model calls, both made, that asks for more."""
    room = rooms(*notes(5), budgets=asking(model_calls_per_thread=2))
    await room.say()
    assert len(room.model.sent) == 2
    return room


async def test_the_question_says_what_is_asked(paused: Room) -> None:
    (asked,) = await paused.asked()
    request = asked.value["request"]
    assert request["kind"] == "budget"
    assert request["call_id"] == "budget:thread:thread-1:model_calls:1"
    assert request["allowed"] == ["approve", "reject"]
    assert request["arguments"] == {
        "budget": "model_calls_per_thread",
        "limit": 2,
        "raise_by": 2,
        "unit": "model calls",
    }
    (row,) = await paused.store.requested("thread-1")
    assert (row.kind, row.tool_call_id) == ("budget", request["call_id"])


async def test_an_approval_raises_the_limit_once_by_its_own_size(paused: Room) -> None:
    for n in (1, 2):
        (asked,) = await paused.asked()
        assert asked.value["request"]["call_id"].endswith(f":{n}")
        assert asked.value["request"]["arguments"]["limit"] == 2 * n
        await paused.decide(asked)
        assert await raised(paused) == 2 * n
        assert len(paused.model.sent) == min(2 * n + 2, 6)
    assert await said(paused) == "done"
    assert len(paused.ledger.of("note")) == 5
    kinds = [event["kind"] for event in await paused.events("decided", "started", "succeeded")]
    assert kinds.count("decided") == 2
    await paused.verified()


async def test_a_rejection_ends_the_turn(paused: Room) -> None:
    (asked,) = await paused.asked()
    await paused.decide(asked, "reject", reason="enough")
    assert await said(paused) == FOREVER
    assert (len(paused.model.sent), await raised(paused)) == (2, 0)
    # the next turn asks anew
    asked = await paused.question("again")
    await paused.decide(asked)
    assert await raised(paused) == 2
    assert len(paused.model.sent) > 2


async def test_a_question_that_a_new_message_overtook_is_void(paused: Room) -> None:
    (old,) = await paused.asked()
    answer = paused.sign(old)
    (before,) = await paused.store.requested("thread-1")
    await paused.say("never mind, something else")
    (row,) = await paused.store.requested("thread-1")
    assert row.key != before.key
    found = await paused.store.get(before.key)
    assert found is not None
    assert found.status == "void"
    assert len(await paused.events("void")) == 1
    (asked,) = await paused.asked()
    await paused.resume({old.id: answer})
    assert (await raised(paused), len(paused.model.sent)) == (0, 2)
    await paused.decide(asked)
    assert await raised(paused) == 2
    await paused.verified()


async def test_a_fork_from_before_the_question_leaves_it_open(paused: Room) -> None:
    (before,) = await paused.store.requested("thread-1")
    first = [state async for state in paused.agent.aget_state_history(paused.config)][-1]
    assert not first.values.get("messages")
    await paused.agent.ainvoke({"messages": [HumanMessage("another way")]}, first.config)
    open_now = {row.key for row in await paused.store.requested("thread-1")}
    assert before.key in open_now
    assert len(open_now) == 2
    assert await paused.events("void") == []


async def test_a_question_that_expired_ends_the_turn(rooms: Rooms) -> None:
    clock = Clock()
    room = rooms(*notes(5), budgets=asking(model_calls_per_turn=2), clock=clock, approval_ttl=60)
    asked = await room.question()
    clock.advance(60)
    await room.resume({asked.id: room.sign(asked)})
    assert await said(room) == TURN
    assert len(room.model.sent) == 2
    assert len(await room.events("expired")) == 1


async def test_a_bare_or_foreign_answer_raises_nothing(paused: Room) -> None:
    (asked,) = await paused.asked()
    foreign = paused.sign(asked) | {"binding": "0" * 64}
    again = asked
    for answer in (True, {"approved": True}, foreign, "yes"):
        await paused.resume({asked.id: answer})
        (again,) = await paused.asked()
        assert again.id == asked.id
    assert (await raised(paused), len(paused.model.sent)) == (0, 2)
    await paused.decide(again)
    assert await raised(paused) == 2


async def test_no_other_decision_is_offered(paused: Room) -> None:
    (asked,) = await paused.asked()
    with pytest.raises(InvalidAnswer):
        paused.sign(asked, "respond", response="go on")
    with pytest.raises(InvalidAnswer):
        paused.sign(asked, "edit", edited_args={"raise_by": 10**9})


async def test_a_replayed_answer_raises_nothing(paused: Room) -> None:
    (asked,) = await paused.asked()
    config = (await paused.agent.aget_state(paused.config)).config
    answer = {asked.id: paused.sign(asked)}
    await paused.resume(answer)
    made = len(paused.model.sent)
    for _ in range(2):
        with pytest.raises(ApprovalAlreadyDecided):
            await paused.resume(answer, config)
    assert (await raised(paused), len(paused.model.sent)) == (2, made)


async def test_the_answer_of_one_thread_is_none_for_a_copy(rooms: Rooms) -> None:
    saver = InMemorySaver()
    room = rooms(*notes(9), budgets=asking(model_calls_per_turn=2), saver=saver)
    asked = await room.question()
    copy_thread(saver, "thread-1", "thread-2")
    other = room.on("thread-2")
    await other.resume({asked.id: room.sign(asked)})
    state = await other.agent.aget_state(other.config)
    turn = next(m.id for m in state.values["messages"] if isinstance(m, HumanMessage))
    assert await raised(other, f"turn:thread-2:{turn}:model_calls") == 0


async def test_a_worker_that_died_after_the_claim_has_raised(paused: Room) -> None:
    """The raise is the claim: the same saved answer goes on, and raises nothing more."""
    (asked,) = await paused.asked()

    def broken(_messages: Any) -> AIMessage:
        raise RuntimeError("the worker died")

    paused.model._lines.insert(0, broken)
    with pytest.raises(RuntimeError, match="died"):
        await paused.decide(asked)
    assert await raised(paused) == 2
    await paused.run(None)
    assert await raised(paused) == 2
    # the call that failed was one of the two
    assert len(paused.model.sent) == 4
    (again,) = await paused.asked()
    assert again.value["request"]["call_id"].endswith(":2")


async def test_a_claim_that_was_not_settled_counts_as_raised(
    paused: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    (asked,) = await paused.asked()
    journal = type(paused.executor.journal)
    settle = journal.settle

    async def died(*_args: Any, **_named: Any) -> bool:
        raise RuntimeError("killed")

    monkeypatch.setattr(journal, "settle", died)
    with pytest.raises(RuntimeError, match="killed"):
        await paused.decide(asked)
    monkeypatch.setattr(journal, "settle", settle)
    assert await paused.status("x") == []
    await paused.run(None)
    assert await raised(paused) == 2
    assert len(paused.model.sent) == 4
    assert not await paused.store.unsettled()


async def test_a_question_is_not_dropped_when_the_budget_was_raised_elsewhere(
    rooms: Rooms,
) -> None:
    room = rooms(budgets=asking(model_calls_per_user=1))
    who = SimpleNamespace(identity="bob")
    threads = [room.on(f"thread-{n}") for n in range(3)]
    configs: list[Any] = [
        {"configurable": {"thread_id": one.thread, "langgraph_auth_user": who}} for one in threads
    ]
    for one, config in zip(threads, configs, strict=True):
        await one.run({"messages": [HumanMessage("x")]}, config)
    (second,) = await threads[1].asked()
    (third,) = await threads[2].asked()
    assert second.value["request"]["call_id"] == third.value["request"]["call_id"]
    await threads[1].resume({second.id: room.sign(second)}, configs[1])
    assert len(room.model.sent) == 2
    # the other one was asked too, and each answer is used for what it was given
    await threads[2].resume({third.id: room.sign(third)}, configs[2])
    assert len(room.model.sent) == 3
    assert await raised(room, "user:bob:model_calls") == 2


async def test_who_asked_may_not_approve_their_own_raise(rooms: Rooms) -> None:
    room = rooms(budgets=asking(model_calls_per_user=1))
    who = SimpleNamespace(identity="local")
    config: Any = {"configurable": {"thread_id": room.thread, "langgraph_auth_user": who}}
    for _ in range(2):
        await room.run({"messages": [HumanMessage("x")]}, config)
    (asked,) = await room.asked()
    await room.resume({asked.id: room.sign(asked)}, config)
    assert await raised(room, "user:local:model_calls") == 0
    await room.resume({asked.id: room.sign(asked, reviewer="rita")}, config)
    assert await raised(room, "user:local:model_calls") == 1


async def test_pending_calls_run_before_the_question(rooms: Rooms) -> None:
    room = rooms(ai(pay()), ai(text="paid"), budgets=asking(model_calls_per_turn=1))
    asked = await room.question()
    assert asked.value["request"]["kind"] == "tool"
    await room.decide(asked)
    assert room.ledger.paid == [100]
    (asked,) = await room.asked()
    assert asked.value["request"]["kind"] == "budget"
    await room.decide(asked)
    assert await said(room) == "paid"
    assert room.ledger.paid == [100]


async def test_a_budget_of_tool_calls_is_raised_after_it_refused_one(rooms: Rooms) -> None:
    room = rooms(*notes(3), ai(text="end"), budgets=asking(tool_calls_per_turn=1))
    await room.say()
    assert len(room.ledger.of("note")) == 1
    (asked,) = await room.asked()
    assert asked.value["request"]["arguments"]["budget"] == "tool_calls_per_turn"
    # the model reads the refusal and calls again
    await room.decide(asked)
    assert len(room.ledger.of("note")) == 2
    results = await room.results()
    assert error_of(results["n1"])["kind"] == "BudgetExceeded"
    assert await said(room) == "end"


async def test_a_refused_raise_of_tool_calls_ends_the_turn(rooms: Rooms) -> None:
    room = rooms(*notes(3), budgets=asking(tool_calls_per_turn=1))
    asked = await room.question()
    await room.decide(asked, "reject", reason="no")
    assert await said(room) == TURN
    assert len(room.model.sent) == 2
    await room.run(None)
    assert len(room.model.sent) == 2


async def test_nobody_is_asked_about_a_limit_that_cannot_be_raised(rooms: Rooms) -> None:
    room = rooms(budgets=asking(model_rate="1/hour"), store="adapter.db", clock=Clock())
    await room.say()
    await room.say()
    assert await room.asked() == []
    assert len(room.model.sent) == 1


async def test_tokens_and_cost_are_raised_by_their_size(rooms: Rooms) -> None:
    usage = {"input_tokens": 90, "output_tokens": 30, "total_tokens": 120}
    room = rooms(
        *[ai(text="x", usage_metadata=usage) for _ in range(9)],
        budgets=asking(tokens_per_thread=100),
    )
    await room.say()
    asked = await room.question()
    assert asked.value["request"]["arguments"]["unit"] == "tokens"
    await room.decide(asked)
    assert await counted(room, "thread:thread-1:tokens") == 240
    asked = await room.question()
    assert asked.value["request"]["arguments"]["limit"] == 200


def test_sync_runs_ask_too(rooms: Rooms) -> None:
    room = rooms(*notes(2), budgets=asking(model_calls_per_turn=1))
    result = room.agent.invoke({"messages": [HumanMessage("x")]}, room.config)
    (asked,) = result["__interrupt__"]
    room.agent.invoke(Command(resume={asked.id: room.sign(asked)}), room.config)
    assert len(room.model.sent) == 2


async def test_a_graph_that_cannot_pause_cannot_ask(rooms: Rooms) -> None:
    room = rooms(*notes(3), budgets=asking(model_calls_per_turn=1), saver="inherit")
    with pytest.raises(ConfigurationError, match="checkpointer"):
        await room.agent.ainvoke({"messages": [HumanMessage("x")]})


def test_asking_needs_somebody_to_ask() -> None:
    with pytest.raises(ConfigurationError, match="on_exceeded='ask'"):
        Executor(Registry([], {}), store=MemoryStore(), budgets=asking())
