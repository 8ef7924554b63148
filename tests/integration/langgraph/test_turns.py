"""Around the model: overtaken questions, cancelled runs, budgets, what the state shows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool
from tests.support.room import Room, Rooms, error_of, free, money_tools, paired, pay, tool_of
from tests.support.script import ai, call

from adapter import Budgets, Effects, Limits, ToolFailed


def shape(messages: list[Any]) -> list[tuple[str, Any]]:
    """Kinds of messages, with call ids and error kinds."""
    found: list[tuple[str, Any]] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            kind = error_of(message)["kind"] if message.status == "error" else "ok"
            found.append((message.tool_call_id, kind))
        elif isinstance(message, AIMessage):
            found.append(("ai", [c["id"] for c in message.tool_calls] or message.content))
        else:
            found.append((message.type, message.content))
    return found


# ------------------------------------------------------------------------- overtaken questions


@pytest.mark.anyio
async def test_a_new_message_voids_the_open_question(rooms: Rooms) -> None:
    room = rooms(ai(call("note", "n1", text="x"), pay("c1"), pay("c2", 200)), ai(text="fine"))
    await room.say("pay")
    first, second = await room.asked()
    answer = room.sign(first)
    await room.decide(second)

    await room.say("never mind")

    assert shape(room.model.sent[-1]) == [
        ("human", "pay"),
        ("ai", ["n1", "c1", "c2"]),
        ("n1", "ok"),
        ("c1", "NotExecuted"),
        ("c2", "ok"),
        ("human", "never mind"),
    ]
    assert await room.status("c1") == ["void"]
    assert await room.status("c2") == ["succeeded"]
    (void,) = await room.events("void")
    assert void["call_id"] == "c1"
    assert room.ledger.paid == [200]
    assert len(room.ledger.of("note")) == 1

    await room.resume({first.id: answer})
    assert room.ledger.paid == [200]
    await room.results()
    await room.verified()


@pytest.mark.anyio
async def test_a_late_answer_at_the_overtaken_checkpoint_is_refused(rooms: Rooms) -> None:
    from adapter import ApprovalAlreadyDecided

    room = rooms.paying()
    asked = await room.question()
    paused = (await room.agent.aget_state(room.config)).config
    await room.say("never mind")
    with pytest.raises(ApprovalAlreadyDecided):
        await room.resume({asked.id: room.sign(asked)}, paused)
    assert room.ledger.paid == []


@pytest.mark.anyio
async def test_a_message_and_an_answer_in_one_command(rooms: Rooms) -> None:
    from langgraph.types import Command

    room = rooms.paying()
    asked = await room.question()
    both: Any = Command(
        update={"messages": [HumanMessage("wait")]}, resume={asked.id: room.sign(asked)}
    )
    await room.run(both)
    assert room.ledger.paid == [100]
    await room.say("and now?")
    paired(room.model.sent[-1])
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_history_is_mended_once_and_stays_mended(rooms: Rooms) -> None:
    room = rooms(ai(pay()), ai(text="a"), ai(text="b"))
    await room.say("one")
    await room.say("two")
    await room.say("three")
    assert shape(room.model.sent[-1]) == [
        ("human", "one"),
        ("ai", ["c1"]),
        ("c1", "NotExecuted"),
        ("human", "two"),
        ("ai", "a"),
        ("human", "three"),
    ]
    assert len(await room.events("void")) == 1
    assert shape(await room.messages())[-1] == ("ai", "b")


@pytest.mark.anyio
async def test_the_system_prompt_stays_first_in_a_mended_history(rooms: Rooms) -> None:
    room = rooms(ai(pay()), ai(text="a"), agent={"system_prompt": "Be kind."})
    await room.say("one")
    await room.say("two")
    assert isinstance(room.model.sent[-1][0], SystemMessage)
    paired(room.model.sent[-1])
    assert not any(isinstance(m, SystemMessage) for m in await room.messages())


@pytest.mark.anyio
async def test_a_fork_alone_voids_nothing(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    history = [state async for state in room.agent.aget_state_history(room.config)]
    before = history[-1].config
    room.model.then(ai(text="on the fork"))
    await room.run(None, before)
    assert await room.events("void") == []
    paused = next(state for state in history if open_ids(state) == [asked.id])
    await room.resume({asked.id: room.sign(asked)}, paused.config)
    assert room.ledger.paid == [100]


def open_ids(state: Any) -> list[str]:
    return [asked.id for task in state.tasks for asked in task.interrupts]


# ------------------------------------------------------------------------------ cancelled runs


def slow_tool(rooms: Rooms, seconds: float) -> tuple[BaseTool, asyncio.Event]:
    """A tool that tells when it has begun, and ends so many seconds later."""
    started = asyncio.Event()

    async def slow(text: str) -> str:
        rooms.ledger.add(tool="slow")
        started.set()
        await asyncio.sleep(seconds)
        return "slow done"

    return tool_of(slow, "slow"), started


async def cancelled(room: Room, started: asyncio.Event) -> None:
    """Cancel the thread's first run while its tool runs."""
    run = asyncio.create_task(room.say("one"))
    await asyncio.wait_for(started.wait(), 10)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


