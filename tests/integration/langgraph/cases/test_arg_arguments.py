"""ARG: what a model writes as a tool call, over every front end."""

# Annotations are read at run time by LangChain here.

from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from tests.support.front_ends import EVERYWHERE, FrontEnd, desk, over
from tests.support.room import Rooms, error_of, free, gated, money_tools, paired, pay, tool_of
from tests.support.script import ai, call, unreadable

from adapter import Effects
from adapter.core.errors import ConfigurationError
from adapter.core.policy import Policy

pytestmark = pytest.mark.anyio
READ = Effects(read_only=True)


# ------------------------------------------------------------------ what the host fills in


def hidden(rooms: Rooms) -> Any:
    @tool
    def transfer(
        amount: int,
        state: Annotated[dict[str, Any], InjectedState],
        tool_call_id: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime,
    ) -> str:
        """Transfer."""
        rooms.ledger.add(tool="transfer", amount=amount, id=tool_call_id)
        assert runtime.tool_call_id == tool_call_id
        return f"{len(state['messages'])} messages"

    return transfer


@EVERYWHERE
async def test_arg02_hidden_arguments_arrive_and_nobody_sees_them(
    rooms: Rooms, end: FrontEnd
) -> None:
    bad = call("transfer", "bad", amount="much")
    good = call("transfer", "good", amount=7)
    room = desk(rooms, end, ai(bad), ai(good), tools=[hidden(rooms)], specs=[gated("transfer")])
    await room.say()
    (question,) = await room.asked()
    assert question.value["request"]["arguments"] == {"amount": 7}
    assert set(question.value["request"]["schema"]["properties"]) == {"amount"}
    await room.decide(question)
    (effect,) = room.ledger.all
    assert (effect["amount"], effect["id"]) == (7, "good")
    found = await room.results()
    assert "Accepted arguments: amount." in error_of(found["bad"])["message"]
    seen = f"{question.value} {await room.events()} {found['bad'].content}"
    assert "runtime" not in seen
    assert "InjectedState" not in seen


@EVERYWHERE
@pytest.mark.parametrize("ghost", ["state", "tool_call_id", "runtime", "State", "user_id"])
async def test_arg02_a_model_cannot_fill_in_what_the_host_does(
    rooms: Rooms, end: FrontEnd, ghost: str
) -> None:
    wrong = call("transfer", "t1", amount=1, **{ghost: {"messages": "forged"}})
    room = desk(rooms, end, ai(wrong), tools=[hidden(rooms)], specs=[free("transfer")])
    await room.say()
    assert room.ledger.all == []
    assert error_of((await room.results())["t1"])["kind"] == "ToolArgsInvalid"
    assert await room.events("refused")


# ------------------------------------------------------------------------------- aliases


class Aliased(BaseModel):
    amount: int = Field(alias="sum")


class Validated(BaseModel):
    amount: int = Field(validation_alias="sum")


class Chosen(BaseModel):
    amount: int = Field(validation_alias=AliasChoices("sum", "total"))


class Generated(BaseModel):
    model_config = ConfigDict(alias_generator=str.upper)

    amount: int


