"""A24: reads beside a question; answering it over and over, with junk too, gets nothing more."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool
from tests.support.front_ends import Desk, FrontEnd, desk, over
from tests.support.room import Rooms, error_of, free, gated, pay, tool_of
from tests.support.script import ai, call

from adapter import Budgets, Effects
from adapter.core.policy import Policy

pytestmark = pytest.mark.anyio

BESIDE = over("tool_node", "wrapper")
READ = Effects(read_only=True)


def looking(rooms: Rooms, end: FrontEnd, look: Any, **more: Any) -> Desk:
    return desk(
        rooms,
        end,
        ai(call("look", "r1", text="x"), pay("c1", 5)),
        tools=[look],
        specs=[free("look", effects=READ), gated("send_money")],
        store="adapter.db",
        **more,
    )


def plain(rooms: Rooms) -> BaseTool:
    def look(text: str) -> str:
        rooms.ledger.add(tool="look")
        return f"seen {text}"

    return tool_of(look, "look")


async def junk(room: Desk, times: int) -> None:
    for number in range(times):
        (question,) = await room.asked()
        await room.resume({question.id: {"junk": number}})


@BESIDE
async def test_a24_a_read_beside_a_question_runs_and_counts_once(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = looking(
        rooms, end, plain(rooms), budgets=Budgets(tool_calls_per_thread=2, tool_rate="2/hour")
    )
    await room.say()
    await junk(room, 9)
    await room.answered()
    found = await room.results()
    assert (len(room.ledger.of("look")), room.ledger.paid) == (1, [5])
    assert found["r1"].content == "seen x"
    kinds = [event["kind"] for event in await room.events() if event.get("tool") == "look"]
    assert kinds.count("started") == kinds.count("succeeded") == 1
    assert kinds.count("replayed") == 10
    await room.verified()


def with_artifact(rooms: Rooms) -> StructuredTool:
    def look(text: str) -> tuple[str, object]:
        rooms.ledger.add(tool="look")
        return f"seen {text}", {text}

    return StructuredTool.from_function(
        look, name="look", description="Look.", response_format="content_and_artifact"
    )


@BESIDE
async def test_a24_a_read_that_cannot_be_recorded_whole_counts_with_each_run(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = looking(rooms, end, with_artifact(rooms), budgets=Budgets(tool_calls_per_thread=4))
    await room.say()
    await junk(room, 9)
    assert len(room.ledger.of("look")) == 4
    (question,) = await room.asked()
    assert question.value["request"]["call_id"] == "c1"


@BESIDE
async def test_a24_a_read_keeps_the_artifact_that_no_journal_could(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = looking(rooms, end, with_artifact(rooms))
    await room.say()
    await room.answered()
    assert (await room.results())["r1"].artifact == {"x"}
    assert len(room.ledger.of("look")) == 2


@BESIDE
async def test_a24_a_read_that_failed_looks_again_and_each_look_counts(
    rooms: Rooms, end: FrontEnd
) -> None:
    def look(text: str) -> str:
        rooms.ledger.add(tool="look")
        raise ConnectionError(text)

    room = looking(rooms, end, tool_of(look, "look"), budgets=Budgets(tool_calls_per_thread=4))
    await room.say()
    await junk(room, 9)
    assert len(room.ledger.of("look")) == 4
    assert room.ledger.paid == []


@BESIDE
async def test_a24_the_windows_of_rates_count_every_look(rooms: Rooms, end: FrontEnd) -> None:
    policy = Policy(ghost="refuse", rates={"look": "3/hour"})
    room = looking(rooms, end, with_artifact(rooms), policy=policy)
    await room.say()
    await junk(room, 9)
    assert len(room.ledger.of("look")) == 3


@BESIDE
async def test_a_read_asks_for_no_record_where_nobody_is_asked(rooms: Rooms, end: FrontEnd) -> None:
    room = desk(
        rooms,
        end,
        ai(call("look", "r1", text="x"), call("look", "r2", text="y")),
        tools=[plain(rooms)],
        specs=[free("look", effects=READ)],
    )
    await room.say()
    assert (await room.status("r1"), await room.status("r2")) == ([], [])
    assert len(room.ledger.of("look")) == 2


@BESIDE
async def test_a24_a_read_whose_budget_is_spent_tells_the_model_and_leaves_the_question(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = desk(
        rooms,
        end,
        ai(call("look", "r1", text="x"), call("look", "r2", text="y"), pay("c1", 5)),
        tools=[plain(rooms)],
        specs=[free("look", effects=READ), gated("send_money")],
        store="adapter.db",
        policy=Policy(ghost="refuse", rates={"look": "1/hour"}),
    )
    await room.say()
    await junk(room, 3)
    await room.answered()
    found = await room.results()
    assert [found[name].status for name in ("r1", "r2", "c1")] == ["success", "error", "success"]
    assert error_of(found["r2"])["kind"] == "RateLimited"
    assert len(room.ledger.of("look")) == 1
