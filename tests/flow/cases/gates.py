"""Gates: nodes that a person lets run, alone and beside others."""

from __future__ import annotations

from typing import Any

from tests.flow.cases.functions import calling
from tests.flow.parity import NO, YES, Case, asks, edited, gate
from tests.flow.world import State, World

from adapter.flow import Call, Flow, Join, Map, Route


def shown(state: State) -> dict[str, Any]:
    """What the reviewer reads."""
    return {"n": state.n}


def log(state: State, ctx: Any) -> dict[str, Any]:
    return {"log": f"{ctx.node}{ctx.visit}"}


def add(state: State) -> dict[str, Any]:
    return {"n": state.n + 1, "log": f"n was {state.n}"}


def one(work: Any = log, pause: Any = shown) -> Flow:
    """A flow of one gated node."""
    return Flow("one", state=State).node("a", work, pause=pause).end("a")


def after(work: Any = log) -> Flow:
    """A gated node in the second superstep, and one behind it."""
    flow = Flow("after", state=State).node("a", add).node("b", work, pause=shown).node("c", log)
    return flow.edge("a", "b").edge("b", "c").end("c")


def beside(world: World) -> Flow:
    """A gated node beside one that has an effect."""
    flow = Flow("beside", state=State).node("b", calling("note", "b"))
    flow = flow.node("a", calling("note", "a"), pause=shown)
    return flow.start("a", "b").end("a", "b")


def two(world: World) -> Flow:
    """Two gates and a free node in one superstep."""
    flow = Flow("two", state=State).node("a", calling("note", "a"), pause=shown)
    flow = flow.node("b", calling("note", "b")).node("c", calling("note", "c"), pause=shown)
    return flow.start("a", "b", "c").end("a", "b", "c")


def loop(world: World) -> Flow:
    """A gate that is met again and again."""
    flow = Flow("loop", state=State).node("a", add, pause=shown).node("b", log)
    return flow.edge("a", Route(lambda s: "a" if s.n < 3 else "b", to=("a", "b"), caps=5)).end("b")


def routed(world: World) -> Flow:
    """A route behind a gate whose edit it sees."""
    flow = Flow("routed", state=State).node("a", log, pause=shown).node("b", log).node("c", log)
    return flow.edge("a", Route(lambda s: "b" if s.n else "c", to=("b", "c"))).end("b", "c")


def siblings(world: World) -> Flow:
    """A gate, and a sibling whose own call asks."""
    flow = Flow("mixed", state=State).node("a", calling("note", "a"), pause=shown)
    return flow.node("b", calling("pay", "b")).start("a", "b").end("a", "b")


ASKED = (gate("a", n=0),)
BOTH = {"rates": ["noted a", "noted b", "noted c"]}
NOTES = (("note", "a"), ("note", "b"), ("note", "c"))