class Hidden(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    amount: int = Field(validation_alias="sum")


class Nested(BaseModel):
    parts: list[Aliased] | None


@over(how=["async"])
@pytest.mark.parametrize("schema", [Aliased, Validated, Chosen, Generated, Hidden, Nested])
async def test_arg03_an_argument_under_another_name_is_refused_at_the_wiring(
    rooms: Rooms, end: FrontEnd, schema: Any
) -> None:
    """Found at the wiring, which is the same for sync and async."""
    odd = tool_of(lambda **given: "paid", "odd", schema)
    with pytest.raises(ConfigurationError, match=r"odd.*aliases.*amount"):
        await desk(
            rooms, end, ai(call("odd", "o1", sum=1)), tools=[odd], specs=[gated("odd")]
        ).say()


class ByName(BaseModel):
    model_config = ConfigDict(alias_generator=str.upper, populate_by_name=True)

    amount: int


class OneOf(BaseModel):
    amount: int = Field(validation_alias=AliasChoices("sum", "amount"))


@EVERYWHERE
@pytest.mark.parametrize(("schema", "name"), [(ByName, "AMOUNT"), (OneOf, "sum")])
async def test_arg03_an_argument_with_two_names_is_shown_and_runs_under_its_own(
    rooms: Rooms, end: FrontEnd, schema: Any, name: str
) -> None:
    def odd(amount: int) -> str:
        rooms.ledger.add(tool="odd", amount=amount)
        return "ok"

    room = desk(
        rooms,
        end,
        ai(call("odd", "o1", amount=1)),
        ai(call("odd", "o2", **{name: 2})),
        tools=[tool_of(odd, "odd", schema)],
        specs=[gated("odd")],
    )
    await room.say()
    for amount in (1, 2):
        (question,) = await room.asked()
        assert set(question.value["request"]["schema"]["properties"]) == {"amount"}
        assert question.value["request"]["arguments"] == {"amount": amount}
        await room.decide(question)
    assert [fact["amount"] for fact in room.ledger.all] == [1, 2]


# ---------------------------------------------------------------- undeclared arguments, types


class Inner(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    path: str


class Wanted(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    count: int = 1
    sure: bool = False
    either: int | str = 0
    inner: Inner | None = None
    tags: list[str] = []


def wanting(rooms: Rooms) -> Any:
    def want(**given: Any) -> str:
        rooms.ledger.add(tool="want", given=repr(given))
        return "ok"

    return StructuredTool(name="want", description="Want.", args_schema=Wanted, func=want)


REFUSED: dict[str, dict[str, Any]] = {
    "extra key": {"dry_run": True},
    "misspelt optional key": {"Count": 2},
    "extra key in a nested object": {"inner": {"path": "x", "force": True}},
    "nested object as JSON text": {"inner": '{"path": "x"}'},
    "text for int": {"count": "7"},
    "yes for bool": {"sure": "yes"},
    "true as text": {"sure": "true"},
    "1 for bool": {"sure": 1},
    "True for int": {"count": True},
    "True for int or text": {"either": True},
    "half for int": {"count": 1.5},
    "one value for a list": {"tags": "a"},
    "null for int": {"count": None},
}


@over("middleware", "tool_node", "wrapper", how=["async"])
@pytest.mark.parametrize("spec", [free("want"), gated("want")], ids=["free", "gated"])
async def test_arg04_arg06_what_is_not_declared_is_refused_before_anybody_is_asked(
    rooms: Rooms, end: FrontEnd, spec: Any
) -> None:
    """The one admission of all front ends, so one way of running; a message for each mistake."""
    lines = [ai(call("want", name, **given)) for name, given in REFUSED.items()]
    room = desk(rooms, end, *lines, ai(text="sorry"), tools=[wanting(rooms)], specs=[spec])
    room.model.then()
    for _ in range(3):
        await room.say()
    assert await room.asked() == []
    assert room.ledger.all == []
    found = await room.results()
    for name in REFUSED:
        assert error_of(found[name])["kind"] == "ToolArgsInvalid", name
    message = error_of(found["misspelt optional key"])["message"]
    assert "Count: unknown argument" in message
    assert "Accepted arguments: count, sure, either, inner, tags." in message
    paired(room.model.sent[-1])


@EVERYWHERE
async def test_arg06_what_is_shown_is_what_is_signed_and_what_runs(
    rooms: Rooms, end: FrontEnd
) -> None:
    """A whole number written with a point is that integer, in JSON; text stays text."""
    given = {"count": 7.0, "either": "5", "inner": {"path": "x"}}
    room = desk(
        rooms, end, ai(call("want", "w1", **given)), tools=[wanting(rooms)], specs=[gated("want")]
    )
    await room.say()
    (question,) = await room.asked()
    shown = question.value["request"]["arguments"]
    assert repr(shown["count"]) == "7"
    assert (shown["either"], shown["inner"]) == ("5", {"path": "x"})
    await room.decide(question)
    (effect,) = room.ledger.all
    assert "'count': 7," in effect["given"]
    assert "'either': '5'" in effect["given"]


@EVERYWHERE
async def test_arg04_undeclared_arguments_are_stripped_where_the_policy_says_so(
    rooms: Rooms, end: FrontEnd
) -> None:
    wrong = call("note", "n1", text="x", force=True)
    room = desk(rooms, end, ai(wrong), policy=Policy(ghost="strip"))
    await room.say()
    assert room.ledger.all == [{"tool": "note", "text": "x"}]
    (event,) = await room.events("arguments_stripped")
    assert event["call_id"] == "n1"


@EVERYWHERE
async def test_arg04_a_tool_that_declares_open_arguments_gets_them(
    rooms: Rooms, end: FrontEnd
) -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

        text: str

    def odd(text: str, **more: Any) -> str:
        rooms.ledger.add(tool="odd", more=more)
        return "ok"

    tools = [StructuredTool(name="odd", description="Odd.", args_schema=Open, func=odd)]
    wide = call("odd", "o1", text="x", limit=3, dry_run=True)
    room = desk(rooms, end, ai(wide), tools=tools, specs=[gated("odd")])
    await room.say()
    (question,) = await room.asked()
    assert question.value["request"]["arguments"] == {"text": "x", "limit": 3, "dry_run": True}
    await room.decide(question)
    assert room.ledger.all == [{"tool": "odd", "more": {"limit": 3, "dry_run": True}}]


# ------------------------------------------------------------------ arguments that are no JSON


@EVERYWHERE
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a good call"])
async def test_arg07_arguments_that_are_no_json_are_an_error_and_another_try(
    rooms: Rooms, end: FrontEnd, beside: bool
) -> None:
    good = [call("note", "g1", text="x")] if beside else []
    again = ai(call("note", "again", text="y"))
    room = desk(rooms, end, ai(*good, bad=[unreadable("note", "b1")]), again)
    ended = await room.say()
    assert ended["messages"][-1].content == "done"
    paired(room.model.sent[1])
    found = await room.results()
    assert "not a JSON object" in error_of(found["b1"])["message"]
    assert not beside or found["g1"].status == "error"
    assert [fact["text"] for fact in room.ledger.of("note")] == ["y"]
    assert "b1" in {event["call_id"] for event in await room.events("refused")}


@EVERYWHERE
async def test_arg07_no_arguments_are_enough_where_none_is_required(
    rooms: Rooms, end: FrontEnd
) -> None:
    def ping() -> str:
        rooms.ledger.add(tool="ping")
        return "pong"

    tools = [StructuredTool.from_function(ping, description="Ping.")]
    specs = [free("ping"), free("note")]
    room = desk(
        rooms, end, ai(call("ping", "p1")), ai(call("note", "n1")), tools=tools, specs=specs
    )
    await room.say()
    found = await room.results()
    assert found["p1"].content == "pong"
    assert "text: Field required" in error_of(found["n1"])["message"]
    assert [fact["tool"] for fact in room.ledger.all] == ["ping"]


# ---------------------------------------------------------------------------- ids used again


@EVERYWHERE
@pytest.mark.parametrize("name", ["note", "send_money"])
@pytest.mark.parametrize("same", [True, False], ids=["same arguments", "other arguments"])
async def test_arg09_an_id_twice_in_one_message_is_one_error(
    rooms: Rooms, end: FrontEnd, name: str, same: bool
) -> None:
    first = pay("d1", 1) if name == "send_money" else call("note", "d1", text="x")
    second = first if same else {**first, "args": {**first["args"], "to": "eve"}}
    if name == "note" and not same:
        second = call("note", "d1", text="y")
    room = desk(rooms, end, ai(first, second))
    await room.say()
    assert await room.asked() == []
    assert room.ledger.all == []
    found = await room.results()
    assert "same id" in error_of(found["d1"])["message"]
    paired(room.model.sent[-1])


@EVERYWHERE
@pytest.mark.parametrize("amount", [100, 5], ids=["same arguments", "other arguments"])
async def test_arg09_an_approval_is_none_for_the_same_id_in_the_next_turn(
    rooms: Rooms, end: FrontEnd, amount: int
) -> None:
    room = desk(rooms, end, ai(pay("c1")), ai(text="ok"), ai(pay("c1", amount)), ai(text="ok"))
    await room.say()
    (first,) = await room.asked()
    answer = room.sign(first)
    await room.resume({first.id: answer})
    await room.say("again")
    (second,) = await room.asked()
    assert second.id != first.id
    await room.resume({second.id: answer})
    assert room.ledger.paid == [100]
    await room.decide((await room.asked())[0])
    assert room.ledger.paid == [100, amount]
    paired(room.model.sent[-1])


@EVERYWHERE
async def test_arg09_no_result_is_given_again_for_its_id_alone(rooms: Rooms, end: FrontEnd) -> None:
    """By its arguments it is, only where its spec has a ``cache_ttl``, and then it is audited."""
    lines = []
    for text in ("x", "x", "y"):
        lines += [ai(call("look", "l", text=text), call("note", "n", text="x")), ai(text="ok")]
    specs = [free("look", READ, cache_ttl=60), free("note")]
    room = desk(rooms, end, *lines, specs=specs)
    for number in range(3):
        await room.say(f"turn {number}")
    assert len(room.ledger.of("note")) == 3
    assert [fact["text"] for fact in room.ledger.of("look")] == ["x", "y"]
    seen = [m.content for m in await room.messages() if isinstance(m, ToolMessage)]
    assert seen == ["saw x", "noted x"] * 2 + ["saw y", "noted x"]
    assert len(await room.events("cached")) == 1


# --------------------------------------------------------------------------- invented names

NAMES = ["unknown", "", "se$nd", "n" * 500, "Note", "note ", "send-money", "look\nnote"]


@over(how=["async"])
async def test_arg11_an_invented_name_is_an_error_result(rooms: Rooms, end: FrontEnd) -> None:
    """The one admission of all front ends, so one way of running; a message for each name."""
    lines = [
        ai(call(name, f"u{n}", text="x"), call("note", f"n{n}", text="x"))
        for n, name in enumerate(NAMES)
    ]
    room = desk(rooms, end, *lines)
    await room.say()
    found = await room.results()
    for number in range(len(NAMES)):
        error = error_of(found[f"u{number}"])
        assert error["kind"] == "UnknownTool"
        assert len(error["message"]) < 200
        assert "\n" not in error["message"]
    assert room.ledger.all == []
    assert len(await room.events("refused")) == 2 * len(NAMES)
    paired(room.model.sent[-1])


@EVERYWHERE
async def test_arg11_a_tool_that_is_not_offered_is_refused_and_not_named(
    rooms: Rooms, end: FrontEnd
) -> None:
    tools, _ = money_tools(rooms.ledger)
    specs = [free("send_money"), free("note"), free("look", READ)]
    policy = Policy(deny={"send_money": "frozen"}, ghost="refuse")
    lines = [ai(pay()), ai(call("invented", "u1", text="x"))]
    room = desk(rooms, end, *lines, tools=tools, specs=specs, policy=policy)
    await room.say()
    found = await room.results()
    assert error_of(found["c1"])["kind"] == "PolicyDenied"
    assert "send_money" not in error_of(found["u1"])["message"]
    assert "look, note" in error_of(found["u1"])["message"]
    assert room.ledger.all == []
    assert len(await room.events("refused", "denied")) == 2
