"""Nodes that are one call, or one call for each item."""

from __future__ import annotations

from typing import Any

from tests.flow.parity import NO, YES, Case, answered, asks, edited
from tests.flow.world import State

from adapter import ToolArgsInvalid, ToolError, ToolFailed, ToolTimeout
from adapter.flow import Call, Flow, Map

WORDS = ["a", "bb", "ccc"]


def one(work: Any, **how: Any) -> Flow:
    """A flow of one node."""
    return Flow("one", state=State).node("a", work, **how).end("a")


def of(state: State) -> dict[str, Any]:
    """Arguments by a function of the state."""
    return {"text": state.text * 2}


def word(item: str) -> dict[str, Any]:
    """Arguments of one word."""
    return {"text": item}


def each(tool: str, into: str = "rates", **how: Any) -> Map:
    """A Map over the words."""
    return Map("words", tool=tool, into=into, arguments=word, **how)


def money(item: str) -> dict[str, Any]:
    """Arguments of lend: much for long words."""
    return {"amount": len(item) * 5}


def paying(**how: Any) -> Map:
    return each("pay", **how)


def error(kind: str, text: str) -> dict[str, Any]:
    """A failure as a result."""
    return {"error": {"kind": kind, "message": text}}


FRUIT = ("apple", "fig", "kiwi", "lime", "pear")


def settling() -> Flow:
    """Two nodes of one superstep that wait for one call."""
    flow = Flow("settling", state=State)
    for name in "ab":
        flow = flow.node(name, Call("settle", {"text": "x"}, into="rates"))
    return flow.start("a", "b").end("a", "b")


CALLS = [
    Case(
        id="a Map over a set asks in one order",
        build=lambda w: one(Map("kinds", tool="pay", into="rates", arguments=word)),
        given={"kinds": list(FRUIT)},
        decisions=(YES,) * len(FRUIT),
        pauses=tuple((asks("pay", text=name),) for name in FRUIT),
        state={"kinds": set(FRUIT), "rates": [f"paid {name}" for name in FRUIT]},
        visits={"a": 1},
        ran=tuple(("pay", name) for name in FRUIT),
    ),
    Case(
        id="one call that two nodes wait for is asked once",
        build=lambda w: settling(),
        decisions=(YES,),
        pauses=((asks("settle", text="x"),),),
        state={"rates": ["settled x", "settled x"]},
        visits={"a": 1, "b": 1},
        ran=(("settle", "x"),),
        durable=True,
    ),
    Case(
        id="a read",
        build=lambda w: one(Call("rate", of, into="receipt")),
        state={"receipt": 2.0},
        visits={"a": 1},
        ran=(("rate", "aa"),),
    ),
    Case(
        id="arguments from fields of the same names",
        build=lambda w: one(Call("shout", into="final")),
        given={"text": "hey"},
        state={"text": "hey", "final": "HEY"},
        visits={"a": 1},
        ran=(("shout", "hey"),),
    ),
    Case(
        id="arguments that are written down",
        build=lambda w: one(Call("shout", {"text": "fix"}, into="final")),
        state={"final": "FIX"},
        visits={"a": 1},
        ran=(("shout", "fix"),),
    ),
    Case(
        id="a result nobody keeps",
        build=lambda w: one(Call("note", of)),
        visits={"a": 1},
        ran=(("note", "aa"),),
    ),
    Case(
        id="an effect",
        build=lambda w: one(Call("note", of, into="final")),
        state={"final": "noted aa"},
        visits={"a": 1},
        ran=(("note", "aa"),),
    ),
    Case(
        id="a gated call, approved",
        build=lambda w: one(Call("pay", of, into="final")),
        decisions=(YES,),
        pauses=((asks("pay", text="aa"),),),
        state={"final": "paid aa"},
        visits={"a": 1},
        ran=(("pay", "aa"),),
    ),
    Case(
        id="a gated call, edited",
        build=lambda w: one(Call("pay", of, into="final")),
        decisions=(edited(text="b"),),
        pauses=((asks("pay", text="aa"),),),
        state={"final": "paid b"},
        visits={"a": 1},
        ran=(("pay", "b"),),
    ),
    Case(
        id="a gated call, rejected",
        build=lambda w: one(Call("pay", of, into="final")),
        decisions=(NO,),
        pauses=((asks("pay", text="aa"),),),
        status="denied",
    ),
    Case(
        id="a gated call, answered",
        build=lambda w: one(Call("pay", of, into="final")),
        decisions=(answered("by hand"),),
        pauses=((asks("pay", text="aa"),),),
        state={"final": "by hand"},
        visits={"a": 1},
    ),
    Case(
        id="a gated call that fails",
        build=lambda w: one(Call("break", of)),
        decisions=(YES,),
        pauses=((asks("break", text="aa"),),),
        ran=(("break", "aa"),),
        error=(ToolFailed, ""),
    ),
    Case(
        id="a call below its limit asks nobody",
        build=lambda w: one(Call("lend", {"amount": 10}, into="total")),
        state={"total": 10},
        visits={"a": 1},
        ran=(("lend", 10),),
    ),
    Case(
        id="a call above its limit asks",
        build=lambda w: one(Call("lend", {"amount": 11}, into="total")),
        decisions=(YES,),
        pauses=((asks("lend", amount=11),),),
        state={"total": 11},
        visits={"a": 1},
        ran=(("lend", 11),),
    ),
    Case(
        id="a port that approves at once",
        build=lambda w: one(Call("pay", of, into="final")),
        decisions=(YES,),
        decides_at_once=True,
        state={"final": "paid aa"},
        visits={"a": 1},
        ran=(("pay", "aa"),),
    ),
    Case(
        id="a port that rejects at once",
        build=lambda w: one(Call("pay", of, into="final")),
        decisions=(NO,),
        decides_at_once=True,
        status="denied",
    ),
    Case(
        id="a tool that fails",
        build=lambda w: one(Call("boom", of)),
        ran=(("boom", "aa"),),
        error=(ToolFailed, ""),
    ),
    Case(
        id="a tool that refuses",
        build=lambda w: one(Call("sorry", of)),
        ran=(("sorry", "aa"),),
        error=(ToolError, "no aa"),
    ),
    Case(
        id="a tool that takes too long",
        build=lambda w: one(Call("stuck", of)),
        ran=(("stuck", "aa"),),
        error=(ToolTimeout, ""),
    ),
    Case(
        id="a refusal as a result",
        build=lambda w: one(Call("sorry", of, into="receipt", on_tool_failure="message")),
        state={"receipt": error("ToolError", "sorry, no aa")},
        visits={"a": 1},
        ran=(("sorry", "aa"),),
    ),
    Case(
        id="bad arguments",
        build=lambda w: one(Call("note", {"text": 7})),
        error=(ToolArgsInvalid, "text"),
    ),
    Case(
        id="an earlier node's value",
        state={"text": "xx", "final": "XX"},
        steps=2,
        build=lambda w: (
            Flow("f", state=State)
            .node("a", lambda s: {"text": "xx"})
            .node("b", Call("shout", into="final"))
            .edge("a", "b")
            .end("b")
        ),
        visits={"a": 1, "b": 1},
        ran=(("shout", "xx"),),
    ),
]

