"""Random flows, well formed by the way they are made: hypothesis draws a plan, a plan builds one.

Every node but the first has an edge from an earlier one; ways back are capped routes; a node that
leads nowhere on is an end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from tests.flow.world import State, World

from adapter.flow import Call, Flow, FlowContext, Join, Map, Route

NAMES = "abcdefg"
WORKS = ("log", "add", "many", "pay", "call", "map", "gated map", "gated call", "sum", "join")


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """One node.

    Attributes:
        work: What it does, by its name in WORKS.
        gated: It has a gate.
        edges: Where it always leads: later nodes.
        choices: Where its route may lead: later nodes, itself and earlier ones.
        cap: How often each.
        several: The route chooses two.
    """

    work: str
    gated: bool = False
    edges: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    cap: int = 1
    several: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A flow, what it begins with, and the reviewers' yes and no in turn."""

    nodes: dict[str, NodePlan]
    starts: tuple[str, ...]
    words: tuple[str, ...] = ()
    yes: tuple[bool, ...] = field(default=(True,))

    def flow(self, _world: World) -> Flow:
        """Build it."""
        flow = Flow("random", state=State)
        for name, plan in self.nodes.items():
            flow = flow.node(name, WORK[plan.work], pause=shown if plan.gated else None)
            if plan.edges:
                flow = flow.edge(name, *plan.edges)
            if plan.choices:
                flow = flow.edge(name, route(name, plan))
            if not plan.edges:
                flow = flow.end(name)
        return flow.start(*self.starts)


def shown(state: State) -> dict[str, Any]:
    return {"seen": len(state.log)}


def route(name: str, plan: NodePlan) -> Route:
    """A route that goes round its choices as the log grows, and ends where its caps do."""

    def choose(state: State) -> list[str]:
        first = len(state.log) % len(plan.choices)
        chosen = plan.choices[first:] + plan.choices[:first]
        return list(chosen[: 2 if plan.several else 1])

    last = max(plan.choices)
    onward = last if last > name else None
    caps = {to: plan.cap for to in plan.choices if to <= name}
    return Route(choose, to=plan.choices, caps=caps, otherwise=onward)


def log(state: State, ctx: FlowContext) -> dict[str, Any]:
    return {"log": f"{ctx.node}{ctx.visit}", "tags": [ctx.node]}


def add(state: State) -> dict[str, Any]:
    return {"total": 1, "top": state.total, "table": {str(len(state.log)): state.total}}


async def many(state: State, ctx: FlowContext) -> dict[str, Any]:
    first = await ctx.call("note", {"text": f"{ctx.node}{ctx.visit}"})
    return {"log": [first, *await ctx.call_many("shout", [{"text": "x"}, {"text": "y"}])]}


async def pay(state: State, ctx: FlowContext) -> dict[str, Any]:
    await ctx.call("note", {"text": ctx.node})
    return {"log": await ctx.call("pay", {"text": f"{ctx.node}{ctx.visit}"})}


def text_of(state: State) -> dict[str, Any]:
    return {"text": f"{len(state.log)}"}


def word(item: str) -> dict[str, Any]:
    return {"text": item}


WORK: dict[str, Any] = {
    "log": log,
    "add": add,
    "many": many,
    "pay": pay,
    "call": Call("shout", text_of, into="long"),
    "map": Map("words", tool="rate", into="rates", arguments=word),
    "gated map": Map("words", tool="pay", into="log", arguments=word),
    "gated call": Call("pay", text_of, into="final"),
    "sum": Map("words", tool="rate", into="total", arguments=word, concurrency=2),
    "join": Join(log),
}


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of flows that are well formed."""
    names = NAMES[: draw(st.integers(2, 6))]
    edges: dict[str, set[str]] = {name: set() for name in names}
    for index, name in enumerate(names[1:], 1):
        for source in draw(st.sets(st.sampled_from(names[:index]), min_size=1, max_size=2)):
            edges[source].add(name)
    nodes = {}
    for name in names:
        looping = draw(st.booleans()) and draw(st.booleans())
        nodes[name] = NodePlan(
            work=draw(st.sampled_from(WORKS)),
            gated=draw(st.integers(0, 5)) == 0,
            edges=tuple(sorted(edges[name])),
            choices=draw(choices(names)) if looping else (),
            cap=draw(st.integers(1, 2)),
            several=draw(st.booleans()),
        )
    return Plan(
        nodes=nodes,
        starts=(names[0],),
        words=tuple(draw(st.lists(st.sampled_from(["a", "bb", "ccc"]), max_size=3))),
        yes=tuple(draw(st.lists(st.integers(0, 9).map(bool), min_size=1, max_size=5))),
    )


def choices(names: str) -> st.SearchStrategy[tuple[str, ...]]:
    """Targets of a route, without repeats."""
    return st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True).map(tuple)
