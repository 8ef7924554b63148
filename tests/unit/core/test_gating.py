"""A node behind a gate runs once a person has approved it, and never because somebody says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.core.kit import NO, YES, events

from adapter.core.answers import Answer
from adapter.core.decisions import ApprovalDecision
from adapter.core.deferred import DeferredApproval
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    CallInDoubt,
    CallInProgress,
    ConfigurationError,
    InvalidAnswer,
    StoreUnavailable,
    ToolArgsInvalid,
    ToolUsageError,
)
from adapter.core.executor import Executor
from adapter.core.gating import Gate
from adapter.core.keys import KeyRing
from adapter.core.operating import Operator, Resolution, sign_statement
from adapter.core.spec import Registry
from adapter.core.types import CallContext, CallStatus, JsonObject
from adapter.stores import SqlStore, open_store
from adapter.stores.memory import MemoryStore
from adapter.testing import FrozenClock, Paused, ScriptedPort, make_context

pytestmark = pytest.mark.anyio

EDIT = ApprovalDecision(kind="edit", approved=True, edited_args={"total": 7})


def valid(edit: JsonObject) -> JsonObject:
    if not isinstance(edit.get("total", 0), int) or edit.keys() - {"total"}:
        raise ToolArgsInvalid("total: a whole number")
    return edit


GATE = Gate(
    flow="order",
    node="place",
    arguments={"total": 9},
    schema={"type": "object", "properties": {"total": {"type": "integer"}}},
    validate=valid,
    group="superstep-1",
)


@dataclass
class Works:
    """An executor with its gate, and the work behind it, counted outside."""

    store: SqlStore
    clock: FrozenClock
    keys: KeyRing = field(default_factory=KeyRing.random)
    ran: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = ScriptedPort(self.keys, clock=self.clock)
        self.executor = self.process(self.port)

    def process(self, port: Any) -> Executor:
        registry = Registry([], {})
        return Executor(
            registry, store=self.store, approval=port, clock=self.clock, approval_ttl=60, lease=30
        )

    async def gate(
        self,
        *answers: Any,
        run: str = "run-1",
        task: str = "task-1",
        thread: str = "thread-1",
        gate: Gate = GATE,
        body: Callable[[], Awaitable[Any]] | None = None,
        executor: Executor | None = None,
    ) -> Any:
        async def behind(edited: JsonObject | None) -> Any:
            self.ran.append(edited)
            return await body() if body else {"placed": edited}

        self.port.resume(*answers)
        ctx = make_context(thread, run_id=run, task_id=task)
        return await (executor or self.executor).gate(
            gate, ctx, behind, is_pause=lambda error: isinstance(error, Paused)
        )

    async def row(self) -> Any:
        (row,) = await self.store.of_message("thread-1", "superstep-1")
        return row

    async def kinds(self) -> list[str]:
        return [one["kind"] for one in await events(self)]  # type: ignore[arg-type]


@pytest.fixture(params=["memory", "sqlite"])
async def works(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Works]:
    clock = FrozenClock()
    store = (
        MemoryStore(clock=clock)
        if request.param == "memory"
        else open_store(f"sqlite:///{tmp_path / 'gates.db'}", clock=clock)
    )
    yield Works(store, clock)
    await store.aclose()


async def test_it_asks_and_nothing_runs(works: Works) -> None:
    with pytest.raises(Paused) as paused:
        await works.gate()
    request = paused.value.value["request"]
    assert works.ran == []
    assert (request["kind"], request["tool"]) == ("gate", "place")
    assert request["arguments"] == {"total": 9}
    assert request["allowed"] == ["approve", "edit", "reject"]
    assert request["schema"] == GATE.schema


async def test_approved_it_runs_and_its_result_is_recorded(works: Works) -> None:
    assert await works.gate(YES) == {"placed": None}
    row = await works.row()
    assert works.ran == [None]
    assert (row.kind, row.tool, row.status) == ("gate", "place", CallStatus.SUCCEEDED)
    assert await works.kinds() == ["requested", "decided", "started", "succeeded"]


async def test_no_counter_is_charged(works: Works) -> None:
    await works.gate(YES)
    scopes = ["turn:thread-1:turn-1:tool_calls", "thread:thread-1:tool_calls"]
    assert set((await works.store.charge([], show=scopes)).used.values()) == {0}


async def test_the_work_sees_the_reviewers_edit(works: Works) -> None:
    assert await works.gate(EDIT) == {"placed": {"total": 7}}
    assert works.ran == [{"total": 7}]


async def test_an_edit_that_does_not_hold_is_no_answer(works: Works) -> None:
    wrong = ApprovalDecision(kind="edit", approved=True, edited_args={"total": "much"})
    with pytest.raises(InvalidAnswer):
        await works.gate(wrong)
    assert works.ran == []
    assert await works.gate(EDIT) == {"placed": {"total": 7}}


async def test_a_forged_answer_opens_nothing(works: Works) -> None:
    with pytest.raises(InvalidAnswer):
        await works.gate({"approved": True})
    assert works.ran == []


async def test_rejected_it_is_denied_now_and_later(works: Works) -> None:
    with pytest.raises(ApprovalDenied, match="too much"):
        await works.gate(NO)
    with pytest.raises(ApprovalDenied, match="too much"):
        await works.gate(run="run-2")
    assert works.ran == []


async def test_unanswered_in_time_it_expires(works: Works) -> None:
    with pytest.raises(Paused):
        await works.gate()
    works.clock.advance(61)
    with pytest.raises(ApprovalExpired):
        await works.gate(YES, run="run-2")
    assert works.ran == []


async def test_without_an_answer_the_recorded_result_comes_back(works: Works) -> None:
    await works.gate(EDIT)
    assert await works.gate(run="run-2") == {"placed": {"total": 7}}
    assert works.ran == [{"total": 7}]


async def test_with_the_answer_again_the_grant_is_spent(works: Works) -> None:
    await works.gate(YES)
    with pytest.raises(ApprovalAlreadyDecided):
        await works.gate(YES, run="run-2")
    assert works.ran == [None]


async def test_another_task_asks_again(works: Works) -> None:
    await works.gate(YES)
    with pytest.raises(Paused):
        await works.gate(task="task-2")
    with pytest.raises(Paused):
        await works.gate(thread="thread-2")
    assert works.ran == [None]


async def test_what_is_shown_stays_as_it_was_first(works: Works) -> None:
    def shown(total: int) -> Gate:
        return Gate(
            flow="order",
            node="place",
            arguments={"total": total},
            schema=GATE.schema,
            validate=valid,
        )

    with pytest.raises(Paused) as first:
        await works.gate(gate=shown(1))
    with pytest.raises(Paused) as second:
        await works.gate(gate=shown(2))
    assert first.value.value["binding"] == second.value.value["binding"]


def over(state: str) -> Gate:
    return replace(GATE, state=state, arguments={"total": len(state)})


async def test_a_changed_state_is_asked_about_anew_and_the_old_answer_is_none(
    works: Works,
) -> None:
    with pytest.raises(Paused) as first:
        await works.gate(gate=over("small"))
    old = works.port.resume_value(first.value, YES)
    with pytest.raises(InvalidAnswer):
        await works.gate(old, gate=over("enormous"), run="run-2")
    with pytest.raises(Paused) as second:
        await works.gate(gate=over("enormous"), run="run-3")
    assert second.value.value["request"]["arguments"] == {"total": 8}
    assert works.ran == []
    assert "policy_changed" in await works.kinds()
    await works.gate(YES, gate=over("enormous"), run="run-4")
    assert works.ran == [None]


async def test_a_state_changed_behind_an_open_gate_does_not_run(works: Works) -> None:
    async def pause() -> None:
        raise Paused({})

    with pytest.raises(Paused):
        await works.gate(YES, gate=over("small"), body=pause)
    with pytest.raises(ApprovalAlreadyDecided, match="state was changed"):
        await works.gate(gate=over("enormous"), run="run-2")
    assert works.ran == [None]
    await works.gate(gate=over("small"), run="run-3")
    assert works.ran == [None, None]


async def test_a_decision_in_the_store_is_for_the_state_that_was_shown(works: Works) -> None:
    port = DeferredApproval(works.store, works.keys, clock=works.clock)
    executor = works.process(port)
    with pytest.raises(ApprovalPending):
        await works.gate(executor=executor, gate=over("small"))
    (row,) = await port.pending("thread-1")
    await port.record(row, YES)
    with pytest.raises(ApprovalPending):
        await works.gate(executor=executor, gate=over("enormous"), run="run-2")
    assert works.ran == []
    (row,) = await port.pending("thread-1")
    await port.record(row, YES)
    await works.gate(executor=executor, gate=over("enormous"), run="run-3")
    assert works.ran == [None]


async def test_work_that_pauses_goes_on_without_another_question(works: Works) -> None:
    async def pause() -> None:
        raise Paused({})

    with pytest.raises(Paused):
        await works.gate(YES, body=pause)
    assert (await works.row()).status is CallStatus.SUSPENDED
    assert await works.gate(run="run-2") == {"placed": None}
    assert len(works.port.questions) == 1


async def test_the_edit_is_kept_over_a_pause(works: Works) -> None:
    async def pause() -> None:
        raise Paused({})

    with pytest.raises(Paused):
        await works.gate(EDIT, body=pause)
    assert await works.gate(run="run-2") == {"placed": {"total": 7}}


async def test_its_answer_again_behind_a_pause_is_refused(works: Works) -> None:
    async def pause() -> None:
        raise Paused({})

    with pytest.raises(Paused):
        await works.gate(YES, body=pause)
    with pytest.raises(ApprovalAlreadyDecided):
        await works.gate(YES, run="run-2")
    assert works.ran == [None]


@pytest.mark.parametrize("error", [CallInProgress, CallInDoubt, ApprovalPending])
async def test_a_call_inside_that_waits_is_no_failure(works: Works, error: Any) -> None:
    async def wait() -> None:
        raise error("later")

    with pytest.raises(error):
        await works.gate(YES, body=wait)
    assert await works.gate(run="run-2") == {"placed": None}


async def test_work_that_failed_does_not_run_again(works: Works) -> None:
    async def fail() -> None:
        raise RuntimeError("stumbled over secret-1")

    with pytest.raises(RuntimeError, match="stumbled"):
        await works.gate(YES, body=fail)
    with pytest.raises(ApprovalAlreadyDecided, match="failed"):
        await works.gate(run="run-2")
    assert works.ran == [None]
    outcome = works.executor.journal.outcome(await works.row())
    assert outcome == {"error": {"kind": "ToolFailed", "message": "place failed: RuntimeError."}}


async def test_a_result_that_is_no_json_is_refused_and_the_grant_spent(works: Works) -> None:
    async def odd() -> Any:
        return {"when": object()}

    with pytest.raises(ToolUsageError, match="JSON"):
        await works.gate(YES, body=odd)
    with pytest.raises(ApprovalAlreadyDecided):
        await works.gate(run="run-2")


async def test_cancelled_work_goes_on_in_the_next_run(works: Works) -> None:
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.ensure_future(works.gate(YES, body=hang))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await works.row()).status is CallStatus.SUSPENDED
    assert await works.gate(run="run-2") == {"placed": None}


async def test_killed_work_is_taken_over_when_its_lease_ran_out(works: Works) -> None:
    started, never = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        started.set()
        await never.wait()

    running = asyncio.ensure_future(works.gate(EDIT, body=hang))
    await started.wait()
    with pytest.raises(CallInProgress):
        await works.gate(run="run-2")
    works.clock.advance(31)
    assert await works.gate(run="run-2") == {"placed": {"total": 7}}
    never.set()
    await running
    assert works.executor.journal.outcome(await works.row()) == {"result": {"placed": {"total": 7}}}


async def test_two_at_once_run_it_once(works: Works) -> None:
    other = works.process(works.port)
    async with asyncio.TaskGroup() as group:
        both = [
            group.create_task(_outcome(works.gate(YES, run="run-1"))),
            group.create_task(_outcome(works.gate(YES, run="run-2", executor=other))),
        ]
    assert len(works.ran) == 1
    refused = [got for task in both if isinstance(got := task.result(), Exception)]
    assert len(refused) <= 1
    assert all(isinstance(one, CallInProgress | ApprovalAlreadyDecided) for one in refused)


async def _outcome(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error


async def test_a_deferred_port_is_answered_in_the_store(works: Works) -> None:
    port = DeferredApproval(works.store, works.keys, clock=works.clock)
    executor = works.process(port)
    with pytest.raises(ApprovalPending) as pending:
        await works.gate(executor=executor)
    (row,) = await port.pending("thread-1")
    assert pending.value.key == row.key
    assert pending.value.value is not None
    assert pending.value.value["request"]["kind"] == "gate"
    await port.record(row, EDIT)
    assert await works.gate(executor=executor, run="run-2") == {"placed": {"total": 7}}
    assert await works.gate(executor=executor, run="run-3") == {"placed": {"total": 7}}
    assert works.ran == [{"total": 7}]


async def test_a_graph_that_cannot_pause_is_told_so(works: Works) -> None:
    ctx = make_context(durable=False)

    async def never(_edited: Any) -> None:
        works.ran.append("ran")

    with pytest.raises(ConfigurationError, match="checkpointer"):
        await works.executor.gate(GATE, ctx, never)
    assert works.ran == []


async def test_a_gate_needs_a_port(works: Works) -> None:
    executor = works.process(None)
    ctx: CallContext = make_context()

    async def never(_edited: Any) -> None:
        works.ran.append("ran")

    with pytest.raises(ConfigurationError, match="approval port"):
        await executor.gate(GATE, ctx, never)
    assert works.ran == []


async def test_a_pause_whose_record_is_lost_is_a_pause_all_the_same(works: Works) -> None:
    async def pause() -> None:
        works.store.settle = failing  # type: ignore[assignment,method-assign]
        raise Paused({})

    async def failing(_settle: Any) -> bool:
        del works.store.settle
        raise StoreUnavailable("the store is down")

    with pytest.raises(Paused):
        await works.gate(YES, body=pause)
    with pytest.raises(CallInProgress):
        await works.gate(run="run-2")
    works.clock.advance(31)
    assert await works.gate(run="run-2") == {"placed": None}


async def test_nobody_says_from_outside_what_a_gated_node_came_to(works: Works) -> None:
    started, never = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        started.set()
        await never.wait()

    running = asyncio.ensure_future(works.gate(YES, body=hang))
    await started.wait()
    works.clock.advance(31)
    operator = Operator(journal=works.executor.journal, keys=works.keys)
    (row,) = await works.store.unsettled()
    resolution = Resolution(verdict="succeeded", by="uma", outcome={"result": {"n": 1}})
    statement = operator.statement(row, resolution)
    signature = sign_statement(works.keys, statement)
    with pytest.raises(ToolUsageError, match="behind its gate"):
        await operator.resolve(row, resolution, statement, signature)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await works.gate(run="run-2") == {"placed": None}


async def test_an_answer_without_a_decision_opens_nothing(works: Works) -> None:
    async def undecided(_question: Any, _refused: Any) -> Answer:
        return Answer(digest="0" * 64)

    decide, works.port.decide = works.port.decide, undecided  # type: ignore[method-assign, assignment]
    with pytest.raises(ConfigurationError, match="without a decision"):
        await works.gate()
    assert works.ran == []
    works.port.decide = decide  # type: ignore[method-assign]
    assert await works.gate(YES, run="run-2") == {"placed": None}


async def _overtaken(works: Works, quicker: ApprovalDecision) -> Any:
    """Refuse at a gate while another process's reviewer is just quicker."""
    port = ScriptedPort(works.keys, clock=works.clock, reviewer="olga")
    other, decide = works.process(port), works.port.decide

    async def slow(question: Any, refused: Any) -> Answer:
        answer = await decide(question, refused)
        port.resume(quicker)
        await _outcome(other.gate(GATE, make_context(run_id="run-2"), behind))
        return answer

    async def behind(edited: JsonObject | None) -> Any:
        works.ran.append(edited)
        return {"placed": "by the other"}

    works.port.decide = slow  # type: ignore[method-assign]
    return await _outcome(works.gate(NO))


