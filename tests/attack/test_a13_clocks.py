"""A13: clocks that disagree. The deadline is the store's: inside the claim's own statement."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.core.kit import SEND, YES, kinds, row_of

from adapter.core.errors import ApprovalExpired
from adapter.stores import MemoryStore
from adapter.testing import FrozenClock, Paused, Wired, make_call, make_context, wired

pytestmark = pytest.mark.anyio

CALL = make_call("send", to="bob", amount=5)
TTL = 60.0


@pytest.fixture
async def apart() -> AsyncIterator[tuple[Wired, FrozenClock]]:
    """A worker and a store with a clock each; a question that is open for a minute."""
    clock, stores = FrozenClock(), FrozenClock()
    store: Any = MemoryStore(clock=stores)
    kit = wired(SEND, clock=clock, store=store, approval_ttl=TTL)
    async with kit:
        with pytest.raises(Paused):
            await kit.run(CALL)
        yield kit, stores


@pytest.mark.parametrize("behind", [0.0, -30.0, -3600.0])
async def test_a13_a_worker_whose_clock_is_behind_claims_nothing_late(
    apart: tuple[Wired, FrozenClock], behind: float
) -> None:
    kit, stores = apart
    stores.advance(TTL)
    kit.clock.advance(behind)
    with pytest.raises(ApprovalExpired):
        await kit.run(CALL, None, YES)
    assert kit.runs == []
    assert (await row_of(kit)).status == "expired"
    assert (await kinds(kit)).count("expired") == 1


@pytest.mark.parametrize("ahead", [0.0, 1.0, 59.999])
async def test_a13_in_time_by_both_clocks_it_runs(
    apart: tuple[Wired, FrozenClock], ahead: float
) -> None:
    kit, stores = apart
    stores.advance(TTL - 0.001)
    kit.clock.advance(ahead)
    assert await kit.run(CALL, None, YES)
    assert len(kit.runs) == 1


async def test_a13_a_worker_whose_clock_is_ahead_refuses_and_runs_nothing(
    apart: tuple[Wired, FrozenClock],
) -> None:
    kit, _ = apart
    kit.clock.advance(TTL)
    with pytest.raises(ApprovalExpired):
        await kit.run(CALL, None, YES)
    assert kit.runs == []


async def test_a13_the_time_that_runs_out_between_check_and_claim(
    apart: tuple[Wired, FrozenClock],
) -> None:
    kit, stores = apart

    def too_slow(question: Any) -> Any:
        value = kit.port.resume_value(question, YES)
        stores.advance(TTL)
        return value

    with pytest.raises(ApprovalExpired):
        await kit.run(CALL, None, too_slow)
    assert kit.runs == []
    with pytest.raises(ApprovalExpired):
        await kit.run(CALL, make_context(run_id="run-2"))
    assert (await kinds(kit)).count("expired") == 1
