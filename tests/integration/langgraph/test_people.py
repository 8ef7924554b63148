"""Who may decide, and how many: quorum, roles, the requester, revoked keys (A15)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Interrupt
from tests.support.room import (
    KEYS,
    Clock,
    Room,
    Rooms,
    SendMoney,
    error_of,
    gated,
    money_tools,
    open_questions,
    pay,
    tool_of,
)
from tests.support.script import ai, call
from typing_extensions import TypedDict

from adapter import ApprovalAlreadyDecided, ApprovalRule, Condition, Key, KeyRing, Policy
from adapter.core.decisions import INVALID
from adapter.langgraph import AdapterMiddleware, calls, turns

pytestmark = pytest.mark.anyio

ONE = ApprovalRule(name="one")
TWO = ApprovalRule(name="four eyes", quorum=2)


class Keys:
    """A source of keys that a test changes, as a key file is changed."""

    def __init__(self, ring: KeyRing = KEYS) -> None:
        self.ring = ring

    def current(self) -> KeyRing:
        return self.ring

    async def refresh(self) -> None:
        pass


def office(
    rooms: Rooms, *payments: Any, rule: ApprovalRule = TWO, keys: Any = KEYS, **named: Any
) -> Room:
    tools, specs = money_tools(rooms.ledger)
    specs = [gated("send_money", approval=rule), *specs[1:]]
    return rooms(ai(*(payments or (pay(),))), tools=tools, specs=specs, keys=keys, **named)


async def one(room: Room) -> Interrupt:
    (asked,) = await room.asked()
    return asked


def count(asked: Interrupt) -> tuple[int, int, list[str]]:
    quorum = asked.value["request"]["quorum"]
    return quorum["need"], quorum["have"], quorum["by"]


async def vote(room: Room, who: str, kind: Any = "approve", **more: Any) -> Any:
    return await room.decide(await one(room), kind, reviewer=who, **more)


async def refused(room: Room, who: str, kind: Any = "approve", **more: Any) -> None:
    """A vote that does not count: the question stays as it is, and says so."""
    before = await one(room)
    await vote(room, who, kind, **more)
    after = await one(room)
    assert after.id == before.id
    assert after.value["refused"]["code"] == "invalid_answer"
    assert count(after) == count(before)
    assert INVALID.split(";")[0] not in str(after.value["request"])
    assert room.ledger.paid == []


# ---------------------------------------------------------------------------------- quorum


async def test_two_votes_over_two_resumes_run_the_call_once(rooms: Rooms) -> None:
    room = office(rooms)
    await room.say()
    first = await one(room)
    assert count(first) == (2, 0, [])

    await vote(room, "rita")
    assert room.ledger.paid == []
    second = await one(room)
    assert second.id != first.id
    assert second.value["binding"] == first.value["binding"]
    assert count(second) == (2, 1, ["rita"])

    await vote(room, "sam")
    assert room.ledger.paid == [100]
    await room.results()
    assert len(await room.events("voted")) == 1
    assert len(await room.events("decided")) == 1
    assert [event["data"]["reviewer"] for event in await room.events("voted", "decided")] == [
        "rita",
        "sam",
    ]
    await room.verified()


async def test_three_of_three(rooms: Rooms) -> None:
    room = office(rooms, rule=ApprovalRule(name="three", quorum=3))
    await room.say()
    bindings, ids = set(), set()
    for n, who in enumerate(["rita", "sam", "tom"]):
        asked = await one(room)
        assert count(asked)[:2] == (3, n)
        bindings.add(asked.value["binding"])
        ids.add(asked.id)
        assert room.ledger.paid == []
        await vote(room, who)
    assert (len(bindings), len(ids)) == (1, 3)
    assert room.ledger.paid == [100]


async def test_votes_outlive_the_process(rooms: Rooms) -> None:
    room = office(rooms, store="adapter.db")
    await room.say()
    await vote(room, "rita")
    await room.store.aclose()
    other = office(rooms, store="adapter.db", saver=room.saver)
    await other.run(None)
    asked = await one(other)
    assert count(asked) == (2, 1, ["rita"])
    assert other.ledger.paid == []
    await vote(other, "sam")
    assert other.ledger.paid == [100]


async def test_nothing_runs_without_input_between_the_votes(rooms: Rooms) -> None:
    room = office(rooms)
    await room.say()
    await vote(room, "rita")
    before = await one(room)
    await room.run(None)
    assert (await one(room)).id == before.id
    assert count(await one(room)) == (2, 1, ["rita"])
    assert room.ledger.paid == []


async def test_the_same_reviewer_twice_counts_once(rooms: Rooms) -> None:
    room = office(rooms)
    await room.say()
    await vote(room, "rita")
    await refused(room, "rita")
    await vote(room, "sam")
    assert room.ledger.paid == [100]


async def test_a_used_vote_sent_again_is_no_second_one(rooms: Rooms) -> None:
    room = office(rooms)
    await room.say()
    asked = await one(room)
    answer = {asked.id: room.sign(asked, reviewer="rita")}
    await room.resume(answer)
    with_first_id = await one(room)
    with suppress(ApprovalAlreadyDecided):
        await room.resume(answer)
    # and for the new question's id, word for word
    open_now = await one(room)
    await room.resume({open_now.id: answer[asked.id]})
    assert room.ledger.paid == []
    still = await one(room)
    assert count(still) == count(with_first_id) == (2, 1, ["rita"])
    await vote(room, "sam")
    assert room.ledger.paid == [100]


@pytest.mark.parametrize("votes", [0, 1])
async def test_a_reject_ends_it_at_any_time(rooms: Rooms, votes: int) -> None:
    room = office(rooms)
    await room.say()
    for who in ["rita", "sam"][:votes]:
        await vote(room, who)
    await vote(room, "tom", "reject", reason="no")
    assert room.ledger.paid == []
    assert error_of((await room.results())["c1"])["kind"] == "ApprovalDenied"
    assert await room.status("c1") == ["denied"]


async def test_a_voters_second_yes_does_not_count_but_their_no_ends_it(rooms: Rooms) -> None:
    room = office(rooms)
    await room.say()
    await vote(room, "rita")
    await refused(room, "rita", "approve")
    await vote(room, "rita", "reject", reason="changed my mind")
    assert room.ledger.paid == []
    assert await room.asked() == []


async def test_an_edit_as_a_vote_must_be_agreed_to(rooms: Rooms) -> None:
    room = office(rooms)
    await room.say()
    edited = {"to": "bob", "amount": 50}
    await vote(room, "rita", "edit", edited_args=edited)
    assert room.ledger.paid == []
    await refused(room, "sam")
    await refused(room, "sam", "edit", edited_args={"to": "bob", "amount": 51})
    await vote(room, "sam", "edit", edited_args=edited)
    assert room.ledger.paid == [50]


async def test_an_edit_that_says_the_same_agrees_with_an_approval(rooms: Rooms) -> None:
    room = office(rooms)
    await room.say()
    await vote(room, "rita")
    await vote(room, "sam", "edit", edited_args={"to": "bob", "amount": 100})
    assert room.ledger.paid == [100]


async def test_an_edit_that_needs_more_people_is_refused(rooms: Rooms) -> None:
    """A small payment needs one; an edit does not smuggle a large one past the second."""
    large = Condition(argument="amount", op="gt", value=100)
    policy = Policy(escalate={"send_money": replace(TWO, when=large)})
    room = office(rooms, rule=ONE, policy=policy, store="adapter.db")
    await room.say()
    await refused(room, "rita", "edit", edited_args={"to": "bob", "amount": 101})
    await vote(room, "rita", "edit", edited_args={"to": "bob", "amount": 99})
    assert room.ledger.paid == [99]


# ----------------------------------------------------------------------------- keys, roles


def two_keys() -> tuple[KeyRing, Key]:
    old = Key(kid="old", purpose="decision", secret=bytes(range(1, 33)), created_at=1)
    new = Key(kid="new", purpose="decision", secret=bytes(range(2, 34)), created_at=2)
    return KEYS.changed([old, new]), old


async def test_a_vote_whose_key_was_revoked_since_no_longer_counts(rooms: Rooms) -> None:
    ring, old = two_keys()
    keys = Keys(KEYS.changed([old]))
    room = office(rooms, keys=keys)
    await room.say()
    await vote(room, "rita")
    assert count(await one(room)) == (2, 1, ["rita"])

    keys.ring = ring.changed([replace(old, revoked_at=3)])
    await vote(room, "sam")
    assert room.ledger.paid == [], "one standing vote and a revoked one are no quorum"
    assert count(await one(room)) == (2, 1, ["sam"])

    await vote(room, "rita")  # with the new key, rita may vote again
    assert room.ledger.paid == [100]


async def test_a_vote_whose_key_stays_counts_over_a_rotation(rooms: Rooms) -> None:
    ring, old = two_keys()
    keys = Keys(KEYS.changed([old]))
    room = office(rooms, keys=keys)
    await room.say()
    await vote(room, "rita")
    keys.ring = ring
    await vote(room, "sam")
    assert room.ledger.paid == [100]


FINANCE = ApprovalRule(
    name="large refunds",
    when=Condition(argument="amount", op="gt", value=100),
    quorum=2,
    roles=("finance",),
)


def staffed(**roles: list[str]) -> KeyRing:
    return KEYS.changed((), roles)


async def test_large_ones_need_two_of_finance(rooms: Rooms) -> None:
    keys = Keys(staffed(rita=["finance"], sam=["finance", "support"], tom=["support"]))
    room = office(rooms, pay("c1", 101), rule=FINANCE, keys=keys)
    await room.say()
    await refused(room, "tom")
    await refused(room, "nobody")
    await vote(room, "rita")
    await refused(room, "tom")
    await vote(room, "sam")
    assert room.ledger.paid == [101]


async def test_small_ones_need_nobody(rooms: Rooms) -> None:
    room = office(rooms, pay("c1", 100), rule=FINANCE, keys=staffed(rita=["finance"]))
    await room.say()
    assert room.ledger.paid == [100]


async def test_a_reject_needs_the_role_too(rooms: Rooms) -> None:
    keys = staffed(rita=["finance"], tom=["support"])
    room = office(rooms, pay("c1", 101), rule=FINANCE, keys=keys)
    await room.say()
    await refused(room, "tom", "reject", reason="no")
    await vote(room, "rita", "reject", reason="no")
    assert await room.status("c1") == ["denied"]


async def test_a_role_lost_before_the_second_vote_takes_the_first_with_it(rooms: Rooms) -> None:
    keys = Keys(staffed(rita=["finance"], sam=["finance"], uma=["finance"]))
    room = office(rooms, pay("c1", 101), rule=FINANCE, keys=keys)
    await room.say()
    await vote(room, "rita")
    keys.ring = staffed(rita=[], sam=["finance"], uma=["finance"])
    await vote(room, "sam")
    assert room.ledger.paid == []
    assert count(await one(room)) == (2, 1, ["sam"])
    await vote(room, "uma")
    assert room.ledger.paid == [101]


# --------------------------------------------------------------------------- the requester


class SignedIn:
    """Whom the server's runtime says a run is authenticated as."""

    user = "ann"


