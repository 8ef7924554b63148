"""Routes, loops, joins, and writes of several nodes in one superstep."""

from __future__ import annotations

from typing import Any

from tests.flow.parity import Case
from tests.flow.world import State

from adapter import FlowError, FlowLoopExceeded
from adapter.flow import END, Flow, Join, Route


def log(state: State, ctx: Any) -> dict[str, Any]:
    return {"log": f"{ctx.node}{ctx.visit}"}


def flow_of(*names: str) -> Flow:
    """Nodes that write down their visits."""
    flow = Flow("f", state=State)
    for name in names:
        flow = flow.node(name, log)
    return flow


def up(state: State) -> dict[str, Any]:
    return {"n": state.n + 1}


def loop(until: int, caps: Any, otherwise: str | None = None, to: tuple[str, ...] = ()) -> Flow:
    """A node that comes back to itself until n is large enough."""
    flow = Flow("f", state=State).node("a", up).node("b", log).node("c", log)
    route = Route(
        lambda s: "a" if s.n < until else "b", to=("a", "b", *to), caps=caps, otherwise=otherwise
    )
    return flow.edge("a", route).edge("b", "c").end("c")


def writers(**writes: dict[str, Any]) -> Flow:
    """Nodes that write at once."""
    flow = Flow("f", state=State)
    for name, made in reversed(writes.items()):
        flow = flow.node(name, lambda s, made=made: made)
    return flow.start(*writes).end(*writes)


def merged(name: str, first: dict[str, Any], second: dict[str, Any], **state: Any) -> Case:
    """Two nodes write one field in one superstep."""
    given = state.pop("given", {})
    return Case(
        id=f"two writers: {name}",
        build=lambda w: writers(a=first, b=second),
        given=given,
        state=state,
        visits={"a": 1, "b": 1},
    )


def uneven(end: Any) -> Flow:
    flow = Flow("f", state=State)
    for name in "abc":
        flow = flow.node(name, log)
    flow = flow.node("d", end).node("e", log)
    flow = flow.edge("a", "b").edge("a", "c").edge("b", "e").edge("c", "d").edge("e", "d")
    return flow.end("d")


def two_joins(world: Any) -> Flow:
    flow = flow_of("a", "b").node("j", Join(lambda s: {"log": "j"}))
    flow = flow.node("k", Join(lambda s: {"log": "k"}))
    return flow.edge("a", "j").edge("a", "b").edge("b", "k").end("j", "k")


def routed(choose: Any, *to: str, names: str = "abc") -> Flow:
    flow = flow_of(*names).edge("a", Route(choose, to=to or ("b", "c")))
    return flow.end(*names)


ROUTES = [
    Case(
        id="a route by the state",
        build=lambda w: routed(lambda s: "b" if s.n else "c"),
        given={"n": 1},
        state={"n": 1, "log": ["a1", "b1"]},
        visits={"a": 1, "b": 1},
        steps=2,
    ),
    Case(
        id="a route to several",
        build=lambda w: routed(lambda s: ["c", "b"]),
        steps=2,
        state={"log": ["a1", "b1", "c1"]},
        visits={"a": 1, "b": 1, "c": 1},
    ),
    Case(
        id="a route to the end",
        build=lambda w: routed(lambda s: END, "b", "c", END),
        state={"log": ["a1"]},
        visits={"a": 1},
    ),
    Case(
        id="a route beside an edge",
        steps=2,
        state={"log": ["a1", "b1", "c1"]},
        build=lambda w: (
            flow_of("a", "b", "c")
            .edge("a", "b")
            .edge("a", Route(lambda s: "c", to=("c",)))
            .end("b", "c")
        ),
        visits={"a": 1, "b": 1, "c": 1},
    ),
    Case(
        id="a route to a target of an edge runs it once",
        steps=2,
        state={"log": ["a1", "b1"]},
        build=lambda w: (
            flow_of("a", "b", "c")
            .edge("a", "b")
            .edge("a", Route(lambda s: "b", to=("b", "c")))
            .end("b", "c")
        ),
        visits={"a": 1, "b": 1},
    ),
    Case(
        id="a route sees its own node's writes",
        steps=2,
        state={"n": 1, "log": ["b1"]},
        build=lambda w: (
            Flow("f", state=State)
            .node("a", up)
            .node("b", log)
            .node("c", log)
            .edge("a", Route(lambda s: "b" if s.n == 1 else "c", to=("b", "c")))
            .end("b", "c")
        ),
        visits={"a": 1, "b": 1},
    ),
    Case(
        id="a route sees its own writes merged",
        steps=2,
        state={"log": ["w", "a1", "b1"]},
        given={"log": ["w"]},
        build=lambda w: routed(lambda s: "b" if s.log == ["w", "a1"] else "c"),
        visits={"a": 1, "b": 1},
    ),
    Case(
        id="a route does not see a sibling's writes",
        steps=2,
        state={"n": 1, "log": ["a1", "c1"]},
        build=lambda w: (
            Flow("f", state=State)
            .node("a", log)
            .node("s", up)
            .node("b", log)
            .node("c", log)
            .start("a", "s")
            .edge("a", Route(lambda s: "b" if s.n else "c", to=("b", "c")))
            .end("b", "c", "s")
        ),
        visits={"a": 1, "s": 1, "c": 1},
    ),
    Case(
        id="a route to a node it does not name",
        build=lambda w: routed(lambda s: "d", "b", "c"),
        error=(FlowError, "d"),
    ),
    Case(
        id="two routes of one node",
        steps=2,
        state={"log": ["a1", "b1", "c1"]},
        build=lambda w: (
            flow_of("a", "b", "c", "d")
            .edge("a", Route(lambda s: "b", to=("b", "d")))
            .edge("a", Route(lambda s: "c", to=("c", "d")))
            .end("b", "c", "d")
        ),
        visits={"a": 1, "b": 1, "c": 1},
    ),
    Case(
        id="a loop below its cap",
        build=lambda w: loop(3, {"a": 3}),
        steps=5,
        state={"n": 3, "log": ["b1", "c1"]},
        visits={"a": 3, "b": 1, "c": 1},
    ),
    Case(
        id="a loop at its cap",
        build=lambda w: loop(4, {"a": 3}),
        steps=6,
        state={"n": 4, "log": ["b1", "c1"]},
        visits={"a": 4, "b": 1, "c": 1},
    ),
    Case(
        id="a loop over its cap", build=lambda w: loop(9, {"a": 3}), error=(FlowLoopExceeded, "a")
    ),
    Case(
        id="a loop over its cap goes elsewhere",
        build=lambda w: loop(9, {"a": 2}, otherwise="c"),
        steps=4,
        state={"n": 3, "log": ["c1"]},
        visits={"a": 3, "c": 1},
    ),
    Case(id="one cap for every target", build=lambda w: loop(9, 1), error=(FlowLoopExceeded, "a")),
    Case(
        id="a loop within its steps",
        build=lambda w: loop(3, {"a": 9}),
        steps=5,
        options={"max_steps": 5},
        state={"n": 3, "log": ["b1", "c1"]},
        visits={"a": 3, "b": 1, "c": 1},
    ),
    Case(
        id="too many steps",
        build=lambda w: loop(3, {"a": 9}),
        options={"max_steps": 4},
        error=(FlowLoopExceeded, ""),
    ),
]

