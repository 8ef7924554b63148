"""LIM: limits, retries, time limits and caches, over every front end."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.front_ends import EVERYWHERE, FrontEnd, desk, eventually, over
from tests.support.room import Clock, Rooms, error_of, free, gated, paired, pay, tool_of
from tests.support.script import ai, call

from adapter import Budgets, Effects, Limits, Retry
from adapter.core.policy import Policy

pytestmark = pytest.mark.anyio
READ = Effects(read_only=True)
TWO = Budgets(tool_calls_per_turn=2)


def notes(*names: str) -> list[Any]:
    return [call("note", name, text=name) for name in names]


@EVERYWHERE
async def test_lim01_two_of_three_run_and_all_have_a_result_in_each_turn(
    rooms: Rooms, end: FrontEnd
) -> None:
    """LIM-03 too: a turn that hit its limit leaves nothing behind for the next one."""
    lines = [ai(*notes("a1", "a2", "a3")), ai(text="enough"), ai(*notes("b1", "b2"))]
    room = desk(rooms, end, *lines, budgets=TWO)
    await room.say()
    assert len(room.ledger.of("note")) == 2
    found = await room.results()
    (over_it,) = [name for name, message in found.items() if message.status == "error"]
    assert error_of(found[over_it])["kind"] == "BudgetExceeded"
    assert over_it in {event["call_id"] for event in await room.events("refused")}
    await room.say("again")
    assert len(room.ledger.of("note")) == 4
    paired(room.model.sent[-1])
    assert len(await room.events("started")) == 4


@EVERYWHERE
async def test_lim01_a_call_is_one_that_starts(rooms: Rooms, end: FrontEnd) -> None:
    """Rejected and invalid ones cost nothing; one that is tried three times is one."""
    left = [2]

    def flaky(text: str) -> str:
        rooms.ledger.add(tool="flaky")
        if left[0]:
            left[0] -= 1
            raise ConnectionError("away")
        return "there"

    retries = Retry(max_attempts=3, initial_interval=0.0, jitter=False)
    specs = [
        free("flaky", Effects(idempotent=True), retries=retries),
        gated("send_money"),
        free("note"),
    ]
    room = desk(
        rooms,
        end,
        ai(call("note", "bad", txt="x")),
        ai(pay("no", 1)),
        ai(call("flaky", "f1", text="x")),
        ai(pay("yes", 2)),
        tools=[tool_of(flaky, "flaky")],
        specs=specs,
        budgets=TWO,
    )
    await room.say()
    await room.answered(
        lambda q: "reject" if q.value["request"]["call_id"] == "no" else "approve", reason="no"
    )
    assert len(room.ledger.of("flaky")) == 3
    assert room.ledger.paid == [2]
    found = await room.results()
    assert [found[name].status for name in ("bad", "no", "f1", "yes")] == [
        "error",
        "error",
        "success",
        "success",
    ]


@over(how=["async"])
async def test_lim04_rates_over_a_store_in_memory_are_warned_about(
    rooms: Rooms, end: FrontEnd
) -> None:
    """At the wiring, which is the same for sync and async."""
    limited = free("note", limits=Limits(rate="5/minute"))
    for how in (
        {"budgets": Budgets(tool_rate="5/minute")},
        {"policy": Policy(rates={"note": "5/minute"})},
        {"specs": [limited]},
    ):
        with pytest.warns(UserWarning, match=r"in this process only.*several workers"):
            desk(rooms, end, **how)
        desk(rooms, end, store="adapter.db", **how)


@EVERYWHERE
async def test_lim05_a_pause_counts_nothing_twice_and_forgets_nothing(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = desk(
        rooms,
        end,
        ai(*notes("n1"), pay()),
        ai(*notes("n2")),
        ai(*notes("n3")),
        budgets=Budgets(tool_calls_per_turn=3),
    )
    await room.say()
    (question,) = await room.asked()
    for _ in range(2):
        await room.resume({question.id: "no answer"})
    await room.decide((await room.asked())[0])
    assert [fact["tool"] for fact in room.ledger.all] == ["note", "send_money", "note"]
    assert error_of((await room.results())["n3"])["kind"] == "BudgetExceeded"


def sleeper(rooms: Rooms, end: FrontEnd, released: threading.Event) -> Any:
    async def aslow(text: str) -> str:
        rooms.ledger.add(tool="slow")
        await asyncio.sleep(60)
        rooms.ledger.add(tool="slow end")
        return "done"

    def slow(text: str) -> str:
        rooms.ledger.add(tool="slow")
        released.wait(30)
        rooms.ledger.add(tool="slow end")
        return "done"

    return tool_of(aslow if end.how == "async" else slow, "slow")


@EVERYWHERE
@pytest.mark.parametrize("repeatable", [False, True], ids=["effect", "retried"])
async def test_lim07_a_time_limit_stops_a_coroutine_and_leaves_a_thread_alone(
    rooms: Rooms, end: FrontEnd, repeatable: bool
) -> None:
    """Asynchronous front ends run a coroutine, synchronous ones a function in a thread.

    A thread goes on: no retry starts beside it, and what it ends with is recorded.
    """
    released, clock = threading.Event(), Clock()
    spec = gated("slow", timeout=0.1)
    if repeatable:
        tries = Retry(max_attempts=2, initial_interval=0.0, jitter=False)
        spec = replace(spec, effects=Effects(idempotent=True), retries=tries)
    room = desk(
        rooms,
        end,
        ai(call("slow", "s1", text="x")),
        tools=[sleeper(rooms, end, released)],
        specs=[spec],
        clock=clock,
    )
    await room.say()
    clock.advance(60)  # longer than the limit: a person thinks
    await room.answered()
    assert error_of((await room.results())["s1"])["kind"] == "ToolTimeout"
    attempts = 2 if repeatable and end.how == "async" else 1
    assert len(room.ledger.of("slow")) == attempts
    known = repeatable and end.how == "async"
    assert await room.status("s1") == ["failed" if known else "in_doubt"]

    async def recorded() -> bool:
        return await room.status("s1") == ["succeeded"]

    if end.how == "sync":
        released.set()
        await eventually(recorded)
    await room.say("again")
    assert len(room.ledger.of("slow")) == attempts
    assert len(room.ledger.of("slow end")) == (1 if end.how == "sync" else 0)
    assert len(await room.events("started")) == 1


class Anything(BaseModel):
    value: Any


@EVERYWHERE
async def test_lim08_a_result_is_given_again_for_the_very_same_arguments_only(
    rooms: Rooms, end: FrontEnd
) -> None:
    def peek(value: Any) -> str:
        rooms.ledger.add(tool="peek", value=value)
        return f"saw {value!r}"

    values = [1, True, "1", {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    lines = [ai(call("peek", f"p{n}", value=value)) for n, value in enumerate([*values, *values])]
    room = desk(
        rooms,
        end,
        *lines,
        tools=[tool_of(peek, "peek", Anything)],
        specs=[free("peek", READ, cache_ttl=60)],
    )
    await room.say()
    found = await room.results()
    assert [found[f"p{n}"].content for n in range(3)] == ["saw 1", "saw True", "saw '1'"]
    assert [found[f"p{n}"].content for n in range(5, 8)] == ["saw 1", "saw True", "saw '1'"]
    assert len(room.ledger.all) == 4
    elsewhere = room.on("another thread")
    room.model.then(ai(call("peek", "p0", value=1)))
    await elsewhere.say()
    assert len(room.ledger.all) == 5


@EVERYWHERE
async def test_lim08_an_error_and_a_gated_call_are_not_kept(rooms: Rooms, end: FrontEnd) -> None:
    def odd(text: str) -> str:
        rooms.ledger.add(tool="odd")
        raise ValueError("boom")

    lines = [ai(call("odd", f"o{n}", text="x"), call("look", f"l{n}", text="x")) for n in range(2)]
    policy = Policy(escalate={"look": "private"})
    specs = [free("odd", READ, cache_ttl=60), free("look", READ, cache_ttl=60)]
    room = desk(
        rooms,
        end,
        *lines,
        tools=[tool_of(odd, "odd")],
        specs=specs,
        policy=policy,
        store="adapter.db",
    )
    await room.say()
    asked = await room.answered()
    assert asked == ["l0", "l1"]
    assert len(room.ledger.of("look")) == 2
    assert len(await room.events("cached")) == 0
    assert set(await room.results()) == {"o0", "o1", "l0", "l1"}


@EVERYWHERE
async def test_lim09_three_calls_run_at_the_same_time(rooms: Rooms, end: FrontEnd) -> None:
    """Each waits for the others: one after another they would never end."""
    together = threading.Barrier(3, timeout=20)
    waiting: list[asyncio.Future[None]] = []

    def meet(text: str) -> str:
        together.wait()
        return "met"

    async def ameet(text: str) -> str:
        mine = asyncio.get_running_loop().create_future()
        waiting.append(mine)
        if len(waiting) == 3:
            for one in waiting:
                one.set_result(None)
        await asyncio.wait_for(mine, 20)
        return "met"

    tools = [tool_of(ameet if end.how == "async" else meet, "meet")]
    calls = [call("meet", f"m{n}", text="x") for n in range(3)]
    room = desk(rooms, end, ai(*calls), tools=tools, specs=[free("meet")])
    await room.say()
    assert {message.content for message in (await room.results()).values()} == {"met"}


@EVERYWHERE
async def test_lim09_a_tool_of_the_other_kind_runs_too(rooms: Rooms, end: FrontEnd) -> None:
    """An asynchronous tool in a synchronous run, and the other way round, gated and free."""

    async def acall(text: str) -> str:
        await asyncio.sleep(0)
        rooms.ledger.add(tool="other")
        return "ran"

    def plain(text: str) -> str:
        rooms.ledger.add(tool="other")
        return "ran"

    def made(name: str) -> Any:
        return tool_of(plain if end.how == "async" else acall, name)

    room = desk(
        rooms,
        end,
        ai(call("one", "o1", text="x"), call("two", "t1", text="x"), call("three", "h1", text="x")),
        tools=[made("one"), made("two"), made("three")],
        specs=[free("one"), free("two", READ), gated("three")],
    )
    await room.say()
    await room.answered()
    found = await room.results()
    assert [found[name].content for name in ("o1", "t1", "h1")] == ["ran", "ran", "ran"]
    # A node of one's own runs again for its answer; what ran in it is recorded, the read too.
    assert len(room.ledger.all) == 3
