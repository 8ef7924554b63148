"""A signed edit at a gate runs exactly as signed, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.flows import Board, Process, Works, shown
from tests.support.toolkit import Bench

from adapter import ApprovalDecision
from adapter.core.errors import InvalidAnswer
from adapter.flow import Flow

pytestmark = pytest.mark.anyio


async def waiting(works: Works) -> Process:
    flow = Flow("f", state=Board).node("place", works.node("place"), pause=shown).end("place")
    one = works.process(flow, store="lasting")
    await one.run({"n": 1})
    return one


def edit(**fields: Any) -> ApprovalDecision:
    return ApprovalDecision(kind="edit", edited_args=fields)


CONVERTED = [{"n": True}, {"n": "7"}, {"n": 7.5}, {"receipt": 1}, {"log": [1]}]


@pytest.mark.parametrize("fields", CONVERTED, ids=str)
async def test_a_value_that_would_be_converted_is_refused_by_its_name(
    works: Works, fields: dict[str, Any]
) -> None:
    one = await waiting(works)
    (asked,) = await one.asked()
    with pytest.raises(InvalidAnswer, match=next(iter(fields))):
        await one.answer(asked, edit(**fields))
    assert works.ran("place") == 0
    (still,) = await one.asked()
    done = await one.answer(still, edit(n=7))
    assert done.status == "done"
    assert [fact["n"] for fact in works.ledger.of("node")] == [7]


@pytest.mark.parametrize("fields", CONVERTED, ids=str)
async def test_one_signed_all_the_same_runs_nothing(bench: Bench, fields: dict[str, Any]) -> None:
    works = Works(bench)
    one = await waiting(works)
    (asked,) = await one.asked()
    with pytest.raises(ValidationError):
        await one.app.ainvoke(one.signed(asked, edit(**fields)), one.config)
    assert works.ran("place") == 0
    await one.app.ainvoke(one.signed(asked, edit(n=7)), one.config)
    assert [fact["n"] for fact in works.ledger.of("node")] == [7]
