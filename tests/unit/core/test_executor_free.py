"""Calls nobody approves: refused, counted, run once, repeated only where that is harmless."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.core.kit import (
    ALL,
    LOOK,
    PUT,
    WRITE,
    events,
    flaky,
    hang,
    kinds,
    row_of,
    tool,
    unrecorded,
    used,
)
from typing_extensions import override

from adapter.core.admitting import Admitter
from adapter.core.budgets import Budgets
from adapter.core.errors import (
    AdapterError,
    BudgetExceeded,
    CallInDoubt,
    CallInProgress,
    StoreUnavailable,
    ToolArgsInvalid,
    ToolFailed,
    ToolTimeout,
    UnknownTool,
)
from adapter.core.executor import Executor
from adapter.core.spec import Limits
from adapter.core.types import CallStatus, Effects
from adapter.core.validation import Admission, Batch
from adapter.testing import Paused, make_call, make_context, wired

pytestmark = pytest.mark.anyio

CALL = make_call("write", to="bob")
RAN = {"ran": {"to": "bob", "amount": 1, "card": None}}
FIRST, SECOND = make_context(), make_context(run_id="run-2")


@pytest.mark.parametrize(
    ("call", "made"),
    [
        (make_call("nothing"), UnknownTool),
        (make_call("write"), ToolArgsInvalid),
        (make_call("write", to="b", ghost=1), ToolArgsInvalid),
        (make_call("write", to="\ud800"), ToolArgsInvalid),
    ],
)
async def test_a_bad_call_is_refused_audited_and_free(call: Any, made: type[AdapterError]) -> None:
    async with wired(WRITE) as kit:
        with pytest.raises(made):
            await kit.run(call)
        (event,) = await events(kit)
        assert (event["kind"], event["data"]["error"]) == ("refused", made.__name__)
        assert kit.runs == []
        assert await used(kit) == 0


async def test_where_everything_is_admitted_still_no_unknown_tool_runs() -> None:
    class Careless(Admitter):
        @override
        def admit(self, batch: Batch) -> Admission:
            return Admission(arguments={call.id: call.arguments for call in batch.calls})

    async with wired(WRITE) as kit:
        stage = Careless(
            registry=kit.registry, journal=kit.executor.journal, port=kit.port, strip=False
        )
        call = make_call("nothing")
        with pytest.raises(UnknownTool, match="nothing"):
            await stage.work(call, FIRST, kit.invocation(call), None)
        assert (await stage.work(CALL, FIRST, kit.invocation(CALL), None)).spec.name == "write"


async def test_a_known_tool_that_nothing_leads_to_does_not_run() -> None:
    async with wired(WRITE) as kit:
        stage = Admitter(
            registry=kit.registry, journal=kit.executor.journal, port=kit.port, strip=False
        )
        with pytest.raises(UnknownTool, match="write"):
            await stage.work(CALL, FIRST, None, None)
        work = await stage.work(CALL, FIRST, kit.invocation(CALL), None)
        assert (work.spec.name, work.arguments["to"]) == ("write", "bob")
        assert await kit.store.of_message("thread-1", "message-1") == ()


async def test_arguments_admitted_before_are_not_validated_again() -> None:
    async with wired(WRITE) as kit:
        arguments = kit.executor.admit(Batch(calls=(CALL,))).arguments["call-1"]
        result = await kit.executor.run(CALL, FIRST, kit.invocation(CALL), arguments=arguments)
        assert result == RAN


async def test_an_effect_runs_once_whatever_runs_again() -> None:
    async with wired(WRITE) as kit:
        for ctx in (FIRST, FIRST, SECOND):
            assert await kit.run(CALL, ctx) == RAN
        assert await kit.restarted().run(CALL, SECOND) == RAN
        assert len(kit.runs) == 1
        assert await used(kit) == 1
        assert (await kinds(kit)).count("started") == 1


async def test_an_effect_reached_by_another_task_runs_once() -> None:
    async with wired(WRITE) as kit:
        await kit.run(CALL, FIRST)
        assert await kit.run(CALL, make_context(task_id="task-2")) == RAN
        assert len(kit.runs) == 1


async def test_a_fork_of_the_message_may_run_again() -> None:
    async with wired(WRITE) as kit:
        await kit.run(CALL, FIRST)
        await kit.run(
            make_call("write", message_id="message-2", to="bob"), make_context(task_id="t2")
        )
        assert len(kit.runs) == 2


async def test_an_executor_without_a_port_runs_what_needs_nobody() -> None:
    async with wired(WRITE) as kit:
        alone = Executor(kit.registry, store=kit.store)
        assert await alone.run(CALL, FIRST, kit.invocation(CALL)) == RAN
        assert await alone.run(CALL, SECOND, kit.invocation(CALL)) == RAN
        assert len(kit.runs) == 1


async def test_concurrent_runs_have_one_effect() -> None:
    async with wired(WRITE) as kit:
        runs = [
            kit.executor.run(CALL, make_context(run_id=f"r{n}"), kit.invocation(CALL))
            for n in range(5)
        ]
        results = await asyncio.gather(*runs, return_exceptions=True)
        assert len(kit.runs) == 1
        assert RAN in results


async def test_calls_past_the_turns_budget_do_not_run() -> None:
    async with wired(WRITE, budgets=Budgets(tool_calls_per_turn=2)) as kit:
        for number in range(2):
            await kit.run(make_call("write", id=f"c{number}", to="b"))
        with pytest.raises(BudgetExceeded, match="tool calls of this turn"):
            await kit.run(make_call("write", id="c2", to="b"))
        assert len(kit.runs) == 2
        assert await used(kit) == 2
        await kit.run(make_call("write", id="c3", to="b"), make_context(turn_id="turn-2"))
        assert len(kit.runs) == 3


async def test_a_tools_own_limit_refuses_that_tool_only() -> None:
    limited = tool("write", limits=Limits(per_thread=1))
    async with wired(limited, PUT) as kit:
        await kit.run(CALL)
        with pytest.raises(BudgetExceeded, match="calls of write"):
            await kit.run(make_call("write", id="c2", to="b"))
        await kit.run(make_call("put", id="c3", to="b"))
        assert [call_id for call_id, _ in kit.runs] == ["call-1", "c3"]


async def test_a_store_that_is_down_lets_nothing_start() -> None:
    kit, store = flaky(WRITE)
    async with kit:
        store.failures["claim"] = 1
        with pytest.raises(StoreUnavailable):
            await kit.run(CALL)
        assert kit.runs == []
        assert await kit.run(CALL, SECOND) == RAN


async def test_a_repeatable_tool_is_taken_over_after_its_lease() -> None:
    call = make_call("put", to="bob")
    kit, store = flaky(PUT)
    async with kit:
        await unrecorded(kit, store, call)
        assert await kit.restarted().run(call, SECOND) == RAN
        assert len(kit.runs) == 2
        assert await used(kit) == 1


async def test_an_effect_whose_record_was_lost_is_in_doubt() -> None:
    kit, store = flaky(WRITE)
    async with kit:
        await unrecorded(kit, store, CALL)
        with pytest.raises(CallInDoubt):
            await kit.run(CALL, SECOND)
        assert len(kit.runs) == 1


LOOKING = make_call("look", text="x")


async def test_a_read_only_call_runs_again_and_is_counted_once() -> None:
    async with wired(LOOK) as kit:
        for _ in range(2):
            assert await kit.run(LOOKING) == {"ran": {"text": "x"}}
        assert len(kit.runs) == 2
        assert await used(kit) == 1
        assert await kit.store.of_message("thread-1", "message-1") == ()
        assert (await kinds(kit)).count("started") == 1
        assert "succeeded" in await kinds(kit)


async def test_hooks_are_told_before_and_after_a_read_only_call_that_ran() -> None:
    told: list[str] = []

    async def before(call: Any, _ctx: Any) -> None:
        told.append(f"before {call.id}")

    async def after(call: Any, _ctx: Any) -> None:
        told.append(f"after {call.id}")

    def body(_: Any) -> str:
        told.append("ran")
        return "seen"

    budgets = Budgets(tool_calls_per_turn=1)
    async with wired(LOOK, budgets=budgets, before_tool=[before], after_tool=[after]) as kit:
        assert await kit.run(LOOKING, body=body) == "seen"
        assert told == ["before call-1", "ran", "after call-1"]
        with pytest.raises(BudgetExceeded):
            await kit.run(make_call("look", id="c2"), body=body)
        assert told[3:] == ["before c2"]


async def test_a_failing_hook_keeps_a_read_only_call_from_running() -> None:
    async def before(_call: Any, _ctx: Any) -> None:
        raise RuntimeError("not now")

    async with wired(LOOK, before_tool=[before]) as kit:
        with pytest.raises(RuntimeError, match="not now"):
            await kit.run(LOOKING)
        assert kit.runs == []
        assert await used(kit) == 0


async def test_a_read_only_call_past_the_budget_does_not_run() -> None:
    async with wired(LOOK, budgets=Budgets(tool_calls_per_turn=1)) as kit:
        await kit.run(LOOKING)
        with pytest.raises(BudgetExceeded):
            await kit.run(make_call("look", id="c2"))
        assert len(kit.runs) == 1
        assert (await kinds(kit))[-1] == "refused"


def broken(_: Any) -> None:
    raise KeyError("password=hunter2")


async def test_a_read_only_call_that_fails_is_audited_without_its_text() -> None:
    async with wired(LOOK) as kit:
        with pytest.raises(ToolFailed, match="look failed: KeyError") as caught:
            await kit.run(LOOKING, body=broken)
        assert "hunter2" not in caught.value.message
        assert "failed" in await kinds(kit)


async def test_a_read_only_result_may_report_an_error() -> None:
    async with wired(LOOK) as kit:
        await kit.run(LOOKING, is_error=True)
        assert "failed" in await kinds(kit)


async def test_a_read_only_call_may_pause_the_run() -> None:
    def pause(_: Any) -> None:
        raise Paused({})

    async with wired(LOOK) as kit:
        with pytest.raises(Paused):
            await kit.run(LOOKING, body=pause)
        assert await kinds(kit) == ["started"]


async def test_a_late_read_only_result_is_dropped() -> None:
    slow = tool("look", model=LOOK[1]._model, effects=Effects(read_only=True), timeout=0.001)
    go, done = asyncio.Event(), asyncio.Event()

    async def body(_: Any) -> str:
        await go.wait()
        done.set()
        return "late"

    async with wired(slow) as kit:
        with pytest.raises(ToolTimeout, match=r"look timed out \(reference \w+\)\.$"):
            await kit.run(make_call("look"), body=body, cancellable=False)
        go.set()
        await done.wait()
        assert await kinds(kit) == ["started", "failed"]


async def test_a_cancelled_read_only_call_stops_at_once() -> None:
    async with wired(LOOK) as kit:
        started = asyncio.Event()

        async def body(given: Any) -> None:
            started.set()
            await hang(given)

        task = asyncio.ensure_future(kit.run(LOOKING, body=body))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_refusals_outside_the_executor_are_audited_once() -> None:
    async with wired(*ALL) as kit:
        for _ in range(2):
            await kit.executor.refuse({"c9": UnknownTool("no such tool")}, {}, FIRST)
        (event,) = await events(kit)
        assert (event["call_id"], event["data"]["reason"]) == ("c9", "no such tool")


async def test_a_row_is_left_in_doubt_when_the_effect_may_have_happened() -> None:
    def body(_: Any) -> None:
        raise ConnectionResetError

    async with wired(WRITE) as kit:
        with pytest.raises(ToolFailed, match="its outcome is unknown"):
            await kit.run(CALL, body=body)
        assert (await row_of(kit)).status is CallStatus.IN_DOUBT
        with pytest.raises(CallInDoubt):
            await kit.run(CALL, SECOND)
        assert len(kit.runs) == 1


@pytest.mark.parametrize(
    ("name", "first", "then"), [("put", CallInProgress, None), ("write", CallInDoubt, CallInDoubt)]
)
async def test_a_lease_that_runs_out_right_after_the_claim_was_refused(
    name: str, first: type[Exception], then: type[Exception] | None
) -> None:
    """Nothing is in doubt about a call that the next run may take over."""
    kit, store = flaky()
    async with kit:
        call = make_call(name, to="bob", amount=1)
        store.failures["settle"] = 99
        with pytest.raises(StoreUnavailable):
            await kit.run(call)
        store.failures.clear()
        claim = store.inner.claim

        async def late(*given: Any, **named: Any) -> Any:
            made = await claim(*given, **named)
            kit.clock.advance(31)
            return made

        store.inner.claim = late  # type: ignore[method-assign]
        with pytest.raises(first):
            await kit.run(call)
        store.inner.claim = claim  # type: ignore[method-assign]
        if then is None:
            await kit.run(call)
            assert [one for one, _ in kit.runs] == [call.id] * 2
        else:
            with pytest.raises(then):
                await kit.run(call)
            assert len(kit.runs) == 1