@pytest.fixture
def signed_in(monkeypatch: pytest.MonkeyPatch) -> SignedIn:
    made = SignedIn()
    for module in (calls, turns):
        real = module.surroundings

        def authenticated(*args: Any, _real: Any = real, **named: Any) -> Any:
            return replace(_real(*args, **named), user=made.user)

        monkeypatch.setattr(module, "surroundings", authenticated)
    return made


@pytest.mark.parametrize("rule", [ONE, TWO], ids=["one", "two"])
async def test_the_requester_may_not_approve(
    rooms: Rooms, rule: ApprovalRule, signed_in: SignedIn
) -> None:
    room = office(rooms, rule=rule)
    await room.say()
    await refused(room, "ann")
    signed_in.user = "rita"
    await vote(room, "rita")
    if rule.quorum > 1:
        signed_in.user = "ann"
        await refused(room, "ann")
        signed_in.user = "sam"
        await vote(room, "sam")
    assert room.ledger.paid == [100]


@pytest.mark.usefixtures("signed_in")
async def test_a15_an_answer_may_be_brought_by_another_unless_the_installation_says_so(
    rooms: Rooms,
) -> None:
    room = office(rooms, rule=ONE)
    await room.say()
    await vote(room, "rita")
    assert room.ledger.paid == [100]


