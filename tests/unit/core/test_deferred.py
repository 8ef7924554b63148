"""DeferredApproval without a host: the store decides, by signature, once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.kit import NO, SEND, YES, events, row_of, tool

from adapter.core.approvals import sign_decision
from adapter.core.decisions import ApprovalDecision
from adapter.core.deferred import DeferredApproval, OutsideGraph, is_decided, record_decision
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    InvalidAnswer,
    ToolUsageError,
)
from adapter.core.keys import Key, KeyRing
from adapter.core.recording import record_answer, sealed_request, votes_in
from adapter.core.rules import ApprovalRule
from adapter.core.store import Close
from adapter.core.types import CallStatus
from adapter.testing import Paused, Wired, make_call, make_context, wired

pytestmark = pytest.mark.anyio

CALL = make_call("send", to="bob", amount=5)
SECRET = b"deferred-secret-0123456789-abcdef"


def deferred(*tools: Any, port: Any = None, **options: Any) -> tuple[Wired, DeferredApproval]:
    kit = wired(*(tools or (SEND,)), **options)
    made = port or DeferredApproval(kit.store, KeyRing.from_secret(SECRET), clock=kit.clock)
    double: Any = made
    kit.port = double
    return kit.restarted(), made


async def run(kit: Wired, call: Any = CALL, run_id: str = "run-1", **how: Any) -> Any:
    return await kit.executor.run(call, make_context(run_id=run_id), kit.invocation(call, **how))


async def pending(kit: Wired, call: Any = CALL) -> Any:
    with pytest.raises(ApprovalPending):
        await run(kit, call)
    port: Any = kit.port
    (row,) = await port.pending()
    return row


async def test_a_request_waits_until_it_is_decided_and_is_used_once() -> None:
    kit, port = deferred()
    async with kit:
        row = await pending(kit)
        again = await pending(kit)
        assert again.decision == row.decision
        decided = await port.record(row, YES)
        assert decided.status is CallStatus.APPROVED
        assert is_decided(decided)
        assert await run(kit) == {"ran": {"to": "bob", "amount": 5, "card": None}}
        assert await run(kit, run_id="run-2") == {"ran": {"to": "bob", "amount": 5, "card": None}}
        assert len(kit.runs) == 1
        with pytest.raises(ApprovalAlreadyDecided):
            await port.record(row.key, YES)


async def test_a_refused_request_is_denied_at_its_next_run() -> None:
    kit, port = deferred()
    async with kit:
        await port.record(await pending(kit), NO)
        with pytest.raises(ApprovalDenied, match="too much"):
            await run(kit)
        with pytest.raises(ApprovalDenied):
            await run(kit, run_id="run-2")
        assert kit.runs == []


async def test_writing_the_store_without_a_key_approves_nothing() -> None:
    kit, port = deferred()
    async with kit:
        row = await pending(kit)
        forged = await record_decision(
            kit.store, port.keys, row, YES, decided_at=kit.clock(), reviewer="rita"
        )
        kept: Any = dict(forged.decision or {})
        kept["signed"] = [{**kept["signed"][0], "mac": "0" * 64}]
        await kit.store.close_question(
            Close(key=row.key, status=CallStatus.APPROVED, decision=kept)
        )
        row = await pending(kit)
        assert kit.runs == []
        assert row.status is CallStatus.REQUESTED
        refusals = [one for one in await events(kit) if one["kind"] == "answer_refused"]
        assert len(refusals) == 1
        await port.record(row, YES)
        await run(kit)
        assert len(kit.runs) == 1


async def test_a_request_altered_in_the_store_is_not_signed() -> None:
    kit, port = deferred()
    async with kit:
        row = await pending(kit)
        kept: Any = dict(row.decision or {})
        kept["sealed"]["request"]["arguments"]["amount"] = 1
        with pytest.raises(InvalidAnswer, match="altered"):
            await record_decision(
                kit.store,
                port.keys,
                replace(row, decision=kept),
                YES,
                decided_at=kit.clock(),
                reviewer="rita",
            )
        empty: list[Any] = [None, {}]
        for bare in empty:
            with pytest.raises(InvalidAnswer):
                await record_decision(
                    kit.store,
                    port.keys,
                    replace(row, decision=bare),
                    YES,
                    decided_at=kit.clock(),
                    reviewer="rita",
                )


async def test_a_late_decision_is_refused_and_a_decided_request_expires_too() -> None:
    kit, port = deferred(approval_ttl=60)
    async with kit:
        row = await pending(kit)
        other = make_call("send", id="call-2", to="eve")
        with pytest.raises(ApprovalPending):
            await run(kit, other)
        second = next(one for one in await port.pending() if one.tool_call_id == "call-2")
        await port.record(second, YES)
        kit.clock.advance(61)
        with pytest.raises(ApprovalExpired):
            await port.record(row, YES)
        for call in (CALL, other):
            with pytest.raises(ApprovalExpired):
                await run(kit, call)
        assert kit.runs == []


async def test_a_request_used_meanwhile_is_not_decided() -> None:
    kit, port = deferred()
    async with kit:
        row = await pending(kit)
        await port.record(row, NO)
        with pytest.raises(ApprovalDenied):
            await run(kit)
        with pytest.raises(ApprovalAlreadyDecided, match="meanwhile"):
            await record_decision(
                kit.store, port.keys, row, YES, decided_at=kit.clock(), reviewer="rita"
            )
        with pytest.raises(ToolUsageError, match="no request"):
            await port.record("unknown", YES)


async def test_a_changed_rule_asks_again_and_the_old_decision_is_void() -> None:
    kit, port = deferred()
    async with kit:
        row = await pending(kit)
        changed = tool("send", gated=True, version="2")
        other, _ = deferred(changed, store=kit.store, clock=kit.clock, port=port)
        assert (await pending(other)).decision != row.decision
        with pytest.raises(ApprovalPending):
            await run(other)
        (now,) = await port.pending()
        await port.record(now, YES)
        await run(other)
        assert len(other.runs) == 1


async def test_two_reviewers_decide_in_the_store() -> None:
    rule = ApprovalRule(name="two", reason="grave", quorum=2)
    kit, port = deferred(tool("send", approval=rule))
    async with kit:
        row = await pending(kit)
        await port.record(row, ApprovalDecision(approved=True, reviewer="ann"))
        row = await pending(kit)
        assert row.decision["sealed"]["request"]["quorum"]["by"] == ["ann"]
        with pytest.raises(InvalidAnswer, match="another one"):
            await port.record(row, ApprovalDecision(approved=True, reviewer="ann"))
        await port.record(row, ApprovalDecision(approved=True, reviewer="bob"))
        await run(kit)
        assert len(kit.runs) == 1


async def test_who_voted_may_still_say_no() -> None:
    rule = ApprovalRule(name="two", reason="grave", quorum=2)
    kit, port = deferred(tool("send", approval=rule))
    async with kit:
        row = await port.record(await pending(kit), ApprovalDecision(approved=True, reviewer="ann"))
        no = ApprovalDecision(approved=False, reason="on second thoughts", reviewer="ann")
        assert is_decided(await port.record(row, no))
        with pytest.raises(ApprovalDenied, match="second thoughts"):
            await run(kit)
        assert kit.runs == []


async def test_a_vote_whose_key_was_revoked_may_be_given_again() -> None:
    old = Key(kid="old", purpose="decision", secret=bytes(range(1, 33)), created_at=1)
    new = Key(kid="new", purpose="decision", secret=bytes(range(2, 34)), created_at=2)
    base = KeyRing.from_secret(SECRET)
    rule = ApprovalRule(name="two", reason="grave", quorum=2)
    kit, port = deferred(tool("send", approval=rule))
    source: Any = port
    async with kit:
        source._source = base.changed([old])
        await port.record(await pending(kit), ApprovalDecision(approved=True, reviewer="ann"))
        await pending(kit)
        source._source = base.changed([replace(old, revoked_at=3), new])
        await port.record(await row_of(kit), ApprovalDecision(approved=True, reviewer="bob"))
        # a standing vote and a revoked one are no quorum, and the request is listed again
        row = await pending(kit)
        assert kit.runs == []
        assert votes_in(row) == ["bob"]
        await port.record(row, ApprovalDecision(approved=True, reviewer="ann"))
        await run(kit)
        assert len(kit.runs) == 1


async def test_what_the_run_would_refuse_is_refused_when_it_is_recorded() -> None:
    rule = ApprovalRule(name="large", reason="much", roles=("finance",))
    kit, port = deferred(tool("send", approval=rule))
    source: Any = port
    async with kit:
        source._source = KeyRing.from_secret(SECRET).changed((), {"ann": ["finance"]})
        row = await pending(kit)
        assert row.decision["sealed"]["request"]["roles"] == ["finance"]
        for no in (ApprovalDecision(approved=False, reviewer="tom"), YES):
            with pytest.raises(InvalidAnswer, match="none of the roles finance"):
                await port.record(row, no)
        assert (await row_of(kit)).decision == row.decision
        await port.record(row, ApprovalDecision(approved=True, reviewer="ann"))
        await run(kit)
        assert len(kit.runs) == 1


async def test_an_answer_signed_elsewhere_is_recorded_under_the_servers_eyes() -> None:
    kit, port = deferred()
    async with kit:
        row = await pending(kit)
        sealed = sealed_request(row)
        signed = sign_decision(port.keys, sealed, YES, decided_at=kit.clock(), reviewer="rita")
        forged = {**signed, "mac": "0" * 64}
        with pytest.raises(InvalidAnswer, match="does not know the key"):
            await record_answer(kit.store, row, forged, now=kit.clock(), judge=port.keys)
        other = {**signed, "binding": "0" * 64}
        with pytest.raises(InvalidAnswer, match="other words"):
            await record_answer(kit.store, row, other, now=kit.clock(), judge=port.keys)
        # a recorder without the server's keys takes it; the run judges
        await record_answer(kit.store, row, forged, now=kit.clock())
        row = await pending(kit)
        assert kit.runs == []
        await record_answer(kit.store, row, signed, now=kit.clock(), judge=port.keys)
        await run(kit)
        assert len(kit.runs) == 1


async def test_one_no_of_two_ends_it() -> None:
    rule = ApprovalRule(name="two", reason="grave", quorum=2)
    kit, port = deferred(tool("send", approval=rule))
    async with kit:
        row = await port.record(await pending(kit), NO)
        assert is_decided(row)
        with pytest.raises(ApprovalDenied):
            await run(kit)


async def test_a_tool_that_pauses_itself_goes_on_under_its_used_decision() -> None:
    kit, port = deferred()

    def pause(_arguments: Any) -> None:
        raise Paused({})

    async with kit:
        await port.record(
            await pending(kit), ApprovalDecision(kind="edit", edited_args={"to": "al", "amount": 2})
        )
        with pytest.raises(Paused):
            await run(kit, body=pause)
        assert (await row_of(kit)).status is CallStatus.SUSPENDED
        assert (await run(kit, run_id="run-2"))["ran"]["to"] == "al"
        assert len(kit.runs) == 2


async def test_keys_come_from_a_secret_a_ring_or_nowhere() -> None:
    kit, _ = deferred()
    async with kit:
        port = DeferredApproval(kit.store)
        for key in (SECRET, KeyRing.from_secret(SECRET), None):
            port = DeferredApproval(kit.store, key)
            await port.refresh()
            port.keys.require("seal", "decision")
        async with port.turn():
            assert port.position() == (0, None)
        row: Any = None
        assert not port.answers_now(row)
        assert not port.has_answer()
        port.discard_used(row)
        port.revisit(row)
        port.leave(port.enter())


async def test_two_of_the_same_call_wait_for_one_decision_and_run_once() -> None:
    kit, port = deferred(tool("send", gated=True, once_per_run=True))
    beside = replace(CALL, id="call-2")
    async with kit:
        row = await pending(kit)
        with pytest.raises(ApprovalPending):
            await run(kit, beside)
        assert [one.key for one in await port.pending()] == [row.key]
        assert kit.runs == []
        await port.record(row, YES)
        made = await run(kit, run_id="run-2")
        assert await run(kit, beside, run_id="run-2") == made
        assert len(kit.runs) == 1


async def test_the_same_call_goes_on_for_one_whose_tool_paused_under_its_used_decision() -> None:
    kit, port = deferred(tool("send", gated=True, once_per_run=True))
    effects: list[Any] = []

    def pause(_arguments: Any) -> None:
        raise Paused({})

    async with kit:
        await port.record(await pending(kit), YES)
        with pytest.raises(Paused):
            await run(kit, body=pause)
        beside = replace(CALL, id="call-2")
        made = await run(kit, beside, run_id="run-2", body=effects.append)
        assert await run(kit, run_id="run-2") == made
        assert [one["to"] for one in effects] == ["bob"]


async def test_a_port_outside_a_graph_keeps_no_order() -> None:
    port = OutsideGraph()
    async with port.turn():
        await port.quiet(port.enter())
    assert [port.contended(), port.is_for_another(None), port.has_answer()] == [False] * 3
