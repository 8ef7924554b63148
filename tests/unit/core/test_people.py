"""Who may decide: roles, the requester, one vote each, and agreement on what runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.kit import NO, YES, events, flaky, kinds, row_of, tool

from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalDenied,
    InvalidAnswer,
    StoreUnavailable,
)
from adapter.core.keys import Key, KeyRing
from adapter.core.people import People
from adapter.core.records import Vote
from adapter.core.rules import ApprovalRule
from adapter.core.types import CallStatus
from adapter.testing import Paused, make_call, make_context, wired

pytestmark = pytest.mark.anyio

CALL = make_call("send", to="bob", amount=5)
TWO = tool("send", approval=ApprovalRule(name="money", quorum=2))
BOSS = tool("send", approval=ApprovalRule(name="money", roles=("boss",)))
ANN, SAM = (ApprovalDecision(approved=True, reviewer=name) for name in ("ann", "sam"))
FIRST, SECOND = make_context(), make_context(run_id="run-2")


def ring(**roles: tuple[str, ...]) -> KeyRing:
    return KeyRing(KeyRing.from_secret(bytes(range(32))).keys, roles)


async def test_two_people_must_approve() -> None:
    async with wired(TWO) as kit:
        with pytest.raises(Paused) as caught:
            await kit.run(CALL, FIRST, ANN)
        assert kit.runs == []
        assert caught.value.value["request"]["quorum"] == {"need": 2, "have": 1, "by": ["ann"]}
        assert "voted" in await kinds(kit)
        await kit.run(CALL, SECOND, SAM)
        assert len(kit.runs) == 1


async def test_the_same_person_counts_once() -> None:
    async with wired(TWO) as kit:
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, FIRST, ANN, replace(ANN, reason="and again"))
        assert kit.runs == []


@pytest.mark.parametrize("name", ["Ann", "ann ", "\uff21NN", "a\u200bnn"])
async def test_names_that_read_the_same_are_one_person(name: str) -> None:
    async with wired(TWO) as kit:
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, FIRST, ANN, replace(ANN, reviewer=name))
        assert kit.runs == []
    async with wired(tool("send", gated=True)) as kit:
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, make_context(user="ann"), replace(ANN, reviewer=name))
        assert kit.runs == []


async def test_names_that_read_differently_are_two_people() -> None:
    async with wired(TWO) as kit:
        await kit.run(CALL, FIRST, ANN, replace(ANN, reviewer="anna"))
        assert len(kit.runs) == 1


def test_votes_kept_under_names_that_read_the_same_count_once() -> None:
    keys = ring()
    kid = keys.newest("decision").kid
    votes = [
        Vote(key="k", reviewer=name, kid=kid, answer=name, executed_digest="x", decision={})
        for name in ("ann", "Ann", "sam")
    ]
    assert [vote.reviewer for vote in People().standing(keys, votes)] == ["ann", "sam"]


async def test_the_next_reviewer_sees_the_edit_that_was_voted_for() -> None:
    two = tool("send", approval=ApprovalRule(name="money", quorum=2), masks=("amount",))
    edit = ApprovalDecision(edited_args={"to": "eve"}, reviewer="ann")
    async with wired(two) as kit:
        with pytest.raises(Paused) as caught:
            await kit.run(CALL, FIRST, edit)
        shown = caught.value.value["request"]["quorum"]
        assert shown == {"need": 2, "have": 1, "by": ["ann"], "edited": {"to": "eve"}}
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, SECOND, SAM)
        assert kit.runs == []
        await kit.run(CALL, SECOND, replace(edit, reviewer="sam"))
        assert len(kit.runs) == 1


async def test_the_same_answer_again_is_no_second_vote() -> None:
    async with wired(TWO) as kit:
        with pytest.raises(Paused):
            await kit.run(CALL, FIRST, ANN, ANN)
        assert kit.runs == []


async def test_one_no_ends_a_quorum() -> None:
    async with wired(TWO) as kit:
        with pytest.raises(ApprovalDenied):
            await kit.run(CALL, FIRST, ANN, NO)
        assert kit.runs == []


async def test_people_must_approve_the_same_arguments() -> None:
    edit = ApprovalDecision(edited_args={"to": "eve"}, reviewer="sam")
    async with wired(TWO) as kit:
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, FIRST, ANN, edit)
        assert kit.runs == []


async def test_a_vote_after_the_question_was_closed_is_not_kept() -> None:
    kit, store = flaky(TWO)

    async def closed(*_: Any) -> bool:
        return False

    async with kit:
        store.vote = closed  # type: ignore[attr-defined]
        with pytest.raises(ApprovalAlreadyDecided, match="vote was not kept"):
            await kit.run(CALL, FIRST, ANN)
        assert kit.runs == []


async def test_a_vote_under_a_revoked_key_no_longer_counts() -> None:
    async with wired(TWO) as kit:
        with pytest.raises(Paused):
            await kit.run(CALL, FIRST, ANN)
        old = kit.port.keys
        new = Key(kid="new", purpose="decision", secret=bytes(range(40)), created_at=9)
        kit.port.keys = KeyRing(
            [
                *(replace(k, revoked_at=1) if k.purpose == "decision" else k for k in old.keys),
                new,
            ]
        )
        with pytest.raises(Paused) as caught:
            await kit.run(CALL, SECOND, SAM)
        assert caught.value.value["request"]["quorum"]["by"] == ["sam"]
        assert kit.runs == []


async def test_a_quorum_survives_a_tool_that_pauses_itself() -> None:
    async with wired(TWO) as kit:

        def body(_: Any) -> str:
            if len(kit.runs) == 1:
                raise Paused({})
            return "done"

        with pytest.raises(Paused):
            await kit.run(CALL, FIRST, ANN, SAM, body=body)
        assert (await row_of(kit)).status is CallStatus.SUSPENDED
        assert await kit.run(CALL, SECOND, body=body) == "done"


async def test_votes_survive_a_claim_that_failed() -> None:
    kit, store = flaky(TWO)
    async with kit:
        store.failures["claim"] = 1
        with pytest.raises(StoreUnavailable):
            await kit.run(CALL, FIRST, ANN, SAM)
        await kit.run(CALL, SECOND)
        assert len(kit.runs) == 1


@pytest.mark.parametrize("roles", [("boss",), ("boss", "other")])
async def test_a_reviewer_with_a_role_may_decide(roles: tuple[str, ...]) -> None:
    async with wired(BOSS, keys=ring(ann=roles)) as kit:
        await kit.run(CALL, FIRST, ANN)
        assert len(kit.runs) == 1


@pytest.mark.parametrize("roles", [{}, {"ann": ("clerk",)}, {"sam": ("boss",)}])
async def test_a_reviewer_without_the_role_may_not(roles: dict[str, tuple[str, ...]]) -> None:
    async with wired(BOSS, keys=ring(**roles)) as kit:
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, FIRST, ANN)
        assert kit.runs == []


async def test_a_requester_may_not_approve_their_own_call() -> None:
    async with wired(tool("send", gated=True)) as kit:
        with pytest.raises(InvalidAnswer):
            await kit.run(CALL, make_context(user="ann"), ANN)
        assert kit.runs == []
        await kit.run(CALL, make_context(user="ann", run_id="run-2"), SAM)
        assert len(kit.runs) == 1


async def test_a_requester_may_approve_where_that_is_allowed() -> None:
    async with wired(tool("send", gated=True), self_approval=True) as kit:
        await kit.run(CALL, make_context(user="ann"), ANN)
        assert len(kit.runs) == 1


async def test_a_shared_key_does_not_speak_for_a_person_with_a_key() -> None:
    own = Key(
        kid="anns",
        alg="Ed25519",
        purpose="decision",
        secret=bytes(range(32)),
        reviewer="ann",
        created_at=-1,
    )
    seal = Key(kid="s", alg="Ed25519", purpose="seal", secret=bytes(range(1, 33)), created_at=5)
    keys = KeyRing([*KeyRing.from_secret(bytes(range(32))).keys, own, seal])
    async with wired(tool("send", gated=True), keys=keys) as kit:
        with pytest.raises(InvalidAnswer, match="may not sign in the name of ann"):
            await kit.run(CALL, FIRST, ANN)
        await kit.run(CALL, SECOND, SAM)
        assert len(kit.runs) == 1


async def test_an_edit_to_what_needs_more_people_is_refused() -> None:
    from adapter.core.policy import Decision

    async with wired(tool("send", gated=True)) as kit:
        stricter = Decision(kind="ask", rule=ApprovalRule(name="big", quorum=2))
        edit = ApprovalDecision(edited_args={"to": "eve"})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("adapter.core.questions.decide", lambda *_: stricter)
            with pytest.raises(InvalidAnswer):
                await kit.run(CALL, FIRST, edit)
        assert kit.runs == []
        assert "answer_refused" in [event["kind"] for event in await events(kit)]


async def test_an_approval_needs_no_name_of_its_own() -> None:
    async with wired(tool("send", gated=True)) as kit:
        await kit.run(CALL, FIRST, YES)
        decided = next(event for event in await events(kit) if event["kind"] == "decided")
        assert decided["data"]["reviewer"] == "rita"
