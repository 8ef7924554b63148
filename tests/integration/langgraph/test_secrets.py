"""Nothing a caller can read lets it forge an answer or see a masked argument (APR-11, A32)."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.types import Command
from tests.support.room import KEYS, SECRET, Rooms, gated, money_tools, pay
from tests.support.script import ai

from adapter import ApprovalAlreadyDecided, KeyRing
from adapter.core.keys import PURPOSES

CARD = "account-ZX81-hush"


def forms(secret: bytes) -> Iterator[str]:
    yield secret.hex()
    yield base64.b64encode(secret).decode().rstrip("=")
    yield base64.urlsafe_b64encode(secret).decode().rstrip("=")
    yield repr(secret)[2:-1]


def hidden() -> list[str]:
    """Every form of every key, and the masked argument."""
    raw = [SECRET, *(KEYS.newest(purpose).secret for purpose in PURPOSES)]
    return [CARD, *(form for secret in raw for form in forms(secret))]


def clean(*texts: Any) -> None:
    for text in texts:
        shown = text if isinstance(text, str) else repr(text)
        for secret in hidden():
            assert secret not in shown


@pytest.mark.anyio
async def test_no_secret_is_anywhere_a_caller_can_look(
    rooms: Rooms, caplog: pytest.LogCaptureFixture
) -> None:
    tools, specs = money_tools(rooms.ledger)
    specs[0] = gated("send_money", masks=("to",))
    room = rooms(ai(pay("c1", 100, CARD)), tools=tools, specs=specs, store="adapter.db")
    seen: list[Any] = []
    modes = ["values", "updates", "custom"]
    with caplog.at_level(logging.DEBUG):
        ask = {"messages": [HumanMessage("pay")]}
        seen += [part async for part in room.agent.astream(ask, room.config, stream_mode=modes)]
        (asked,) = await room.asked()
        paused = (await room.agent.aget_state(room.config)).config
        good = room.sign(asked)
        expected = good["mac"]
        for bad in ("x", {**good, "mac": "0" * 64}, {**good, "binding": "1" * 64}, [good]):
            answer: Any = Command(resume={asked.id: bad})
            parts = room.agent.astream(answer, room.config, stream_mode=modes)
            seen += [part async for part in parts]
        refused = (await room.asked())[0]
        clean(asked, refused, repr(asked.value["seal"]))
        history = [state async for state in room.agent.aget_state_history(room.config)]
        pauses = [q for state in history for task in state.tasks for q in task.interrupts]
        clean(*pauses)
        assert expected not in repr(pauses)
        await room.resume({asked.id: good})
        with pytest.raises(ApprovalAlreadyDecided) as caught:
            await room.resume({asked.id: good}, paused)
    clean(str(caught.value), repr(caught.value), caplog.text, await room.events())
    assert expected not in str(caught.value)
    assert expected not in caplog.text
    assert expected not in repr(await room.events())
    values = (await room.agent.aget_state(room.config)).values
    clean(values["audit_log"])
    interrupts = [part for part in seen if "__interrupt__" in repr(part)]
    assert interrupts
    clean(*[part[1].get("__interrupt__") for part in interrupts])
    assert room.ledger.of("send_money")[0]["to"] == CARD


@pytest.mark.anyio
async def test_no_secret_is_in_the_adapters_own_file(rooms: Rooms) -> None:
    room = rooms.paying(store="adapter.db")
    asked = await room.question()
    await room.decide(asked)
    await room.store.aclose()
    raw = (rooms.folder / "adapter.db").read_bytes()
    for secret in hidden()[1:]:
        assert secret.encode() not in raw
    for purpose in PURPOSES:
        assert KEYS.newest(purpose).secret not in raw


@pytest.mark.anyio
async def test_a_key_in_the_config_is_not_copied_into_question_or_audit(rooms: Rooms) -> None:
    room = rooms.paying()
    config = {"configurable": {"thread_id": "thread-1", "api_key": "sk-config-hush-0123456789"}}
    await room.run({"messages": [HumanMessage("pay")]}, config)
    (asked,) = await room.asked()
    await room.resume({asked.id: room.sign(asked)}, config)
    assert "hush" not in repr(asked)
    assert "hush" not in repr(await room.events())


@pytest.mark.anyio
async def test_the_question_alone_does_not_authorize(rooms: Rooms) -> None:
    """A33: everything shown, put together any way, is no answer."""
    room = rooms.paying()
    asked = await room.question()
    value = asked.value
    decision = room.sign(asked)["decision"]
    parts = [
        value,
        value["seal"],
        {**value["seal"], "binding": value["binding"], "decision": decision},
        {
            "binding": value["binding"],
            "decision": decision,
            "kid": "shared",
            "alg": "HS256",
            "mac": value["binding"],
        },
    ]
    for part in parts:
        await room.resume({asked.id: part})
    assert room.ledger.paid == []
    await room.decide(asked)
    assert room.ledger.paid == [100]


def test_a_ring_never_shows_its_secrets() -> None:
    clean(KEYS, repr(KEYS.newest("decision")), str(KeyRing.from_secret(SECRET)))
