"""A gated call: asked, answered, claimed once, run once, and never again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.kit import (
    ALL,
    CARD,
    GATED_PUT,
    NO,
    PAY,
    SEND,
    WRITE,
    YES,
    events,
    flaky,
    kinds,
    row_of,
    tool,
    unrecorded,
    used,
)

from adapter.core.answers import Refusal
from adapter.core.budgets import Budgets
from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import (
    AdapterError,
    ApprovalAlreadyDecided,
    ApprovalDenied,
    ApprovalExpired,
    BudgetExceeded,
    CallInDoubt,
    CallInProgress,
    ConfigurationError,
    InvalidAnswer,
    PolicyDenied,
    StoreUnavailable,
    ToolError,
)
from adapter.core.executor import Executor
from adapter.core.keys import KeyRing
from adapter.core.policy import Policy
from adapter.core.rules import ApprovalRule, Condition
from adapter.core.types import CallStatus, current_context
from adapter.testing import Paused, Wired, make_call, make_context, wired

pytestmark = pytest.mark.anyio

CALL = make_call("send", to="bob", amount=5)
ARGUMENTS = {"to": "bob", "amount": 5, "card": None}
FIRST, SECOND = make_context(), make_context(run_id="run-2")


async def asked(kit: Wired, call: Any = CALL) -> Paused:
    with pytest.raises(Paused) as caught:
        await kit.run(call)
    return caught.value


def revoked(keys: KeyRing, purpose: str = "decision") -> KeyRing:
    return KeyRing(
        replace(key, revoked_at=1) if key.purpose == purpose else key for key in keys.keys
    )


async def test_without_an_answer_nothing_runs() -> None:
    async with wired(SEND) as kit:
        paused = await asked(kit)
        assert kit.runs == []
        assert (await row_of(kit)).status is CallStatus.REQUESTED
        assert paused.value["request"]["arguments"] == ARGUMENTS


async def test_an_approved_call_runs_once_with_what_was_signed() -> None:
    async with wired(SEND) as kit:
        await asked(kit)
        assert await kit.run(CALL, SECOND, YES) == {"ran": ARGUMENTS}
        assert kit.runs == [("call-1", ARGUMENTS)]
        assert await kinds(kit) == ["requested", "decided", "started", "succeeded"]


async def test_an_edited_call_runs_as_edited() -> None:
    async with wired(SEND) as kit:
        edit = ApprovalDecision(edited_args={"to": "ann", "amount": 1})
        assert await kit.run(CALL, FIRST, edit) == {"ran": {"to": "ann", "amount": 1, "card": None}}


async def test_the_tool_knows_its_call() -> None:
    async with wired(SEND) as kit:
        seen: list[Any] = []
        await kit.run(CALL, FIRST, YES, body=lambda _: seen.append(current_context()))
        assert seen[0].call_id == "call-1"
        assert seen[0].idempotency_key == (await row_of(kit)).idempotency_key


async def test_every_run_asks_the_same_question() -> None:
    async with wired(SEND) as kit:
        first = await asked(kit)
        kit.clock.advance(60)
        again = await asked(kit.restarted())
        assert again.value == first.value


async def test_a_rejected_call_is_denied_with_the_reason_and_costs_nothing() -> None:
    async with wired(SEND) as kit:
        with pytest.raises(ApprovalDenied, match="Reason: too much"):
            await kit.run(CALL, FIRST, NO)
        assert kit.runs == []
        assert await used(kit) == 0
        assert await kinds(kit) == ["requested", "decided"]


async def test_a_rejection_may_have_no_reason() -> None:
    async with wired(SEND) as kit:
        with pytest.raises(ApprovalDenied, match=r"do not retry it\.$"):
            await kit.run(CALL, FIRST, ApprovalDecision(approved=False))


async def test_a_reviewer_may_answer_instead_of_the_tool() -> None:
    async with wired(SEND) as kit:
        response = ApprovalDecision(response="done by phone")
        assert await kit.run(CALL, FIRST, response) == "done by phone"
        assert await kit.run(CALL, SECOND) == "done by phone"
        assert kit.runs == []


@pytest.mark.parametrize(
    "bad", [{"approved": True}, "yes", None, [YES.to_json(decided_at=1, reviewer="x")]]
)
async def test_a_bad_answer_costs_nothing_and_the_question_stays_open(bad: Any) -> None:
    async with wired(SEND) as kit:
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, FIRST, bad)
        assert kit.runs == []
        assert "answer_refused" in await kinds(kit)
        await kit.run(CALL, SECOND, YES)
        assert len(kit.runs) == 1


async def test_an_answer_to_another_call_is_refused() -> None:
    async with wired(SEND) as kit:
        other = await asked(kit, make_call("send", id="call-2", to="eve", message_id="m2"))
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, FIRST, kit.port.resume_value(other, YES))
        assert kit.runs == []


async def test_an_answer_of_another_thread_is_refused() -> None:
    async with wired(SEND) as kit:
        value = kit.port.resume_value(await asked(kit), YES)
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, make_context("copy"), value)
        assert kit.runs == []


async def test_refused_answers_past_twenty_a_minute_are_merged_in_the_audit() -> None:
    async with wired(SEND) as kit:
        for number in range(25):
            with pytest.raises(InvalidAnswer):
                await kit.run(CALL, FIRST, {"bad": number})
        found = await kinds(kit)
        assert found.count("answer_refused") == 20
        assert found.count("answers_refused_merged") == 1
        kit.clock.advance(60)
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, FIRST, {"bad": "later"})
        assert (await kinds(kit)).count("answer_refused") == 21


async def test_an_unaddressed_answer_is_audited_once_however_often_it_is_delivered() -> None:
    async with wired(SEND) as kit:
        await asked(kit)
        confirmer = kit.executor._stages.confirmer
        assert confirmer is not None
        bare = Refusal(code="invalid_answer", message="no", digest="d" * 64, delivery="bare")
        for ctx in (FIRST, SECOND):
            work = await kit.executor._stages.admitter.work(CALL, ctx, kit.invocation(CALL), None)
            await confirmer.asker._refused(work, bare)
        assert (await kinds(kit)).count("answer_refused") == 1


async def test_a_second_answer_to_a_settled_call_is_already_decided() -> None:
    async with wired(SEND) as kit:
        value = kit.port.resume_value(await asked(kit), YES)
        await kit.run(CALL, FIRST, value)
        with pytest.raises(ApprovalAlreadyDecided):
            await kit.run(CALL, SECOND, value)
        assert len(kit.runs) == 1
        refused = (await events(kit))[-1]
        assert (refused["kind"], refused["data"]["code"]) == ("refused", "already_decided")


async def test_a_run_without_input_gets_the_recorded_outcome() -> None:
    async with wired(SEND) as kit:
        await kit.run(CALL, FIRST, YES)
        assert await kit.restarted().run(CALL, SECOND) == {"ran": ARGUMENTS}
        assert len(kit.runs) == 1
        assert (await kinds(kit))[-1] == "replayed"


async def test_the_claiming_run_itself_gets_the_recorded_outcome() -> None:
    async with wired(SEND) as kit:
        await kit.run(CALL, FIRST, YES)
        assert await kit.run(CALL, FIRST, YES) == {"ran": ARGUMENTS}
        assert len(kit.runs) == 1


async def test_a_recorded_rejection_comes_back() -> None:
    async with wired(SEND) as kit:
        with pytest.raises(ApprovalDenied):
            await kit.run(CALL, FIRST, NO)
        with pytest.raises(ApprovalDenied, match="too much"):
            await kit.run(CALL, SECOND)
        assert "replayed" in await kinds(kit)


async def test_two_concurrent_answers_run_the_tool_once() -> None:
    async with wired(SEND) as kit:
        value = kit.port.resume_value(await asked(kit), YES)
        kit.port.resume(value, value)
        results = await asyncio.gather(
            *(
                one.executor.run(CALL, make_context(run_id=f"r{n}"), kit.invocation(CALL))
                for n, one in enumerate([kit, kit.restarted()])
            ),
            return_exceptions=True,
        )
        assert len(kit.runs) == 1
        assert sum(isinstance(one, AdapterError) for one in results) <= 1


async def test_a_live_claim_of_another_worker_is_in_progress() -> None:
    async with wired(SEND) as kit:
        go, started = asyncio.Event(), asyncio.Event()

        async def body(_: Any) -> str:
            started.set()
            await go.wait()
            return "done"

        kit.port.resume(YES)
        running = asyncio.ensure_future(
            kit.executor.run(CALL, FIRST, kit.invocation(CALL, body=body))
        )
        await started.wait()
        with pytest.raises(CallInProgress):
            await kit.restarted().run(CALL, SECOND)
        go.set()
        assert await running == "done"
        assert len(kit.runs) == 1


async def test_two_decisions_at_once_have_one_effect() -> None:
    async with wired(SEND) as kit:
        await asked(kit)
        kit.port.resume(NO)

        async def hold(question: Any) -> None:
            other = kit.restarted()
            other.port.resume(YES)
            await other.executor.run(CALL, SECOND, kit.invocation(CALL))

        decide = kit.port.decide

        async def late(question: Any, refused: Any) -> Any:
            kit.port.decide = decide  # type: ignore[method-assign]
            answer = await decide(question, refused)
            kit.port._saved.clear()
            await hold(question)
            return answer

        kit.port.decide = late  # type: ignore[method-assign]
        assert await kit.executor.run(CALL, FIRST, kit.invocation(CALL)) == {"ran": ARGUMENTS}
        assert len(kit.runs) == 1


async def test_a_request_nobody_answered_expires_at_its_millisecond() -> None:
    async with wired(SEND, approval_ttl=60.0) as kit:
        await asked(kit)
        kit.clock.advance(59.999)
        await asked(kit)
        kit.clock.advance(0.001)
        with pytest.raises(ApprovalExpired):
            await kit.run(CALL, SECOND, YES)
        assert kit.runs == []
        assert (await row_of(kit)).status is CallStatus.EXPIRED
        assert (await kinds(kit))[-1] == "expired"


async def test_an_expired_request_stays_expired() -> None:
    async with wired(SEND, approval_ttl=60.0) as kit:
        await asked(kit)
        kit.clock.advance(60)
        for run in ("run-2", "run-3"):
            with pytest.raises(ApprovalExpired):
                await kit.run(CALL, make_context(run_id=run))
        assert (await kinds(kit)).count("expired") == 1


async def test_an_answer_is_too_late_when_the_claim_is() -> None:
    slow = [lambda *_: _advance()]

    async def _advance() -> None:
        kit.clock.advance(60)

    async with wired(SEND, approval_ttl=60.0, before_tool=slow) as kit:
        with pytest.raises(ApprovalExpired):
            await kit.run(CALL, FIRST, YES)
        assert kit.runs == []
        assert "expired" in await kinds(kit)
        with pytest.raises(ApprovalExpired):
            await kit.run(CALL, SECOND)


async def test_a_rule_has_its_own_time() -> None:
    short = tool("send", approval=ApprovalRule(name="r", ttl=1.0))
    async with wired(short) as kit:
        paused = await asked(kit)
        assert paused.value["request"]["expires_at"] == "2027-01-15T08:00:01.000Z"


async def test_a_saved_answer_survives_a_store_that_fails_before_the_claim() -> None:
    kit, store = flaky(SEND)
    async with kit:
        await asked(kit)
        store.failures["claim"] = 1
        with pytest.raises(StoreUnavailable):
            await kit.run(CALL, FIRST, YES)
        assert kit.runs == []
        assert await kit.run(CALL, SECOND) == {"ran": ARGUMENTS}
        assert len(kit.runs) == 1


async def test_a_store_that_is_down_fails_closed() -> None:
    kit, store = flaky(SEND)
    async with kit:
        store.failures["open"] = 1
        with pytest.raises(StoreUnavailable):
            await kit.run(CALL, FIRST, YES)
        assert kit.runs == []


async def test_a_hook_that_fails_keeps_the_answer() -> None:
    faults = [OSError("no")]

    async def hook(*_: Any) -> None:
        if faults:
            raise faults.pop()

    async with wired(SEND, before_tool=[hook]) as kit:
        with pytest.raises(OSError, match="no"):
            await kit.run(CALL, FIRST, YES)
        assert kit.runs == []
        assert await kit.run(CALL, SECOND) == {"ran": ARGUMENTS}


async def test_hooks_see_the_call_before_and_after() -> None:
    seen: list[str] = []

    async def before(call: Any, ctx: Any) -> None:
        seen.append(f"before {call.id} {len(kit.runs)}")

    async def after(call: Any, ctx: Any) -> None:
        seen.append(f"after {call.id} {len(kit.runs)}")

    async with wired(SEND, before_tool=[before], after_tool=[after]) as kit:
        await kit.run(CALL, FIRST, YES)
    assert seen == ["before call-1 0", "after call-1 1"]


async def test_a_revoked_key_answers_nothing() -> None:
    async with wired(SEND) as kit:
        value = kit.port.resume_value(await asked(kit), YES)
        kit.port.keys = revoked(kit.port.keys)
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, FIRST, value)
        assert kit.runs == []


async def test_a_saved_answer_whose_key_was_revoked_before_the_claim_is_void() -> None:
    kit, store = flaky(SEND)
    async with kit:
        store.failures["claim"] = 1
        with pytest.raises(StoreUnavailable):
            await kit.run(CALL, FIRST, YES)
        kit.port.keys = revoked(kit.port.keys)
        with pytest.raises(Paused):
            await kit.run(CALL, SECOND)
        assert kit.runs == []


async def test_nobody_is_asked_about_a_call_a_budget_refuses() -> None:
    async with wired(SEND, budgets=Budgets(tool_calls_per_turn=1)) as kit:
        await kit.run(CALL, FIRST, YES)
        with pytest.raises(BudgetExceeded):
            await kit.run(make_call("send", id="c2", to="b", message_id="m2"), FIRST)
        assert len(kit.port.questions) == 1
        refused = (await events(kit))[-1]
        assert (refused["kind"], refused["data"]["code"]) == ("refused", "budget_exceeded")


async def test_a_budget_spent_while_a_person_thought_closes_the_question() -> None:
    async with wired(*ALL, budgets=Budgets(tool_calls_per_turn=1)) as kit:
        await asked(kit)
        await kit.run(make_call("write", id="c2", to="b", message_id="m2"))
        for answers in ([YES], []):
            with pytest.raises(BudgetExceeded):
                await kit.run(CALL, SECOND, *answers)
        assert [call_id for call_id, _ in kit.runs] == ["c2"]
        assert (await row_of(kit)).status is CallStatus.VOID


async def test_what_the_policy_denies_is_never_asked() -> None:
    async with wired(SEND, policy=Policy(deny={"send": "frozen"})) as kit:
        with pytest.raises(PolicyDenied, match="frozen"):
            await kit.run(CALL, FIRST, YES)
        assert kit.port.questions == []
        assert await kinds(kit) == ["refused"]
        assert await used(kit) == 0


async def test_an_outcome_survives_a_policy_that_came_later() -> None:
    async with wired(SEND) as kit:
        await kit.run(CALL, FIRST, YES)
        later = kit.restarted(policy=Policy(deny={"send": "frozen"}))
        assert await later.run(CALL, SECOND) == {"ran": ARGUMENTS}


async def test_an_edit_past_a_policy_condition_is_refused() -> None:
    edit = ApprovalDecision(edited_args={"to": "bob", "amount": "many"})
    async with wired(SEND) as kit:
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, FIRST, edit)
        assert kit.runs == []


async def test_an_argument_below_the_condition_needs_nobody() -> None:
    when = Condition(argument="amount", op="gt", value=100)
    async with wired(tool("send", approval=ApprovalRule(name="large", when=when))) as kit:
        await kit.run(CALL)
        assert len(kit.runs) == 1
        assert kit.port.questions == []


async def test_a_changed_policy_asks_again_under_another_binding() -> None:
    async with wired(SEND) as kit:
        first = await asked(kit)
        stricter = tool("send", approval=ApprovalRule(name="money", reason="new"))
        later = wired(stricter, store=kit.store, clock=kit.clock, keys=kit.port.keys)
        second = await asked(later)
        assert second.value["binding"] != first.value["binding"]
        assert "policy_changed" in await kinds(kit)
        with pytest.raises(InvalidAnswer):
            await later.run(CALL, SECOND, kit.port.resume_value(first, YES))
        assert later.runs == []


async def test_a_changed_schema_asks_again() -> None:
    async with wired(SEND) as kit:
        first = await asked(kit)
        schema = type(SEND[1])(SEND[1]._model, SEND[1].json_schema | {"title": "New"})
        later = wired((SEND[0], schema), store=kit.store, clock=kit.clock, keys=kit.port.keys)
        assert (await asked(later)).value["binding"] != first.value["binding"]
        found = await kinds(kit)
        assert "schema_changed" in found
        assert "policy_changed" not in found


async def test_a_masked_argument_reaches_the_tool_and_nobody_else() -> None:
    call = make_call("pay", to="bob", card=CARD)
    async with wired(PAY) as kit:
        paused = await asked(kit, call)
        assert CARD not in repr(paused.value)
        await kit.run(call, SECOND, ApprovalDecision(edited_args={"to": "ann"}))
        assert kit.runs == [("call-1", {"to": "ann", "amount": 1, "card": CARD})]
        assert CARD not in repr(await events(kit))
        assert CARD not in repr((await row_of(kit)).request)


async def test_a_place_that_cannot_pause_cannot_ask() -> None:
    async with wired(SEND) as kit:
        with pytest.raises(ConfigurationError, match="checkpointer"):
            await kit.run(CALL, make_context(durable=False), YES)
        assert kit.runs == []


async def test_a_gated_tool_needs_a_port() -> None:
    async with wired(SEND) as kit:
        with pytest.raises(ConfigurationError, match="send"):
            Executor(kit.registry, store=kit.store)


async def test_a_budget_that_asks_for_raises_needs_a_port() -> None:
    budgets = Budgets(on_exceeded="ask")
    async with wired(WRITE, budgets=budgets) as kit:
        assert kit.executor.raises is not None
        with pytest.raises(ConfigurationError, match="needs an approval port"):
            Executor(kit.registry, store=kit.store, budgets=budgets)


async def test_an_executor_that_lost_its_port_fails_closed() -> None:
    async with wired(SEND) as kit:
        kit.executor.port = None
        with pytest.raises(ConfigurationError, match="no approval port"):
            await kit.run(CALL)
        assert kit.runs == []


async def test_a_port_needs_keys() -> None:
    async with wired(SEND) as kit:
        kit.port.keys = KeyRing([])
        with pytest.raises(ConfigurationError, match="'seal'"):
            kit.restarted()


async def test_a_configured_audience_is_bound() -> None:
    here = wired(SEND, audience="here")
    store = here.store
    there = wired(SEND, store=store, audience="there", keys=here.port.keys, clock=here.clock)
    async with here:
        assert (await asked(here)).value["binding"] != (await asked(there)).value["binding"]


async def test_a_tool_that_pauses_itself_goes_on_under_its_approval() -> None:
    async with wired(SEND) as kit:

        def body(_: Any) -> str:
            if len(kit.runs) == 1:
                raise Paused({})
            return "done"

        with pytest.raises(Paused):
            await kit.run(CALL, FIRST, YES, body=body)
        assert (await row_of(kit)).status is CallStatus.SUSPENDED
        assert await kit.run(CALL, SECOND, body=body) == "done"
        assert await used(kit) == 1


async def test_a_suspended_call_takes_no_second_answer() -> None:
    async with wired(SEND) as kit:

        def body(_: Any) -> str:
            raise Paused({})

        with pytest.raises(Paused):
            await kit.run(CALL, FIRST, YES, body=body)
        with pytest.raises(ApprovalAlreadyDecided):
            await kit.run(CALL, SECOND, YES, body=body)
        assert len(kit.runs) == 1


async def test_a_lost_claim_of_a_repeatable_tool_is_taken_over_with_its_arguments() -> None:
    call = make_call("gated_put", to="bob", card=CARD)
    kit, store = flaky(tool("gated_put", gated=True, effects=GATED_PUT[0].effects, masks=("card",)))
    edit = ApprovalDecision(edited_args={"to": "ann", "amount": 1})
    async with kit:
        await unrecorded(kit, store, call, FIRST, edit)
        result = await kit.restarted().run(call, SECOND)
        assert result == {"ran": {"to": "ann", "amount": 1, "card": CARD}}
        assert len(kit.runs) == 2
        assert (await row_of(kit)).fence == 2


async def test_an_unedited_lost_claim_is_taken_over_with_the_models_arguments() -> None:
    call = make_call("gated_put", to="bob")
    kit, store = flaky(GATED_PUT)
    async with kit:
        await unrecorded(kit, store, call, FIRST, YES)
        result = await kit.run(call, SECOND)
        assert result["ran"]["to"] == "bob"


async def test_a_lost_claim_of_another_tool_is_in_doubt_for_ever() -> None:
    kit, store = flaky(SEND)
    async with kit:
        await unrecorded(kit, store, CALL, FIRST, YES)
        for run in ("run-2", "run-3"):
            with pytest.raises(CallInDoubt):
                await kit.run(CALL, make_context(run_id=run))
        assert len(kit.runs) == 1


async def test_a_row_that_vanished_is_a_store_that_failed() -> None:
    async with wired(SEND) as kit:
        work = await kit.executor._stages.admitter.work(CALL, FIRST, kit.invocation(CALL), None)
        with pytest.raises(StoreUnavailable, match="lost the row"):
            await kit.executor._stages.past.earlier(work, None)


async def test_what_a_tool_says_to_the_model_comes_back_on_replay() -> None:
    def body(_: Any) -> None:
        raise ToolError("no such account")

    async with wired(SEND) as kit:
        for answers in ([YES], []):
            with pytest.raises(ToolError, match=r"^no such account$"):
                await kit.run(CALL, SECOND, *answers, body=body)
        assert len(kit.runs) == 1