MAPS = [
    Case(id="a map of nothing", build=lambda w: one(each("rate")), visits={"a": 1}),
    Case(
        id="a map of one",
        build=lambda w: one(each("rate")),
        given={"words": ["abc"]},
        state={"words": ["abc"], "rates": [3.0]},
        visits={"a": 1},
        ran=(("rate", "abc"),),
    ),
    Case(
        id="a map of many",
        build=lambda w: one(each("rate")),
        given={"words": WORDS},
        state={"words": WORDS, "rates": [1.0, 2.0, 3.0]},
        visits={"a": 1},
        ran=tuple(("rate", item) for item in WORDS),
    ),
    Case(
        id="a map one at a time",
        build=lambda w: one(each("shout", concurrency=1)),
        given={"words": WORDS},
        state={"words": WORDS, "rates": ["A", "BB", "CCC"]},
        visits={"a": 1},
        ran=tuple(("shout", item) for item in WORDS),
    ),
    Case(
        id="a map two at a time",
        build=lambda w: one(each("note", concurrency=2)),
        given={"words": WORDS},
        visits={"a": 1},
        ran=tuple(("note", item) for item in WORDS),
        state={"words": WORDS, "rates": ["noted a", "noted bb", "noted ccc"]},
    ),
    Case(
        id="a map over a function",
        build=lambda w: one(
            Map(lambda s: sorted(s.words, reverse=True), tool="shout", into="rates", arguments=word)
        ),
        given={"words": WORDS},
        state={"words": WORDS, "rates": ["CCC", "BB", "A"]},
        visits={"a": 1},
        ran=tuple(("shout", item) for item in WORDS),
    ),
    Case(
        id="a map over arguments",
        build=lambda w: one(Map("items", tool="shout", into="rates")),
        given={"items": [{"text": "x"}, {"text": "y"}]},
        visits={"a": 1},
        state={"items": [{"text": "x"}, {"text": "y"}], "rates": ["X", "Y"]},
        ran=(("shout", "x"), ("shout", "y")),
    ),
    Case(
        id="a map into a field of no rule",
        build=lambda w: one(each("rate", into="receipt")),
        given={"words": WORDS},
        state={"words": WORDS, "receipt": [1.0, 2.0, 3.0]},
        visits={"a": 1},
        ran=tuple(("rate", item) for item in WORDS),
    ),
    Case(
        id="a map summed",
        build=lambda w: one(each("rate", into="total")),
        given={"words": WORDS},
        state={"words": WORDS, "total": 6.0},
        visits={"a": 1},
        ran=tuple(("rate", item) for item in WORDS),
    ),
    Case(
        id="a map's largest",
        build=lambda w: one(each("rate", into="top")),
        given={"words": WORDS},
        state={"words": WORDS, "top": 3.0},
        visits={"a": 1},
        ran=tuple(("rate", item) for item in WORDS),
    ),
    Case(
        id="a map united",
        build=lambda w: one(each("count", into="table")),
        given={"words": WORDS},
        state={"words": WORDS, "table": {"a": 1, "bb": 2, "ccc": 3}},
        visits={"a": 1},
        ran=tuple(("count", item) for item in WORDS),
    ),
    Case(
        id="a map by a rule of one's own",
        build=lambda w: one(each("shout", into="long")),
        given={"words": WORDS},
        state={"words": WORDS, "long": "CCC"},
        visits={"a": 1},
        ran=tuple(("shout", item) for item in WORDS),
    ),
    Case(
        id="gated items, all approved",
        build=lambda w: one(paying()),
        given={"words": WORDS},
        decisions=(YES, YES, YES),
        visits={"a": 1},
        pauses=tuple((asks("pay", text=item),) for item in WORDS),
        state={"words": WORDS, "rates": ["paid a", "paid bb", "paid ccc"]},
        ran=tuple(("pay", item) for item in WORDS),
    ),
    Case(
        id="gated items, one edited",
        build=lambda w: one(paying()),
        given={"words": WORDS[:2]},
        decisions=(edited(text="z"), YES),
        visits={"a": 1},
        pauses=tuple((asks("pay", text=item),) for item in WORDS[:2]),
        state={"words": WORDS[:2], "rates": ["paid z", "paid bb"]},
        ran=(("pay", "bb"), ("pay", "z")),
    ),
    Case(
        id="gated items, one rejected",
        build=lambda w: one(paying()),
        given={"words": WORDS},
        decisions=(YES, NO),
        pauses=tuple((asks("pay", text=item),) for item in WORDS[:2]),
        status="denied",
        state={"words": WORDS},
        ran=(("pay", "a"),),
    ),
    Case(
        id="gated items, one answered",
        build=lambda w: one(paying()),
        given={"words": WORDS[:2]},
        decisions=(answered("by hand"), YES),
        visits={"a": 1},
        pauses=tuple((asks("pay", text=item),) for item in WORDS[:2]),
        state={"words": WORDS[:2], "rates": ["by hand", "paid bb"]},
        ran=(("pay", "bb"),),
    ),
    Case(
        id="only items above their limit ask",
        given={"words": WORDS},
        decisions=(YES,),
        build=lambda w: one(Map("words", tool="lend", into="rates", arguments=money)),
        pauses=((asks("lend", amount=15),),),
        visits={"a": 1},
        state={"words": WORDS, "rates": [5, 10, 15]},
        ran=(("lend", 5), ("lend", 10), ("lend", 15)),
    ),
    Case(
        id="an item that fails",
        build=lambda w: one(each("picky")),
        given={"words": ["x", "bad"]},
        ran=(("picky", "bad"), ("picky", "x")),
        error=(ToolFailed, ""),
    ),
    Case(
        id="a refused item as a result",
        given={"words": ["x", "y"]},
        visits={"a": 1},
        build=lambda w: one(each("sorry", on_tool_failure="message")),
        state={
            "words": ["x", "y"],
            "rates": [error("ToolError", "sorry, no x"), error("ToolError", "sorry, no y")],
        },
        ran=(("sorry", "x"), ("sorry", "y")),
    ),
    Case(
        id="gated items of two nodes at once",
        given={"words": WORDS[:2]},
        decisions=(YES,) * 4,
        build=lambda w: (
            Flow("f", state=State)
            .node("a", paying())
            .node("b", paying(into="log"))
            .start("a", "b")
            .end("a", "b")
        ),
        visits={"a": 1, "b": 1},
        pauses=(
            (asks("pay", text="a"), asks("pay", text="a")),
            (asks("pay", text="bb"), asks("pay", text="a")),
            (asks("pay", text="a"),),
            (asks("pay", text="bb"),),
        ),
        state={"words": WORDS[:2], "rates": ["paid a", "paid bb"], "log": ["paid a", "paid bb"]},
        ran=(("pay", "a"), ("pay", "a"), ("pay", "bb"), ("pay", "bb")),
    ),
    Case(
        id="a port that approves items at once",
        build=lambda w: one(paying()),
        given={"words": WORDS},
        decisions=(YES,),
        decides_at_once=True,
        visits={"a": 1},
        state={"words": WORDS, "rates": ["paid a", "paid bb", "paid ccc"]},
        ran=tuple(("pay", item) for item in WORDS),
    ),
]

CASES = [*CALLS, *MAPS]
