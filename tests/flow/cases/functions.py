"""Nodes that are functions: what they return, what they call, how they fail."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.flow.parity import NO, YES, Case, answered, asks, edited
from tests.flow.world import State, World

from adapter import (
    ApprovalDenied,
    FlowError,
    Retry,
    ToolArgsInvalid,
    ToolCall,
    ToolFailed,
    UnknownTool,
)
from adapter.flow import Flow, FlowContext, Map

AT_ONCE = Retry(max_attempts=3, initial_interval=0, jitter=False)


def word(item: str) -> dict[str, Any]:
    """Arguments of one word."""
    return {"text": item}


def one(work: Any, **how: Any) -> Flow:
    """A flow of one node."""
    return Flow("one", state=State).node("a", work, **how).end("a")


def calling(tool: str, *texts: str, into: str = "rates") -> Any:
    """A node function that makes these calls one after another."""

    async def call(state: State, ctx: FlowContext) -> dict[str, Any]:
        return {into: [await ctx.call(tool, {"text": text}) for text in texts]}

    return call


def chain(world: World) -> Flow:
    def add(state: State) -> dict[str, Any]:
        return {"n": state.n + 1}

    flow = Flow("chain", state=State).node("a", add).node("b", add).node("c", add)
    return flow.edge("a", "b").edge("b", "c").end("c")


def two_starts(world: World) -> Flow:
    flow = Flow("two", state=State)
    flow = flow.node("b", lambda s: {"log": "b"}).node("a", lambda s: {"log": "a"})
    return flow.start("a", "b").end("a", "b")


def diamond(world: World) -> Flow:
    flow = Flow("diamond", state=State)
    for name in "abcd":
        flow = flow.node(name, lambda s, ctx: {"log": f"{ctx.node}{ctx.visit}"})
    return flow.edge("a", "b").edge("a", "c").edge("b", "d").edge("c", "d").end("d")


def uneven(world: World) -> Flow:
    flow = Flow("uneven", state=State)
    for name in "abcde":
        flow = flow.node(name, lambda s, ctx: {"log": f"{ctx.node}{ctx.visit}"})
    flow = flow.edge("a", "b").edge("a", "c").edge("b", "d").edge("c", "e").edge("e", "d")
    return flow.end("d")


async def many(state: State, ctx: FlowContext) -> dict[str, Any]:
    found = await ctx.call_many("shout", [{"text": text} for text in ("x", "y", "z")])
    return {"rates": found}


async def by_executor(state: State, ctx: FlowContext) -> dict[str, Any]:
    first = await ctx.call("rate", {"text": "abc"}, id="mine")
    second = await ctx.call("shout", {"text": "abc"})
    return {"rates": [first, second]}


def stumbling(world: World, times: int) -> Any:
    """Calls a tool with an effect, then fails so often."""

    async def work(state: State, ctx: FlowContext) -> dict[str, Any]:
        said = await ctx.call("note", {"text": "x"})
        world.stumbles("node", times)
        return {"final": said}

    return work


async def forever(state: State) -> None:
    await asyncio.Event().wait()


async def read_then_pay(state: State, ctx: FlowContext) -> dict[str, Any]:
    rate = await ctx.call("rate", {"text": "abc"})
    noted = await ctx.call("note", {"text": "n"})
    paid = await ctx.call("pay", {"text": f"{rate:.0f}"})
    return {"log": [noted, paid], "total": rate}


async def pay_and_forgive(state: State, ctx: FlowContext) -> dict[str, Any]:
    try:
        return {"final": await ctx.call("pay", {"text": "x"})}
    except ApprovalDenied:
        return {"final": "kept"}


async def pay_with_two_rates(state: State, ctx: FlowContext) -> dict[str, Any]:
    calls = [{"text": "x"}, {"text": "y"}]
    return {"rates": await ctx.call_many("pay", calls)}


async def swallow(state: State, ctx: FlowContext) -> dict[str, Any]:
    try:
        return {"final": await ctx.call("pay", {"text": "x"})}
    except Exception:  # noqa: BLE001 - what the case is about
        return {"final": "swallowed"}


def pay_then_stumble(world: World) -> Any:
    async def work(state: State, ctx: FlowContext) -> dict[str, Any]:
        paid = await ctx.call("pay", {"text": "x"})
        world.stumbles("node", 1)
        return {"final": paid}

    return work


def siblings_that_ask(world: World) -> Flow:
    flow = Flow("siblings", state=State)
    flow = flow.node("a", calling("pay", "a")).node("b", calling("pay", "b"))
    flow = flow.node("c", calling("note", "c"))
    return flow.start("a", "b", "c").end("a", "b", "c")


def sync_node(state: State, ctx: FlowContext) -> dict[str, Any]:
    return {"log": [ctx.flow, ctx.node, str(ctx.visit)]}


def before(state: State) -> None:
    if state.n < 0:
        raise ValueError("n is negative")


def twice(world: World) -> Flow:
    """Two nodes that make the same call, and one of another, of a tool that runs once in a run."""
    flow = Flow("twice", state=State).node("a", calling("once", "x", "x"))
    flow = flow.node("b", calling("once", "x", "y")).edge("a", "b")
    return flow.end("b")


def after(state: State, ctx: FlowContext) -> None:
    raise ValueError(f"{ctx.node} made n {state.n}")


CASES = [
    Case(
        id="a tool that runs once in a run",
        build=twice,
        steps=2,
        state={"rates": ["once x", "once x", "once x", "once y"]},
        visits={"a": 1, "b": 1},
        ran=(("once", "x"), ("once", "y")),
    ),
    Case(
        id="items of a tool that runs once in a run",
        build=lambda w: one(Map("words", tool="once", into="rates", arguments=word)),
        given={"words": ["x", "y", "x"]},
        state={"words": ["x", "y", "x"], "rates": ["once x", "once y", "once x"]},
        visits={"a": 1},
        ran=(("once", "x"), ("once", "y")),
    ),
    Case(
        id="a hook after a node sees its writes",
        build=lambda w: one(lambda s: {"n": s.n + 1}, after=after),
        given={"n": 4},
        error=(ValueError, "a made n 5"),
    ),
    Case(
        id="a function returns fields",
        build=lambda w: one(lambda s: {"n": s.n + 1}),
        given={"n": 4},
        state={"n": 5},
        visits={"a": 1},
    ),
    Case(
        id="a function returns nothing",
        build=lambda w: one(lambda s: None),
        given={"n": 4},
        state={"n": 4},
        visits={"a": 1},
    ),
    Case(
        id="a function returns a state",
        build=lambda w: one(lambda s: s.model_copy(update={"n": 9, "log": [*s.log, "x"]})),
        given={"log": ["w"]},
        state={"n": 9, "log": ["w", "x"]},
        visits={"a": 1},
    ),
    Case(
        id="a function knows where it is",
        build=lambda w: one(sync_node),
        state={"log": ["one", "a", "1"]},
        visits={"a": 1},
    ),
    Case(id="a chain", build=chain, state={"n": 3}, visits={"a": 1, "b": 1, "c": 1}, steps=3),
    Case(
        id="two starts, merged by name",
        build=two_starts,
        state={"log": ["a", "b"]},
        visits={"a": 1, "b": 1},
    ),
    Case(
        id="a diamond runs its end once",
        build=diamond,
        steps=3,
        state={"log": ["a1", "b1", "c1", "d1"]},
        visits={"a": 1, "b": 1, "c": 1, "d": 1},
    ),
    Case(
        id="an uneven diamond runs its end twice",
        build=uneven,
        steps=4,
        state={"log": ["a1", "b1", "c1", "d1", "e1", "d2"]},
        visits={"a": 1, "b": 1, "c": 1, "d": 2, "e": 1},
    ),
    Case(
        id="a function calls a tool with an effect",
        build=lambda w: one(calling("note", "x", "y")),
        state={"rates": ["noted x", "noted y"]},
        visits={"a": 1},
        ran=(("note", "x"), ("note", "y")),
    ),
    Case(
        id="a function calls many",
        build=lambda w: one(many),
        state={"rates": ["X", "Y", "Z"]},
        visits={"a": 1},
        ran=(("shout", "x"), ("shout", "y"), ("shout", "z")),
    ),
    Case(
        id="a call with an id of its own",
        build=lambda w: one(by_executor),
        state={"rates": [3.0, "ABC"]},
        visits={"a": 1},
        ran=(("rate", "abc"), ("shout", "abc")),
    ),
    Case(
        id="a function raises",
        build=lambda w: one(lambda s: w.stumbles("node", 9)),
        error=(ValueError, "node stumbled"),
    ),
    Case(
        id="a retried node replays its calls",
        build=lambda w: one(stumbling(w, 2), retries=AT_ONCE),
        state={"final": "noted x"},
        visits={"a": 1},
        ran=(("note", "x"),),
    ),
    Case(
        id="retries run out",
        build=lambda w: one(stumbling(w, 9), retries=AT_ONCE),
        ran=(("note", "x"),),
        error=(ValueError, "node stumbled"),
    ),
    Case(
        id="a node that takes too long",
        build=lambda w: one(forever, timeout=0.05),
        error=(FlowError, "a"),
    ),
    Case(
        id="an unknown field",
        build=lambda w: one(lambda s: {"nonsense": 1}),
        error=(FlowError, "nonsense"),
    ),
    Case(
        id="a value that is none of the field",
        build=lambda w: one(lambda s: {"n": "many"}),
        error=(FlowError, "n"),
    ),
    Case(
        id="a result that is neither fields nor state",
        build=lambda w: one(lambda s: 7),
        error=(FlowError, "a"),
    ),
    Case(
        id="an unknown tool in a function",
        build=lambda w: one(calling("pey", "x")),
        error=(UnknownTool, "pey"),
    ),
    Case(
        id="bad arguments in a function",
        build=lambda w: one(lambda s, ctx: ctx.call("note", {"text": 1})),
        error=(ToolArgsInvalid, "text"),
    ),
    Case(
        id="a tool that fails in a function",
        build=lambda w: one(calling("boom", "x")),
        ran=(("boom", "x"),),
        error=(ToolFailed, "boom"),
    ),
    Case(
        id="an approved call",
        build=lambda w: one(calling("pay", "x")),
        decisions=(YES,),
        pauses=((asks("pay", text="x"),),),
        state={"rates": ["paid x"]},
        visits={"a": 1},
        ran=(("pay", "x"),),
    ),
    Case(
        id="two approved calls",
        build=lambda w: one(calling("pay", "x", "y")),
        decisions=(YES, YES),
        pauses=((asks("pay", text="x"),), (asks("pay", text="y"),)),
        state={"rates": ["paid x", "paid y"]},
        visits={"a": 1},
        ran=(("pay", "x"), ("pay", "y")),
    ),
    Case(
        id="an edited call",
        build=lambda w: one(calling("pay", "x")),
        decisions=(edited(text="z"),),
        pauses=((asks("pay", text="x"),),),
        state={"rates": ["paid z"]},
        visits={"a": 1},
        ran=(("pay", "z"),),
    ),
    Case(
        id="an answered call",
        build=lambda w: one(calling("pay", "x")),
        decisions=(answered("by hand"),),
        pauses=((asks("pay", text="x"),),),
        state={"rates": ["by hand"]},
        visits={"a": 1},
    ),
    Case(
        id="a rejected call ends the flow",
        build=lambda w: one(calling("pay", "x")),
        decisions=(NO,),
        pauses=((asks("pay", text="x"),),),
        status="denied",
    ),
    Case(
        id="a rejection the node catches",
        build=lambda w: one(pay_and_forgive),
        decisions=(NO,),
        pauses=((asks("pay", text="x"),),),
        state={"final": "kept"},
        visits={"a": 1},
    ),
    Case(
        id="one approved and one rejected",
        build=lambda w: one(calling("pay", "x", "y")),
        decisions=(YES, NO),
        pauses=((asks("pay", text="x"),), (asks("pay", text="y"),)),
        status="denied",
        ran=(("pay", "x"),),
    ),
    Case(
        id="calls before a pause run once",
        build=lambda w: one(read_then_pay),
        decisions=(YES,),
        pauses=((asks("pay", text="3"),),),
        visits={"a": 1},
        state={"log": ["noted n", "paid 3"], "total": 3.0},
        ran=(("note", "n"), ("pay", "3"), ("rate", "abc")),
    ),
    Case(
        id="many calls that ask",
        build=lambda w: one(pay_with_two_rates),
        decisions=(YES, YES),
        pauses=((asks("pay", text="x"),), (asks("pay", text="y"),)),
        state={"rates": ["paid x", "paid y"]},
        visits={"a": 1},
        ran=(("pay", "x"), ("pay", "y")),
    ),
    Case(
        id="a function that swallows a pause pauses anyhow",
        build=lambda w: one(swallow),
        decisions=(YES,),
        pauses=((asks("pay", text="x"),),),
        state={"final": "paid x"},
        visits={"a": 1},
        ran=(("pay", "x"),),
    ),
    Case(
        id="a retry after an approved call runs it once",
        build=lambda w: one(pay_then_stumble(w), retries=AT_ONCE),
        decisions=(YES,),
        pauses=((asks("pay", text="x"),),),
        state={"final": "paid x"},
        visits={"a": 1},
        ran=(("pay", "x"),),
    ),
    Case(
        id="an approved call that fails is not run again by a retry",
        build=lambda w: one(calling("break", "x"), retries=AT_ONCE),
        decisions=(YES,),
        pauses=((asks("break", text="x"),),),
        ran=(("break", "x"),),
        error=(ToolFailed, ""),
    ),
    Case(
        id="siblings that ask at once",
        build=siblings_that_ask,
        decisions=(YES, YES),
        pauses=((asks("pay", text="a"), asks("pay", text="b")), (asks("pay", text="b"),)),
        state={"rates": ["paid a", "paid b", "noted c"]},
        visits={"a": 1, "b": 1, "c": 1},
        ran=(("note", "c"), ("pay", "a"), ("pay", "b")),
    ),
    Case(
        id="a hook before a node stops it",
        build=lambda w: one(lambda s: {"n": 1}, before=before),
        given={"n": -1},
        error=(ValueError, "n is negative"),
    ),
    Case(
        id="a call by the executor itself",
        build=lambda w: one(direct_of(w)),
        state={"final": "noted d"},
        visits={"a": 1},
        ran=(("note", "d"),),
    ),
]


def direct_of(world: World) -> Any:
    """A node that knows the executor and takes no context."""

    async def work(state: State) -> dict[str, Any]:
        call = ToolCall(name="note", arguments={"text": "d"}, id="direct")
        return {"final": await world.executor.run(call)}

    return work
