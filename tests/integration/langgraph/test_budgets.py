"""Budgets around the model: scopes, tokens, cost, rates, and what a spent one does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from pydantic import PrivateAttr
from tests.support.room import Clock, Room, Rooms, error_of, free, paired, pay, tool_of
from tests.support.script import Script, ai, call
from typing_extensions import override

from adapter import Budgets, ConfigurationError, Effects, Limits, Retry, ToolError
from adapter.langgraph.spending import closing

pytestmark = pytest.mark.anyio

TURN, FOREVER = closing("turn:t:u:model_calls"), closing("user:u:model_calls")
TOO_OFTEN = closing("rate:user:u:model_calls")


class Named(Script):
    """A model with a name and a limit of its own."""

    model_name: str = "gpt-test"
    max_tokens: int | None = None


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> type[Named]:
    monkeypatch.setattr("tests.support.room.Script", Named)
    return Named


def note(n: int = 0) -> Any:
    return call("note", f"n{n}", text=str(n))


def spent(sent: int, answered: int = 0, cached: int = 0) -> dict[str, Any]:
    return {
        "input_tokens": sent,
        "output_tokens": answered,
        "total_tokens": sent + answered,
        "input_token_details": {"cache_read": cached},
    }


def using(sent: int, answered: int = 0, *calls: Any, cached: int = 0, **more: Any) -> AIMessage:
    text = "" if calls else "said"
    return ai(*calls, text=text, usage_metadata=spent(sent, answered, cached), **more)


async def used(room: Room, what: str, span: str = "thread") -> int:
    """The value of a counter of the thread, or of a user."""
    scope = f"thread:{room.thread}:{what}" if span == "thread" else f"{span}:{what}"
    return (await room.store.charge([], show=[scope])).used[scope]


async def said(room: Room) -> str:
    messages = await room.messages()
    paired(messages)
    assert isinstance(messages[-1], AIMessage)
    assert not messages[-1].tool_calls
    return str(messages[-1].content)


def by(who: str, room: Room, **more: Any) -> dict[str, Any]:
    """The config of a run of an authenticated user, as the server makes it."""
    user = SimpleNamespace(identity=who)
    return {"configurable": {"thread_id": room.thread, "langgraph_auth_user": user, **more}}


def hello(text: str = "x", **more: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, **more)]}


# ------------------------------------------------------------------------------ scopes, counts


@pytest.mark.parametrize(("limit", "made"), [(1, 1), (3, 3), (4, 4), (9, 4)])
async def test_exactly_the_model_calls_of_a_thread_are_made(
    rooms: Rooms, limit: int, made: int
) -> None:
    room = rooms(budgets=Budgets(model_calls_per_thread=limit))
    for n in range(4):
        await room.say(str(n))
    assert len(room.model.sent) == made
    assert await said(room) == ("done" if limit >= 4 else FOREVER)


async def test_a_new_thread_of_the_same_user_resets_nothing(rooms: Rooms) -> None:
    room = rooms(budgets=Budgets(model_calls_per_user=3))
    for n in range(5):
        mine = room.on(f"thread-{n}")
        await mine.run(hello(), by("bob", mine))
    assert len(room.model.sent) == 3
    assert await said(room.on("thread-4")) == FOREVER
    other = room.on("thread-9")
    await other.run(hello(), by("ann", other))
    assert len(room.model.sent) == 4


async def test_no_client_names_the_user_of_a_budget(rooms: Rooms) -> None:
    room = rooms(budgets=Budgets(model_calls_per_user=2))
    for n in range(4):
        config: Any = by("bob", room, user_id=f"u{n}", user=f"u{n}")
        config["metadata"] = {"user_id": f"u{n}", "langgraph_auth_user_id": f"u{n}"}
        await room.run(hello(), config)
        pretended = {"identity": f"u{n}"}
        await room.run(
            hello(), {"configurable": {"thread_id": "t", "langgraph_auth_user": pretended}}
        )
    assert await used(room, "model_calls", "user:bob") == 2
    # whoever is not authenticated is their thread, whatever they say
    assert await used(room, "model_calls", "user-of:t") == 2
    assert len(room.model.sent) == 4


async def test_tool_calls_of_a_user_and_of_a_thread(rooms: Rooms) -> None:
    room = rooms(
        ai(note(0), note(1)),
        ai(text="one"),
        ai(note(2), note(3)),
        ai(text="two"),
        budgets=Budgets(tool_calls_per_user=3, tool_calls_per_thread=5),
    )
    await room.run(hello(), by("bob", room))
    other = room.on("thread-2")
    await other.run(hello(), by("bob", other))
    assert len(room.ledger.of("note")) == 3
    over = [m for m in (await other.results()).values() if m.status == "error"]
    assert "tool calls of this user" in error_of(over[0])["message"]


async def test_a_tool_has_a_limit_for_each_user(rooms: Rooms) -> None:
    def tick(text: str) -> str:
        rooms.ledger.add(tool="tick")
        return "ok"

    spec = free("tick", Effects(read_only=True), limits=Limits(per_user=1))
    ticks = [ai(call("tick", f"t{n}", text="x")) for n in range(3)]
    lines = [line for tick in ticks for line in (tick, ai(text="end"))]
    room = rooms(*lines, tools=[tool_of(tick, "tick")], specs=[spec])
    for n, user in enumerate(["bob", "bob", "ann"]):
        mine = room.on(f"thread-{n}")
        await mine.run(hello(), by(user, mine))
    assert len(room.ledger.of("tick")) == 2


async def test_the_limit_is_of_calls_that_start_however_they_end(rooms: Rooms) -> None:
    """LIM-01: rejected, refused and wrong calls cost nothing; a retried one costs one."""
    tries: list[int] = []

    def flaky(text: str) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("not yet")
        rooms.ledger.add(tool="flaky")
        return "ok"

    def fails(text: str) -> str:
        raise ToolError("no")

    def retry() -> Retry:
        return Retry(max_attempts=3, initial_interval=0.001, jitter=False)

    idempotent = Effects(idempotent=True)
    room = rooms(
        ai(call("note", "bad", wrong=1)),
        ai(call("flaky", "f1", text="x")),
        ai(call("fails", "f2", text="x")),
        ai(*[call("flaky", f"f{n}", text="x") for n in (3, 4)]),
        tools=[tool_of(flaky, "flaky"), tool_of(fails, "fails")],
        specs=[free("flaky", idempotent, retries=retry()), free("fails"), free("note")],
        budgets=Budgets(tool_calls_per_turn=3),
    )
    await room.say()
    assert len(tries) == 4
    assert await used(room, "tool_calls") == 3
    assert (
        await used(room, "tool_calls")
        == (await room.agent.aget_state(room.config)).values["total_tool_calls"]
    )
    results = await room.results()
    kinds = [error_of(m)["kind"] if m.status == "error" else "ok" for m in results.values()]
    assert kinds == ["ToolArgsInvalid", "ok", "ToolError", "ok", "BudgetExceeded"]


async def test_one_rejected_and_one_approved_call_with_a_limit_of_one(rooms: Rooms) -> None:
    room = rooms(ai(pay("c1", 1), pay("c2", 2)), budgets=Budgets(tool_calls_per_turn=1))
    await room.say()
    first, second = await room.asked()
    await room.decide(first, "reject", reason="no")
    await room.decide(second)
    assert room.ledger.paid == [2]
    assert await used(room, "tool_calls") == 1


async def test_parallel_runs_add_up_and_never_crash(rooms: Rooms) -> None:
    """LIM-03."""
    room = rooms(budgets=Budgets(model_calls_per_user=7), store="adapter.db")
    threads = [room.on(f"thread-{n}") for n in range(12)]
    await asyncio.gather(*(one.run(hello(), by("bob", one)) for one in threads))
    assert len(room.model.sent) == 7
    assert await used(room, "model_calls", "user:bob") == 7


async def test_a_turn_after_a_spent_one_starts_afresh(rooms: Rooms) -> None:
    room = rooms(*[ai(note(n)) for n in range(4)], budgets=Budgets(model_calls_per_turn=2))
    await room.say("one")
    assert await said(room) == TURN
    await room.say("two")
    assert len(room.model.sent) == 4


async def test_an_unknown_turn_resets_no_known_one(rooms: Rooms) -> None:
    room = rooms(*[ai(note(n)) for n in range(9)], budgets=Budgets(model_calls_per_turn=2))
    await room.run(hello(id="h1"))
    assert len(room.model.sent) == 2
    await room.agent.aupdate_state(room.config, {"turn_id": "unknown"})
    states = [one async for one in room.agent.aget_state_history(room.config)]
    for state in states:
        if state.next == ("model",):
            await room.run(None, state.config)
    assert len(room.model.sent) == 2
    # the same message again is the same turn
    await room.run(hello("again", id="h1"))
    assert len(room.model.sent) == 2


# -------------------------------------------------------------------------------------- tokens


async def test_spend_of_a_paused_turn_is_counted_once(rooms: Rooms) -> None:
    """LIM-05: budget 100, spend 60, pause, answer, spend 30: 90."""
    room = rooms(using(50, 10, pay()), using(20, 10), budgets=Budgets(tokens_per_thread=100))
    asked = await room.question()
    assert await used(room, "tokens") == 60
    await room.run(None)
    await room.resume({asked.id: "junk"})
    assert await used(room, "tokens") == 60
    await room.decide(asked)
    await room.run(None)
    assert await used(room, "tokens") == 90
    assert len(room.model.sent) == 2
    await room.say("a third call fits, as something is left")
    assert len(room.model.sent) == 3


async def test_spend_of_a_run_that_crashed_is_not_forgotten(rooms: Rooms) -> None:
    class Crash(AgentMiddleware[Any, Any, Any]):
        @override
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            await handler(request)
            raise RuntimeError("the worker died")

    room = rooms(using(50, 10), before=[Crash()], budgets=Budgets(tokens_per_thread=100))
    with pytest.raises(RuntimeError, match="died"):
        await room.say()
    assert await used(room, "tokens") == 60


@pytest.mark.parametrize(("first", "calls"), [(99, 2), (100, 1), (250, 1)])
async def test_a_budget_of_tokens_ends_the_turn_when_nothing_is_left(
    rooms: Rooms, first: int, calls: int
) -> None:
    room = rooms(using(first, 0, note()), using(1), budgets=Budgets(tokens_per_turn=100))
    await room.say()
    assert len(room.model.sent) == calls
    assert await said(room) == (TURN if calls == 1 else "said")
    assert len(room.ledger.of("note")) == calls - 1


async def test_calls_in_flight_hold_back_what_they_may_answer(rooms: Rooms, named: Any) -> None:
    budgets = Budgets(tokens_per_user=1000, reserve_tokens=400)
    gate, entered = asyncio.Event(), []

    class Slow(AgentMiddleware[Any, Any, Any]):
        @override
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            entered.append(1)
            await gate.wait()
            return await handler(request)

    room = rooms(*[using(1, 1) for _ in range(9)], after=[Slow()], budgets=budgets)
    threads = [room.on(f"thread-{n}") for n in range(6)]
    runs = [asyncio.ensure_future(one.run(hello(), by("bob", one))) for one in threads]
    _, waiting = await asyncio.wait(runs, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    while len(waiting) > 3:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert len(entered) == 3
    assert await used(room, "tokens", "user:bob") == 1200
    gate.set()
    await asyncio.gather(*runs)
    assert await used(room, "tokens", "user:bob") == 6


async def test_the_models_own_limit_is_held_back(rooms: Rooms, named: Any) -> None:
    seen = []
    room = rooms(using(3, 2), budgets=Budgets(tokens_per_thread=9000))

    def line(_messages: Any) -> AIMessage:
        return using(3, 2)

    class Look(AgentMiddleware[Any, Any, Any]):
        @override
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            seen.append(await used(room, "tokens"))
            return await handler(request)

    store = rooms.store()
    for most, settings in ((None, {}), (77, {}), (77, {"max_tokens": 55})):

        class Choose(AgentMiddleware[Any, Any, Any]):
            most, settings = None, None

            @override
            async def awrap_model_call(self, request: Any, handler: Any) -> Any:
                model = request.model.model_copy(update={"max_tokens": self.most})
                model._lines, model._sent = request.model._lines, request.model._sent
                return await handler(request.override(model=model, model_settings=self.settings))

        choose = Choose()
        choose.most, choose.settings = most, settings  # type: ignore[assignment]
        room = rooms(
            line,
            before=[choose],
            after=[Look()],
            store=store,
            budgets=Budgets(tokens_per_thread=9000),
        )
        await room.say()
    assert seen == [1024, 5 + 77, 10 + 55]


async def test_a_failed_model_call_costs_nothing(rooms: Rooms) -> None:
    def broken(_messages: Any) -> AIMessage:
        raise RuntimeError("provider down")

    room = rooms(broken, using(5, 5), budgets=Budgets(tokens_per_thread=100))
    with pytest.raises(RuntimeError, match="provider down"):
        await room.say()
    assert await used(room, "tokens") == 0
    await room.run(None)
    assert await used(room, "tokens") == 10
    assert await room.events("usage_unknown") == []


async def test_a_cancelled_model_call_costs_what_was_held_back(rooms: Rooms) -> None:
    started = asyncio.Event()

    class Hang(AgentMiddleware[Any, Any, Any]):
        @override
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            started.set()
            await asyncio.Event().wait()

    room = rooms(after=[Hang()], budgets=Budgets(tokens_per_thread=9000, reserve_tokens=70))
    run = asyncio.create_task(room.say())
    await asyncio.wait_for(started.wait(), 10)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await used(room, "tokens") == 70
    (event,) = await room.events("usage_unknown")
    assert event["data"]["reason"].startswith("cancelled")


@pytest.mark.parametrize("usage", [None, spent(0), {"input_tokens": -3, "output_tokens": 1}])
async def test_missing_usage_is_never_free(rooms: Rooms, usage: Any) -> None:
    """SRV-08."""
    message = ai(note())
    message.usage_metadata = usage
    room = rooms(message, using(1, 1), budgets=Budgets(tokens_per_thread=500, reserve_tokens=70))
    await room.say()
    assert await used(room, "tokens") == 72
    (event,) = await room.events("usage_unknown")
    assert "counted as what was held back" in event["data"]["reason"]
    await room.verified()


async def test_missing_usage_without_a_budget_says_nothing(rooms: Rooms) -> None:
    room = rooms()
    await room.say()
    assert await room.events("usage_unknown") == []


class Streaming(Named):
    """Streams three pieces, with usage on those a test says."""

    _usages: list[Any] = PrivateAttr(default_factory=list)

    @override
    def _stream(self, messages: Any, *_args: Any, **_named: Any) -> Iterator[ChatGenerationChunk]:
        self._sent.append(list(messages))
        for n, usage in enumerate(self._usages):
            piece = AIMessageChunk(content=f"w{n} ", usage_metadata=usage)
            yield ChatGenerationChunk(message=piece)


@pytest.mark.parametrize(
    ("usages", "counted"),
    [
        ([None, None, spent(30, 12)], 42),
        ([spent(30), None, spent(0, 12)], 42),
        ([None, None, None], 1024),
    ],
)
async def test_usage_of_a_streamed_answer_is_counted(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, usages: Any, counted: int
) -> None:
    monkeypatch.setattr("tests.support.room.Script", Streaming)
    room = rooms(budgets=Budgets(tokens_per_thread=9000))
    model: Any = room.model
    model._usages = usages
    pieces = [
        piece async for piece in room.agent.astream(hello(), room.config, stream_mode="messages")
    ]
    assert len(pieces) > 2
    assert await used(room, "tokens") == counted
    assert len(await room.events("usage_unknown")) == (counted == 1024)


def test_sync_runs_are_metered_too(rooms: Rooms) -> None:
    room = rooms(using(7, 3), budgets=Budgets(tokens_per_thread=100))
    room.agent.invoke(hello(), room.config)
    assert asyncio.run(used(room, "tokens")) == 10


# ---------------------------------------------------------------------------------------- cost

PRICES = {"gpt-test": {"input": "2.00", "cached_input": "0.50", "output": "8.00"}}


async def test_cost_is_counted_in_micro_dollars_with_cached_input(rooms: Rooms, named: Any) -> None:
    budgets = Budgets(cost_per_thread="1", cost_per_user="1", tokens_per_turn=10**6, prices=PRICES)
    room = rooms(using(1000, 100, cached=400), budgets=budgets)
    await room.run(hello(), by("bob", room))
    assert await used(room, "cost") == 600 * 2 + 400 // 2 + 100 * 8
    assert await used(room, "cost", "user:bob") == 2200


async def test_a_budget_of_cost_ends_the_turn(rooms: Rooms, named: Any) -> None:
    budgets = Budgets(cost_per_turn="0.001", prices=PRICES)
    room = rooms(using(400, 0, note(1)), using(100, 0, note(2)), ai(text="x"), budgets=budgets)
    await room.say()
    assert len(room.model.sent) == 2
    assert len(room.ledger.of("note")) == 1
    assert await said(room) == TURN


@pytest.mark.parametrize("prices", [None, {"other": {"input": 1, "output": 1}}])
async def test_without_a_price_no_model_call_is_made(rooms: Rooms, named: Any, prices: Any) -> None:
    room = rooms(budgets=Budgets(cost_per_turn="1", prices=prices))
    with pytest.raises(ConfigurationError, match=r"gpt-test.*ADAPTER_PRICES"):
        await room.say()
    assert room.model.sent == []
    assert await used(room, "model_calls") == 0


async def test_a_model_without_a_name_has_no_price(rooms: Rooms) -> None:
    room = rooms(budgets=Budgets(cost_per_turn="1", prices=PRICES))
    with pytest.raises(ConfigurationError, match="no name"):
        await room.say()
    assert room.model.sent == []


@pytest.mark.parametrize(("answered", "cost"), [("dear", 1000), ("gpt-test-2027", 20), (None, 20)])
async def test_the_model_that_answered_is_paid_where_it_has_a_price(
    rooms: Rooms, named: Any, answered: str | None, cost: int
) -> None:
    prices = {**PRICES, "dear": {"input": 100, "output": 100}}
    more: dict[str, Any] = {}
    if answered is not None:
        more["response_metadata"] = {"model_name": answered}
    room = rooms(using(10, 0, **more), budgets=Budgets(cost_per_thread="1", prices=prices))
    await room.say()
    assert await used(room, "cost") == cost


# --------------------------------------------------------------------------------------- rates


async def test_a_rate_of_model_calls_ends_the_run_until_its_window_is_over(rooms: Rooms) -> None:
    clock = Clock()
    room = rooms(budgets=Budgets(model_rate="2/minute"), store="adapter.db", clock=clock)
    for n in range(3):
        await room.say(str(n))
    assert (len(room.model.sent), await said(room)) == (2, TOO_OFTEN)
    clock.advance(59.999)
    await room.say("too early")
    assert len(room.model.sent) == 2
    clock.advance(0.001)
    await room.say("now")
    assert (len(room.model.sent), await said(room)) == (3, "done")
    refused = await room.events("refused")
    assert [event["data"]["code"] for event in refused] == ["rate_limited"] * 2


async def test_a_rate_of_tool_calls_refuses_each_call_over_it(rooms: Rooms) -> None:
    clock = Clock()
    lines = [ai(*[note(n) for n in range(4)]), ai(text="one"), ai(note(9)), ai(text="two")]
    room = rooms(*lines, budgets=Budgets(tool_rate="3/30s"), store="adapter.db", clock=clock)
    await room.run(hello(), by("bob", room))
    assert len(room.ledger.of("note")) == 3
    (over,) = [m for m in (await room.results()).values() if m.status == "error"]
    assert error_of(over)["kind"] == "RateLimited"
    clock.advance(30)
    other = room.on("thread-2")
    await other.run(hello(), by("bob", other))
    assert len(room.ledger.of("note")) == 4


async def test_a_gated_call_pays_one_token_over_question_and_answer(rooms: Rooms) -> None:
    clock = Clock()
    lines = [ai(pay("c1", 1)), ai(text="one"), ai(pay("c2", 2)), ai(text="two"), ai(pay("c3", 3))]
    room = rooms(*lines, budgets=Budgets(tool_rate="2/minute"), store="adapter.db", clock=clock)
    for expected in ([1], [1, 2]):
        asked = await room.question()
        await room.run(None)
        await room.resume({asked.id: "junk"})
        await room.decide(asked)
        assert room.ledger.paid == expected
    # nobody is asked about a call that would be refused
    await room.say()
    assert await room.asked() == []
    assert error_of((await room.results())["c3"])["kind"] == "RateLimited"


async def test_rejected_calls_take_no_token(rooms: Rooms) -> None:
    lines = [ai(pay("c1", 1)), ai(text="one"), ai(pay("c2", 2)), ai(text="two")]
    room = rooms(*lines, budgets=Budgets(tool_rate="1/minute"), store="adapter.db", clock=Clock())
    asked = await room.question()
    await room.decide(asked, "reject", reason="no")
    asked = await room.question()
    await room.decide(asked)
    assert room.ledger.paid == [2]


async def test_the_rate_of_a_tool_is_everybodys(rooms: Rooms) -> None:
    def tick(text: str) -> str:
        rooms.ledger.add(tool="tick")
        return "ok"

    spec = free("tick", Effects(read_only=True), limits=Limits(rate="2/minute"))
    lines = [one for n in range(4) for one in (ai(call("tick", f"t{n}", text="x")), ai(text="e"))]
    room = rooms(
        *lines, tools=[tool_of(tick, "tick")], specs=[spec], store="adapter.db", clock=Clock()
    )
    for n, user in enumerate(["bob", "ann", "eve", "bob"]):
        mine = room.on(f"thread-{n}")
        await mine.run(hello(), by(user, mine))
    assert len(room.ledger.of("tick")) == 2


# --------------------------------------------------------------------------------- on_exceeded


async def test_refusing_lets_the_model_go_on_while_model_calls_last(rooms: Rooms) -> None:
    budgets = Budgets(tool_calls_per_turn=1, model_calls_per_turn=4, on_exceeded="refuse")
    room = rooms(*[ai(note(n)) for n in range(9)], budgets=budgets)
    await room.say()
    assert len(room.ledger.of("note")) == 1
    assert len(room.model.sent) == 4
    results = await room.results()
    errors = [error_of(m)["kind"] for m in results.values() if m.status == "error"]
    assert errors == ["BudgetExceeded"] * 3
    assert await said(room) == TURN


async def test_refusing_leaves_the_last_word_to_the_model(rooms: Rooms) -> None:
    budgets = Budgets(tool_calls_per_turn=1, on_exceeded="refuse")
    room = rooms(ai(note(0)), ai(note(1)), ai(text="my answer"), budgets=budgets)
    await room.say()
    assert await said(room) == "my answer"


async def test_ending_is_audited(rooms: Rooms) -> None:
    room = rooms(budgets=Budgets(model_calls_per_thread=1))
    await room.say()
    await room.say()
    (event,) = await room.events("refused")
    assert event["data"]["code"] == "budget_exceeded"
    assert event["data"]["scope"] == "thread:thread-1:model_calls"
    await room.verified()


async def test_a_run_without_a_thread_has_one_turn_too(rooms: Rooms) -> None:
    budgets = Budgets(model_calls_per_turn=2, tool_calls_per_turn=9)
    room = rooms(*[ai(note(n)) for n in range(9)], budgets=budgets, saver="inherit")
    for made in (2, 4):
        ended = await room.agent.ainvoke(hello(id="the same"))
        assert len(room.model.sent) == made
        assert ended["messages"][-1].content == TURN
