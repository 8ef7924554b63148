"""A claimed call: time limits, retries, the lease, the fence, and what is recorded of its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.core.kit import (
    PUT,
    WRITE,
    Gate,
    Mischief,
    events,
    flaky,
    hang,
    kinds,
    outlived,
    row_of,
    tool,
)

from adapter.core.errors import (
    CallInDoubt,
    StoreUnavailable,
    ToolError,
    ToolFailed,
    ToolTimeout,
    ToolUsageError,
)
from adapter.core.retrying import between
from adapter.core.spec import Retry
from adapter.core.types import CallStatus, Effects
from adapter.testing import Wired, make_call, make_context, wired

pytestmark = pytest.mark.anyio

CALL, PUTTING = make_call("write", to="bob"), make_call("put", to="bob")
FIRST, SECOND = make_context(), make_context(run_id="run-2")
QUICK = tool("write", timeout=0.001)
QUICK_PUT = tool("put", timeout=0.001, effects=Effects(idempotent=True))


async def status(kit: Wired) -> CallStatus:
    return (await row_of(kit)).status


async def test_a_tool_out_of_time_is_in_doubt() -> None:
    async with wired(QUICK) as kit:
        with pytest.raises(ToolTimeout, match="its outcome is unknown"):
            await kit.run(CALL, body=hang)
        assert await status(kit) is CallStatus.IN_DOUBT
        with pytest.raises(CallInDoubt):
            await kit.run(CALL, SECOND)
        assert len(kit.runs) == 1


async def test_a_repeatable_tool_out_of_time_has_failed() -> None:
    async with wired(QUICK_PUT) as kit:
        with pytest.raises(ToolTimeout, match=r"\)\.$"):
            await kit.run(PUTTING, body=hang)
        assert await status(kit) is CallStatus.FAILED
        with pytest.raises(ToolTimeout):
            await kit.run(PUTTING, SECOND)
        assert len(kit.runs) == 1


async def test_a_late_result_is_recorded() -> None:
    kit, store = flaky(QUICK)
    gate = Gate()
    async with kit:
        await outlived(kit, store, CALL, gate)
        assert await kit.run(CALL, SECOND) == "done"
        assert len(kit.runs) == 1
        assert (await events(kit))[-2]["data"] == {"late": True}


async def test_a_late_error_records_nothing() -> None:
    gate = Gate(ValueError("late"))
    async with wired(QUICK) as kit:
        with pytest.raises(ToolTimeout):
            await kit.run(CALL, body=gate, cancellable=False)
        gate.go.set()
        await gate.ended.wait()
        assert await status(kit) is CallStatus.IN_DOUBT


async def test_a_repeatable_tool_is_tried_again() -> None:
    async with wired(PUT) as kit:

        def body(_: Any) -> str:
            if len(kit.runs) < 3:
                raise OSError
            return "third"

        assert await kit.run(PUTTING, body=body) == "third"
        assert len(kit.runs) == 3
        assert (await kinds(kit)).count("started") == 1


async def test_a_repeatable_tool_gives_up() -> None:
    def body(_: Any) -> None:
        raise OSError

    async with wired(PUT) as kit:
        with pytest.raises(ToolFailed, match="put failed: OSError"):
            await kit.run(PUTTING, body=body)
        assert len(kit.runs) == 3
        assert await status(kit) is CallStatus.FAILED


@pytest.mark.parametrize("error", [ToolError("no"), ToolUsageError("wrong")])
async def test_an_error_that_trying_cannot_cure_is_not_tried_again(error: Exception) -> None:
    def body(_: Any) -> None:
        raise error

    async with wired(PUT) as kit:
        with pytest.raises((ToolError, ToolFailed)):
            await kit.run(PUTTING, body=body)
        assert len(kit.runs) == 1


@pytest.mark.parametrize(("jitter", "most"), [(False, 1.0), (True, 2.0)])
def test_attempts_wait_longer_each_time(jitter: bool, most: float) -> None:
    from types import SimpleNamespace

    wait = between(Retry(max_attempts=3, initial_interval=1.0, max_interval=1.0, jitter=jitter))
    state: Any = SimpleNamespace(attempt_number=5)
    assert 1.0 <= wait(state) <= most


async def test_what_a_tool_says_on_purpose_reaches_the_model() -> None:
    def body(_: Any) -> None:
        raise ToolError("the account is closed")

    async with wired(WRITE) as kit:
        with pytest.raises(ToolError, match=r"^the account is closed$"):
            await kit.run(CALL, body=body)
        assert await status(kit) is CallStatus.FAILED


async def test_any_other_error_shows_its_class_and_a_reference_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def body(_: Any) -> None:
        raise ValueError("row 5, password=hunter2")

    async with wired(WRITE) as kit:
        with pytest.raises(
            ToolFailed, match=r"^write failed: ValueError \(reference (\w+)\)\.$"
        ) as caught:
            await kit.run(CALL, body=body)
        assert "hunter2" not in repr(await events(kit))
        reference = caught.value.message.split("reference ")[1].split(")")[0]
    assert f"reference {reference}: ValueError: row 5, ***" in caplog.text


async def test_a_tool_that_cancels_itself_has_failed_and_the_run_goes_on() -> None:
    def body(_: Any) -> None:
        raise asyncio.CancelledError

    async with wired(WRITE) as kit:
        with pytest.raises(ToolFailed, match="SelfCancelled"):
            await kit.run(CALL, body=body)
        assert await status(kit) is CallStatus.FAILED


async def test_a_result_that_reports_an_error_is_recorded_as_failed() -> None:
    async with wired(WRITE) as kit:
        await kit.run(CALL, body=lambda _: "Error: no", is_error=True)
        assert await status(kit) is CallStatus.FAILED
        assert await kit.run(CALL, SECOND) == "Error: no"
        assert len(kit.runs) == 1


async def test_a_result_that_cannot_be_kept_is_a_programming_error() -> None:
    async with wired(WRITE) as kit:
        with pytest.raises(ToolUsageError, match="no JSON value"):
            await kit.run(CALL, body=lambda _: object())
        with pytest.raises(ToolFailed):
            await kit.run(CALL, SECOND)
        assert len(kit.runs) == 1


def mischief(kit: Wired, call: Any = CALL, **how: Any) -> Mischief:
    return Mischief(on_run=lambda given: kit.runs.append((call.id, given)), **how)


async def test_middleware_cannot_run_the_tool_twice() -> None:
    async with wired(WRITE) as kit:
        with pytest.raises(ToolFailed, match="ToolUsageError"):
            await kit.executor.run(CALL, FIRST, mischief(kit, times=2))
        assert len(kit.runs) == 1


async def test_middleware_cannot_alter_the_arguments() -> None:
    async with wired(WRITE) as kit:
        with pytest.raises(ToolFailed, match="ToolUsageError"):
            await kit.executor.run(CALL, FIRST, mischief(kit, altered=lambda g: g | {"to": "eve"}))
        assert kit.runs == []
        assert await status(kit) is CallStatus.FAILED


async def test_middleware_that_runs_the_tool_around_its_fence_is_in_doubt() -> None:
    async with wired(WRITE) as kit:
        await kit.executor.run(CALL, FIRST, mischief(kit, bypass=True))
        assert await status(kit) is CallStatus.IN_DOUBT
        assert (await events(kit))[-1]["data"] == {"reason": "fence_bypassed"}


async def test_middleware_that_hides_an_ambiguous_error_is_in_doubt() -> None:
    def body(_: Any) -> None:
        raise TimeoutError

    async with wired(WRITE) as kit:
        await kit.executor.run(CALL, FIRST, mischief(kit, body=body, swallow=True))
        assert await status(kit) is CallStatus.IN_DOUBT
        assert (await events(kit))[-1]["data"] == {"reason": "outcome unknown"}


async def test_an_ambiguous_error_of_a_repeatable_tool_is_no_doubt() -> None:
    def body(_: Any) -> None:
        raise TimeoutError

    async with wired(QUICK_PUT) as kit:
        await kit.executor.run(PUTTING, FIRST, mischief(kit, PUTTING, body=body, swallow=True))
        assert await status(kit) is CallStatus.SUCCEEDED


async def test_a_store_that_hiccups_at_the_end_is_tried_again() -> None:
    kit, store = flaky(WRITE)
    async with kit:
        store.failures["settle"] = 4
        await kit.run(CALL)
        assert await status(kit) is CallStatus.SUCCEEDED


async def test_a_store_that_stays_down_at_the_end_is_an_error() -> None:
    kit, store = flaky(WRITE)
    async with kit:
        store.failures["settle"] = 5
        with pytest.raises(StoreUnavailable):
            await kit.run(CALL)
        assert await status(kit) is CallStatus.CLAIMED


async def test_a_failure_is_recorded_through_a_hiccup_too() -> None:
    def body(_: Any) -> None:
        raise OSError

    kit, store = flaky(WRITE)
    async with kit:
        store.failures["settle"] = 1
        with pytest.raises(ToolFailed):
            await kit.run(CALL, body=body)
        assert await status(kit) is CallStatus.FAILED


async def test_a_running_tool_keeps_its_lease() -> None:
    kit, store = flaky(WRITE, lease=0.003)
    gate = Gate()
    async with kit:
        store.called["renew"] = asyncio.Event()
        running = asyncio.ensure_future(kit.run(CALL, body=gate))
        await gate.started.wait()
        before = (await row_of(kit)).lease_until
        kit.clock.advance(5)
        for _ in range(2):  # the first may have read the clock before
            store.called["renew"].clear()
            await store.called["renew"].wait()
        after = (await row_of(kit)).lease_until
        gate.go.set()
        assert await running == "done"
    assert before is not None
    assert after is not None
    assert after >= before + 5000


async def test_a_lease_that_cannot_be_renewed_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit, store = flaky(WRITE, lease=0.003)
    gate = Gate()
    async with kit:
        store.failures["renew"] = 1
        store.called["renew"] = asyncio.Event()
        running = asyncio.ensure_future(kit.run(CALL, body=gate))
        await store.called["renew"].wait()
        gate.go.set()
        assert await running == "done"
    assert "lease of a running call could not be renewed" in caplog.text


async def test_a_lease_that_is_lost_is_let_go() -> None:
    kit, store = flaky(WRITE, lease=0.003)
    gate, lost = Gate(), asyncio.Event()

    async def renew(*_: Any) -> bool:
        lost.set()
        return False

    async with kit:
        store.renew = renew  # type: ignore[attr-defined]
        running = asyncio.ensure_future(kit.run(CALL, body=gate))
        await lost.wait()
        gate.go.set()
        assert await running == "done"


async def test_a_cancelled_run_waits_for_the_tool_and_its_record() -> None:
    async with wired(WRITE) as kit:
        gate = Gate()
        running = asyncio.ensure_future(kit.run(CALL, body=gate))
        await gate.started.wait()
        running.cancel()
        await asyncio.sleep(0)
        gate.go.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await status(kit) is CallStatus.SUCCEEDED
        assert await kit.run(CALL, SECOND) == "done"
        assert len(kit.runs) == 1


async def test_a_cancelled_run_past_its_grace_is_in_doubt_and_stopped() -> None:
    async with wired(WRITE, cancel_grace=0.001) as kit:
        gate = Gate()
        running = asyncio.ensure_future(kit.run(CALL, body=gate))
        await gate.started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert gate.ended.is_set()
        assert await status(kit) is CallStatus.IN_DOUBT
        assert (await events(kit))[-1]["data"] == {"reason": "cancelled while running"}
        with pytest.raises(CallInDoubt):
            await kit.run(CALL, SECOND)


async def test_a_tool_that_cannot_be_stopped_records_its_result_after_the_grace() -> None:
    kit, store = flaky(WRITE, cancel_grace=0.001)
    async with kit:
        gate = Gate()
        running = asyncio.ensure_future(kit.run(CALL, body=gate, cancellable=False))
        await gate.started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await status(kit) is CallStatus.IN_DOUBT
        store.called["settle"] = asyncio.Event()
        gate.go.set()
        await store.called["settle"].wait()
        assert await kit.run(CALL, SECOND) == "done"
        assert len(kit.runs) == 1
