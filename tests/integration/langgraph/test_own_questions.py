"""Tools that ask with interrupt() themselves, beside other calls: whose answer is whose."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from tests.support.front_ends import EVERYWHERE, OWN, Desk, FrontEnd, desk, over
from tests.support.graphs import CONFIG
from tests.support.room import Rooms, free, gated, open_questions, pay, tool_of
from tests.support.script import ai, call
from tests.support.toolkit import Bench, direct, graph_of
from typing_extensions import override

from adapter import Effects
from adapter.langgraph import one_use

pytestmark = pytest.mark.anyio


class State(TypedDict, total=False):
    messages: Any
    said: Any


BESIDE = over(*OWN)
ANSWERS = {"tmp": "yes", "prod": "no"}


class OneWay(InMemorySaver):
    """A checkpointer that can be read in the graph's own way only, as those of databases are."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    @override
    def get_tuple(self, config: Any) -> Any:
        if self.how == "async" and threading.current_thread() is not threading.main_thread():
            raise NotImplementedError("asynchronous only")
        return super().get_tuple(config)

    @override
    async def aget_tuple(self, config: Any) -> Any:
        if self.how == "sync" and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("bound to another event loop")
        return super().get_tuple(config)


def wiping(
    rooms: Rooms, end: FrontEnd, *calls: Any, effects: Effects | None = None, saver: Any = None
) -> Desk:
    def wipe(text: str) -> str:
        if interrupt(f"wipe {text}?") == "no":
            return f"kept {text}"
        rooms.ledger.add(tool="wipe", text=text)
        return f"wiped {text} {interrupt('sure?')}"

    return desk(
        rooms,
        end,
        ai(*calls),
        tools=[tool_of(wipe, "wipe")],
        specs=[free("wipe", effects=effects or Effects(idempotent=True)), gated("send_money")],
        saver=saver,
    )


async def told(room: Desk) -> list[str]:
    """Answer every question by its id, as one who reads it."""
    seen: list[str] = []
    for _ in range(9):
        open_now = await room.asked()
        if not open_now:
            return seen
        question = open_now[0]
        if isinstance(question.value, dict):
            seen.append("pay")
            await room.decide(question)
        else:
            seen.append(question.value)
            answer = ANSWERS.get(question.value[5:-1], "sure")
            await room.resume({question.id: answer})
    raise AssertionError(seen)


@EVERYWHERE
async def test_each_tool_gets_the_answer_to_its_own_question(rooms: Rooms, end: FrontEnd) -> None:
    room = wiping(
        rooms, end, call("wipe", "t", text="tmp"), call("wipe", "p", text="prod"), pay("c1", 5)
    )
    await room.say()
    seen = await told(room)
    assert sorted(seen) == ["pay", "sure?", "wipe prod?", "wipe tmp?"]
    found = await room.results()
    assert (found["t"].content, found["p"].content) == ("wiped tmp sure", "kept prod")
    assert {fact["text"] for fact in rooms.ledger.of("wipe")} == {"tmp"}
    assert room.ledger.paid == [5]


@BESIDE
@pytest.mark.parametrize("first", ["wipe", "pay"])
async def test_an_unaddressed_answer_is_for_the_question_that_is_shown(
    rooms: Rooms, end: FrontEnd, first: str
) -> None:
    calls = [call("wipe", "p", text="prod"), pay("c1", 5)]
    calls = calls if first == "wipe" else calls[::-1]
    room = wiping(rooms, end, *calls, saver=OneWay(end.how))
    await room.say()
    for _ in range(4):
        open_now = await room.asked()
        if not open_now:
            break
        (question,) = open_now
        mine = "no" if isinstance(question.value, str) else room.sign(question)
        await room.run(Command(resume=mine))
    assert (await room.results())["p"].content == "kept prod"
    assert (rooms.ledger.of("wipe"), room.ledger.paid) == ([], [5])


@BESIDE
async def test_a_read_that_asks_gets_its_own_answer_too(rooms: Rooms, end: FrontEnd) -> None:
    room = wiping(
        rooms,
        end,
        call("wipe", "p", text="prod"),
        pay("c1", 5),
        effects=Effects(read_only=True),
    )
    await room.say()
    await told(room)
    assert (await room.results())["p"].content == "kept prod"
    assert room.ledger.paid == [5]


@BESIDE
async def test_a_signed_approval_reaches_no_tool(rooms: Rooms, end: FrontEnd) -> None:
    room = wiping(rooms, end, call("wipe", "p", text="prod"), pay("c1", 5))
    await room.say()
    question = next(iter(await room.asked()))
    if isinstance(question.value, str):
        await room.resume({question.id: "no"})
        (question,) = await room.asked()
        answer = room.sign(question)
        await room.resume({question.id: answer})
    else:
        answer = room.sign(question)
        await room.resume({question.id: answer})
        (own,) = await room.asked()
        await room.resume({own.id: answer})
        (again,) = await room.asked()
        assert again.id == own.id
        await room.resume({own.id: "no"})
    assert (await room.results())["p"].content == "kept prod"
    assert rooms.ledger.of("wipe") == []


@pytest.mark.parametrize("how", ["one after the other", "gathered"])
async def test_a_nodes_own_question_is_not_answered_with_a_tools(bench: Bench, how: str) -> None:
    def ask(text: str) -> str:
        return f"{text}: {interrupt(text)}"

    shop = bench.shop(
        tools=[tool_of(ask, "ask")], specs=[free("ask", effects=Effects(idempotent=True))]
    )

    async def node(_state: State) -> State:
        calls = [direct("ask", name, text=name) for name in ("a", "b")]
        if how == "gathered":
            said = list(await asyncio.gather(*(shop.executor.run(one) for one in calls)))
        else:
            said = [await shop.executor.run(one) for one in calls]
        return {"said": [*said, f"raw: {interrupt('raw')}"]}

    app = graph_of(one_use(node), InMemorySaver(), State)
    await app.ainvoke({"messages": []}, CONFIG)
    for _ in range(5):
        open_now = open_questions(await app.aget_state(CONFIG))
        if not open_now:
            break
        await app.ainvoke(
            Command(resume={open_now[0].id: f"answer to {open_now[0].value}"}), CONFIG
        )
    state = await app.aget_state(CONFIG)
    assert state.values["said"] == ["a: answer to a", "b: answer to b", "raw: answer to raw"]
