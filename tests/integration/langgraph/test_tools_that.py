"""Tools that ask, fail, cancel themselves or return something odd: one effect, one result."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.types import Command, interrupt
from pydantic import BaseModel, ValidationError
from tests.support.room import Room, Rooms, error_of, free, gated, tool_of
from tests.support.script import ai, call

from adapter import ApprovalAlreadyDecided, Effects, ToolFailed, ToolUsageError, current_context
from adapter.core.errors import ToolError

KINDS = ["gated", "free", "read_only"]


def spec_of(kind: str, name: str = "odd", **more: Any) -> Any:
    if kind == "gated":
        return gated(name, **more)
    return free(name, Effects(read_only=kind == "read_only"), **more)


def room_of(
    rooms: Rooms, run: Any, kind: str = "gated", spec: dict[str, Any] | None = None, **named: Any
) -> Room:
    """A room whose model calls ``odd`` once, and a free sibling with it."""
    from tests.support.room import money_tools

    _, specs = money_tools(rooms.ledger)
    tool = tool_of(run, "odd", **named.pop("tool", {}))
    return rooms(
        ai(call("odd", "o1", text="x"), call("note", "n1", text="beside")),
        tools=[tool],
        specs=[spec_of(kind, **(spec or {})), *specs],
        **named,
    )


async def pass_gate(room: Room) -> None:
    """Approve what the adapter itself asks."""
    for asked in await room.asked():
        if isinstance(asked.value, dict) and asked.value.get("type") == "agent_adapter.approval":
            await room.decide(asked)


async def say_and_pass(room: Room) -> None:
    await room.say()
    await pass_gate(room)


# ------------------------------------------------------------------------ tools that ask (A29)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_tools_own_question_pauses_and_is_answered(rooms: Rooms, kind: str) -> None:
    def odd(text: str) -> str:
        colour = interrupt("which colour?")
        rooms.ledger.add(tool="odd", colour=colour)
        return f"painted {colour}"

    room = room_of(rooms, odd, kind)
    await room.say()
    await pass_gate(room)
    (own,) = await room.asked()
    assert own.value == "which colour?"
    assert room.ledger.of("odd") == []
    if kind != "read_only":
        assert await room.status("o1") == ["suspended"]

    await room.resume({own.id: "red"})

    assert room.ledger.of("odd") == [{"tool": "odd", "colour": "red"}]
    assert (await room.results())["o1"].content == "painted red"
    assert len(room.ledger.of("note")) == 1
    assert len(await room.events("decided")) == (1 if kind == "gated" else 0)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_two_questions_of_one_tool_get_their_own_answers(rooms: Rooms, kind: str) -> None:
    def odd(text: str) -> str:
        first = interrupt("first?")
        second = interrupt("second?")
        rooms.ledger.add(tool="odd", answers=[first, second])
        return "ok"

    room = room_of(rooms, odd, kind)
    await room.say()
    await pass_gate(room)
    for question, answer in (("first?", "1st"), ("second?", "2nd")):
        (own,) = await room.asked()
        assert own.value == question
        await room.run(None)
        (own,) = await room.asked()
        assert own.value == question
        await room.resume({own.id: answer})
    assert room.ledger.of("odd") == [{"tool": "odd", "answers": ["1st", "2nd"]}]
    await room.results()


@pytest.mark.anyio
async def test_a_tools_question_is_charged_once(rooms: Rooms) -> None:
    def odd(text: str) -> str:
        return str(interrupt("go on?"))

    room = room_of(rooms, odd)
    await room.say()
    await pass_gate(room)
    (own,) = await room.asked()
    await room.resume({own.id: "yes"})
    state = await room.agent.aget_state(room.config)
    assert state.values["total_tool_calls"] == 2  # odd and note


@pytest.mark.anyio
async def test_the_approval_again_is_no_answer_to_the_tools_own_question(rooms: Rooms) -> None:
    """LangGraph hands an old id's answer to the task's next question."""

    def odd(text: str) -> str:
        answer = interrupt("which colour?")
        rooms.ledger.add(tool="odd", answer=answer)
        return "ok"

    room = room_of(rooms, odd)
    await room.say()
    (asked,) = [q for q in await room.asked() if isinstance(q.value, dict)]
    approval = room.sign(asked)
    await room.resume({asked.id: approval})
    (own,) = await room.asked()
    with pytest.raises(ApprovalAlreadyDecided):
        await room.resume({asked.id: approval})
    assert room.ledger.of("odd") == []
    await room.resume({own.id: "red"})
    assert room.ledger.of("odd") == [{"tool": "odd", "answer": "red"}]


class Colour(BaseModel):
    colour: str


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_bad_answer_to_a_tools_own_schema_is_the_tools_invalid_resume(
    rooms: Rooms, kind: str
) -> None:
    def odd(text: str) -> str:
        answer = interrupt("which colour?", response_schema=Colour)
        rooms.ledger.add(tool="odd", colour=answer.colour)
        return "ok"

    room = room_of(rooms, odd, kind)
    await room.say()
    await pass_gate(room)
    (own,) = await room.asked()
    with pytest.raises(ValidationError):
        await room.resume({own.id: {"color": 7}})
    assert room.ledger.of("odd") == []
    (again,) = await room.asked()
    assert again.id == own.id
    await room.resume({own.id: {"colour": "red"}})
    assert room.ledger.of("odd") == [{"tool": "odd", "colour": "red"}]
    await room.results()


@pytest.mark.anyio
async def test_a_rejected_tool_asks_nothing(rooms: Rooms) -> None:
    def odd(text: str) -> str:
        return str(interrupt("which colour?"))

    room = room_of(rooms, odd)
    asked = await room.question()
    await room.decide(asked, "reject", reason="no")
    assert await room.asked() == []
    assert error_of((await room.results())["o1"])["kind"] == "ApprovalDenied"


@pytest.mark.anyio
async def test_a_broad_except_in_a_tool_cannot_swallow_the_gate(rooms: Rooms) -> None:
    def odd(text: str) -> str:
        try:
            rooms.ledger.add(tool="odd")
        except BaseException:  # noqa: BLE001
            return "swallowed"
        return "ok"

    room = room_of(rooms, odd)
    await room.say()
    assert room.ledger.of("odd") == []
    assert len(await room.asked()) == 1


# ------------------------------------------------------------------------------ tools that fail


def failing(rooms: Rooms, error: BaseException, *, coroutine: bool) -> Any:
    def odd(text: str) -> str:
        rooms.ledger.add(tool="odd")
        raise error

    async def aodd(text: str) -> str:
        await asyncio.sleep(0)
        return odd(text)

    return aodd if coroutine else odd


@pytest.mark.anyio
@pytest.mark.parametrize("coroutine", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_unexpected_error_names_its_class_only(
    rooms: Rooms, kind: str, coroutine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    url = "postgresql://admin:hush4711@db.internal/prod"
    run = failing(rooms, ValueError(f"no route to {url}"), coroutine=coroutine)
    room = room_of(rooms, run, kind)
    with caplog.at_level(logging.DEBUG):
        await room.say()
        await pass_gate(room)
    error = error_of((await room.results())["o1"])
    assert error["kind"] == "ToolFailed"
    assert "ValueError" in error["message"]
    assert "route" not in error["message"]
    assert len(room.ledger.of("odd")) == 1
    assert len(room.ledger.of("note")) == 1
    reference = error["message"].partition("reference ")[2][:12]
    mine = [record.getMessage() for record in caplog.records if reference in record.getMessage()]
    assert len(mine) == 1
    assert "hush4711" not in caplog.text
    assert "hush4711" not in repr(await room.events())
    assert len(await room.events("failed")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_on_tool_failure_raise_ends_the_run_and_the_thread_goes_on(
    rooms: Rooms, kind: str
) -> None:
    run = failing(rooms, ValueError("boom"), coroutine=False)
    room = room_of(rooms, run, kind, middleware={"on_tool_failure": "raise"})
    with pytest.raises(ToolFailed):
        await say_and_pass(room)
    assert len(room.ledger.of("odd")) == 1
    room.model.then(ai(text="never mind"))
    await room.say("go on")
    results = await room.results()
    # Of a read-only call no record is kept: the next turn can only say that it has no result.
    told = "NotExecuted" if kind == "read_only" else "ToolFailed"
    assert error_of(results["o1"])["kind"] == told
    assert len(room.ledger.of("odd")) == 1
    assert len(room.ledger.of("note")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_error_is_the_tools_own_word_to_the_model(rooms: Rooms, kind: str) -> None:
    run = failing(rooms, ToolError("There is no order A-7."), coroutine=False)
    room = room_of(rooms, run, kind)
    await room.say()
    await pass_gate(room)
    error = error_of((await room.results())["o1"])
    assert error == {"kind": "ToolError", "message": "There is no order A-7."}
    assert len(room.ledger.of("odd")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_exception_handled_by_the_tool_is_its_result(rooms: Rooms, kind: str) -> None:
    run = failing(rooms, ToolException("try Tuesday"), coroutine=False)
    room = room_of(rooms, run, kind, tool={"handle_tool_error": True})
    await room.say()
    await pass_gate(room)
    result = (await room.results())["o1"]
    assert result.status == "error"
    assert "try Tuesday" in str(result.content)
    assert len(room.ledger.of("odd")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_an_unhandled_tool_exception_is_a_failure(rooms: Rooms, kind: str) -> None:
    run = failing(rooms, ToolException("try Tuesday"), coroutine=False)
    room = room_of(rooms, run, kind)
    await room.say()
    await pass_gate(room)
    assert error_of((await room.results())["o1"])["kind"] == "ToolFailed"
    assert len(room.ledger.of("odd")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_that_cancels_itself_fails_alone(rooms: Rooms, kind: str) -> None:
    run = failing(rooms, asyncio.CancelledError(), coroutine=True)
    room = room_of(rooms, run, kind)
    await room.say()
    await pass_gate(room)
    assert error_of((await room.results())["o1"])["kind"] == "ToolFailed"
    assert len(room.ledger.of("odd")) == 1
    assert len(room.ledger.of("note")) == 1


@pytest.mark.anyio
async def test_a_time_out_of_an_effect_is_in_doubt_and_never_repeated(rooms: Rooms) -> None:
    run = failing(rooms, TimeoutError("slow bank"), coroutine=False)
    room = room_of(rooms, run)
    await room.say()
    await pass_gate(room)
    error = error_of((await room.results())["o1"])
    assert "unknown" in error["message"]
    assert "Do not repeat" in error["message"]
    assert await room.status("o1") == ["in_doubt"]
    assert len(room.ledger.of("odd")) == 1


@pytest.mark.anyio
async def test_a_tool_past_its_time_limit_is_told_apart(rooms: Rooms) -> None:
    async def odd(text: str) -> str:
        rooms.ledger.add(tool="odd")
        await asyncio.sleep(30)
        return "late"

    room = room_of(rooms, odd, spec={"timeout": 0.05})
    await room.say()
    await pass_gate(room)
    assert error_of((await room.results())["o1"])["kind"] == "ToolTimeout"
    assert await room.status("o1") == ["in_doubt"]
    assert len(room.ledger.of("odd")) == 1


# ------------------------------------------------------------------- results that look different


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_command_updates_the_state(rooms: Rooms, kind: str) -> None:
    def odd(text: str) -> Command[Any]:
        rooms.ledger.add(tool="odd")
        context = current_context()
        assert context is not None
        return Command(update={"messages": [ToolMessage("by command", tool_call_id="o1")]})

    room = room_of(rooms, odd, kind)
    await room.say()
    await pass_gate(room)
    assert (await room.results())["o1"].content == "by command"
    assert len(room.ledger.of("odd")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_content_and_artifact_both_arrive(rooms: Rooms, kind: str) -> None:
    def odd(text: str) -> tuple[str, Any]:
        rooms.ledger.add(tool="odd")
        return "three rows", {"rows": [1, 2, 3]}

    room = room_of(rooms, odd, kind, tool={"response_format": "content_and_artifact"})
    await room.say()
    await pass_gate(room)
    result = (await room.results())["o1"]
    assert (result.content, result.artifact) == ("three rows", {"rows": [1, 2, 3]})


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_content_blocks_arrive_as_they_are(rooms: Rooms, kind: str) -> None:
    blocks = [{"type": "text", "text": "hello"}, {"type": "text", "text": "world"}]

    def odd(text: str) -> list[dict[str, Any]]:
        rooms.ledger.add(tool="odd")
        return blocks

    room = room_of(rooms, odd, kind)
    await room.say()
    await pass_gate(room)
    assert (await room.results())["o1"].content == blocks


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value", [float("nan"), b"bytes", {"a": float("inf")}, None, "", {1, 2}], ids=repr
)
async def test_any_value_becomes_one_result(rooms: Rooms, kind: str, value: Any) -> None:
    def odd(text: str) -> Any:
        rooms.ledger.add(tool="odd")
        return value

    room = room_of(rooms, odd, kind)
    await room.say()
    await pass_gate(room)
    await room.results()
    assert len(room.ledger.of("odd")) == 1
    assert (await room.messages())[-1].content == "done"
    await room.run(None)
    await room.say("again")
    assert len(room.ledger.of("odd")) == 1
    await room.verified()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["gated", "free"])
async def test_a_result_the_journal_cannot_hold_spends_the_claim(rooms: Rooms, kind: str) -> None:
    def odd(text: str) -> str:
        rooms.ledger.add(tool="odd")
        return "\ud800"

    room = room_of(rooms, odd, kind)
    with pytest.raises(ToolUsageError, match="cannot be kept"):
        await say_and_pass(room)
    assert len(room.ledger.of("odd")) == 1
    await room.run(None)
    assert len(room.ledger.of("odd")) == 1
    assert error_of((await room.results())["o1"])["kind"] == "ToolFailed"
    await room.verified()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_result_for_another_call_never_reaches_the_state(rooms: Rooms, kind: str) -> None:
    def odd(text: str) -> ToolMessage:
        rooms.ledger.add(tool="odd")
        return ToolMessage("I answer for you", tool_call_id="n1")

    room = room_of(rooms, odd, kind)
    await room.say()
    await pass_gate(room)
    results = await room.results()
    assert set(results) == {"o1", "n1"}
    assert results["n1"].content == "noted beside"
    assert error_of(results["o1"])["kind"] == "ToolFailed"
    assert len(room.ledger.of("odd")) == 1


@pytest.mark.anyio
async def test_a_tool_knows_its_call_and_its_idempotency_key(rooms: Rooms) -> None:
    keys: list[str] = []

    def odd(text: str) -> str:
        context = current_context()
        assert context is not None
        keys.append(context.idempotency_key)
        assert (context.call_id, context.thread_id) == ("o1", "thread-1")
        return "ok"

    room = room_of(rooms, odd)
    await room.say()
    await pass_gate(room)
    assert len(keys) == 1
    assert len(keys[0]) == 64
    assert current_context() is None


@pytest.mark.anyio
async def test_an_async_only_tool_runs_under_invoke(rooms: Rooms) -> None:
    async def odd(text: str) -> str:
        rooms.ledger.add(tool="odd")
        return "ok"

    room = room_of(rooms, odd)
    await asyncio.to_thread(room.agent.invoke, {"messages": [("user", "x")]}, room.config)
    (asked,) = await room.asked()
    answer: Any = Command(resume={asked.id: room.sign(asked)})
    await asyncio.to_thread(room.agent.invoke, answer, room.config)
    result = (await room.results())["o1"]
    assert (result.status, result.content) == ("success", "ok")
    assert len(room.ledger.of("odd")) == 1