@pytest.mark.anyio
async def test_a_cancelled_run_settles_and_the_next_message_is_paired(rooms: Rooms) -> None:
    slow, started = slow_tool(rooms, 0.2)
    _, specs = money_tools(rooms.ledger)
    room = rooms(
        ai(call("slow", "s1", text="x"), call("note", "n1", text="y")),
        ai(text="fine"),
        tools=[slow],
        specs=[free("slow"), *specs],
        cancel_grace=5,
    )
    await cancelled(room, started)

    await room.say("two")

    assert len(room.ledger.of("slow")) == 1
    sent = shape(room.model.sent[-1])
    assert ("s1", "ok") in sent
    assert ("n1", "ok") in sent
    paired(room.model.sent[-1])
    assert await room.status("s1") == ["succeeded"]


@pytest.mark.anyio
async def test_a_call_that_outlives_the_grace_is_in_doubt(rooms: Rooms) -> None:
    slow, started = slow_tool(rooms, 60)
    room = rooms(
        ai(call("slow", "s1", text="x")),
        ai(text="fine"),
        tools=[slow],
        specs=[free("slow")],
        cancel_grace=0.05,
    )
    await cancelled(room, started)
    await room.say("two")
    assert len(room.ledger.of("slow")) == 1
    assert ("s1", "CallInDoubt") in shape(room.model.sent[-1])
    assert await room.status("s1") == ["in_doubt"]


@pytest.mark.anyio
async def test_an_error_of_one_task_does_not_tear_a_running_sibling(rooms: Rooms) -> None:
    """A raised error makes LangGraph cancel the other tasks; theirs are settled all the same."""
    slow, started = slow_tool(rooms, 0.2)

    async def broken(text: str) -> str:
        await started.wait()
        raise KeyError("x")

    room = rooms(
        ai(call("slow", "s1", text="x"), call("broken", "b1", text="x")),
        tools=[slow, tool_of(broken, "broken")],
        specs=[free("slow"), free("broken")],
        middleware={"on_tool_failure": "raise"},
    )
    with pytest.raises(ToolFailed):
        await room.say()
    assert await room.status("s1") == ["succeeded"]
    with pytest.raises(ToolFailed):
        await room.run(None)
    assert len(room.ledger.of("slow")) == 1
    await room.say("go on")
    assert (await room.results())["s1"].content == "slow done"
    assert len(room.ledger.of("slow")) == 1


# ------------------------------------------------------------------------------------- budgets


def notes(count: int, start: int = 0) -> list[Any]:
    return [call("note", f"n{n}", text=str(n)) for n in range(start, start + count)]


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["note", "look"])
@pytest.mark.parametrize(("calls", "ran"), [(4, 4), (5, 5), (6, 5), (9, 5)])
async def test_a_batch_runs_as_far_as_the_budget_goes(
    rooms: Rooms, name: str, calls: int, ran: int
) -> None:
    batch = [call(name, f"n{n}", text=str(n)) for n in range(calls)]
    room = rooms(ai(*batch), budgets=Budgets(tool_calls_per_turn=5))
    await room.say()
    assert len(room.ledger.of(name)) == ran
    results = await room.results()
    over = [error_of(m)["kind"] for m in results.values() if m.status == "error"]
    assert over == ["BudgetExceeded"] * (calls - ran)
    state = await room.agent.aget_state(room.config)
    assert state.values["total_tool_calls"] == ran
    assert (await room.messages())[-1].content == "done"


@pytest.mark.anyio
async def test_calls_after_a_spent_budget_end_the_turn(rooms: Rooms) -> None:
    room = rooms(
        ai(*notes(5)),
        *[ai(*notes(1, n)) for n in range(5, 30)],
        budgets=Budgets(tool_calls_per_turn=5),
    )
    await room.say()
    assert len(room.ledger.of("note")) == 5
    assert len(room.model.sent) == 2
    messages = await room.messages()
    paired(messages)
    assert isinstance(messages[-1], AIMessage)
    assert not messages[-1].tool_calls


@pytest.mark.anyio
async def test_the_tenth_model_call_with_calls_pending_ends_well_formed(rooms: Rooms) -> None:
    room = rooms(*[ai(*notes(1, n)) for n in range(30)])
    await room.say()
    assert len(room.model.sent) == 10
    assert len(room.ledger.of("note")) == 9
    messages = await room.messages()
    paired(messages)
    assert shape(messages)[-2] == ("n9", "BudgetExceeded")
    assert isinstance(messages[-1], AIMessage)
    assert not messages[-1].tool_calls


