"""What counts as an answer, how it may be delivered, and what a bad one costs: nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from langgraph.errors import is_invalid_resume
from langgraph.types import Command
from pydantic import ValidationError
from tests.support.room import KEYS, Rooms, pay
from tests.support.script import ai

from adapter import ApprovalDecision, KeyRing
from adapter.langgraph import LangGraphApproval

OTHER = LangGraphApproval(KeyRing.from_secret(b"another-secret-0123456789-abcdefg"))


def changed(path: tuple[str, ...], value: Any) -> Callable[[dict[str, Any]], Any]:
    def change(good: dict[str, Any]) -> Any:
        made = at = copy.deepcopy(good)
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        return made

    return change


def without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda good: {key: value for key, value in good.items() if key != name}


BAD: dict[str, Callable[[dict[str, Any]], Any]] = {
    "true": lambda _: True,
    "false": lambda _: False,
    "zero": lambda _: 0,
    "one": lambda _: 1,
    "empty text": lambda _: "",
    "yes": lambda _: "yes",
    "empty list": lambda _: [],
    "empty map": lambda _: {},
    "bare decision": lambda _: {"approved": True},
    "bare kind": lambda _: {"kind": "approve", "approved": True},
    "host's own": lambda _: {"type": "approve"},
    "host's list": lambda _: [{"type": "accept"}],
    "decisions": lambda good: {"decisions": [good]},
    "decisions of the host": lambda _: {"decisions": [{"type": "approve"}]},
    "in a list": lambda good: [good],
    "as JSON text": lambda good: json.dumps(good),
    "nonce map": lambda _: {"0" * 32: "x"},
    "no mac": without("mac"),
    "no kid": without("kid"),
    "no binding": without("binding"),
    "extra field": lambda good: {**good, "more": 1},
    "zero mac": changed(("mac",), "0" * 64),
    "short mac": changed(("mac",), "00"),
    "mac no text": changed(("mac",), 7),
    "alg none": changed(("alg",), "none"),
    "alg of another": changed(("alg",), "Ed25519"),
    "unknown kid": changed(("kid",), "other"),
    "kid no text": changed(("kid",), None),
    "other binding": changed(("binding",), "0" * 64),
    "edited after signing": changed(("decision", "edited_args"), {"to": "eve", "amount": 999_999}),
    "reviewer after signing": changed(("decision", "reviewer"), "someone"),
    "kind after signing": changed(("decision", "kind"), "reject"),
    "deep": lambda _: _deep(),
    "nan": lambda _: {"amount": float("nan")},
    "surrogate": lambda _: "\ud800",
}


def _deep() -> Any:
    made: Any = []
    for _ in range(150):
        made = [made]
    return made


@pytest.mark.anyio
@pytest.mark.parametrize("name", sorted(BAD))
async def test_a_bad_answer_by_id_costs_nothing(rooms: Rooms, name: str) -> None:
    room = rooms.paying()
    asked = await room.question()
    good = room.sign(asked)

    await room.resume({asked.id: BAD[name](good)})

    (still,) = await room.asked()
    assert still.id == asked.id
    assert still.value["binding"] == asked.value["binding"]
    assert still.value["seal"] == asked.value["seal"]
    assert still.value["refused"]["code"] == "invalid_answer"
    assert room.ledger.paid == []
    (refused,) = await room.events("answer_refused")
    assert refused["data"]["code"] == "invalid_answer"

    await room.resume({asked.id: good})
    assert room.ledger.paid == [100]
    await room.results()


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["true", "bare decision", "zero mac", "in a list", "as JSON text"])
async def test_a_bad_answer_in_mode_raise_is_the_hosts_invalid_resume(
    rooms: Rooms, name: str
) -> None:
    room = rooms.paying(on_invalid="raise")
    asked = await room.question()
    good = room.sign(asked)

    with pytest.raises(ValidationError) as caught:
        await room.resume({asked.id: BAD[name](good)})

    assert is_invalid_resume(caught.value)
    assert good["mac"] not in str(caught.value)
    assert good["binding"] not in str(caught.value)
    (still,) = await room.asked()
    assert (still.id, still.value) == (asked.id, asked.value)
    assert len(await room.events("answer_refused")) == 1
    await room.resume({asked.id: good})
    assert room.ledger.paid == [100]


@pytest.mark.anyio
@pytest.mark.parametrize("bad", [True, "yes", {"approved": True}, {"decisions": []}, 1, [1]])
async def test_a_bare_bad_answer_stays_refused_and_the_good_one_by_id_works(
    rooms: Rooms, bad: Any
) -> None:
    room = rooms.paying()
    asked = await room.question()
    inputs: list[Any] = [Command(resume=bad), None, None]
    for given in inputs:
        await room.run(given)
        (still,) = await room.asked()
        assert still.id == asked.id
        assert room.ledger.paid == []
    # Redelivered by LangGraph, refused each time, told once.
    assert len(await room.events("answer_refused")) == 1
    await room.decide(asked)
    assert room.ledger.paid == [100]
    await room.results()


@pytest.mark.anyio
async def test_a_bare_good_answer_counts_when_one_question_is_open(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.resume(room.sign(asked))
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_a_bare_answer_with_two_questions_open_runs_nothing(rooms: Rooms) -> None:
    room = rooms.paying(pay("c1"), pay("c2", 200))
    await room.say()
    first, second = await room.asked()
    with pytest.raises(RuntimeError, match="interrupt id"):
        await room.resume(room.sign(first))
    assert room.ledger.paid == []
    await room.decide(second)
    await room.decide(first)
    assert room.ledger.paid == [200, 100]


@pytest.mark.anyio
@pytest.mark.parametrize("empty", [{}, {1: "x"}])
async def test_a_map_that_is_no_map_of_ids_runs_nothing(rooms: Rooms, empty: Any) -> None:
    room = rooms.paying()
    asked = await room.question()
    with suppress(Exception):  # LangGraph may refuse it in its own words
        await room.resume(empty)
    assert room.ledger.paid == []
    await room.decide(asked)
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_none_is_no_answer(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.resume({asked.id: None})
    await room.run(None)
    (still,) = await room.asked()
    assert still.id == asked.id
    assert room.ledger.paid == []
    await room.decide(asked)
    assert room.ledger.paid == [100]


@pytest.mark.anyio
async def test_an_answer_for_an_unknown_id_changes_nothing(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    await room.resume({"f" * 32: room.sign(asked)})
    assert room.ledger.paid == []
    assert [still.id for still in await room.asked()] == [asked.id]


@pytest.mark.anyio
async def test_an_answer_to_one_question_is_none_to_another(rooms: Rooms) -> None:
    room = rooms.paying(pay("c1"), pay("c2", 200))
    await room.say()
    first, second = await room.asked()
    await room.resume({second.id: room.sign(first), first.id: room.sign(second)})
    assert room.ledger.paid == []
    assert {still.id for still in await room.asked()} == {first.id, second.id}


@pytest.mark.anyio
async def test_positional_lists_are_refused(rooms: Rooms) -> None:
    room = rooms.paying(pay("c1"), pay("c2", 200))
    await room.say()
    first, second = await room.asked()
    both = [room.sign(second, "reject", reason="no"), room.sign(first)]
    for value in (both, {"decisions": both}):
        await room.resume({first.id: value, second.id: value})
        assert room.ledger.paid == []
        assert [q.id for q in await room.asked()] == [first.id, second.id]


@pytest.mark.anyio
async def test_keys_of_another_installation_do_not_count(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    with pytest.raises(Exception, match=r"seal|altered|sealed"):
        OTHER.resume_value(asked, ApprovalDecision(kind="approve"))
    value = copy.deepcopy(asked.value)
    forged = LangGraphApproval(KEYS).resume_value(
        {"value": value}, ApprovalDecision(kind="approve")
    )
    assert forged["binding"] == asked.value["binding"]


@pytest.mark.anyio
async def test_an_altered_question_is_not_signed(rooms: Rooms) -> None:
    from adapter import InvalidAnswer

    room = rooms.paying()
    asked = await room.question()
    value = copy.deepcopy(asked.value)
    value["request"]["arguments"]["amount"] = 1
    with pytest.raises(InvalidAnswer):
        room.approval.resume_value({"value": value}, ApprovalDecision(kind="approve"))


@pytest.mark.anyio
async def test_good_answers_count_after_many_bad_ones_which_are_merged(rooms: Rooms) -> None:
    room = rooms.paying()
    asked = await room.question()
    for number in range(25):
        await room.resume({asked.id: {"junk": number}})
    refused = await room.events("answer_refused")
    assert 20 <= len(refused) <= 40  # 20 a minute; the minute may turn over
    if len(refused) == 20:
        assert len(await room.events("answers_refused_merged")) == 1
    await room.decide(asked)
    assert room.ledger.paid == [100]
    await room.verified()


@pytest.mark.anyio
async def test_a_refused_bare_answer_does_not_mark_a_later_question(rooms: Rooms) -> None:
    room = rooms(ai(pay("c1")), ai(pay("c2", 200)))
    asked = await room.question()
    await room.resume("junk")
    await room.decide(asked)
    (later,) = await room.asked()
    assert later.value["request"]["call_id"] == "c2"
    assert "refused" not in later.value
    await room.decide(later)
    assert room.ledger.paid == [100, 200]
