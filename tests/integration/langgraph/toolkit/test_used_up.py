"""A toolkit's node that fails behind its approval says in its pause that the answer is used."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langgraph.graph import MessagesState
from langgraph.types import Command
from pydantic import ValidationError
from tests.support.room import gated, tool_of
from tests.support.toolkit import CONFIG, Bench, asked, asking, direct, graph_of, of
from typing_extensions import TypedDict

from adapter import ApprovalAlreadyDecided, ToolFailed
from adapter.langgraph import one_use, run_sync, tool_node, tool_task

pytestmark = pytest.mark.anyio


class Given(TypedDict, total=False):
    """What a task is given, and gives."""

    text: str
    out: Annotated[Any, lambda _old, new: new]


def broken(bench: Bench) -> Any:
    """The shop with a gated tool that leaves its line and fails."""

    def smash(text: str) -> str:
        bench.ledger.add(tool="smash", text=text)
        msg = "broke"
        raise RuntimeError(msg)

    return bench.shop(tools=[tool_of(smash, "smash")], specs=[gated("smash")])


def node_of(kind: str, shop: Any, tool: str) -> tuple[Any, Any]:
    """A graph of one node of a kind, and its input."""
    if kind == "tool_node":
        return graph_of(tool_node(shop.registry, executor=shop.executor)), asking(
            of(tool, "c1", text="a")
        )
    if kind == "tool_task":
        made = tool_task(gated(tool), executor=shop.executor, into="out")
        return graph_of(made, schema=Given), {"text": "a"}

    if kind == "own async":

        @one_use
        async def own(_state: MessagesState) -> dict[str, Any]:
            await shop.executor.run(direct(tool, "c1", text="a"))
            return {"messages": []}

        return graph_of(own), asking()

    @one_use
    def sync(_state: MessagesState) -> dict[str, Any]:
        run_sync(shop.executor.run(direct(tool, "c1", text="a")))
        return {"messages": []}

    return graph_of(sync), asking()


KINDS = ["tool_node", "tool_task", "own async", "own sync"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_behind_the_approval_marks_the_question(bench: Bench, kind: str) -> None:
    shop = broken(bench)
    app, given = node_of(kind, shop, "smash")
    await app.ainvoke(given, CONFIG)
    (question,) = await asked(app)
    assert "used" not in question.value
    with pytest.raises(ToolFailed):
        await app.ainvoke(shop.answer(question), CONFIG)
    (listed,) = await asked(app)
    assert listed.id == question.id
    assert listed.value["used"]["message"].startswith("ToolFailed: ")
    with pytest.raises(ApprovalAlreadyDecided):
        await app.ainvoke(shop.answer(question), CONFIG)
    assert bench.ran("smash") == 1


@pytest.mark.parametrize("kind", ["tool_node", "tool_task", "own sync"])
def test_in_a_synchronous_graph_too(bench: Bench, kind: str) -> None:
    shop = broken(bench)
    app, given = node_of(kind, shop, "smash")
    app.invoke(given, CONFIG)
    ((question,),) = [task.interrupts for task in app.get_state(CONFIG).tasks]
    with pytest.raises(ToolFailed):
        app.invoke(shop.answer(question), CONFIG)
    ((listed,),) = [task.interrupts for task in app.get_state(CONFIG).tasks]
    assert listed.value["used"]["code"] == "failed"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_bad_answer_marks_nothing_and_a_good_one_runs(bench: Bench, kind: str) -> None:
    shop = bench.shop()
    app, given = node_of(kind, shop, "pay")
    await app.ainvoke(given, CONFIG)
    (question,) = await asked(app)
    with pytest.raises(ValidationError):
        await app.ainvoke(Command(resume={question.id: True}), CONFIG)
    (still,) = await asked(app)
    assert "used" not in still.value
    await app.ainvoke(shop.answer(still), CONFIG)
    assert bench.ran("pay") == 1
