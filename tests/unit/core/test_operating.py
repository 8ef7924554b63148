"""What a person says about a call in doubt: found, signed, verified, recorded once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from tests.unit.core.kit import (
    CARD,
    GATED_PUT,
    PAY,
    PUT,
    SEND,
    WRITE,
    YES,
    events,
    flaky,
    kinds,
    row_of,
    tool,
)

from adapter.core.algorithms import Key
from adapter.core.budgets import Budgets
from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    CallInDoubt,
    CallInProgress,
    ConfigurationError,
    InvalidAnswer,
    StoreUnavailable,
    ToolError,
    ToolUsageError,
)
from adapter.core.keys import KeyRing
from adapter.core.operating import Operator, Resolution, sign_statement
from adapter.core.rules import ApprovalRule
from adapter.core.store import CallRow, Claim
from adapter.testing import Paused, Wired, make_call, make_context, wired

pytestmark = pytest.mark.anyio

CALL = make_call("send", to="bob", amount=5)
FREE = make_call("write", id="call-2", to="bob")
BIG = tool("big", approval=ApprovalRule(name="large", reason="much", quorum=2, roles=("finance",)))
DONE: dict[str, Any] = {"result": {"sent": 5}}
LATER = make_context(run_id="run-9")


@contextmanager
def losing(kit: Wired, lease: float = 0.0) -> Iterator[None]:
    """Lose the worker of the call that is made: it has claimed, and is gone."""
    claim, store = kit.store.claim, cast("Any", kit.store)

    async def lost(given: Claim) -> Any:
        await claim(replace(given, lease=lease))
        raise StoreUnavailable("the worker is gone")

    store.claim = lost
    with pytest.raises(StoreUnavailable, match="the worker is gone"):
        yield
    store.claim = claim


@dataclass
class Desk:
    """A wired executor and its operator."""

    kit: Wired
    operator: Operator

    async def doubt(self, call: Any = CALL, *, lease: float = 0.0, **ctx: Any) -> CallRow:
        """Start a call and lose the worker: the claim stays, its lease runs out."""
        gated = call.name not in ("write", "put")
        if gated:
            with pytest.raises(Paused):
                await self.kit.run(call, make_context(**ctx))
        with losing(self.kit, lease):
            await self.kit.run(call, make_context(**ctx), *([YES] if gated else []))
        return await row_of(self.kit)

    async def doubt_many(self, n: int) -> None:
        """Lose the worker of one more call of the same message."""
        with losing(self.kit):
            await self.kit.run(replace(FREE, id=f"free-{n}"), make_context(turn_id=f"turn-{n}"))

    async def say(self, row: CallRow, resolution: Resolution, keys: KeyRing | None = None) -> Any:
        statement = self.operator.statement(row, resolution)
        signature = sign_statement(keys or self.operator.keys, statement)
        return await self.operator.resolve(row, resolution, statement, signature)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with wired(SEND, PAY, WRITE, PUT, GATED_PUT, BIG) as kit:
        yield Desk(kit, Operator(journal=kit.executor.journal, keys=kit.port.keys))


def said(verdict: Any = "succeeded", by: str = "olga", outcome: Any = None) -> Resolution:
    return Resolution(verdict=verdict, by=by, outcome=DONE if verdict == "succeeded" else outcome)


# --------------------------------------------------------------------------------- finding


async def test_a_call_in_doubt_is_found_by_the_beginning_of_its_key(desk: Desk) -> None:
    row = await desk.doubt()
    assert (await desk.operator.find(row.key[:8])).key == row.key
    assert [one.key for one in await desk.operator.doubtful()] == [row.key]


async def test_a_beginning_of_two_keys_is_refused(desk: Desk) -> None:
    await desk.doubt()
    await desk.doubt(replace(FREE, message_id="message-2"))
    with pytest.raises(ToolUsageError, match="2 calls"):
        await desk.operator.find("")


async def test_an_unknown_key_is_refused(desk: Desk) -> None:
    with pytest.raises(ToolUsageError, match="No call in doubt"):
        await desk.operator.find("abc")


async def test_a_running_call_is_not_found(desk: Desk) -> None:
    row = await desk.doubt(lease=60)
    with pytest.raises(CallInProgress, match="lease"):
        await desk.operator.find(row.key)
    desk.kit.clock.advance(60)
    assert await desk.operator.find(row.key)


async def test_a_settled_call_is_not_found(desk: Desk) -> None:
    await desk.kit.run(FREE)
    row = await row_of(desk.kit)
    with pytest.raises(ApprovalAlreadyDecided, match="succeeded"):
        await desk.operator.find(row.key)


async def test_arguments_are_shown_masked_as_requested_or_as_audited(desk: Desk) -> None:
    row = await desk.doubt(make_call("pay", to="bob", card=CARD))
    assert (await desk.operator.arguments(row) or {})["card"] == "***"
    free = await desk.doubt(replace(FREE, message_id="message-2"))
    free = next(one for one in await desk.operator.doubtful() if one.tool == "write")
    assert (await desk.operator.arguments(free) or {})["to"] == "bob"
    unknown = replace(free, key="f" * 64)
    assert await desk.operator.arguments(unknown) is None


# ------------------------------------------------------------------------------- resolving


async def test_a_success_is_what_the_next_run_gets(desk: Desk) -> None:
    row = await desk.doubt()
    done = await desk.say(row, said())
    assert done.status == "succeeded"
    assert "sent" not in str(done.outcome)  # sealed
    assert await desk.kit.run(CALL, LATER) == {"sent": 5}
    assert desk.kit.runs == []


async def test_a_failure_is_what_the_model_reads(desk: Desk) -> None:
    row = await desk.doubt()
    await desk.say(row, Resolution.failed("the bank never got it", by="olga"))
    with pytest.raises(ToolError, match="the bank never got it"):
        await desk.kit.run(CALL, LATER)
    assert desk.kit.runs == []


async def test_a_retry_runs_once_more_and_then_never_again(desk: Desk) -> None:
    row = await desk.doubt()
    assert (await desk.say(row, said("retry"))).status == "approved"
    await desk.kit.run(CALL, LATER)
    assert len(desk.kit.runs) == 1
    await desk.kit.run(CALL, make_context(run_id="run-10"))
    assert len(desk.kit.runs) == 1


async def test_an_ungated_call_needs_no_signature(desk: Desk) -> None:
    row = await desk.doubt(FREE)
    await desk.operator.resolve(row, said("retry"))
    await desk.kit.run(FREE, LATER)
    assert len(desk.kit.runs) == 1


async def test_the_event_keeps_who_what_and_a_signature_that_verifies(desk: Desk) -> None:
    from adapter.core.canonical import canonical_bytes

    row = await desk.doubt()
    await desk.say(row, Resolution.failed("no such account", by="olga"))
    (event,) = [one for one in await events(desk.kit) if one["kind"] == "resolved"]
    data = event["data"]
    assert (data["by"], data["verdict"], data["before"]) == ("olga", "failed", "claimed")
    assert data["reason"] == "no such account"
    assert data["statement"]["fence"] == row.fence
    message = canonical_bytes(data["statement"])
    assert desk.operator.keys.verify("decision", message, data["signature"])


async def test_a_gated_call_is_not_resolved_without_a_signature(desk: Desk) -> None:
    row = await desk.doubt()
    with pytest.raises(InvalidAnswer, match="signature"):
        await desk.operator.resolve(row, said())
    assert (await row_of(desk.kit)).status == "claimed"
    assert "resolved" not in await kinds(desk.kit)


@pytest.mark.parametrize("change", ["outcome", "verdict", "by", "call", "claim", "key", "mac"])
async def test_a_signature_counts_for_exactly_what_was_signed(desk: Desk, change: str) -> None:
    row = await desk.doubt()
    resolution = said()
    statement = desk.operator.statement(row, resolution)
    keys = KeyRing.random() if change == "key" else desk.operator.keys
    signature = sign_statement(keys, statement)
    if change == "outcome":
        resolution = replace(resolution, outcome={"result": {"sent": 6}})
    elif change == "verdict":
        resolution = said("retry")
    elif change == "by":
        resolution = said(by="otto")
    elif change == "call":
        row = replace(row, key="f" * 64)
    elif change == "claim":
        row = replace(row, fence=row.fence + 1)
    elif change == "mac":
        signature["mac"] = "0" * 64
    with pytest.raises(InvalidAnswer):
        await desk.operator.resolve(row, resolution, statement, signature)
    assert (await row_of(desk.kit)).status == "claimed"


async def test_an_approval_is_no_statement_about_the_call(desk: Desk) -> None:
    row = await desk.doubt()
    statement = desk.operator.statement(row, said())
    value = desk.kit.port.resume_value(desk.kit.port.questions[0], YES)
    signature = {name: value[name] for name in ("kid", "alg", "mac")}
    with pytest.raises(InvalidAnswer):
        await desk.operator.resolve(row, said(), statement, signature)


async def test_nobody_signs_in_anothers_name(desk: Desk) -> None:
    row = await desk.doubt()
    own = Key(
        kid="rita-1", purpose="decision", reviewer="rita", secret=bytes(range(32)), created_at=5
    )
    ring = desk.operator.keys.changed([own])
    with pytest.raises(InvalidAnswer, match="in the name of olga"):
        sign_statement(ring, desk.operator.statement(row, said()))
    # the shared key signs, but rita has a key of her own: the server refuses
    statement = desk.operator.statement(row, said(by="rita"))
    signature = sign_statement(desk.operator.keys, statement)
    server = replace(desk.operator, keys=ring)
    with pytest.raises(InvalidAnswer):
        await server.resolve(row, said(by="rita"), statement, signature)
    await server.resolve(row, said(by="rita"), statement, sign_statement(ring, statement))


async def test_the_requester_does_not_say_what_became_of_their_call(desk: Desk) -> None:
    row = await desk.doubt(user="ann")
    with pytest.raises(InvalidAnswer, match="ann asked"):
        await desk.say(row, said(by="ann"))
    with pytest.raises(InvalidAnswer, match="Ann asked"):
        await desk.say(row, said(by="Ann"))
    assert (await desk.say(row, said(by="olga"))).status == "succeeded"


async def test_a_retry_past_the_deadline_is_refused(desk: Desk) -> None:
    row = await desk.doubt()
    desk.kit.clock.advance(86_400)
    with pytest.raises(ToolUsageError, match="run out"):
        await desk.say(row, said("retry"))
    assert (await desk.say(row, said())).status == "succeeded"


async def test_a_call_is_resolved_once(desk: Desk) -> None:
    row = await desk.doubt()
    await desk.say(row, said())
    with pytest.raises(ApprovalAlreadyDecided):
        await desk.say(row, Resolution.failed("no", by="otto"))
    assert (await kinds(desk.kit)).count("resolved") == 1


async def test_a_call_that_runs_again_is_not_resolved(desk: Desk) -> None:
    row = await desk.doubt(lease=60)
    with pytest.raises(CallInProgress):
        await desk.say(row, said())
    assert "resolved" not in await kinds(desk.kit)


async def test_a_row_that_is_gone_is_refused(desk: Desk) -> None:
    row = replace(await desk.doubt(FREE), key="f" * 64)
    with pytest.raises(ToolUsageError, match="no call of this key"):
        await desk.operator.resolve(row, said())


async def test_unresolved_it_stays_in_doubt(desk: Desk) -> None:
    await desk.doubt()
    with pytest.raises(CallInDoubt):
        await desk.kit.run(CALL, LATER)
    assert desk.kit.runs == []


async def test_a_worker_that_comes_back_late_changes_nothing(desk: Desk) -> None:
    from adapter.core.store import Settle
    from adapter.core.types import CallStatus

    row = await desk.doubt()
    await desk.say(row, said())
    late = Settle(key=row.key, fence=row.fence, status=CallStatus.FAILED)
    assert await desk.kit.store.settle(late) is False


async def test_without_keys_nothing_gated_is_resolved(desk: Desk) -> None:
    row = await desk.doubt()
    bare = replace(desk.operator, keys=KeyRing(()))
    with pytest.raises(ConfigurationError):
        bare.statement(row, said())
    with pytest.raises(InvalidAnswer):
        await bare.resolve(row, said())


# ------------------------------------------------------------------------ who may say it


async def doubted_by_two(desk: Desk) -> tuple[CallRow, Operator]:
    """A call that two of finance approved, and whose worker is gone."""
    kit = desk.kit
    roles = {"ann": ["finance"], "bob": ["finance"], "uma": ["finance"], "tom": ["support"]}
    kit.port.keys = kit.port.keys.changed((), roles)
    call = make_call("big", to="bob", amount=500)
    votes = [ApprovalDecision(approved=True, reviewer=name) for name in ("ann", "bob")]
    claim = kit.store.claim

    async def lost(given: Claim) -> Any:
        await claim(replace(given, lease=0.0))
        raise StoreUnavailable("the worker is gone")

    store: Any = kit.store
    store.claim = lost
    with pytest.raises(StoreUnavailable):
        await kit.run(call, make_context(user="zoe"), *votes)
    store.claim = claim
    return await row_of(kit), replace(desk.operator, keys=kit.port.keys)


async def stated(operator: Operator, row: CallRow, resolution: Resolution) -> CallRow:
    statement = operator.statement(row, resolution)
    return await operator.resolve(
        row, resolution, statement, sign_statement(operator.keys, statement)
    )


@pytest.mark.parametrize("verdict", ["succeeded", "failed"])
async def test_only_whom_the_rule_admits_says_what_became_of_it(desk: Desk, verdict: Any) -> None:
    row, operator = await doubted_by_two(desk)
    for name in ("tom", "nobody"):
        with pytest.raises(InvalidAnswer, match=f"{name} has none of the roles finance"):
            await stated(operator, row, said(verdict, by=name))
    assert "resolved" not in await kinds(desk.kit)
    # one of finance is enough to state a fact: nothing runs by it
    assert (await stated(operator, row, said(verdict, by="uma"))).status == verdict


async def test_the_requester_with_the_role_is_still_the_requester(desk: Desk) -> None:
    row, operator = await doubted_by_two(desk)
    roles = {"zoe": ["finance"], "uma": ["finance"]}
    operator = replace(operator, keys=operator.keys.changed((), roles))
    with pytest.raises(InvalidAnswer, match="zoe asked"):
        await stated(operator, row, said(by="zoe"))
    assert (await stated(operator, row, said(by="uma"))).status == "succeeded"


async def test_a_role_of_ones_own_key_is_the_one_that_counts(desk: Desk) -> None:
    row, operator = await doubted_by_two(desk)
    own = {
        name: Key(
            kid=f"{name}-1",
            purpose="decision",
            reviewer=name,
            roles=roles,
            secret=bytes(range(n, n + 32)),
            created_at=9,
        )
        for n, (name, roles) in enumerate({"lee": ("support",), "kim": ("finance",)}.items(), 1)
    }
    server = replace(operator, keys=operator.keys.changed(own.values()))
    for name, key in own.items():
        statement = server.statement(row, said(by=name))
        signature = sign_statement(KeyRing([key]), statement)
        if name == "lee":
            with pytest.raises(InvalidAnswer, match="lee has none"):
                await server.resolve(row, said(by=name), statement, signature)
            continue
        revoked = replace(server, keys=server.keys.changed([replace(key, revoked_at=10)]))
        with pytest.raises(InvalidAnswer, match="signature"):
            await revoked.resolve(row, said(by=name), statement, signature)
        done = await server.resolve(row, said(by=name), statement, signature)
        assert done.status == "succeeded"


async def test_one_person_does_not_let_run_again_what_needed_two(desk: Desk) -> None:
    row, operator = await doubted_by_two(desk)
    with pytest.raises(ToolUsageError, match="needed 2 people"):
        await stated(operator, row, said("retry", by="uma"))
    with pytest.raises(CallInDoubt):
        await desk.kit.run(make_call("big", to="bob", amount=500), LATER)
    assert desk.kit.runs == []
    row = await row_of(desk.kit)
    assert (await stated(operator, row, said("failed", by="uma"))).status == "failed"


# ------------------------------------------------------------------------- raises of budgets


@pytest.mark.parametrize("verdict", ["retry", "failed"])
async def test_a_raise_is_neither_made_twice_nor_undone(verdict: Any) -> None:
    scope = "thread:thread-1:model_calls"
    kit, store = flaky(budgets=Budgets(on_exceeded="ask", model_calls_per_thread=3), lease=30.0)
    async with kit:
        raises = kit.executor.raises
        assert raises is not None
        store.failures["settle"] = 1
        kit.port.resume(YES)
        with pytest.raises(StoreUnavailable):
            await raises.ask(make_context(), scope)
        kit.clock.advance(30)
        (row,) = await kit.store.unsettled()
        operator = Operator(journal=kit.executor.journal, keys=kit.port.keys)
        with pytest.raises(ToolUsageError, match="counted when it was claimed"):
            await stated(operator, row, said(verdict))
        # noted as a doubt or stated as done, it has counted once and its thread goes on
        assert [one.key for one in await operator.doubt()] == [row.key]
        kit.port.resume()
        assert await raises.earlier(make_context(run_id="run-2")) is None
        counter = f"raise:{scope}"
        assert (await kit.store.charge([], show=[counter])).used[counter] == 3


async def test_a_raise_in_doubt_can_be_stated_as_done() -> None:
    kit, store = flaky(budgets=Budgets(on_exceeded="ask", model_calls_per_thread=3), lease=30.0)
    async with kit:
        raises = kit.executor.raises
        assert raises is not None
        store.failures["settle"] = 1
        kit.port.resume(YES)
        with pytest.raises(StoreUnavailable):
            await raises.ask(make_context(), "thread:thread-1:model_calls")
        kit.clock.advance(30)
        (row,) = await kit.store.unsettled()
        operator = Operator(journal=kit.executor.journal, keys=kit.port.keys)
        assert (await stated(operator, row, said())).status == "succeeded"
        kit.port.resume()
        assert await raises.earlier(make_context(run_id="run-2")) is None


# ------------------------------------------------------------------------ who comes second


async def test_a_statement_that_lost_the_race_says_so(desk: Desk) -> None:
    row = await desk.doubt()
    await desk.say(row, said(by="otto"))
    with pytest.raises(ApprovalAlreadyDecided, match="quicker: this call is succeeded"):
        await desk.say(row, Resolution.failed("no", by="olga"))
    assert [one["data"]["by"] for one in await events(desk.kit) if one["kind"] == "resolved"] == [
        "otto"
    ]


async def test_a_statement_about_an_earlier_claim_does_not_settle_a_later_one(desk: Desk) -> None:
    """Looked at, let run again by somebody else, run, and lost again: the old word is not about it.

    The condition is in the statement that settles: what was read before is of another moment.
    """
    row = await desk.doubt()
    await desk.say(row, said("retry", by="otto"))
    with losing(desk.kit):
        await desk.kit.run(CALL, LATER)
    with pytest.raises(ApprovalAlreadyDecided, match=r"started again since you looked \(claim 3"):
        await desk.say(row, said(by="olga"))
    now = await row_of(desk.kit)
    assert (now.status, now.fence) == ("claimed", 3)
    assert (await desk.say(now, said(by="olga"))).status == "succeeded"


# ----------------------------------------------------------------------------- the sweeper


async def test_a_claim_that_ran_out_is_noted_once_by_whoever_comes_upon_it(desk: Desk) -> None:
    row = await desk.doubt()
    assert [one.key for one in await desk.operator.doubt()] == [row.key]
    assert await desk.operator.doubt() == []
    with pytest.raises(CallInDoubt):
        await desk.kit.run(CALL, LATER)
    assert (await row_of(desk.kit)).status == "in_doubt"
    assert (await kinds(desk.kit)).count("in_doubt") == 1
    assert (await desk.say(row, said())).status == "succeeded"


@pytest.mark.parametrize("call", [CALL, FREE])
async def test_a_run_that_comes_upon_it_notes_it_too(desk: Desk, call: Any) -> None:
    await desk.doubt(call)
    for n in (1, 2):
        with pytest.raises(CallInDoubt):
            await desk.kit.run(call, make_context(run_id=f"run-{n}0"))
    assert (await row_of(desk.kit)).status == "in_doubt"
    assert await desk.operator.doubt() == []
    found = [one for one in await events(desk.kit) if one["kind"] == "in_doubt"]
    assert len(found) == 1
    assert found[0]["data"]["reason"] == "the lease ran out"


async def test_a_running_call_is_not_noted(desk: Desk) -> None:
    await desk.doubt(lease=60)
    assert await desk.operator.doubt() == []
    assert (await row_of(desk.kit)).status == "claimed"
    assert "in_doubt" not in await kinds(desk.kit)


@pytest.mark.parametrize("name", ["put", "gated_put"])
async def test_an_idempotent_call_that_was_noted_still_goes_on_by_itself(
    desk: Desk, name: str
) -> None:
    call = make_call(name, to="bob", amount=5)
    row = await desk.doubt(call)
    assert len(await desk.operator.doubt()) == 1
    assert await desk.kit.run(call, LATER) == {"ran": {"to": "bob", "amount": 5, "card": None}}
    now = await row_of(desk.kit)
    assert (now.status, now.idempotency_key) == ("succeeded", row.idempotency_key)
    assert len(desk.kit.runs) == 1


async def test_many_claims_that_ran_out_are_noted(desk: Desk) -> None:
    for n in range(130):
        await desk.doubt_many(n)
    assert len(await desk.operator.doubt()) == 130
    assert await desk.operator.doubt() == []


async def test_a_call_that_ends_while_claims_are_looked_through_is_not_noted(desk: Desk) -> None:
    row = await desk.doubt()
    store: Any = desk.kit.store
    unsettled = store.unsettled

    async def slow(limit: int) -> Any:
        found = await unsettled(limit)
        store.unsettled = unsettled
        await desk.say(row, said())
        return found

    store.unsettled = slow
    assert await desk.operator.doubt() == []
    assert (await row_of(desk.kit)).status == "succeeded"
    assert "in_doubt" not in await kinds(desk.kit)


# -------------------------------------------------------------------------------- expiring


async def test_an_overdue_question_is_closed_and_its_thread_gets_the_expiry(desk: Desk) -> None:
    with pytest.raises(Paused):
        await desk.kit.run(CALL)
    assert await desk.operator.expire() == []
    desk.kit.clock.advance(86_400)
    (closed,) = await desk.operator.expire()
    assert closed.status == "expired"
    assert await desk.operator.expire() == []
    assert (await kinds(desk.kit)).count("expired") == 1
    with pytest.raises(ApprovalExpired):
        await desk.kit.run(CALL, LATER)
    assert (await kinds(desk.kit)).count("expired") == 1
    assert desk.kit.runs == []


async def test_many_overdue_questions_are_closed(desk: Desk) -> None:
    for n in range(130):
        with pytest.raises(Paused):
            await desk.kit.run(replace(CALL, id=f"call-{n}"))
    desk.kit.clock.advance(86_400)
    assert len(await desk.operator.expire()) == 130


async def test_a_sweeper_that_others_are_ahead_of_ends(desk: Desk) -> None:
    with pytest.raises(Paused):
        await desk.kit.run(CALL)
    row = await row_of(desk.kit)
    desk.kit.clock.advance(86_400)
    store: Any = desk.kit.store
    close = store.close_question

    async def others(given: Any) -> Any:
        await close(given)
        return await close(given)

    async def overdue(limit: int) -> list[CallRow]:
        return [row]

    store.close_question, store.overdue = others, overdue
    assert await desk.operator.expire() == []


async def test_the_sweeper_leaves_a_claimed_call_alone(desk: Desk) -> None:
    row = await desk.doubt()
    desk.kit.clock.advance(86_400)
    assert await desk.operator.expire() == []
    assert (await desk.operator.find(row.key)).status == "claimed"
