"""Supersteps: edges, routes and caps, joins, merges of a superstep, the limit of steps."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Self

import pytest
from pydantic import BaseModel, Field, model_validator
from tests.unit.flow.kit import Kit, Order, logs

from adapter.flow import END, Flow, FlowError, FlowLoopExceeded, Join, Merge, Route

pytestmark = pytest.mark.anyio


def flow(*names: str) -> Flow:
    """Nodes that log their names."""
    made = Flow("f", state=Order)
    for name in names:
        made.node(name, logs(name))
    return made


async def ran(kit: Kit, made: Flow, state: Any = None, **options: Any) -> tuple[list[str], int]:
    done = await kit.run(made, state or {}, **options)
    assert done.status == "done"
    counted: dict[str, int] = {}
    for name in done.state.log:
        counted[name] = counted.get(name, 0) + 1
    assert {name: done.visits[name] for name in counted} == counted
    return done.state.log, done.steps


async def test_a_flow_begins_at_the_node_declared_first(kit: Kit) -> None:
    assert await ran(kit, flow("b", "a").edge("b", "a").end("a")) == (["b", "a"], 2)


async def test_a_flow_may_begin_at_several_nodes(kit: Kit) -> None:
    assert await ran(kit, flow("b", "a").start("b", "a").end("a", "b")) == (["a", "b"], 1)


async def test_all_edges_of_a_node_are_taken_at_the_same_time(kit: Kit) -> None:
    made = flow("s", "b", "a").edge("s", "b", "a").end("a", "b")
    assert await ran(kit, made) == (["s", "a", "b"], 2)


async def test_nodes_of_a_superstep_run_at_the_same_time(kit: Kit) -> None:
    both = [asyncio.Event(), asyncio.Event()]

    def meets(mine: int) -> Any:
        async def work(_state: Order) -> None:
            both[mine].set()
            await both[1 - mine].wait()

        return work

    made = Flow("f", state=Order).node("a", meets(0)).node("b", meets(1)).start("a", "b")
    assert (await kit.run(made.end("a", "b"), {})).steps == 1


async def test_every_node_of_a_superstep_sees_the_state_as_it_began(kit: Kit) -> None:
    seen = []
    made = Flow("f", state=Order).start("a", "b").end("a", "b")

    def looks(name: str) -> Any:
        def work(state: Order) -> dict[str, Any]:
            seen.append(state.log)
            return {"log": name}

        return work

    made.node("a", looks("a")).node("b", looks("b"))
    await kit.run(made, {})
    assert seen == [[], []]


async def test_writes_are_merged_by_the_nodes_names_whoever_ends_first(kit: Kit) -> None:
    first = asyncio.Event()

    async def late(_state: Order) -> dict[str, Any]:
        await first.wait()
        return {"log": "a"}

    async def early(_state: Order) -> dict[str, Any]:
        first.set()
        return {"log": "b"}

    made = Flow("f", state=Order).node("b", early).node("a", late).start("a", "b").end("a", "b")
    assert (await kit.run(made, {})).state.log == ["a", "b"]


async def test_two_writers_of_an_undeclared_field_are_a_conflict(kit: Kit) -> None:
    made = Flow("f", state=Order).start("a", "b").end("a", "b")
    for name in "ab":
        made.node(name, lambda _state: {"note": "x"})
    with pytest.raises(FlowError, match="superstep of a, b: merge conflict: the nodes a, b wrote"):
        await kit.run(made, {})


async def test_what_does_not_hold_after_the_merge_names_the_superstep(kit: Kit) -> None:
    class Short(BaseModel):
        log: Annotated[list[str], Merge.append, Field(max_length=1)] = Field(default_factory=list)

    made = Flow("f", state=Short).node("a", logs("a")).node("b", logs("b"))
    with pytest.raises(FlowError, match="superstep of a, b: log: List should have at most 1"):
        await kit.run(made.start("a", "b").end("a", "b"), {})


async def test_what_holds_of_several_fields_is_checked_after_each_superstep(kit: Kit) -> None:
    class Paid(BaseModel):
        due: int = 5
        paid: int = 0

        @model_validator(mode="after")
        def not_too_much(self) -> Self:
            if self.paid > self.due:
                raise ValueError("too much")
            return self

    made = Flow("f", state=Paid).node("a", lambda _state: {"paid": 9}).end("a")
    with pytest.raises(FlowError, match=r"superstep of a: the state does not hold: .*too much"):
        await kit.run(made, {})
    enough = Flow("f", state=Paid).node("a", lambda _state: {"paid": 9, "due": 9}).end("a")
    assert (await kit.run(enough, {})).state.paid == 9


# ----------------------------------------------------------------------------------------- routes


async def test_a_route_chooses_one(kit: Kit) -> None:
    made = flow("s", "a", "b").edge("s", Route(lambda _state: "b", to=("a", "b"))).end("a", "b")
    assert await ran(kit, made) == (["s", "b"], 2)


async def test_a_route_may_choose_several_and_static_edges_are_taken_too(kit: Kit) -> None:
    made = flow("s", "a", "b", "c").edge("s", "c").end("a", "b", "c")
    made.edge("s", Route(lambda _state: ["b", "a"], to=("a", "b")))
    assert await ran(kit, made) == (["s", "a", "b", "c"], 2)


async def test_a_route_may_choose_the_end(kit: Kit) -> None:
    made = flow("s", "a").edge("s", Route(lambda _state: END, to=("a", END))).end("a")
    assert await ran(kit, made) == (["s"], 1)


async def test_writes_that_a_route_cannot_see_merged_name_the_node(kit: Kit) -> None:
    class Short(BaseModel):
        log: Annotated[list[str], Merge.append, Field(max_length=1)] = Field(default_factory=list)

    made = Flow("f", state=Short).node("a", logs("a")).edge("a", Route(lambda _state: END, to=END))
    with pytest.raises(FlowError, match="flow 'f', node 'a': log: List should have at most 1"):
        await kit.run(made, {"log": ["full"]})


async def test_a_route_may_choose_nothing(kit: Kit) -> None:
    made = flow("s", "a").edge("s", Route(lambda _state: [], to=("a",))).end("a")
    assert await ran(kit, made) == (["s"], 1)


async def test_a_route_may_wait_for_its_choice(kit: Kit) -> None:
    async def choose(state: Order) -> str:
        return "a" if state.log == ["s"] else "b"

    made = flow("s", "a", "b").edge("s", Route(choose, to=("a", "b"))).end("a", "b")
    assert await ran(kit, made) == (["s", "a"], 2)


@pytest.mark.parametrize("said", [None, 7, [1], {"a": 1}])
async def test_a_choice_of_another_kind_is_refused(kit: Kit, said: Any) -> None:
    made = flow("s", "a").edge("s", Route(lambda _state: said, to=("a",))).end("a")
    with pytest.raises(FlowError, match=r"the Route from 's' returned a .*return a node's name"):
        await kit.run(made, {})


async def test_a_choice_that_was_not_declared_is_refused_by_name(kit: Kit) -> None:
    made = flow("s", "a", "b").edge("s", Route(lambda _state: "b", to=("a",))).end("a", "b")
    made.edge("a", "b")
    with pytest.raises(FlowError, match="from 's' chose b, which is none of its targets: a"):
        await kit.run(made, {})


def loop(caps: Any, otherwise: str | None = None, times: int = 9) -> Flow:
    """A node that leads to itself until it has run a number of times."""
    made = flow("s", "e").end("s", "e")
    return made.edge(
        "s",
        Route(
            lambda state: "s" if len(state.log) < times else END,
            to=("s", END),
            caps=caps,
            otherwise=otherwise,
        ),
    ).edge("s", Route(lambda _state: [], to="e"))


async def test_a_loop_within_its_cap_runs(kit: Kit) -> None:
    assert await ran(kit, loop(3, times=4)) == (["s"] * 4, 4)


async def test_a_loop_past_its_cap_is_exceeded(kit: Kit) -> None:
    with pytest.raises(FlowLoopExceeded, match="the Route from 's' chose 's' more often than its"):
        await kit.run(loop({"s": 3}), {})
    assert FlowLoopExceeded.code == "flow_loop"


async def test_past_its_cap_a_loop_goes_elsewhere(kit: Kit) -> None:
    assert await ran(kit, loop(2, "e")) == (["s"] * 3 + ["e"], 4)


async def test_the_way_out_may_have_a_cap_of_its_own(kit: Kit) -> None:
    made = flow("s", "e").edge("e", "s").end("e")
    made.edge("s", Route(lambda _state: "s", to="s", caps={"s": 1, "e": 1}, otherwise="e"))
    with pytest.raises(FlowLoopExceeded):
        await kit.run(made, {})


async def test_a_cap_counts_over_the_whole_run_and_not_in_a_row(kit: Kit) -> None:
    made = flow("s", "t").edge("t", "s").end("s")
    made.edge("s", Route(lambda _state: "t", to=("t",), caps=2, otherwise=END))
    assert await ran(kit, made) == (["s", "t", "s", "t", "s"], 5)


# ------------------------------------------------------------------------------------------ joins


async def test_a_join_runs_when_nothing_else_is_active(kit: Kit) -> None:
    made = flow("s", "a", "b", "c").node("j", Join(logs("j"))).end("j")
    made.edge("s", "a", "b", "j").edge("a", "j").edge("b", "c").edge("c", "j")
    assert await ran(kit, made) == (["s", "a", "b", "c", "j"], 4)


async def test_waiting_joins_run_together(kit: Kit) -> None:
    made = flow("s", "a").node("k", Join(logs("k"))).node("j", Join(logs("j"))).end("j", "k")
    made.edge("s", "k", "a").edge("a", "j")
    assert await ran(kit, made) == (["s", "a", "j", "k"], 3)


async def test_a_join_without_a_function_only_waits(kit: Kit) -> None:
    made = flow("s", "a").node("j", Join()).edge("s", "j").edge("j", "a").end("a")
    done = await kit.run(made, {})
    assert (done.state.log, dict(done.visits)) == (["s", "a"], {"s": 1, "j": 1, "a": 1})


# ------------------------------------------------------------------------------------------ limit


async def test_exactly_the_given_number_of_supersteps_may_be_made(kit: Kit) -> None:
    made = flow("a", "b", "c").edge("a", "b").edge("b", "c").end("c")
    assert await ran(kit, made, max_steps=3) == (["a", "b", "c"], 3)
    with pytest.raises(FlowLoopExceeded, match=r"not over after 2 supersteps; next come c\."):
        await kit.run(made, {}, max_steps=2)


async def test_a_run_past_its_limit_goes_on_from_its_checkpoint(kit: Kit) -> None:
    made = flow("a", "b", "c").edge("a", "b").edge("b", "c").end("c")
    kept: list[str] = []
    with pytest.raises(FlowLoopExceeded):
        await kit.run(made, {}, max_steps=2, on_checkpoint=kept.append)
    done = await kit.run(made, checkpoint=kept[-1], max_steps=2)
    assert (done.state.log, done.steps) == (["a", "b", "c"], 3)
