"""A21: a ToolNode runs its whole task again after a pause; a finished sibling does not."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.types import Command, interrupt
from tests.support.graphs import CONFIG, Own
from tests.support.room import Rooms, money_tools, open_questions, paired, pay, tool_of
from tests.support.script import ai, call

from adapter import ApprovalDecision
from adapter.core.policy import Policy

HOW = pytest.mark.parametrize("how", ["async", "sync"])


async def asked(own: Own) -> Any:
    (question,) = open_questions(await own.graph.aget_state(CONFIG))
    return question


@pytest.mark.anyio
@HOW
@pytest.mark.parametrize("first", ["effect", "gated"])
async def test_a21_a_sibling_of_a_gated_call_runs_once(rooms: Rooms, how: str, first: str) -> None:
    calls = [call("note", "n1", text="x"), pay()]
    own = Own(
        rooms,
        Policy(escalate={"send_money": "x"}),
        ai(*(calls if first == "effect" else reversed(calls))),
    )
    await own.run(how=how)
    question = await asked(own)
    await own.run(Command(resume={question.id: {"approved": True}}), how=how)  # runs the task again
    question = await asked(own)
    value = own.approval.resume_value(question, ApprovalDecision(kind="approve"))
    ended = await own.run(Command(resume={question.id: value}), how=how)
    assert len(own.ledger.of("note")) == 1
    assert own.ledger.paid == [100]
    paired(ended["messages"])
    found = {m.tool_call_id: m.content for m in ended["messages"] if isinstance(m, ToolMessage)}
    assert found == {"n1": "noted x", "c1": "sent 100 to bob"}


@pytest.mark.anyio
@HOW
async def test_a21_a_sibling_of_a_tool_that_asks_itself_runs_once(rooms: Rooms, how: str) -> None:
    def ask(text: str) -> str:
        rooms.ledger.add(tool="ask")
        return f"heard {interrupt(text)}"

    own = Own(
        rooms,
        Policy(),
        ai(call("note", "n1", text="x"), call("ask", "a1", text="who?")),
        tools=[*money_tools(rooms.ledger)[0], tool_of(ask, "ask")],
    )
    await own.run(how=how)
    question = await asked(own)
    ended = await own.run(Command(resume={question.id: "me"}), how=how)
    assert len(own.ledger.of("note")) == 1
    assert "heard me" in [m.content for m in ended["messages"]]


@pytest.mark.anyio
async def test_a21_three_gated_calls_of_one_task_are_answered_one_by_one(rooms: Rooms) -> None:
    own = Own(
        rooms,
        Policy(escalate={"send_money": "x"}),
        ai(pay("c1", 1), call("note", "n1", text="x"), pay("c2", 2), pay("c3", 3)),
    )
    await own.run()
    for kind in ("approve", "reject", "approve"):
        question = await asked(own)
        decision = ApprovalDecision(kind=kind)
        await own.run(Command(resume={question.id: own.approval.resume_value(question, decision)}))
    assert own.ledger.paid == [1, 3]
    assert len(own.ledger.of("note")) == 1