CASES = [
    Case(
        id="a gate, approved",
        build=lambda w: one(),
        decisions=(YES,),
        pauses=(ASKED,),
        state={"log": ["a1"]},
        visits={"a": 1},
    ),
    Case(
        id="a gate, rejected",
        build=lambda w: one(calling("note", "x")),
        decisions=(NO,),
        pauses=(ASKED,),
        status="denied",
        steps=0,
    ),
    Case(
        id="a gate, edited",
        build=lambda w: one(add),
        decisions=(edited(n=7),),
        pauses=(ASKED,),
        state={"n": 8, "log": ["n was 7"]},
        visits={"a": 1},
    ),
    Case(
        id="an edit replaces, and the node's own writes come after it",
        build=lambda w: one(add),
        given={"log": ["w"]},
        decisions=(edited(log=["e"]),),
        pauses=(ASKED,),
        state={"n": 1, "log": ["e", "n was 0"]},
        visits={"a": 1},
    ),
    Case(
        id="a gate after a node",
        build=lambda w: after(),
        decisions=(YES,),
        steps=3,
        pauses=((gate("b", n=1),),),
        state={"n": 1, "log": ["n was 0", "b1", "c1"]},
        visits={"a": 1, "b": 1, "c": 1},
    ),
    Case(
        id="a denied gate ends the run where it stood",
        build=lambda w: after(),
        decisions=(NO,),
        pauses=((gate("b", n=1),),),
        status="denied",
        state={"n": 1, "log": ["n was 0"]},
        visits={"a": 1},
        steps=1,
    ),
    Case(
        id="a gate whose port approves at once",
        build=lambda w: after(),
        decisions=(YES,),
        decides_at_once=True,
        steps=3,
        state={"n": 1, "log": ["n was 0", "b1", "c1"]},
        visits={"a": 1, "b": 1, "c": 1},
    ),
    Case(
        id="a gate whose port rejects at once",
        build=lambda w: after(),
        decisions=(NO,),
        decides_at_once=True,
        status="denied",
        state={"n": 1, "log": ["n was 0"]},
        visits={"a": 1},
        steps=1,
    ),
    Case(
        id="nothing beside a gate runs before it opens",
        build=beside,
        decisions=(YES,),
        pauses=(ASKED,),
        state={"rates": ["noted a", "noted b"]},
        visits={"a": 1, "b": 1},
        ran=(("note", "a"), ("note", "b")),
    ),
    Case(
        id="nothing beside a denied gate runs",
        build=beside,
        decisions=(NO,),
        pauses=(ASKED,),
        status="denied",
        steps=0,
    ),
    Case(
        id="two gates are asked one by one",
        durable=True,
        build=two,
        decisions=(YES, YES),
        pauses=(ASKED, (gate("c", n=0),)),
        state=BOTH,
        visits={"a": 1, "b": 1, "c": 1},
        ran=NOTES,
    ),
    Case(
        id="the second of two gates is denied",
        durable=True,
        build=two,
        decisions=(YES, NO),
        pauses=(ASKED, (gate("c", n=0),)),
        status="denied",
        steps=0,
    ),
    Case(
        id="two gates whose port approves at once",
        build=two,
        decisions=(YES,),
        decides_at_once=True,
        state=BOTH,
        visits={"a": 1, "b": 1, "c": 1},
        ran=NOTES,
    ),
    Case(
        id="a gate and a gated call in one node",
        build=lambda w: one(Call("pay", into="final")),
        decisions=(YES, YES),
        pauses=(ASKED, (asks("pay", text="a"),)),
        state={"final": "paid a"},
        visits={"a": 1},
        ran=(("pay", "a"),),
    ),
    Case(
        id="a gate opened, then its node's call rejected",
        build=lambda w: one(Call("pay", into="final")),
        decisions=(YES, NO),
        pauses=(ASKED, (asks("pay", text="a"),)),
        status="denied",
    ),
    Case(
        id="an edit reaches the gated call of the node",
        build=lambda w: one(Call("pay", into="final")),
        decisions=(edited(text="e"), YES),
        pauses=(ASKED, (asks("pay", text="e"),)),
        state={"text": "e", "final": "paid e"},
        visits={"a": 1},
        ran=(("pay", "e"),),
    ),
    Case(
        id="a gate and two gated calls in one node",
        build=lambda w: one(calling("pay", "x", "y")),
        decisions=(YES, YES, YES),
        pauses=(ASKED, (asks("pay", text="x"),), (asks("pay", text="y"),)),
        state={"rates": ["paid x", "paid y"]},
        visits={"a": 1},
        ran=(("pay", "x"), ("pay", "y")),
    ),
    Case(
        id="a gate beside a node that asks",
        build=siblings,
        decisions=(YES, YES),
        pauses=(ASKED, (asks("pay", text="b"),)),
        state={"rates": ["noted a", "paid b"]},
        visits={"a": 1, "b": 1},
        ran=(("note", "a"), ("pay", "b")),
    ),
    Case(
        id="a gate in a loop asks each time",
        build=loop,
        decisions=(YES, YES, YES),
        steps=4,
        pauses=tuple((gate("a", n=n),) for n in range(3)),
        visits={"a": 3, "b": 1},
        state={"n": 3, "log": ["n was 0", "n was 1", "n was 2", "b1"]},
    ),
    Case(
        id="a gate in a loop, denied the second time",
        build=loop,
        decisions=(YES, NO),
        steps=1,
        pauses=tuple((gate("a", n=n),) for n in range(2)),
        visits={"a": 1},
        status="denied",
        state={"n": 1, "log": ["n was 0"]},
    ),
    Case(
        id="a route behind a gate sees the edit",
        build=routed,
        decisions=(edited(n=5),),
        steps=2,
        pauses=(ASKED,),
        state={"n": 5, "log": ["a1", "b1"]},
        visits={"a": 1, "b": 1},
    ),
    Case(
        id="a gated map",
        given={"words": ["x", "y"]},
        decisions=(YES,),
        pauses=(ASKED,),
        build=lambda w: one(
            Map("words", tool="note", into="rates", arguments=lambda item: {"text": item})
        ),
        state={"words": ["x", "y"], "rates": ["noted x", "noted y"]},
        visits={"a": 1},
        ran=(("note", "x"), ("note", "y")),
    ),
    Case(
        id="a gated map of gated items",
        given={"words": ["x", "y"]},
        decisions=(YES, YES, YES),
        pauses=(ASKED, (asks("pay", text="x"),), (asks("pay", text="y"),)),
        build=lambda w: one(
            Map("words", tool="pay", into="rates", arguments=lambda item: {"text": item})
        ),
        state={"words": ["x", "y"], "rates": ["paid x", "paid y"]},
        visits={"a": 1},
        ran=(("pay", "x"), ("pay", "y")),
    ),
    Case(
        id="a gated join",
        decisions=(YES,),
        pauses=((gate("j", n=1),),),
        steps=2,
        build=lambda w: (
            Flow("j", state=State)
            .node("a", add)
            .node("j", Join(log), pause=shown)
            .edge("a", "j")
            .end("j")
        ),
        state={"n": 1, "log": ["n was 0", "j1"]},
        visits={"a": 1, "j": 1},
    ),
    Case(
        id="a gated node that fails",
        build=lambda w: one(lambda s: w.stumbles("node", 9)),
        decisions=(YES,),
        pauses=(ASKED,),
        error=(ValueError, "node stumbled"),
    ),
]
