"""Calls and Maps: arguments, results, order, progress, failures."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from tests.unit.flow.kit import NO, Item, Kit, Order, items

from adapter import Policy, ToolFailed
from adapter.core.errors import ToolArgsInvalid, ToolError
from adapter.flow import Call, Flow, FlowError, FlowProgress, Map, Merge
from adapter.flow.context import never_asks
from adapter.flow.visit import journaled

pytestmark = pytest.mark.anyio


def alone(work: Any, state: Any = Order, **options: Any) -> Flow:
    return Flow("f", state=state).node("n", work, **options).end("n")


# ------------------------------------------------------------------------------------------- Call


class Basket(BaseModel):
    item: str = "abc"
    amount: int = 7
    other: str = "unused"
    out: str = ""


async def test_a_call_takes_the_fields_its_tool_has_arguments_for(kit: Kit) -> None:
    done = await kit.run(alone(Call("note", into="out"), Basket), {})
    assert done.state.out == "noted abc"
    assert kit.ran == [("note", "abc")]


async def test_a_call_takes_a_mapping(kit: Kit) -> None:
    done = await kit.run(alone(Call("note", {"item": "z"}, into="note")), {})
    assert done.state.note == "noted z"


@pytest.mark.parametrize("waits", [False, True])
async def test_a_call_takes_a_function_of_the_state(kit: Kit, waits: bool) -> None:
    async def later(state: Order) -> dict[str, Any]:
        return state.items[0]

    work = Call("note", later if waits else lambda state: state.items[0], into="note")
    assert (await kit.run(alone(work), items("q"))).state.note == "noted q"


async def test_a_call_into_nothing_writes_nothing(kit: Kit) -> None:
    done = await kit.run(alone(Call("note", {"item": "z"})), {})
    assert (done.state, kit.count("note")) == (Order(), 1)


async def test_a_call_into_a_list_appends(kit: Kit) -> None:
    done = await kit.run(alone(Call("note", {"item": "z"}, into="log")), {"log": ["a"]})
    assert done.state.log == ["a", "noted z"]


async def test_a_result_that_does_not_fit_its_field_is_a_flow_error(kit: Kit) -> None:
    with pytest.raises(FlowError, match="node 'n': the result does not fit its field: total: "):
        await kit.run(alone(Call("note", {"item": "z"}, into="total")), {})


async def test_arguments_the_tool_does_not_take_are_refused(kit: Kit) -> None:
    with pytest.raises(ToolArgsInvalid, match="extra: unknown argument"):
        await kit.run(alone(Call("note", {"item": "z", "extra": 1})), {})
    assert kit.ran == []


async def test_a_failing_call_raises(kit: Kit) -> None:
    kit.fail["note"] = [OSError()]
    with pytest.raises(ToolFailed, match="note failed: OSError"):
        await kit.run(alone(Call("note", {"item": "z"})), {})


class Loose(BaseModel):
    out: Any = None
    outs: Annotated[list[Any], Merge.append] = Field(default_factory=list)
    items: list[Any] = Field(default_factory=list)


async def test_a_failing_call_may_leave_its_error_as_the_result(kit: Kit) -> None:
    kit.fail["note"] = [ToolError("sold out")]
    work = Call("note", {"item": "z"}, into="out", on_tool_failure="message")
    done = await kit.run(alone(work, Loose), {})
    assert done.state.out == {"error": {"kind": "ToolError", "message": "sold out"}}


async def test_a_denied_call_may_leave_its_error_as_the_result(kit: Kit) -> None:
    made = alone(Call("pay", {"amount": 3}, into="out", on_tool_failure="message"), Loose)
    done = await kit.decided(made, await kit.run(made, {}), NO)
    assert (done.status, done.state.out["error"]["kind"]) == ("done", "ApprovalDenied")


# -------------------------------------------------------------------------------------------- Map


async def test_a_map_writes_its_results_in_the_order_of_the_items(kit: Kit) -> None:
    waits = {"a": asyncio.Event()}

    async def slow(item: str) -> float:
        if item == "a":
            await waits["a"].wait()
        waits["a"].set()
        return float(len(item))

    object.__setattr__(kit.executor.registry.implementations["rate"], "function", slow)
    done = await kit.run(alone(Map("items", tool="rate", into="rates")), items("a", "bb", "ccc"))
    assert done.state.rates == [1.0, 2.0, 3.0]


FRUIT = frozenset({"apple", "fig", "kiwi", "lime", "pear", "plum", "quince"})


class Fruit(BaseModel):
    names: frozenset[str] = FRUIT
    log: Annotated[list[str], Merge.append] = Field(default_factory=list)


@pytest.mark.parametrize("over", ["names", lambda state: state.names, lambda _state: set(FRUIT)])
async def test_a_map_over_a_set_goes_in_one_order_in_every_process(kit: Kit, over: Any) -> None:
    work = Map(over, tool="note", into="log", arguments=lambda name: {"item": name}, concurrency=1)
    done = await kit.run(alone(work, Fruit), {})
    assert [name for _, name in kit.ran] == sorted(FRUIT)
    assert done.state.log == [f"noted {name}" for name in sorted(FRUIT)]


async def test_a_set_of_what_has_no_json_form_is_gone_over_as_well(kit: Kit) -> None:
    def over(_state: Order) -> Any:
        return {2j, 1j}

    work = Map(over, tool="note", arguments=lambda item: {"item": str(item)}, concurrency=1)
    await kit.run(alone(work), {})
    assert [name for _, name in kit.ran] == ["1j", "2j"]


async def test_a_map_of_nothing_writes_an_empty_list(kit: Kit) -> None:
    done = await kit.run(alone(Map("items", tool="note", into="out"), Loose), {})
    assert (done.status, done.state.out, kit.ran) == ("done", [], [])


async def test_a_map_over_no_value_is_a_map_of_nothing(kit: Kit) -> None:
    done = await kit.run(alone(Map("out", tool="note", into="outs"), Loose), {})
    assert done.state.outs == []


@pytest.mark.parametrize("waits", [False, True])
async def test_a_map_goes_over_what_a_function_returns(kit: Kit, waits: bool) -> None:
    async def later(_state: Loose) -> Any:
        return (Item(item=name) for name in "ab")

    over = later if waits else lambda _state: (Item(item=name) for name in "ab")
    done = await kit.run(alone(Map(over, tool="note", into="outs"), Loose), {})
    assert done.state.outs == ["noted a", "noted b"]


class Typed(BaseModel):
    items: list[Item]
    out: Any = None


@pytest.mark.parametrize("waits", [False, True])
async def test_arguments_may_be_made_of_an_item_as_the_state_has_it(kit: Kit, waits: bool) -> None:
    async def later(item: Item) -> dict[str, Any]:
        return {"item": item.item * 2}

    made = later if waits else lambda item: {"item": item.item * 2}
    work = Map("items", tool="note", into="out", arguments=made)
    done = await kit.run(alone(work, Typed), {"items": [{"item": "a"}]})
    assert done.state.out == ["noted aa"]


async def test_items_that_are_models_are_arguments_too(kit: Kit) -> None:
    work = Map("items", tool="note", into="out")
    done = await kit.run(alone(work, Typed), Typed(items=[Item(item="a")]))
    assert done.state.out == ["noted a"]


async def test_an_item_that_is_no_mapping_names_the_node_and_the_item(kit: Kit) -> None:
    with pytest.raises(FlowError, match=r"node 'n': item 1 of 'items' is no mapping .* but a int"):
        await kit.run(alone(Map("items", tool="note"), Loose), {"items": [{"item": "a"}, 7]})
    assert kit.ran == []


async def test_arguments_made_of_an_item_must_be_a_mapping(kit: Kit) -> None:
    work = Map(lambda state: state.items, tool="note", arguments=lambda _item: "x")
    with pytest.raises(FlowError, match="what arguments= made of item 0 of 'over' is no mapping"):
        await kit.run(alone(work), items("a"))


async def test_an_item_without_a_json_form_is_named(kit: Kit) -> None:
    work = Map(lambda _state: [{"item": object()}], tool="note")
    with pytest.raises(FlowError, match=r"the arguments of note \(call n:1:0\) have no JSON form"):
        await kit.run(alone(work), {})


@pytest.mark.parametrize("over", [lambda _state: {"a": 1}, lambda _state: 7, "out"])
async def test_a_map_over_no_list_is_refused(kit: Kit, over: Any) -> None:
    with pytest.raises(FlowError, match="holds no list of items but a "):
        await kit.run(alone(Map(over, tool="note"), Loose), {"out": "text"})


class Sums(BaseModel):
    items: list[dict[str, Any]] = Field(default_factory=list)
    total: Annotated[float, Merge.sum] = 1.0
    largest: Annotated[float, Merge.max] = 0.0
    nested: Annotated[list[list[int]], Merge.append] = Field(default_factory=list)


@pytest.mark.parametrize(("into", "after"), [("total", 7.0), ("largest", 3.0)])
async def test_results_are_merged_item_by_item_under_other_rules(
    kit: Kit, into: str, after: float
) -> None:
    made = alone(Map("items", tool="rate", into=into), Sums)
    done = await kit.run(made, items("a", "bb", "ccc"))
    assert getattr(done.state, into) == after


async def test_a_result_that_is_a_list_is_one_item_of_an_appended_field(kit: Kit) -> None:
    def pair(item: str) -> list[int]:
        return [len(item), 0]

    object.__setattr__(kit.executor.registry.implementations["rate"], "function", pair)
    done = await kit.run(alone(Map("items", tool="rate", into="nested"), Sums), items("a", "b"))
    assert done.state.nested == [[1, 0], [1, 0]]


async def test_the_others_end_before_the_first_error_in_order_is_raised(kit: Kit) -> None:
    kit.fail["note"] = [ToolError("one"), ToolError("two")]
    with pytest.raises(ToolError, match="one"):
        await kit.run(alone(Map("items", tool="note")), items("a", "b", "c"))
    assert kit.count("note") == 3


async def test_errors_may_stand_in_their_items_places(kit: Kit) -> None:
    kit.fail["note"] = [ToolError("sold out")]
    work = Map("items", tool="note", into="outs", on_tool_failure="message")
    done = await kit.run(alone(work, Loose), items("a", "b"))
    assert done.state.outs == [
        {"error": {"kind": "ToolError", "message": "sold out"}},
        "noted b",
    ]


@pytest.mark.parametrize(
    ("concurrency", "count", "expected"), [(2, 6, 2), (None, 100, 100), (None, 300, 256)]
)
async def test_concurrency_caps_how_many_run_at_once(
    kit: Kit, concurrency: int | None, count: int, expected: int
) -> None:
    running, most = 0, 0

    async def watched(item: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while most < expected:  # noqa: ASYNC110 - until as many are here as may be
            await asyncio.sleep(0.001)
        running -= 1
        return item

    object.__setattr__(kit.executor.registry.implementations["rate"], "function", watched)
    work = Map("items", tool="rate", concurrency=concurrency)
    await kit.run(alone(work), items(*map(str, range(count))))
    assert most == expected


async def test_gated_items_are_asked_about_one_at_a_time_and_each_runs_once(kit: Kit) -> None:
    work = Map(lambda _state: [{"amount": n} for n in (1, 2)], tool="pay", into="outs")
    made = alone(work, Loose)
    first = await kit.run(made, {})
    assert [one.arguments for one in first.pendings] == [{"amount": 1}]
    second = await kit.decided(made, first)
    assert [one.arguments for one in second.pendings] == [{"amount": 2}]
    done = await kit.decided(made, second)
    assert done.state.outs == ["paid 1", "paid 2"]
    assert kit.ran == [("pay", 1), ("pay", 2)]


# --------------------------------------------------------------------------------------- progress


@pytest.mark.parametrize("waits", [False, True])
async def test_each_finished_item_of_a_map_is_told(kit: Kit, waits: bool) -> None:
    told: list[FlowProgress] = []

    async def later(progress: FlowProgress) -> None:
        told.append(progress)

    made = alone(Map("items", tool="note"))
    await kit.run(made, items("a", "b"), on_progress=later if waits else told.append)
    assert told == [
        FlowProgress(flow="f", node="n", visit=1, done=done, total=2) for done in (1, 2)
    ]


# ---------------------------------------------------------------------------------------- journal


@pytest.mark.parametrize(
    ("work", "recorded"),
    [
        (Map("items", tool="rate"), False),
        (Call("rate", {"item": "a"}), False),
        (Map("items", tool="note"), True),
        (Call("pay", {"amount": 1}), True),
        (lambda _state: None, True),
    ],
)
async def test_only_reads_that_never_ask_are_left_out_of_the_journal(
    kit: Kit, work: Any, recorded: bool
) -> None:
    assert journaled(alone(work).nodes["n"], kit.executor) is recorded


async def test_a_read_that_a_policy_may_put_to_a_person_is_in_the_journal() -> None:
    from adapter.stores import open_store

    store = open_store("sqlite://")
    try:
        kit = Kit(store=store)
        executor = kit.make(policy=Policy(escalate={"ra*": "rates are dear"}))
        assert never_asks(executor, "note")
        assert not never_asks(executor, "rate")
        assert journaled(alone(Call("rate")).nodes["n"], executor)
    finally:
        await store.aclose()


async def test_a_tool_nobody_knows_may_ask(kit: Kit) -> None:
    assert not never_asks(kit.executor, "nope")
