"""Answers that come from another moment: an old button, an old checkpoint, a forged saver."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command
from tests.support.room import Room, Rooms, error_of, pay
from tests.support.script import ai

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------ an old button (APR-07)


@pytest.mark.parametrize("how", ["by the old id", "by the new id", "bare"])
async def test_apr07_the_answer_to_the_first_question_is_none_to_the_second(
    rooms: Rooms, how: str
) -> None:
    room = rooms(ai(pay("c1", 1)), ai(pay("c2", 2)))
    first = await room.question()
    old_yes = room.sign(first)
    await room.decide(first, "reject", reason="no")
    (second,) = await room.asked()
    assert second.value["request"]["arguments"]["amount"] == 2
    answers = {"by the old id": {first.id: old_yes}, "by the new id": {second.id: old_yes}}
    await room.resume(answers.get(how, old_yes))
    (still,) = await room.asked()
    assert still.id == second.id
    assert room.ledger.paid == []
    await room.decide(still)
    assert room.ledger.paid == [2]
    assert error_of((await room.results())["c1"])["kind"] == "ApprovalDenied"


async def test_apr07_a_stale_answer_is_audited(rooms: Rooms) -> None:
    room = rooms(ai(pay("c1", 1)), ai(pay("c2", 2)))
    first = await room.question()
    old_yes = room.sign(first)
    await room.decide(first, "reject", reason="no")
    (second,) = await room.asked()
    await room.resume({second.id: old_yes})
    (refused,) = await room.events("answer_refused")
    assert (refused["call_id"], refused["data"]["code"]) == ("c2", "invalid_answer")


# ------------------------------------------------------------- an old checkpoint (APR-15)


async def finished(rooms: Rooms) -> tuple[Room, Any, dict[str, Any]]:
    room = rooms(ai(pay("c1", 1)))
    asked = await room.question()
    paused = (await room.agent.aget_state(room.config)).config
    answer = {asked.id: room.sign(asked)}
    await room.resume(answer)
    assert room.ledger.paid == [1]
    return room, paused, answer


async def test_apr15_an_earlier_checkpoint_without_an_answer_asks_again(rooms: Rooms) -> None:
    room, paused, _ = await finished(rooms)
    await room.run(None, paused)
    (asked,) = await room.asked()
    assert room.ledger.paid == [1]
    await room.decide(asked)
    assert room.ledger.paid == [1, 1], "a fork is another call, and a person has approved it"


async def test_apr15_the_old_approval_is_none_for_a_fork_with_other_arguments(
    rooms: Rooms,
) -> None:
    room, paused, answer = await finished(rooms)
    state = await room.agent.aget_state(paused)
    altered = state.values["messages"][-1].model_copy(deep=True)
    altered.tool_calls[0]["args"]["amount"] = 999
    fork = await room.agent.aupdate_state(paused, {"messages": [altered]}, as_node="model")
    await room.run(None, fork)
    (asked,) = await room.asked()
    assert asked.value["request"]["arguments"]["amount"] == 999
    for value in answer.values():
        await room.resume({asked.id: value})
    assert room.ledger.paid == [1]
    (still,) = await room.asked()
    await room.decide(still, "reject", reason="no")
    assert room.ledger.paid == [1]


async def test_apr15_an_explicit_head_checkpoint_is_answered_like_the_thread(
    rooms: Rooms,
) -> None:
    room = rooms(ai(pay("c1", 1)))
    asked = await room.question()
    head = (await room.agent.aget_state(room.config)).config
    assert head["configurable"]["checkpoint_id"]
    await room.run(Command(resume={asked.id: room.sign(asked)}), head)
    assert room.ledger.paid == [1]
    assert len(room.model.sent) == 2, "the model is not asked again for what it has proposed"


# ------------------------------------------------------------------ what a saver holds


async def test_ckp02_strict_checkpoint_types_need_none_of_ours(
    rooms: Rooms, recwarn: pytest.WarningsRecorder
) -> None:
    saver = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    room = rooms(ai(pay("c1", 1)), saver=saver, store="adapter.db")
    asked = await room.question()
    other = rooms(ai(), saver=saver, store="adapter.db")
    await other.resume({asked.id: room.sign(asked)})
    assert room.ledger.paid == [1]
    assert [str(one.message) for one in recwarn if "msgpack" in str(one.message)] == []


async def test_ckp01_the_state_holds_plain_json_of_ours(rooms: Rooms) -> None:
    import json

    room = rooms(ai(pay("c1", 1)))
    asked = await room.question()
    await room.decide(asked)
    values = dict((await room.agent.aget_state(room.config)).values)
    del values["messages"]
    assert {"audit_log", "total_tool_calls", "turn_id"} <= values.keys()
    assert json.loads(json.dumps(values)) == values
    assert json.loads(json.dumps(asked.value)) == asked.value


class Sealed:
    """A cipher for checkpoints."""

    def __init__(self) -> None:
        self.box = AESGCM(bytes(range(16)))

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "gcm", self.box.encrypt(bytes(12), plaintext, None)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "gcm"
        return self.box.decrypt(bytes(12), ciphertext, None)


async def test_ckp03_a_plain_answer_written_into_an_encrypted_saver_runs_nothing(
    rooms: Rooms,
) -> None:
    """The encrypting serializer takes plain rows too; what it then holds is still unsigned."""
    saver = InMemorySaver(serde=EncryptedSerializer(Sealed()))
    room = rooms(ai(pay("c1", 1)), saver=saver)
    asked = await room.question()
    plain = JsonPlusSerializer().dumps_typed([{"approved": True, "kind": "approve"}])
    planted = 0
    for writes in saver.writes.values():
        for place, (task, channel, _value, path) in list(writes.items()):
            if channel == "__interrupt__":
                writes[(task, -4)] = (task, "__resume__", plain, path)
                planted += 1
                assert place[0] == task
    assert planted == 1
    await room.run(None)
    assert room.ledger.paid == []
    assert await room.events("answer_refused"), "what was planted was read, and refused"
    (again,) = await room.asked()
    assert again.value["binding"] == asked.value["binding"]
    await room.resume({again.id: room.sign(again)})
    assert room.ledger.paid == [1]


async def test_ckp07_a_number_and_its_text_are_one_thread(rooms: Rooms) -> None:
    from uuid import UUID

    for thread in (7, UUID(int=5), "user-42"):
        room = rooms(ai(pay("c1", 1)), thread=thread)
        asked = await room.question()
        before = len(room.ledger.paid)
        await room.decide(asked)
        assert len(room.ledger.paid) == before + 1
        assert {event["thread_id"] for event in await room.events()} == {str(thread)}
        await room.run({"messages": [HumanMessage("more")]})