async def test_a_refusal_after_anothers_approval_changes_nothing(works: Works) -> None:
    assert await _overtaken(works, YES) == {"placed": "by the other"}
    assert works.ran == [None]
    assert (await works.row()).status is CallStatus.SUCCEEDED
    assert (await works.row()).decision["reviewer"] == "olga"


async def test_of_two_refusals_the_first_one_stands(works: Works) -> None:
    late = await _overtaken(works, ApprovalDecision(approved=False, reason="sold out"))
    assert isinstance(late, ApprovalDenied)
    assert "sold out" in late.message
    assert works.ran == []
    assert (await works.kinds()).count("decided") == 1


@dataclass
class Held:
    """Holds the next claim of a store until it is let go."""

    works: Works
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        store: Any = self.works.store
        claim = store.claim

        async def held(given: Any) -> Any:
            store.claim = claim
            self.reached.set()
            await self.go.wait()
            return await claim(given)

        store.claim = held

    async def cancel(self, running: asyncio.Future[Any]) -> None:
        """Cancel a run whose claim is on its way."""
        await self.reached.wait()
        running.cancel()
        await asyncio.sleep(0)
        self.go.set()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_cancelled_on_the_way_through_its_gate_it_goes_on_in_the_next_run(
    works: Works,
) -> None:
    held = Held(works)
    await held.cancel(asyncio.ensure_future(works.gate(EDIT)))
    assert works.ran == []
    assert (await works.row()).status is CallStatus.SUSPENDED
    assert await works.gate(run="run-2") == {"placed": {"total": 7}}
    assert len(works.port.questions) == 1


async def test_cancelled_at_a_gate_that_is_shut_meanwhile_it_stays_shut(works: Works) -> None:
    held = Held(works)
    running = asyncio.ensure_future(works.gate(YES))
    await held.reached.wait()
    works.clock.advance(61)
    await held.cancel(running)
    assert (await works.row()).status is CallStatus.EXPIRED
    with pytest.raises(ApprovalExpired):
        await works.gate(run="run-2")
    assert works.ran == []


async def test_an_answer_whose_question_runs_out_before_the_claim_comes_too_late(
    works: Works,
) -> None:
    held = Held(works)
    running = asyncio.ensure_future(works.gate(YES))
    await held.reached.wait()
    works.clock.advance(61)
    held.go.set()
    with pytest.raises(ApprovalExpired):
        await running
    assert works.ran == []
    assert (await works.kinds()).count("expired") == 1