@pytest.mark.anyio
async def test_exactly_ten_model_calls_are_enough_for_nine_rounds(rooms: Rooms) -> None:
    room = rooms(*[ai(*notes(1, n)) for n in range(9)], ai(text="the end"))
    await room.say()
    assert len(room.model.sent) == 10
    assert len(room.ledger.of("note")) == 9
    assert (await room.messages())[-1].content == "the end"


@pytest.mark.anyio
async def test_a_new_turn_has_a_new_budget_and_the_total_goes_on(rooms: Rooms) -> None:
    room = rooms(
        ai(*notes(7)), ai(text="one"), ai(*notes(7, 10)), budgets=Budgets(tool_calls_per_turn=5)
    )
    await room.say("one")
    first = (await room.agent.aget_state(room.config)).values
    await room.say("two")
    second = (await room.agent.aget_state(room.config)).values
    assert (first["total_tool_calls"], second["total_tool_calls"]) == (5, 10)
    assert first["turn_id"] != second["turn_id"]
    humans = [m.id for m in second["messages"] if isinstance(m, HumanMessage)]
    assert [first["turn_id"], second["turn_id"]] == humans
    assert len(room.ledger.of("note")) == 10
    paired(second["messages"])


@pytest.mark.anyio
async def test_rejected_and_refused_calls_cost_nothing(rooms: Rooms) -> None:
    room = rooms(ai(pay("c1"), pay("c2")), ai(*notes(2)), budgets=Budgets(tool_calls_per_turn=2))
    await room.say()
    for asked in await room.asked():
        await room.resume({asked.id: "junk"})
        await room.decide(asked, "reject", reason="no")
    assert len(room.ledger.of("note")) == 2
    await room.results()


@pytest.mark.anyio
async def test_nobody_is_asked_about_a_call_that_would_be_refused(rooms: Rooms) -> None:
    room = rooms(ai(*notes(2)), ai(pay()), budgets=Budgets(tool_calls_per_turn=2))
    await room.say()
    assert await room.asked() == []
    assert error_of((await room.results())["c1"])["kind"] == "BudgetExceeded"


@pytest.mark.anyio
async def test_a_budget_spent_between_question_and_answer_refuses_the_call(rooms: Rooms) -> None:
    room = rooms(ai(pay("c1", 1), pay("c2", 2)), budgets=Budgets(tool_calls_per_turn=1))
    await room.say()
    first, second = await room.asked()
    await room.decide(first)
    await room.decide(second)
    assert room.ledger.paid == [1]
    assert error_of((await room.results())["c2"])["kind"] == "BudgetExceeded"


@pytest.mark.anyio
async def test_limits_of_one_tool_per_turn_and_per_thread(rooms: Rooms) -> None:
    def tick(text: str) -> str:
        rooms.ledger.add(tool="tick")
        return "ok"

    spec = free("tick", Effects(read_only=True), limits=Limits(per_turn=2, per_thread=3))
    ticks = [call("tick", f"t{n}", text="x") for n in range(3)]
    room = rooms(
        ai(*ticks), ai(text="one"), ai(*ticks), tools=[tool_of(tick, "tick")], specs=[spec]
    )
    await room.say("one")
    assert len(room.ledger.of("tick")) == 2
    await room.say("two")
    assert len(room.ledger.of("tick")) == 3


@pytest.mark.anyio
async def test_no_client_resets_a_budget_by_writing_the_state(rooms: Rooms) -> None:
    room = rooms(ai(*notes(2)), ai(pay()), budgets=Budgets(tool_calls_per_turn=2))
    given: Any = {
        "messages": [HumanMessage("x")],
        "total_tool_calls": -100,
        "audit_log": [],
        "turn_id": "z",
    }
    await room.run(given)
    await room.agent.aupdate_state(room.config, {"total_tool_calls": 0, "audit_log": []})
    values = (await room.agent.aget_state(room.config)).values
    assert values["turn_id"] != "z"
    assert error_of((await room.results())["c1"])["kind"] == "BudgetExceeded"


# ------------------------------------------------------------------------- what the state shows


@pytest.mark.anyio
async def test_the_state_shows_this_turns_events_and_totals(rooms: Rooms) -> None:
    room = rooms(ai(call("note", "n1", text="x"), pay()))
    asked = await room.question()
    await room.decide(asked)
    values = (await room.agent.aget_state(room.config)).values
    assert values["total_tool_calls"] == 2
    kinds = [entry["kind"] for entry in values["audit_log"]]
    expected = {"proposed", "requested", "decided", "started", "succeeded"}
    assert set(kinds) == expected
    assert all(type(entry) is dict for entry in values["audit_log"])
    assert "bob" not in repr(values["audit_log"])


@pytest.mark.anyio
async def test_the_log_in_the_state_stays_short(rooms: Rooms) -> None:
    room = rooms(ai(*notes(19)), ai(text="ok"))
    await room.say()
    values = (await room.agent.aget_state(room.config)).values
    assert len(values["audit_log"]) == 50
    assert len(await room.events()) > 50