JOINS = [
    Case(
        id="a join waits for the longer way",
        build=lambda w: uneven(Join(log)),
        steps=4,
        state={"log": ["a1", "b1", "c1", "e1", "d1"]},
        visits={"a": 1, "b": 1, "c": 1, "d": 1, "e": 1},
    ),
    Case(
        id="a join that does nothing",
        build=lambda w: uneven(Join()),
        steps=4,
        state={"log": ["a1", "b1", "c1", "e1"]},
        visits={"a": 1, "b": 1, "c": 1, "d": 1, "e": 1},
    ),
    Case(
        id="two joins run together",
        build=two_joins,
        steps=3,
        state={"log": ["a1", "b1", "j", "k"]},
        visits={"a": 1, "b": 1, "j": 1, "k": 1},
    ),
    Case(
        id="a join goes on",
        steps=3,
        state={"log": ["a1", "c1"]},
        build=lambda w: (
            flow_of("a").node("j", Join()).node("c", log).edge("a", "j").edge("j", "c").end("c")
        ),
        visits={"a": 1, "j": 1, "c": 1},
    ),
]

MERGES = [
    merged("append", {"log": "x"}, {"log": ["y", "z"]}, log=["x", "y", "z"]),
    merged(
        "append to what is there",
        {"log": "x"},
        {"log": "y"},
        given={"log": ["w"]},
        log=["w", "x", "y"],
    ),
    merged("last", {"final": "x"}, {"final": "y"}, final="y"),
    merged("union of lists", {"tags": ["x", "y"]}, {"tags": ["y", "z"]}, tags=["x", "y", "z"]),
    merged("union of sets", {"kinds": {"x"}}, {"kinds": {"y"}}, kinds={"x", "y"}),
    merged(
        "union of mappings",
        {"table": {"k": 1, "l": 1}},
        {"table": {"k": 2}},
        table={"k": 2, "l": 1},
    ),
    merged("sum", {"total": 2}, {"total": 3}, given={"total": 1}, total=6),
    merged("max", {"top": 2}, {"top": 3}, given={"top": 1}, top=3),
    merged("min", {"low": 20}, {"low": 3}, low=3),
    merged("a rule of one's own", {"long": "xx"}, {"long": "y"}, given={"long": "w"}, long="xx"),
    merged("different fields", {"n": 1}, {"text": "t"}, n=1, text="t"),
    Case(
        id="two writers of a field without a rule",
        build=lambda w: writers(a={"n": 1}, b={"n": 2}),
        error=(FlowError, "n"),
    ),
    Case(
        id="writers of different supersteps need no rule",
        steps=2,
        state={"n": 2},
        build=lambda w: Flow("f", state=State).node("a", up).node("b", up).edge("a", "b").end("b"),
        visits={"a": 1, "b": 1},
    ),
]

CASES = [*ROUTES, *JOINS, *MERGES]