async def test_a15_a_shared_key_signs_in_no_other_name_than_the_signed_in_users(
    rooms: Rooms, signed_in: SignedIn
) -> None:
    """Else one person who holds it could approve their own call, or be a quorum alone."""
    room = office(rooms, rule=TWO, relayed_answers=False)
    await room.say()
    await refused(room, "rita")
    signed_in.user = "rita"
    await vote(room, "rita")
    await refused(room, "sam")
    assert room.ledger.paid == []
    signed_in.user = "sam"
    await vote(room, "sam")
    assert room.ledger.paid == [100]


async def test_a15_what_somebody_signed_with_their_own_key_may_be_brought_by_another(
    rooms: Rooms, signed_in: SignedIn
) -> None:
    secret = bytes(range(3, 35))
    own = Key(kid="own", purpose="decision", secret=secret, created_at=3, reviewer="rita")
    room = office(rooms, rule=ONE, keys=KEYS.changed([own]), relayed_answers=False)
    await room.say()
    signed_in.user = "relay"
    await vote(room, "rita")
    assert room.ledger.paid == [100]


@pytest.mark.usefixtures("signed_in")
async def test_unless_the_installation_says_so(rooms: Rooms) -> None:
    room = office(rooms, rule=ONE, self_approval=True)
    await room.say()
    await vote(room, "ann")
    assert room.ledger.paid == [100]


