"""Calls by a program itself: a function, no host, the same stages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.unit.core.kit import Payment, Query, kinds, tool

from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ConfigurationError,
    ToolArgsInvalid,
    ToolFailed,
    ToolUsageError,
    UnknownTool,
)
from adapter.core.executor import Executor
from adapter.core.functions import FunctionInvocation, FunctionTool, Unjournaled, is_plain, plain
from adapter.core.keys import KeyRing
from adapter.core.masking import ResultMask
from adapter.core.policy import Policy
from adapter.core.scope import TaskScope, scoped
from adapter.core.spec import Registry
from adapter.core.types import Effects, ToolCall
from adapter.core.validation import PydanticSchema
from adapter.stores.memory import MemoryStore
from adapter.testing import FrozenClock, ScriptedPort, make_call, make_context, wired

pytestmark = pytest.mark.anyio


class Where(BaseModel):
    path: Path


class House:
    """An executor over functions that count their runs."""

    def __init__(self, **options: Any) -> None:
        self.runs: list[Any] = []
        send = tool("send", gated=True)
        note = tool("note", model=Query)
        look = tool("look", model=Query, effects=Effects(read_only=True))
        file = tool("file", model=Where, **options.pop("file", {}))
        listed = (send, note, look, file)
        self.clock = FrozenClock()
        self.store = MemoryStore(clock=self.clock)
        self.port = ScriptedPort(KeyRing.random(), clock=self.clock)
        registry = Registry(
            [spec for spec, _ in listed],
            {spec.name: schema for spec, schema in listed},
            {
                "note": FunctionTool(self.note),
                "look": FunctionTool(self.look),
                "file": FunctionTool(self.file),
                "send": FunctionTool(self.send),
            },
        )
        self.executor = Executor(
            registry, store=self.store, approval=self.port, clock=self.clock, **options
        )

    async def note(self, text: str) -> Any:
        self.runs.append(text)
        if text == "bad":
            raise ValueError(text)
        return {"pair": (text, 1)}

    def look(self, text: str) -> str:
        self.runs.append(text)
        return f"saw {text}"

    def file(self, path: Path) -> object:
        self.runs.append(path)
        return object()

    def send(self, **arguments: Any) -> str:
        self.runs.append(arguments)
        return "sent"

    async def __aenter__(self) -> House:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.store.aclose()


def scope(**fields: Any) -> TaskScope:
    return TaskScope(task=object(), context=make_context(), **fields)


async def test_a_function_runs_and_its_result_replays() -> None:
    async with House() as house:
        for _ in range(2):
            result = await house.executor.run(make_call("note", text="x"), make_context())
            assert result == {"pair": ["x", 1]}
        assert house.runs == ["x"]


async def test_a_plain_function_runs_in_a_thread_and_is_read_again() -> None:
    async with House() as house:
        for _ in range(2):
            assert await house.executor.run(make_call("look", text="x"), make_context()) == "saw x"
        assert house.runs == ["x", "x"]


async def test_a_read_is_recorded_where_the_task_says_so() -> None:
    async with House() as house:
        with scoped(scope(journaled=True)):
            for _ in range(2):
                assert await house.executor.run(make_call("look", text="x")) == "saw x"
        assert house.runs == ["x"]


async def test_a_function_that_fails_has_failed() -> None:
    async with House() as house:
        with pytest.raises(ToolFailed):
            await house.executor.run(make_call("note", text="bad"), make_context())


async def test_run_many_returns_results_in_order() -> None:
    async with House() as house:
        calls = [make_call("note", id=str(n), text=str(n)) for n in range(3)]
        found = await house.executor.run_many(calls, make_context(), concurrency=2)
        assert [one["pair"][0] for one in found] == ["0", "1", "2"]
        with scoped(scope()):
            assert len(await house.executor.run_many(calls)) == 3
        with pytest.raises(ToolUsageError, match="same id"):
            await house.executor.run_many([calls[0], calls[0]], make_context())


async def test_a_call_without_a_place_is_refused() -> None:
    async with House() as house:
        with pytest.raises(ToolUsageError, match="no place"):
            await house.executor.run(make_call("note", text="x"))
        with scoped(TaskScope(task=object())), pytest.raises(ToolUsageError, match="no place"):
            await house.executor.run(make_call("note", text="x"))


async def test_what_a_tool_does_inside_has_no_place_of_its_own() -> None:
    async with House() as house:

        async def nested(text: str) -> Any:
            return await house.executor.run(make_call("look", text=text))

        house.executor.registry.implementations["note"] = FunctionTool(nested)
        with scoped(scope()), pytest.raises(ToolFailed, match="ToolUsageError"):
            await house.executor.run(make_call("note", text="x"))
        house.executor.registry.implementations["look"] = FunctionTool(nested)
        with scoped(scope()), pytest.raises(ToolFailed, match="ToolUsageError"):
            await house.executor.run(make_call("look", id="l", text="x"))


async def test_unknown_names_and_missing_functions() -> None:
    async with House() as house:
        with pytest.raises(UnknownTool):
            await house.executor.run(make_call("nobody"), make_context())
        del house.executor.registry.implementations["note"]
        with pytest.raises(ConfigurationError, match="implementation"):
            await house.executor.run(make_call("note", text="x"), make_context())


def test_an_implementation_of_no_tool_is_refused() -> None:
    spec, schema = tool("note")
    with pytest.raises(ConfigurationError, match="name no tool"):
        Registry([spec], {"note": schema}, {"other": FunctionTool(print)})


async def test_confirms_says_whether_a_person_must_decide() -> None:
    async with House(policy=Policy(deny={"file": "no"})) as house:
        confirms = house.executor.confirms
        assert confirms(make_call("send", to="bob"))
        assert not confirms(make_call("note", text="x"))
        assert not confirms(make_call("send", to=5))
        assert not confirms(make_call("nobody"))
        assert not confirms(make_call("file", path="x"))


async def test_a_registry_of_the_wrong_kind_never_runs_an_unknown_name_given_an_invocation() -> (
    None
):
    async with wired(tool("write")) as kit:
        call = make_call("nobody")
        with pytest.raises(UnknownTool):
            await kit.executor.run(call, make_context(), kit.invocation(call))


# ------------------------------------------------------ arguments that have no JSON form


FILE = ToolCall(name="file", arguments={"path": Path("x")}, id="f")


async def test_a_call_with_values_that_are_no_json_runs_once_and_is_not_replayed() -> None:
    async with House() as house:
        with scoped(scope(journaled=True)) as here:
            await house.executor.run(FILE)
            assert here.unjournaled == ["f"]
        with pytest.raises(ApprovalAlreadyDecided, match="cannot be journaled"):
            await house.executor.run(FILE, make_context())
        assert house.runs == [Path("x")]
        assert "Path" not in str(await house.store.events("thread-1"))


async def test_a_read_with_values_that_are_no_json_runs_again() -> None:
    async with House(file={"effects": Effects(read_only=True)}) as house:
        with scoped(scope(journaled=True)):
            await house.executor.run(FILE)
            await house.executor.run(FILE)
        assert house.runs == [Path("x")] * 2


async def test_a_call_with_values_that_are_no_json_may_fail() -> None:
    async with House() as house:

        def fail(path: Path) -> None:
            raise ValueError(path)

        house.executor.registry.implementations["file"] = FunctionTool(fail)
        for _ in range(2):
            with pytest.raises(ToolFailed, match="ValueError"):
                await house.executor.run(FILE, make_context())


async def test_values_that_are_no_json_are_validated_strictly() -> None:
    async with House() as house:
        for arguments in ({"path": Path("x"), "ghost": 1}, {"path": {1}}):
            call = ToolCall(name="file", arguments=arguments, id="f")
            with pytest.raises(ToolArgsInvalid):
                await house.executor.run(call, make_context())
        assert house.runs == []


async def test_nobody_can_approve_values_that_are_no_json() -> None:
    async with House(file={"gated": True}) as house:
        with pytest.raises(ToolUsageError, match="nobody could sign"):
            await house.executor.run(FILE, make_context())


async def test_a_pause_after_such_a_call_is_refused_before_anybody_is_asked() -> None:
    async with House() as house:
        call = make_call("send", to="bob")
        for error in (ToolUsageError, ApprovalAlreadyDecided):
            with scoped(scope()) as here:
                here.unjournaled.append("f")
                with pytest.raises(error):
                    await house.executor.run(call)
        assert house.port.questions == []
        assert house.runs == []
        (row,) = await house.store.of_message("thread-1", "message-1")
        assert row.status == "void"


async def test_unjournaled_is_as_its_tool_is() -> None:
    inner = FunctionInvocation(lambda text: text)
    made = Unjournaled(inner, {"text": "x"})
    mask = ResultMask.of(["text"])
    assert made.cancellable is inner.cancellable is False
    assert not made.is_pause(ValueError())
    assert not made.failed("x")
    assert made.record(object()) == {"unjournaled": True}
    assert made.responded("x") == "x"
    assert made.share({}) is None
    assert made.masked({"text": "x"}, mask) == {"text": "***"}

    async def hang(text: str) -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(
        Unjournaled(FunctionInvocation(hang), {"text": "x"}).invoke({}, None)
    )
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_function_s_invocation_outside_the_executor() -> None:
    async def fail(text: str) -> None:
        raise ValueError(text)

    made = FunctionInvocation(fail)
    assert made.cancellable
    with pytest.raises(ValueError, match="x"):
        await made.invoke({"text": "x"}, None)
    assert not made.is_pause(ValueError())
    assert not made.failed("x")
    assert made.replay({"a": 1}) == made.share({"a": 1}) == made.record({"a": 1}) == {"a": 1}
    assert made.responded("words") == "words"
    assert made.masked("Bearer abcdefgh12", ResultMask()) == "***"
    with pytest.raises(ToolUsageError, match="journal"):
        made.record(object())


@pytest.mark.parametrize(
    ("value", "simple"),
    [
        ({"a": [1, 2.5, "x", None, True]}, True),
        ({1: "a"}, False),
        ([{1}], False),
        ((1,), False),
        (Path("x"), False),
    ],
)
def test_json_s_own_types_are_told_apart(value: Any, simple: bool) -> None:
    assert is_plain(value) is simple


def test_tuples_become_lists_as_they_would_on_replay() -> None:
    assert plain({"a": (1, [(2,)])}) == {"a": [1, [[2]]]}


def test_a_schema_keeps_its_model() -> None:
    assert PydanticSchema(Payment).model is Payment


async def test_events_of_a_direct_call_are_those_of_every_call() -> None:
    async with House() as house:
        await house.executor.run(make_call("note", text="x"), make_context())
        kit: Any = house
        assert await kinds(kit) == ["started", "succeeded"]


async def test_a_function_keeps_nothing_of_a_pause() -> None:
    inner = FunctionInvocation(abs)
    for one in (inner, Unjournaled(inner, {})):
        await one.recall({"told": ["yes"]})
        assert one.told(RuntimeError()) is None
