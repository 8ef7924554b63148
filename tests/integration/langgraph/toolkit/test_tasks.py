"""tool_task, fan_out and reducer, row by row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langgraph.channels import BinaryOperatorAggregate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import EmptyChannelError, InvalidUpdateError
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Overwrite, Send
from pydantic import BaseModel, Field
from tests.support.room import free, tool_of
from tests.support.toolkit import CONFIG, NO, Bench, Shop, answered, asked
from typing_extensions import TypedDict

from adapter import (
    ApprovalDenied,
    ConfigurationError,
    Effects,
    Merge,
    MergeRule,
    ToolError,
    ToolFailed,
    ToolSpec,
    ToolUsageError,
)
from adapter.langgraph import fan_out, reducer, registry_of, tool_task

pytestmark = pytest.mark.anyio


class State(TypedDict, total=False):
    items: list[Any]
    rates: Annotated[list[Any], reducer(Merge.append)]


class Modelled(BaseModel):
    items: list[Any]
    rates: Annotated[list[Any], reducer(Merge.append)] = Field(default_factory=list)


def mapping(shop: Shop, tool: str, schema: Any = State, over: Any = "items", **how: Any) -> Any:
    """A graph that runs one tool for each item."""
    spec = shop.registry.get(tool)
    assert spec is not None
    graph: Any = StateGraph(schema)
    graph.add_node("plan", lambda state: {})
    graph.add_node(tool_task(spec, executor=shop.executor, into="rates", **how))
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", fan_out(tool, over), [tool])
    return graph.compile(checkpointer=InMemorySaver())


ITEMS = [{"text": "a" * n} for n in (3, 1, 2)]


@pytest.mark.parametrize("schema", [State, Modelled])
@pytest.mark.parametrize("how", ["sync", "async"])
async def test_tool_task_runs_the_spec_with_the_sends_argument(
    bench: Bench, schema: Any, how: str
) -> None:
    app = mapping(bench.shop(), "rate", schema)
    given = {"items": ITEMS, "rates": []}
    if how == "sync":
        out = await asyncio.to_thread(app.invoke, given, CONFIG)
    else:
        out = await app.ainvoke(given, CONFIG)
    assert out["rates"] == [3.0, 1.0, 2.0]


async def test_tool_task_pauses_each_gated_item_and_runs_each_once(bench: Bench) -> None:
    shop = bench.shop()
    app = mapping(shop, "pay")
    await app.ainvoke({"items": ITEMS}, CONFIG)
    questions = await asked(app)
    assert len({question.id for question in questions}) == 3
    out: Any = None
    for question in questions:
        out = await app.ainvoke(shop.answer(question), CONFIG)
    assert out["rates"] == ["paid aaa", "paid a", "paid aa"]
    assert bench.ran("pay") == 3


async def test_tool_task_a_denied_item_raises(bench: Bench) -> None:
    shop = bench.shop()
    app = mapping(shop, "pay")
    await app.ainvoke({"items": ITEMS[:1]}, CONFIG)
    with pytest.raises(ApprovalDenied):
        await answered(app, shop, NO)


async def test_tool_task_a_denied_item_is_an_error_where_asked_for(bench: Bench) -> None:
    shop = bench.shop()
    app = mapping(shop, "pay", on_tool_failure="message")
    await app.ainvoke({"items": ITEMS[:1]}, CONFIG)
    out = await answered(app, shop, NO)
    assert out["rates"][0]["error"]["kind"] == "ApprovalDenied"


@pytest.mark.parametrize(
    ("error", "raised"), [(ValueError("x"), ToolFailed), (ToolError("no"), ToolError)]
)
async def test_tool_task_a_failed_item_raises_or_is_an_error(
    bench: Bench, error: Exception, raised: type[Exception]
) -> None:
    def fail(text: str) -> str:
        raise error

    shop = bench.shop(tools=[tool_of(fail, "fail")], specs=[free("fail")])
    with pytest.raises(raised):
        await mapping(shop, "fail").ainvoke({"items": ITEMS[:1]}, CONFIG)
    out = await mapping(shop, "fail", on_tool_failure="message").ainvoke(
        {"items": ITEMS[:1]}, CONFIG
    )
    assert out["rates"][0]["error"]["kind"] == raised.__name__


async def test_tool_task_gives_its_tool_the_runtime_and_the_sends_argument(bench: Bench) -> None:
    def look(text: str, runtime: ToolRuntime) -> str:
        """Look."""
        return f"{runtime.state} {str(runtime.tool_call_id).startswith('look:')}"

    from langchain_core.tools import StructuredTool

    shop = bench.shop(tools=[StructuredTool.from_function(look)], specs=[free("look")])
    out = await mapping(shop, "look").ainvoke({"items": [{"text": "x"}]}, CONFIG)
    assert out["rates"] == ["{'text': 'x'} True"]


async def test_tool_task_without_an_executor_runs_the_specs_function(bench: Bench) -> None:
    def double(text: str) -> str:
        return text * 2

    spec = ToolSpec(name="double", effects=Effects(), approval=None, function=double)
    with pytest.warns(UserWarning, match="survives"):
        task = tool_task(spec, into="rates")
    graph: Any = StateGraph(State)
    graph.add_node(task)
    graph.add_conditional_edges(START, fan_out("double", "items"), ["double"])
    out = await graph.compile().ainvoke({"items": [{"text": "ab"}]})
    assert out["rates"] == ["abab"]


async def test_tool_task_of_a_tool_nobody_has_is_a_configuration_error(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="name no tool"):
        tool_task(free("nobody"), executor=bench.shop().executor, into="rates")
    odd: Any = "quiet"
    shop = bench.shop()
    with pytest.raises(ConfigurationError, match="on_tool_failure"):
        tool_task(free("note"), executor=shop.executor, into="rates", on_tool_failure=odd)


async def test_tool_task_runs_with_a_mapping_only(bench: Bench) -> None:
    shop = bench.shop()
    spec = shop.registry.get("rate")
    assert spec is not None
    graph: Any = StateGraph(State)
    graph.add_node(tool_task(spec, executor=shop.executor, into="rates"))
    graph.add_conditional_edges(START, lambda state: [Send("rate", "text")], ["rate"])
    with pytest.raises(ToolUsageError, match="mapping"):
        await graph.compile().ainvoke({"items": []})


# ------------------------------------------------------------------------------ fan_out


@dataclass
class Holder:
    items: list[Any]


@pytest.mark.parametrize("state", [{"items": ITEMS}, Holder(ITEMS), Modelled(items=ITEMS)])
async def test_fan_out_over_a_key_sends_each_mapping(state: Any) -> None:
    assert fan_out("rate", "items")(state) == [Send("rate", item) for item in ITEMS]


async def test_fan_out_over_a_function_of_the_state(bench: Bench) -> None:
    def pairs(state: Any) -> list[dict[str, str]]:
        return [{"text": text} for text in state["items"]]

    out = await mapping(bench.shop(), "rate", over=pairs).ainvoke({"items": ["a", "bb"]}, CONFIG)
    assert out["rates"] == [1.0, 2.0]


@pytest.mark.parametrize("given", [{"items": []}, {}])
async def test_fan_out_over_nothing_sends_nothing(bench: Bench, given: Any) -> None:
    assert fan_out("rate", "items")(given) == []
    out = await mapping(bench.shop(), "rate").ainvoke({"items": []}, CONFIG)
    assert out["rates"] == []
    assert bench.ran("rate") == 0


async def test_fan_out_an_item_that_is_no_mapping_is_named(bench: Bench) -> None:
    with pytest.raises(ToolUsageError, match=r"item 1 of 'items' .* str"):
        await mapping(bench.shop(), "rate").ainvoke({"items": [ITEMS[0], "b"]}, CONFIG)
    assert bench.ran("rate") == 0


@pytest.mark.parametrize("items", ["text", {"a": 1}, 5])
async def test_fan_out_over_what_is_no_list_is_refused(items: Any) -> None:
    with pytest.raises(ToolUsageError, match="no list"):
        fan_out("rate", "items")({"items": items})


async def test_two_fan_outs_of_one_node_have_two_names(bench: Bench) -> None:
    shop = bench.shop()
    graph: Any = StateGraph(State)
    for name in ("rate", "note"):
        spec = shop.registry.get(name)
        assert spec is not None
        graph.add_node(tool_task(spec, executor=shop.executor, into="rates"))
        graph.add_conditional_edges(START, fan_out(name, "items"), [name])
    out = await graph.compile().ainvoke({"items": [{"text": "a"}]})
    assert out["rates"] == [1.0, {"noted": "a"}]


# ------------------------------------------------------------------------------ reducer


def merging(rule: Any, kind: Any, writes: dict[str, Any]) -> Any:
    """A graph whose nodes all write one key in one superstep."""
    made: Any = TypedDict
    fields = {"key": Annotated[kind, reducer(rule)]}
    schema: Any = made("Merged", fields, total=False)
    graph: Any = StateGraph(schema)
    for name, value in writes.items():
        graph.add_node(name, lambda state, value=value: {"key": value})
        graph.add_edge(START, name)
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize(
    ("rule", "kind", "first", "writes", "wanted"),
    [
        (Merge.append, list[int], [0], {"b": 2, "a": 1, "c": [3, 4]}, [0, 1, 2, 3, 4]),
        (Merge.last, int, 0, {"b": 2, "a": 1}, 2),
        (Merge.union, dict[str, int], {"x": 0}, {"a": {"y": 1}, "b": {"x": 2}}, {"x": 2, "y": 1}),
        (Merge.union, list[int], [1], {"a": [2, 1], "b": [3, 3]}, [1, 2, 3]),
        (Merge.sum, int, 10, {"a": 1, "b": 2}, 13),
        (Merge.max, int, 1, {"a": 5, "b": 3}, 5),
        (Merge.min, int, 9, {"a": 5, "b": 3}, 3),
    ],
)
async def test_reducer_merges_every_write_of_a_superstep(
    rule: MergeRule, kind: Any, first: Any, writes: dict[str, Any], wanted: Any
) -> None:
    out = await merging(rule, kind, writes).ainvoke({"key": first}, CONFIG)
    assert out["key"] == wanted


async def test_reducer_sees_all_writes_at_once_nodes_by_name() -> None:
    seen: list[Any] = []

    def rule(current: Any, writes: Sequence[Any]) -> Any:
        seen.append((current, list(writes)))
        return sum(writes)

    app = merging(rule, int, {"c": 3, "a": 1, "b": 2})
    out = await app.ainvoke({"key": 10}, CONFIG)
    assert out["key"] == 6
    assert seen[-1] == (10, [1, 2, 3])


async def test_reducer_keeps_its_value_over_a_checkpoint_and_a_new_input(bench: Bench) -> None:
    app = merging(Merge.append, list[int], {"a": 1})
    await app.ainvoke({"key": [0]}, CONFIG)
    out = await app.ainvoke({"key": 5}, CONFIG)
    assert out["key"] == [0, 1, 5, 1]


async def test_reducer_begins_with_the_types_empty_value_or_with_none() -> None:
    channel = reducer(Merge.append)(list[int])
    assert channel.get() == []
    assert channel.copy().get() == []
    assert channel.ValueType == channel.UpdateType == list[int]
    unset = reducer(Merge.max)(int)
    assert not unset.is_available()
    assert not unset.update([])
    with pytest.raises(EmptyChannelError):
        unset.get()
    assert not reducer(Merge.union)(Any).is_available()
    assert not unset.from_checkpoint(unset.checkpoint()).is_available()
    assert unset.from_checkpoint(5).get() == 5


async def test_reducer_an_overwrite_replaces_once() -> None:
    channel = reducer(Merge.sum)(int)
    channel.update([1, Overwrite(7), 2])
    assert channel.get() == 7
    with pytest.raises(InvalidUpdateError):
        channel.update([Overwrite(1), Overwrite(2)])


OVERWRITES = [
    Overwrite([7]),
    {"__overwrite__": [7]},
    {"value": [7], "type": "__overwrite__"},
]


@pytest.mark.parametrize("write", OVERWRITES, ids=["object", "sentinel", "encoded"])
async def test_reducer_takes_an_overwrite_in_every_form_that_langgraph_takes(write: Any) -> None:
    def plus(one: list[int], other: list[int]) -> list[int]:
        return one + other

    langgraphs = BinaryOperatorAggregate(list, plus)
    langgraphs.update([[1], write])
    app = merging(Merge.append, list[int], {"a": 1})
    await app.ainvoke({"key": [0]}, CONFIG)
    await app.aupdate_state(CONFIG, {"key": write}, as_node="a")
    assert (await app.aget_state(CONFIG)).values["key"] == langgraphs.get() == [7]
    out = await app.ainvoke({"key": write}, CONFIG)
    assert out["key"] == [7, 1]


@pytest.mark.parametrize("write", OVERWRITES, ids=["object", "sentinel", "encoded"])
async def test_reducer_refuses_two_overwrites_in_every_form(write: Any) -> None:
    channel = reducer(Merge.append)(list[int])
    with pytest.raises(InvalidUpdateError, match="more than one Overwrite"):
        channel.update([Overwrite([1]), write])


@pytest.mark.parametrize(
    "write", [{"__overwrite__": 1, "b": 2}, {"type": "__overwrite__"}, {"type": "x", "value": 1}]
)
async def test_reducer_a_dict_that_is_no_overwrite_is_merged(write: dict[str, Any]) -> None:
    channel = reducer(Merge.union)(dict[str, Any])
    channel.update([{"a": 0}, write])
    assert channel.get() == {"a": 0, **write}


async def test_reducer_channels_of_one_rule_are_equal_and_of_two_are_not() -> None:
    assert reducer(Merge.sum)(int) == reducer(Merge.sum)(int)
    assert reducer(Merge.sum)(int) != reducer(Merge.max)(int)
    with pytest.raises(ToolUsageError, match="rule of Merge"):
        reducer("append")  # type: ignore[arg-type]


async def test_reducer_values_that_do_not_go_together_are_named() -> None:
    with pytest.raises(ToolUsageError, match=r"Merge\.sum"):
        await merging(Merge.sum, int, {"a": "text"}).ainvoke({"key": 1}, CONFIG)


async def test_a_registry_may_take_its_tools_from_the_specs(bench: Bench) -> None:
    tools, specs = bench.tools()
    registry = registry_of(tools[:1], specs[:1])
    assert registry.names == ("rate",)
