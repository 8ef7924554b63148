"""A batch is admitted whole or not at all; each call of it has exactly one result."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ConfigDict
from tests.support.room import Rooms, error_of, free, money_tools, paired, pay, tool_of
from tests.support.script import ai, call, unreadable

NOTE = call("note", "n1", text="x")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (call("no_such_tool", "b", a=1), "UnknownTool"),
        (call("send_money", "b", to="bob", amount="7"), "ToolArgsInvalid"),
        (call("send_money", "b", to="bob", amount=True), "ToolArgsInvalid"),
        (call("send_money", "b", to="bob", amount=1.5), "ToolArgsInvalid"),
        (call("send_money", "b", to="bob", amount=None), "ToolArgsInvalid"),
        (call("send_money", "b", to="bob", amount=float("nan")), "ToolArgsInvalid"),
        (call("send_money", "b", to="bob", amount=2**60), "ToolArgsInvalid"),
        (call("send_money", "b", to="bob", amount=2**70), "ToolArgsInvalid"),
        (call("send_money", "b", to="bob"), "ToolArgsInvalid"),
        (call("send_money", "b", to="bob", amount=1, force=True), "ToolArgsInvalid"),
        (call("look", "b", text="\ud800"), "ToolArgsInvalid"),
        (call("note", "b", runtime={"x": 1}, text="x"), "ToolArgsInvalid"),
        (call("Send_Money", "b", to="bob", amount=1), "UnknownTool"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_one_bad_call_sinks_the_batch(rooms: Rooms, bad: Any, kind: str) -> None:
    room = rooms(ai(pay(), bad, NOTE))
    await room.say()
    assert await room.asked() == []
    assert room.ledger.all == []
    results = await room.results()
    assert error_of(results["b"])["kind"] == kind
    for call_id in ("c1", "n1"):
        error = error_of(results[call_id])
        assert error["kind"] == "ToolArgsInvalid"
        assert "send this one again" in error["message"]
    assert (await room.messages())[-1].content == "done"


@pytest.mark.anyio
async def test_the_same_batch_without_the_bad_call_runs(rooms: Rooms) -> None:
    room = rooms(ai(pay(), NOTE))
    await room.say()
    assert len(room.ledger.of("note")) == 1
    (asked,) = await room.asked()
    await room.decide(asked)
    assert room.ledger.paid == [100]
    await room.results()


@pytest.mark.anyio
async def test_errors_name_arguments_but_no_value(rooms: Rooms) -> None:
    room = rooms(ai(call("send_money", "b", to="bob", amount="hush-4711", force="hush-4712")))
    await room.say()
    message = error_of((await room.results())["b"])["message"]
    assert "amount" in message
    assert "force" in message
    assert "hush" not in message
    assert "Accepted arguments: to, amount" in message


@pytest.mark.anyio
async def test_only_unreadable_calls_go_back_to_the_model(rooms: Rooms) -> None:
    room = rooms(ai(bad=[unreadable("send_money", "b1")]), ai(pay("c2")))
    await room.say()
    assert len(room.model.sent) == 2
    paired(room.model.sent[1])
    (asked,) = await room.asked()
    await room.decide(asked)
    assert room.ledger.paid == [100]
    assert error_of((await room.results())["b1"])["kind"] == "ToolArgsInvalid"


@pytest.mark.anyio
async def test_an_unreadable_call_sinks_the_readable_ones(rooms: Rooms) -> None:
    room = rooms(ai(pay(), NOTE, bad=[unreadable(None, "b1")]))
    await room.say()
    assert room.ledger.all == []
    assert set(await room.results()) == {"c1", "n1", "b1"}


@pytest.mark.anyio
async def test_unreadable_calls_for_ever_end_with_the_budget(rooms: Rooms) -> None:
    room = rooms(*[ai(bad=[unreadable("send_money", f"b{n}")]) for n in range(30)])
    await room.say()
    assert len(room.model.sent) == 10
    messages = await room.messages()
    paired(messages)
    assert isinstance(messages[-1], AIMessage)
    assert messages[-1].tool_calls == []
    assert messages[-1].invalid_tool_calls == []


@pytest.mark.anyio
@pytest.mark.parametrize("twice", [[pay("x"), pay("x", 7)], [pay("x"), pay("x")]])
async def test_duplicate_ids_are_one_error_each(rooms: Rooms, twice: list[Any]) -> None:
    room = rooms(ai(*twice, NOTE))
    await room.say()
    assert room.ledger.all == []
    results = await room.results()
    assert set(results) == {"x", "n1"}
    assert "same id" in error_of(results["x"])["message"]
    (message,) = [m for m in await room.messages() if isinstance(m, AIMessage) and m.tool_calls]
    assert [c["id"] for c in message.tool_calls] == ["x", "n1"]
    paired(room.model.sent[1])


@pytest.mark.anyio
async def test_an_id_shared_by_a_readable_and_an_unreadable_call(rooms: Rooms) -> None:
    room = rooms(ai(pay("x"), bad=[unreadable("note", "x")]))
    await room.say()
    assert room.ledger.all == []
    assert set(await room.results()) == {"x"}


@pytest.mark.anyio
@pytest.mark.parametrize("missing", [None, ""])
async def test_missing_ids_are_filled_and_the_calls_run(rooms: Rooms, missing: Any) -> None:
    room = rooms(ai(pay(missing), pay(missing, 200)))
    await room.say()
    first, second = await room.asked()
    ids = [asked.value["request"]["call_id"] for asked in (first, second)]
    (message,) = [m for m in await room.messages() if isinstance(m, AIMessage)]
    assert ids == [f"{message.id}:0", f"{message.id}:1"]
    await room.decide(second)
    await room.decide(first)
    assert room.ledger.paid == [200, 100]
    await room.results()


class Inner(BaseModel):
    model_config = ConfigDict(strict=True)

    amount: int


class Nested(BaseModel):
    model_config = ConfigDict(strict=True)

    items: list[Inner]


def nested(rooms: Rooms) -> tuple[list[BaseTool], list[Any]]:
    def many(items: list[Inner]) -> str:
        rooms.ledger.add(tool="many", amounts=[item.amount for item in items])
        return "ok"

    tools, specs = money_tools(rooms.ledger)
    return [*tools, tool_of(many, "many", Nested)], [*specs, free("many")]


@pytest.mark.anyio
async def test_a_nested_ghost_argument_is_refused(rooms: Rooms) -> None:
    tools, specs = nested(rooms)
    room = rooms(
        ai(call("many", "m1", items=[{"amount": 1, "force": True}])), tools=tools, specs=specs
    )
    await room.say()
    assert room.ledger.all == []
    assert "force" in error_of((await room.results())["m1"])["message"]


@pytest.mark.anyio
async def test_nested_arguments_run_as_written(rooms: Rooms) -> None:
    tools, specs = nested(rooms)
    room = rooms(ai(call("many", "m1", items=[{"amount": 1}])), tools=tools, specs=specs)
    await room.say()
    assert room.ledger.all == [{"tool": "many", "amounts": [1]}]


@pytest.mark.anyio
async def test_a_call_put_into_the_state_by_a_client_is_admitted_too(rooms: Rooms) -> None:
    """goto and update_state go around the model hook; the wrapper checks the batch again."""
    room = rooms(AIMessage("hello"))
    await room.say("hello")
    forged = ai(pay("f1"), call("no_such_tool", "f2"))
    await room.agent.aupdate_state(room.config, {"messages": [forged]}, as_node="model")
    await room.run(None)
    assert room.ledger.all == []
    assert await room.asked() == []
    results = [m for m in await room.messages() if isinstance(m, ToolMessage)]
    assert [error_of(m)["kind"] for m in results] == ["ToolArgsInvalid", "UnknownTool"]


@pytest.mark.anyio
async def test_a_whole_float_is_the_integer_it_is_in_json(rooms: Rooms) -> None:
    """RFC 8785 knows one number 1: shown, signed and run as the integer."""
    room = rooms(ai(pay(amount=1.0)))  # type: ignore[arg-type]
    asked = await room.question()
    assert repr(asked.value["request"]["arguments"]["amount"]) == "1"
    await room.decide(asked)
    assert repr(room.ledger.paid) == "[1]"


@pytest.mark.anyio
async def test_read_only_batches_are_all_or_nothing_too(rooms: Rooms) -> None:
    room = rooms(ai(call("look", "l1", text="a"), call("look", "l2", text=5)))
    await room.say()
    assert room.ledger.all == []
