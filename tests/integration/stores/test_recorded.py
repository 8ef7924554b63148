"""Many people decide about one stored request at the same time: no vote is lost, none counts twice.

Several stores on one database stand for several processes, each with its own view of the row.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from tests.integration.stores.backends import Backend
from tests.unit.core.kit import row_of, tool

from adapter.core.decisions import ApprovalDecision
from adapter.core.deferred import DeferredApproval
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalDenied,
    ApprovalPending,
    InvalidAnswer,
)
from adapter.core.keys import KeyRing
from adapter.core.recording import votes_in
from adapter.core.rules import ApprovalRule
from adapter.core.store import CallRow
from adapter.core.types import CallStatus
from adapter.testing import Wired, make_call, make_context, wired

pytestmark = pytest.mark.anyio

KEYS = KeyRing.from_secret(b"deferred-secret-0123456789-abcdef")
CALL = make_call("send", to="bob", amount=5)
MANY = 12


def yes(name: str) -> ApprovalDecision:
    return ApprovalDecision(approved=True, reviewer=name)


@dataclass
class Office:
    """One request that needs ``need`` people, and several processes that may decide it."""

    kit: Wired
    ports: list[DeferredApproval]

    async def run(self, run_id: str = "run-1") -> Any:
        return await self.kit.executor.run(
            CALL, make_context(run_id=run_id), self.kit.invocation(CALL)
        )

    async def asked(self) -> CallRow:
        with pytest.raises(ApprovalPending):
            await self.run()
        return await row_of(self.kit)

    async def decide(self, row: CallRow, *decisions: ApprovalDecision) -> list[Any]:
        """Record decisions at once, each by a process that read the row as it is now."""
        return await asyncio.gather(
            *(
                self.ports[n % len(self.ports)].record(row, decision)
                for n, decision in enumerate(decisions)
            ),
            return_exceptions=True,
        )


@pytest.fixture(params=[1, MANY])
async def office(backend: Backend, request: pytest.FixtureRequest) -> Office:
    clock: Any = backend.clock
    stores = [backend.open() for _ in range(1 if backend.uri == "sqlite://" else 4)]
    rule = ApprovalRule(name="many", reason="grave", quorum=request.param)
    kit = wired(tool("send", approval=rule), store=stores[0], clock=clock)
    ports = [DeferredApproval(store, KEYS, clock=clock) for store in stores]
    port: Any = ports[0]
    kit.port = port
    return Office(kit.restarted(), ports)


def need(count: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("office", [count], indirect=True, ids=[f"need{count}"])


@need(MANY)
async def test_votes_recorded_at_the_same_time_are_all_kept(office: Office) -> None:
    row = await office.asked()
    names = [f"reviewer-{n}" for n in range(MANY)]
    ended = await office.decide(row, *map(yes, names))
    assert [one for one in ended if isinstance(one, BaseException)] == []
    assert sorted(votes_in(await row_of(office.kit))) == sorted(names)
    await office.run("run-2")
    assert len(office.kit.runs) == 1


@need(MANY)
async def test_votes_that_meet_runs_of_the_call_are_all_kept(office: Office) -> None:
    """A run puts the count of votes into the sealed request: it overwrites nobody's vote."""
    row = await office.asked()

    async def goes_on() -> None:
        for _ in range(4):
            with pytest.raises(ApprovalPending):
                await office.run("run-2")

    votes = [yes(f"reviewer-{n}") for n in range(MANY - 1)]
    ended, *_ = await asyncio.gather(office.decide(row, *votes), goes_on(), goes_on())
    assert [one for one in ended if isinstance(one, BaseException)] == []
    with pytest.raises(ApprovalPending):
        await office.run("run-3")
    assert len(votes_in(await row_of(office.kit))) == MANY - 1
    assert office.kit.runs == []
    await office.ports[-1].record(await row_of(office.kit), yes("the last"))
    await office.run("run-4")
    assert len(office.kit.runs) == 1


@need(MANY)
async def test_one_person_at_many_desks_counts_once(office: Office) -> None:
    row = await office.asked()
    ended = await office.decide(row, *[yes("ann")] * 6)
    assert sum(isinstance(one, InvalidAnswer) for one in ended) == 5
    assert votes_in(await row_of(office.kit)) == ["ann"]


@need(MANY)
async def test_a_no_among_many_votes_ends_it(office: Office) -> None:
    row = await office.asked()
    no = ApprovalDecision(approved=False, reason="no", reviewer="zoe")
    await office.decide(row, *[yes(f"reviewer-{n}") for n in range(5)], no)
    assert "zoe" in votes_in(await row_of(office.kit))
    with pytest.raises(ApprovalDenied):
        await office.run("run-2")
    assert office.kit.runs == []


@need(1)
async def test_where_one_is_enough_one_decision_is_taken(office: Office) -> None:
    row = await office.asked()
    edits = [
        ApprovalDecision(edited_args={"to": "bob", "amount": n}, reviewer=f"r{n}")
        for n in range(1, 9)
    ]
    ended = await office.decide(row, *edits)
    taken = [n for n, one in enumerate(ended, 1) if isinstance(one, CallRow)]
    assert len(taken) == 1
    assert sum(isinstance(one, ApprovalAlreadyDecided) for one in ended) == 7
    assert (await row_of(office.kit)).status is CallStatus.APPROVED
    assert (await office.run("run-2"))["ran"]["amount"] == taken[0]
