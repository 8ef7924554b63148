"""A node that fails behind its approval: the question is used up, and the state says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.types import Command
from pydantic import ValidationError
from tests.support.flows import CONFIG, Board, Process, Works, shown
from tests.support.toolkit import YES, Bench

from adapter import ApprovalAlreadyDecided, ApprovalDecision, InvalidAnswer
from adapter.client import PendingApproval
from adapter.client.pending import pending_in
from adapter.core.errors import StoreUnavailable
from adapter.flow import Flow, FlowContext

pytestmark = pytest.mark.anyio


@pytest.fixture
def works(bench: Bench) -> Works:
    return Works(bench)


async def seen(one: Process) -> list[PendingApproval]:
    """What a reviewer's client lists for this thread."""
    snapshot = await one.app.aget_state(one.config)
    tasks = [
        {
            "result": task.result,
            "interrupts": [{"id": each.id, "value": each.value} for each in task.interrupts],
        }
        for task in snapshot.tasks
    ]
    return pending_in({"tasks": tasks}, "flow-1", "order", 0)


def failing(works: Works, error: Callable[[], Exception], *, times: int = 99) -> Flow:
    """One gated node, that fails so many times."""
    left = iter(range(times))

    def place(_state: Board) -> dict[str, Any]:
        works.ledger.add(tool="node", text="place")
        if next(left, None) is not None:
            raise error()
        return {"total": 1}

    return Flow("order", state=Board).node("place", place, pause=shown).end("place")


async def test_a_node_that_fails_behind_its_gate_leaves_no_question_to_answer(works: Works) -> None:
    one = works.process(failing(works, lambda: ValueError("a secret value")))
    await one.run({})
    (asked,) = await one.asked()
    assert [each.id for each in await seen(one)] == [asked.id]
    with pytest.raises(ValueError, match="secret"):
        await one.run(YES)
    assert await seen(one) == []
    (listed,) = await one.asked()  # LangGraph's own list keeps it
    assert listed.value["used"] == {"code": "failed", "message": "ValueError"}
    with pytest.raises(ApprovalAlreadyDecided, match=r"used up.*Begin a new run"):
        await one.app.ainvoke(one.signed(asked), CONFIG)
    with pytest.raises(ApprovalAlreadyDecided, match="Nothing waits here"):
        await one.run(YES)
    (listed,) = await one.asked()
    assert listed.value["used"]["message"] == "ValueError"  # what failed first stays the reason
    assert works.ran("place") == 1


async def test_another_run_of_the_thread_asks_again(works: Works) -> None:
    one = works.process(failing(works, lambda: ValueError("x"), times=1))
    await one.run({})
    with pytest.raises(ValueError, match="x"):
        await one.run(YES)
    await one.run({})
    assert len(await seen(one)) == 1
    assert (await one.run(YES)).status == "done"
    assert works.ran("place") == 2


async def test_a_gated_call_that_fails_in_a_node_leaves_no_question(works: Works) -> None:
    async def pay(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        await ctx.call("pay", {"text": "a"})
        msg = "after the call"
        raise ValueError(msg)

    one = works.process(Flow("f", state=Board).node("pay", pay).end("pay"))
    await one.run({})
    assert len(await seen(one)) == 1
    with pytest.raises(ValueError, match="after the call"):
        await one.run(YES)
    assert await seen(one) == []
    assert works.ran("pay") == 1


async def test_a_question_asked_after_an_earlier_failure_is_shown(works: Works) -> None:
    left = iter([1])

    async def pay(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        if next(left, None):
            msg = "before the call"
            raise ValueError(msg)
        return {"receipt": await ctx.call("pay", {"text": "a"})}

    one = works.process(Flow("f", state=Board).node("pay", pay).end("pay"))
    with pytest.raises(ValueError, match="before the call"):
        await one.run({})
    await one.run(None)
    (snapshot,) = (await one.app.aget_state(CONFIG)).tasks
    assert snapshot.error is not None  # LangGraph keeps it beside the question
    assert len(await seen(one)) == 1
    assert (await one.run(YES)).status == "done"


async def test_a_second_question_behind_a_used_one_is_shown(works: Works) -> None:
    async def pay(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        return {"receipt": await ctx.call("pay", {"text": "a"})}

    one = works.process(Flow("f", state=Board).node("pay", pay, pause=shown).end("pay"))
    await one.run({})
    (gate,) = await seen(one)
    await one.run(YES)
    (call,) = await seen(one)
    assert (gate.request["kind"], call.request["kind"]) == ("gate", "tool")
    assert (await one.run(YES)).status == "done"


async def test_a_bad_answer_leaves_the_question_to_answer(works: Works) -> None:
    one = works.process(failing(works, lambda: ValueError("x"), times=0))
    await one.run({})
    (asked,) = await one.asked()
    with pytest.raises(ValidationError):
        await one.app.ainvoke(Command(resume={asked.id: True}), CONFIG)
    assert [each.id for each in await seen(one)] == [asked.id]
    assert (await one.run(YES)).status == "done"


async def test_a_store_that_was_down_leaves_the_question(works: Works) -> None:
    one = works.process(failing(works, lambda: StoreUnavailable("down"), times=1))
    await one.run({})
    with pytest.raises(StoreUnavailable):
        await one.run(YES)
    assert len(await seen(one)) == 1
    assert (await one.run(None)).status == "done"
    assert works.ran("place") == 2


@pytest.mark.parametrize("port", ["signed", "deferred"])
@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        ({"totl": 4}, "totl: the state has no such field"),
        ({"total": "abc"}, "total: must be of type integer"),
        ({"seen": [1, "a"]}, r"seen\.1: must be of type integer"),
    ],
)
async def test_an_edit_that_does_not_fit_is_refused_by_field_before_anything_is_kept(
    works: Works, port: str, edit: dict[str, Any], fault: str
) -> None:
    one = works.process(works.gated(), port=port)
    await one.run({})
    before = await one.asked()
    with pytest.raises(InvalidAnswer, match=fault):
        await one.run(ApprovalDecision(edited_args=edit))
    assert await one.asked() == before
    assert works.ran("place") == 0
    done = await one.run(ApprovalDecision(edited_args={"total": 4, "seen": [1, 2]}))
    assert (done.status, done.state.total, done.state.seen) == ("done", 4, [1, 2])