async def test_without_authentication_there_is_no_requester(rooms: Rooms) -> None:
    room = office(rooms, rule=ONE)
    await room.say()
    await vote(room, "ann")
    assert room.ledger.paid == [100]


# ------------------------------------------------------------------------------ expiry


async def test_a_quorum_that_comes_together_too_late_expires(rooms: Rooms) -> None:
    clock = Clock()
    room = office(rooms, clock=clock, approval_ttl=60)
    await room.say()
    await vote(room, "rita")
    asked = await one(room)
    late = room.sign(asked, reviewer="sam")
    clock.advance(60)
    await room.resume({asked.id: late})
    assert room.ledger.paid == []
    assert error_of((await room.results())["c1"])["kind"] == "ApprovalExpired"
    assert await room.status("c1") == ["expired"]


async def test_a_vote_does_not_extend_the_deadline(rooms: Rooms) -> None:
    clock = Clock()
    room = office(rooms, clock=clock, approval_ttl=60)
    await room.say()
    first = await one(room)
    clock.advance(59)
    await vote(room, "rita")
    second = await one(room)
    assert second.value["request"]["expires_at"] == first.value["request"]["expires_at"]


# -------------------------------------------------------------- several calls in one task


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def node(rooms: Rooms, *payments: Any) -> tuple[Room, dict[str, Any]]:
    """A raw ToolNode: all the message's calls run in one task, one question after another."""
    tools, _ = money_tools(rooms.ledger)

    def refund(to: str, amount: int) -> str:
        rooms.ledger.add(tool="refund", amount=amount)
        return f"refunded {amount}"

    tools = [tools[0], tool_of(refund, "refund", SendMoney)]
    specs = [gated("send_money", approval=TWO), gated("refund", approval=ONE)]
    room = rooms(specs=specs, tools=tools)
    builder = StateGraph(State)
    middleware = AdapterMiddleware(room.executor)
    wrapped: Any = middleware.awrap_tool_call
    builder.add_node("tools", ToolNode(tools, awrap_tool_call=wrapped))
    builder.add_edge(START, "tools")
    graph = builder.compile(checkpointer=room.saver)
    return replace(room, agent=graph), {"messages": [HumanMessage("go"), ai(*payments, id="m1")]}


