"""An unsigned answer without an id, given once: it never stands in the way of the signed ones.

LangGraph keeps such an answer and delivers it again with every later run of the task. Effects are
counted outside the graph; each attack has its twin without the bad answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.types import Command, Interrupt, interrupt
from pydantic import ValidationError
from tests.support.flows import Board, shown
from tests.support.room import KEYS, Rooms, error_of, gated, open_questions, pay, tool_of
from tests.support.toolkit import CONFIG, NO, Bench, Shop, asking, direct, graph_of, of

from adapter import ApprovalDenied
from adapter.flow import Flow, FlowContext, Map
from adapter.langgraph import LangGraphApproval, compile_flow, one_use, run_sync, tool_node

pytestmark = pytest.mark.anyio

TEXTS = ("x", "y", "z")


def by_map(shop: Shop) -> tuple[Any, Any]:
    flow = (
        Flow("f", state=Board)
        .node("m", Map(lambda _: [{"text": text} for text in TEXTS], tool="pay", into="log"))
        .end("m")
    )
    graph = compile_flow(flow, executor=shop.executor)
    return graph.compile(checkpointer=InMemorySaver()), {}


def by_gate(shop: Shop) -> tuple[Any, Any]:
    async def work(_: Board, ctx: FlowContext) -> dict[str, Any]:
        return {"log": [await ctx.call("pay", {"text": text}) for text in TEXTS]}

    flow = Flow("f", state=Board).node("m", work, pause=shown).end("m")
    graph = compile_flow(flow, executor=shop.executor)
    return graph.compile(checkpointer=InMemorySaver()), {}


def by_one_use(shop: Shop) -> tuple[Any, Any]:
    async def sell(_: MessagesState) -> dict[str, Any]:
        for text in TEXTS:
            await shop.executor.run(direct("pay", text, text=text))
        return {}

    return graph_of(one_use(sell)), {"messages": []}


def by_sync_node(shop: Shop) -> tuple[Any, Any]:
    def sell(_: MessagesState) -> dict[str, Any]:
        for text in TEXTS:
            run_sync(shop.executor.run(direct("pay", text, text=text)))
        return {}

    return graph_of(one_use(sell)), {"messages": []}


def by_tool_node(shop: Shop) -> tuple[Any, Any]:
    calls = [of("pay", text, text=text) for text in TEXTS]
    return graph_of(tool_node(shop.registry, executor=shop.executor)), asking(*calls, id="m1")


WAYS = {
    "map": by_map,
    "gate": by_gate,
    "one_use": by_one_use,
    "sync one_use": by_sync_node,
    "tool_node": by_tool_node,
}


@dataclass
class Thread:
    """A thread whose one task asks several questions."""

    shop: Shop
    app: Any
    start: Any
    sync: bool

    async def run(self, given: Any) -> Any:
        if self.sync:
            return await asyncio.to_thread(self.app.invoke, given, CONFIG)
        return await self.app.ainvoke(given, CONFIG)

    async def asked(self) -> Interrupt | None:
        """The open question, if there is one."""
        found = open_questions(await self.app.aget_state(CONFIG))
        return found[0] if found else None

    async def to(self, number: int) -> Interrupt:
        """Begin, and answer so many questions."""
        await self.run(self.start)
        for _ in range(number):
            asked = await self.asked()
            assert asked is not None
            await self.run(self.shop.answer(asked))
        asked = await self.asked()
        assert asked is not None
        return asked

    async def rest(self, between: Callable[[], Any] | None = None) -> int:
        """Answer by id whatever is asked; return how many answers that took."""
        answers = 0
        while (asked := await self.asked()) is not None:
            if between is not None:
                await between()
            await self.run(self.shop.answer(asked))
            answers += 1
            assert answers < 10, "the same question again and again"
        return answers


def thread(bench: Bench, way: str, *, sync: bool = False, mode: Any = "raise") -> Thread:
    shop = bench.shop(store=bench.store("lasting"), port=LangGraphApproval(KEYS, on_invalid=mode))
    return Thread(shop, *WAYS[way](shop), sync)


def paid(bench: Bench) -> list[str]:
    return [fact["text"] for fact in bench.ledger.of("pay")]


EVERY_WAY = pytest.mark.parametrize("way", WAYS)
EVERY_PLACE = pytest.mark.parametrize("place", [0, 1, 2])


@EVERY_WAY
@EVERY_PLACE
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_a_refused_bare_answer_costs_the_thread_nothing(
    bench: Bench, way: str, place: int, sync: bool
) -> None:
    one = thread(bench, way, sync=sync and way != "one_use")
    asked = await one.to(place)
    before = paid(bench)
    with pytest.raises(ValidationError):
        await one.run(Command(resume=True))
    still = await one.asked()
    assert still is not None
    assert (still.id, still.value) == (asked.id, asked.value)
    assert paid(bench) == before
    total = len(TEXTS) + (way == "gate")
    assert await one.rest() == total - place
    assert paid(bench) == list(TEXTS)


@EVERY_WAY
async def test_its_twin_takes_as_many_answers(bench: Bench, way: str) -> None:
    one = thread(bench, way)
    await one.run(one.start)
    assert await one.rest() == len(TEXTS) + (way == "gate")
    assert paid(bench) == list(TEXTS)


@EVERY_WAY
@EVERY_PLACE
async def test_going_on_without_input_in_between_asks_the_same_again(
    bench: Bench, way: str, place: int
) -> None:
    one = thread(bench, way)
    await one.to(place)
    with pytest.raises(ValidationError):
        await one.run(Command(resume=True))

    async def nothing() -> None:
        before, was = await one.asked(), paid(bench)
        for _ in range(2):
            with suppress(ValidationError):
                await one.run(None)
        after = await one.asked()
        assert before is not None
        assert after is not None
        assert (after.id, after.value["binding"]) == (before.id, before.value["binding"])
        assert paid(bench) == was

    await one.rest(nothing)
    assert paid(bench) == list(TEXTS)


@EVERY_WAY
@EVERY_PLACE
@pytest.mark.parametrize("keyed", [0, 1], ids=["at once", "after an answer by id"])
async def test_a_good_bare_answer_counts_after_a_bad_one(
    bench: Bench, way: str, place: int, keyed: int
) -> None:
    one = thread(bench, way)
    asked = await one.to(place)
    with pytest.raises(ValidationError):
        await one.run(Command(resume=True))
    if keyed:
        await one.run(one.shop.answer(asked))
    while (now := await one.asked()) is not None:
        await one.run(Command(resume=one.shop.sign(now)))
    assert paid(bench) == list(TEXTS)


@EVERY_WAY
async def test_a_bad_bare_answer_at_every_question(bench: Bench, way: str) -> None:
    one = thread(bench, way)
    await one.run(one.start)
    given = iter(range(100))

    async def junk() -> None:
        with pytest.raises(ValidationError):
            await one.run(Command(resume=f"yes {next(given)}"))

    await one.rest(junk)
    assert paid(bench) == list(TEXTS)


@EVERY_WAY
async def test_a_no_by_id_is_still_a_no_after_it(bench: Bench, way: str) -> None:
    one = thread(bench, way)
    asked = await one.to(1)
    with pytest.raises(ValidationError):
        await one.run(Command(resume=True))
    own = way in ("one_use", "sync one_use")  # there the denial is raised
    with pytest.raises(ApprovalDenied) if own else nullcontext():
        await one.run(one.shop.answer(asked, NO))
    assert paid(bench) == ([] if way == "gate" else ["x"])


@EVERY_WAY
@pytest.mark.parametrize("mode", ["raise", "ask"])
async def test_it_is_told_once_for_the_question_it_was_given_to(
    bench: Bench, way: str, mode: str
) -> None:
    one = thread(bench, way, mode=mode)
    await one.run(one.start)
    with pytest.raises(ValidationError) if mode == "raise" else nullcontext():
        await one.run(Command(resume=True))
    asked = await one.asked()
    assert asked is not None
    await one.run(one.shop.answer(asked))
    later = await one.asked()
    assert later is not None
    assert "refused" not in later.value
    await one.rest()
    thread_id = CONFIG["configurable"]["thread_id"]
    events = [event.line for event in await one.shop.store.events(thread_id)]
    assert sum("answer_refused" in str(line) for line in events) == 1


async def test_no_question_behind_a_lost_answer_gets_it(bench: Bench) -> None:
    """The node failed after a payment: LangGraph keeps no answer of it, but the bare one."""
    shop = bench.shop(store=bench.store("lasting"))
    stumbles = iter([True])

    async def sell(_: MessagesState) -> dict[str, Any]:
        await shop.executor.run(direct("pay", "x", text="x"))
        if next(stumbles, False):
            raise RuntimeError
        await shop.executor.run(direct("pay", "y", text="y"))
        return {}

    one = Thread(shop, graph_of(one_use(sell)), {"messages": []}, sync=False)
    asked = await one.to(0)
    with pytest.raises(ValidationError):
        await one.run(Command(resume=True))
    with pytest.raises(RuntimeError):
        await one.run(shop.answer(asked))
    await one.run(None)
    later = await one.asked()
    assert later is not None
    assert later.value["request"]["arguments"] == {"text": "y"}
    assert paid(bench) == ["x"]
    assert await one.rest() == 1
    assert paid(bench) == ["x", "y"]


async def test_a_tools_own_question_does_not_get_it_in_a_run_that_answers_by_id(
    bench: Bench,
) -> None:
    def confirm(text: str) -> str:
        bench.ledger.add(tool="confirm", text=text, said=interrupt("sure?"))
        return text

    shop = bench.shop(tools=[tool_of(confirm, "confirm")], specs=[gated("confirm")])
    node = tool_node(shop.registry, executor=shop.executor)
    one = Thread(shop, graph_of(node), asking(of("confirm", "c", text="x"), id="m1"), sync=False)
    asked = await one.to(0)
    with pytest.raises(ValidationError):
        await one.run(Command(resume="yes"))
    await one.run(shop.answer(asked))
    own = await one.asked()
    assert own is not None
    assert own.value == "sure?"
    assert bench.ran("confirm") == 0
    await one.run(Command(resume={own.id: "no"}))
    assert [fact["said"] for fact in bench.ledger.of("confirm")] == ["no"]


@pytest.mark.parametrize("between", [False, True], ids=["at once", "without input first"])
async def test_an_agent_goes_on_after_a_bad_bare_answer(rooms: Rooms, between: bool) -> None:
    room = rooms.paying(on_invalid="raise")
    asked = await room.question()
    with pytest.raises(ValidationError):
        await room.resume(True)
    if between:
        await room.run(None)
    assert room.ledger.paid == []
    await room.decide(asked)
    assert room.ledger.paid == [100]
    await room.results()


async def test_an_agents_other_question_does_not_get_it(rooms: Rooms) -> None:
    room = rooms.paying(pay("c1"), pay("c2", 200), on_invalid="raise")
    await room.say()
    first, second = await room.asked()
    await room.decide(first)
    with pytest.raises(ValidationError):
        await room.resume(True)
    assert room.ledger.paid == [100]
    await room.decide(second, "reject", reason="no")
    assert room.ledger.paid == [100]
    assert error_of((await room.results())["c2"])["kind"] == "ApprovalDenied"
