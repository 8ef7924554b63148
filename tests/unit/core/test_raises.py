"""A raise is asked like a call, claimed like a call, and counted once whoever comes second."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.kit import NO, YES, FlakyStore, flaky, kinds

from adapter.core.budgets import Budgets
from adapter.core.errors import ApprovalAlreadyDecided, ConfigurationError
from adapter.core.executor import Executor
from adapter.core.raises import Raises
from adapter.core.spec import Registry
from adapter.core.types import CallStatus
from adapter.stores.memory import MemoryStore
from adapter.testing import Paused, Wired, make_call, make_context

pytestmark = pytest.mark.anyio

CTX = make_context()
SCOPE = "thread:thread-1:model_calls"
BUDGETS = Budgets(on_exceeded="ask", model_calls_per_thread=3)


def raises_of(kit: Wired) -> Raises:
    found = kit.executor.raises
    assert found is not None
    return found


def asking() -> tuple[Wired, FlakyStore]:
    return flaky(budgets=BUDGETS, approval_ttl=60)


async def ask(kit: Wired, *answers: Any, run: str = "run-1") -> bool:
    kit.port.resume(*answers)
    return await raises_of(kit).ask(make_context(run_id=run), SCOPE)


async def raised(kit: Wired) -> int:
    counter = f"raise:{SCOPE}"
    return (await kit.store.charge([], show=[counter])).used[counter]


async def only_row(kit: Wired) -> Any:
    (row,) = await kit.store.of_message("thread-1", "budget:task-1")
    return row


async def test_nobody_raises_where_nobody_is_asked() -> None:
    kit, _ = flaky()
    assert kit.executor.raises is None
    async with kit:
        pass


def test_asking_needs_a_port() -> None:
    with pytest.raises(ConfigurationError, match="approval port"):
        Executor(Registry([], {}), store=MemoryStore(), budgets=BUDGETS)


async def test_an_approval_raises_by_the_size_of_the_budget() -> None:
    kit, _ = asking()
    async with kit:
        assert await ask(kit, YES)
        assert await raised(kit) == 3
        row = await only_row(kit)
        assert (row.status, row.kind) == (CallStatus.SUCCEEDED, "budget")
        assert kit.port.questions[0].request["arguments"]["limit"] == 3


async def test_a_rejection_raises_nothing() -> None:
    kit, _ = asking()
    async with kit:
        assert not await ask(kit, NO)
        assert await raised(kit) == 0
        assert (await only_row(kit)).status is CallStatus.DENIED


async def test_a_late_answer_raises_nothing() -> None:
    kit, _ = asking()
    async with kit:
        with pytest.raises(Paused):
            await ask(kit)
        kit.clock.advance(60)
        assert not await ask(kit, YES)
        assert await raised(kit) == 0


async def test_an_answer_that_is_late_at_its_claim_raises_nothing() -> None:
    kit, store = asking()

    async def too_long() -> None:
        kit.clock.advance(60)

    async with kit:
        store.before["claim"] = too_long
        assert not await ask(kit, YES)
        assert await raised(kit) == 0
        assert (await only_row(kit)).status is CallStatus.EXPIRED


@pytest.mark.parametrize(("late", "method"), [(YES, "claim"), (NO, "close_question")])
async def test_who_comes_second_gets_what_the_first_one_made(late: Any, method: str) -> None:
    kit, store = asking()

    async def quicker() -> None:
        store.before.clear()
        other = kit.restarted()
        other.port = type(kit.port)(kit.port.keys, clock=kit.clock)
        other = other.restarted()
        assert await ask(other, YES, run="run-2")

    async with kit:
        store.before[method] = quicker
        assert await ask(kit, late)
        assert await raised(kit) == 3


async def test_an_answer_used_by_another_run_is_refused() -> None:
    kit, _ = asking()
    async with kit:
        assert await ask(kit, YES)
        kit.port.resume(YES)
        with pytest.raises(ApprovalAlreadyDecided):
            await raises_of(kit).earlier(make_context(run_id="run-2"))
        assert await raised(kit) == 3


@pytest.mark.parametrize(("answer", "ended"), [(YES, None), (NO, SCOPE)])
async def test_an_earlier_question_is_taken_again_in_its_place(
    answer: Any, ended: str | None
) -> None:
    kit, _ = asking()
    async with kit:
        assert await raises_of(kit).earlier(CTX) is None
        assert await ask(kit, answer) is (ended is None)
        kit.port.resume()
        assert await raises_of(kit).earlier(make_context(run_id="run-2")) == ended
        assert kit.port.revisited == [(await only_row(kit)).key]
        # another task has questions of its own
        assert await raises_of(kit).earlier(make_context(task_id="task-2")) is None


async def test_an_open_question_is_asked_again_although_there_is_room_now() -> None:
    kit, _ = asking()
    async with kit:
        with pytest.raises(Paused) as first:
            await ask(kit)
        kit.port.resume()
        with pytest.raises(Paused) as second:
            await raises_of(kit).earlier(CTX)
        assert first.value.value["binding"] == second.value.value["binding"]


async def test_a_claim_that_was_not_settled_is_settled_later_and_has_raised() -> None:
    kit, store = asking()
    async with kit:
        store.failures["settle"] = 1
        with pytest.raises(Exception, match="the store is down"):
            await ask(kit, YES)
        assert (await only_row(kit)).status is CallStatus.CLAIMED
        kit.port.resume()
        assert await raises_of(kit).earlier(make_context(run_id="run-2")) is None
        assert (await only_row(kit)).status is CallStatus.SUCCEEDED
        assert await raised(kit) == 3


async def test_a_question_of_an_earlier_turn_is_overtaken() -> None:
    kit, _ = asking()
    async with kit:
        with pytest.raises(Paused):
            await ask(kit)
        raises, later = raises_of(kit), make_context(turn_id="turn-2", task_id="task-2")
        await raises.overtaken(CTX, {"turn-1"})
        await raises.overtaken(later, {"turn-2", "turn-0"})  # a branch the question is not in
        assert (await only_row(kit)).status is CallStatus.REQUESTED
        for _ in range(2):
            await raises.overtaken(later, {"turn-1", "turn-2"})
        assert (await only_row(kit)).status is CallStatus.VOID
        assert (await kinds(kit)).count("void") == 1
        # a late answer raises nothing
        assert not await ask(kit, YES)
        assert await raised(kit) == 0


async def test_an_open_call_is_not_overtaken_with_a_raise() -> None:
    kit, _ = asking()
    async with kit:
        with pytest.raises(Paused):
            await kit.run(make_call("send", to="bob"))
        later = make_context(turn_id="turn-2")
        await raises_of(kit).overtaken(later, {"turn-1", "turn-2"})
        (row,) = await kit.store.requested("thread-1")
        assert row.status is CallStatus.REQUESTED


async def test_a_host_that_cannot_pause_is_refused() -> None:
    kit, _ = asking()
    async with kit:
        with pytest.raises(ConfigurationError, match="can pause"):
            await raises_of(kit).ask(make_context(durable=False), SCOPE)


def test_what_is_asked_is_not_validated_again() -> None:
    from adapter.core.raises import _Arguments

    assert _Arguments().validate({"raise_by": 1}) == {"raise_by": 1}