async def open_call(room: Room) -> tuple[Interrupt, str]:
    (asked,) = open_questions(await room.agent.aget_state(room.config))
    return asked, asked.value["request"]["call_id"]


async def test_positions_stay_right_for_several_gated_calls_in_one_task(rooms: Rooms) -> None:
    room, first = node(rooms, pay("c1", 1), call("refund", "r1", to="x", amount=2), pay("c2", 3))
    await room.run(first)
    seen = []
    for _ in range(12):
        questions = open_questions(await room.agent.aget_state(room.config))
        if not questions:
            break
        asked, call_id = await open_call(room)
        need, have, _by = count(asked)
        seen.append((call_id, need, have))
        who = ["rita", "sam"][have]
        await room.run(Command(resume={asked.id: room.sign(asked, reviewer=who)}))
    assert seen == [("c1", 2, 0), ("c1", 2, 1), ("r1", 1, 0), ("c2", 2, 0), ("c2", 2, 1)]
    assert room.ledger.paid == [1, 3]
    assert [fact["amount"] for fact in room.ledger.of("refund")] == [2]
    results = await room.results()
    assert {key: value.content for key, value in results.items()} == {
        "c1": "sent 1 to bob",
        "r1": "refunded 2",
        "c2": "sent 3 to bob",
    }


async def test_positions_stay_right_after_a_restart_and_a_reject(rooms: Rooms) -> None:
    room, first = node(rooms, pay("c1", 1), pay("c2", 3), call("refund", "r1", to="x", amount=2))
    await room.run(first)
    asked, _ = await open_call(room)
    await room.run(Command(resume={asked.id: room.sign(asked, reviewer="rita")}))
    await room.run(None)
    asked, call_id = await open_call(room)
    assert (call_id, count(asked)[1]) == ("c1", 1)
    await room.run(
        Command(resume={asked.id: room.sign(asked, "reject", reviewer="sam", reason="no")})
    )
    for who in ("rita", "sam"):
        asked, call_id = await open_call(room)
        assert call_id == "c2"
        await room.run(Command(resume={asked.id: room.sign(asked, reviewer=who)}))
        await room.run(None)
    asked, call_id = await open_call(room)
    assert call_id == "r1"
    await room.run(Command(resume={asked.id: room.sign(asked, reviewer="rita")}))
    assert room.ledger.paid == [3]
    results = await room.results()
    assert error_of(results["c1"])["kind"] == "ApprovalDenied"
    assert results["c2"].content == "sent 3 to bob"
    assert results["r1"].content == "refunded 2"


async def test_two_calls_gather_their_votes_side_by_side(rooms: Rooms) -> None:
    """create_agent: a task for each call, so both are open at once."""
    room = office(rooms, pay("c1", 1), pay("c2", 2))
    await room.say()
    for have, who in enumerate(["rita", "sam"]):
        asked = await room.asked()
        assert [count(q)[1] for q in asked] == [have, have]
        assert room.ledger.paid == []
        await room.resume({q.id: room.sign(q, reviewer=who) for q in asked})
    assert sorted(room.ledger.paid) == [1, 2]
    await room.results()
