"""What a gate was opened for is what its node is given again, whatever the checkpointer keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from pydantic import BaseModel, Field
from tests.support.flows import Works
from tests.support.toolkit import YES, Bench

from adapter import ApprovalDecision
from adapter.flow import Flow, FlowContext

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CASES: list[Any] = [1e16, 1e19, -1e19, 1e22, 1e23, 1e300, -0.0, 0.0, 1.0, 1e-7, 2**60, True, "1e22"]


class Kept(BaseModel):
    """One value in a field of its own and inside others, with keys in no order."""

    alone: Any = 0
    number: float = 0
    inside: dict[str, Any] = Field(default_factory=dict)
    receipt: str = ""


@pytest.fixture
async def postgres(postgresql: str) -> AsyncIterator[AsyncPostgresSaver]:
    async with AsyncPostgresSaver.from_conn_string(postgresql) as saver:
        await saver.setup()
        yield saver


def asking() -> Flow:
    """Behind a gate, an effect that asks nobody, then one that asks."""

    async def work(state: Kept, ctx: FlowContext) -> dict[str, Any]:
        text = f"{state.alone!r} {state.number!r} {state.inside!r}"
        await ctx.call("note", {"text": text})
        return {"receipt": await ctx.call("pay", {"text": "x"})}

    return Flow("kept", state=Kept).node("place", work, pause=lambda _: {}).end("place")


@pytest.mark.parametrize("edited", [True, False])
@pytest.mark.parametrize("value", CASES, ids=repr)
async def test_a_visit_goes_on_with_the_state_its_gate_was_opened_for(
    bench: Bench, postgres: AsyncPostgresSaver, value: Any, *, edited: bool
) -> None:
    works = Works(bench, port="deferred" if edited else "signed")
    given = {"alone": value, "inside": {"b": [value], "a": value}}
    if isinstance(value, float):
        given["number"] = value
    edit = ApprovalDecision(kind="edit", edited_args={"inside": {"b": 1.0, "a": -0.0}})
    statuses = []
    for saver in (postgres, InMemorySaver()):
        place = {"configurable": {"thread_id": f"{type(saver).__name__} {value!r} {edited}"}}
        for step in (given, edit if edited else YES, YES):
            # Another process each time: its state comes from the checkpointer.
            room = works.process(asking(), store="shared", saver=saver)
            statuses.append((await room.run(step, place)).status)
    assert statuses == ["paused", "paused", "done"] * 2
    on_postgres, in_memory = (fact["text"] for fact in works.ledger.of("note"))
    assert on_postgres == in_memory
    assert works.ran("pay") == 2
