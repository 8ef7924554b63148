"""A compiled flow of ten nodes and a Map beside the same graph written by hand with Send.

    python bench/flow.py [--items 1000] [--repeat 7]

The graphs take turns, so a machine whose speed drifts shifts all alike; the ratios are what counts.
The flow's calls are governed: a real SQLite file with durable audit. The other's are bare. Once the
item's work is a LangChain tool, which is most of its cost; once it is a plain function.
Memory is the peak while one run works, by item: it must not depend on how many items there are.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import operator
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel, Field

from adapter import Effects, Executor, FunctionTool, Merge, Registry, ToolSpec
from adapter.core.validation import PydanticSchema
from adapter.flow import Flow, Map
from adapter.langgraph import LangGraphApproval, compile_flow, registry_of
from adapter.stores import SqlStore, open_store

TARGET = 1.3
STEPS = tuple(f"step{n}" for n in range(1, 10))
Run = Callable[[int, str], Awaitable[Any]]


class Work(BaseModel):
    """The flow's state."""

    items: list[dict[str, Any]] = Field(default_factory=list)
    rates: Annotated[list[float], Merge.append] = Field(default_factory=list)
    done: int = 0


class ByHand(BaseModel):
    """The same with LangGraph's own reducer."""

    items: list[dict[str, Any]] = Field(default_factory=list)
    rates: Annotated[list[float], operator.add] = Field(default_factory=list)
    done: int = 0


async def shipping_rate(item: str) -> float:
    """Return what shipping costs."""
    return float(len(item))


RATE = StructuredTool.from_function(coroutine=shipping_rate, description="A rate.")


def items(count: int) -> list[dict[str, Any]]:
    return [{"item": f"item {n}"} for n in range(count)]


async def step(state: Any) -> dict[str, Any]:
    return {"done": state.done + 1}


def by_hand(saver: InMemorySaver, *, tool: bool) -> Any:
    """Nine nodes in a chain, then one task for each item."""

    async def rate(given: dict[str, Any]) -> dict[str, Any]:
        if tool:
            return {"rates": [await RATE.ainvoke(given)]}
        return {"rates": [await shipping_rate(**given)]}

    def fan(state: ByHand) -> list[Send]:
        return [Send("rate", item) for item in state.items]

    graph: Any = StateGraph(ByHand)
    for name in STEPS:
        graph.add_node(name, step)
    graph.add_node("rate", rate)
    graph.add_edge(START, STEPS[0])
    for name, then in itertools.pairwise(STEPS):
        graph.add_edge(name, then)
    graph.add_conditional_edges(STEPS[-1], fan, ["rate"])
    graph.add_edge("rate", END)
    return graph.compile(checkpointer=saver)


def tools(*, tool: bool) -> Registry:
    """The one tool, as LangChain's or as a function."""
    spec = ToolSpec(name="shipping_rate", effects=Effects(read_only=True), approval=None)
    if tool:
        return registry_of([RATE], [spec])
    schemas = {spec.name: PydanticSchema(RATE.get_input_schema())}
    return Registry([spec], schemas, {spec.name: FunctionTool(shipping_rate)})


def as_flow(saver: InMemorySaver, store: SqlStore, *, tool: bool) -> Any:
    """Nine nodes in a chain, then a Map."""
    flow = Flow("bench", state=Work)
    for name in STEPS:
        flow = flow.node(name, step)
    flow = flow.node("rate", Map("items", tool="shipping_rate", into="rates"))
    for name, then in zip(STEPS, (*STEPS[1:], "rate"), strict=True):
        flow = flow.edge(name, then)
    executor = Executor(
        tools(tool=tool),
        store=store,
        approval=LangGraphApproval(b"a benchmark secret, 16+ bytes"),
    )
    return compile_flow(flow.end("rate"), executor=executor).compile(checkpointer=saver)


def runner(build: Callable[[InMemorySaver], Any]) -> Run:
    """Return a run of a graph on a fresh checkpointer, so that no thread burdens the next."""
    saver = InMemorySaver()
    app = build(saver)

    async def run(count: int, thread: str) -> Any:
        config: Any = {"configurable": {"thread_id": thread}, "recursion_limit": 100}
        made = await app.ainvoke({"items": items(count)}, config)
        if len(made["rates"]) != count or made["done"] != len(STEPS):
            raise RuntimeError("the graph did not finish")
        await saver.adelete_thread(thread)

    return run


async def timed(runs: dict[str, Run], count: int, repeat: int) -> dict[str, list[float]]:
    """Return CPU seconds of each run, in turns."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeat + 1):
        for name, run in runs.items():
            gc.collect()
            start = time.process_time()
            await run(count, f"{name}-{turn}")
            if turn:  # the first round warms up
                spent[name].append(time.process_time() - start)
    return spent


async def peak(run: Run, count: int, thread: str) -> float:
    """Return the most bytes one run held at once, by item."""
    gc.collect()
    tracemalloc.start()
    base, _ = tracemalloc.get_traced_memory()
    await run(count, thread)
    _, top = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (top - base) / count


async def main(count: int, repeat: int, where: Path) -> dict[str, float]:
    """Measure and print."""
    store = open_store(f"sqlite:///{where / 'bench.db'}")
    runs = {
        f"{who}, {what}": runner(partial(build, tool=what == "tools"))
        for what in ("tools", "functions")
        for who, build in (("by hand", by_hand), ("flow", partial(as_flow, store=store)))
    }
    spent = await timed(runs, count, repeat)
    found = {name: statistics.median(times) for name, times in spent.items()}
    for name, middle in found.items():
        print(f"{name:20s} {middle * 1e3:8.1f} ms CPU {middle / count * 1e6:7.0f} us/item")
    for what in ("tools", "functions"):
        ratio = found[f"flow, {what}"] / found[f"by hand, {what}"]
        print(f"{'ratio, ' + what:20s} {ratio:8.2f} x by hand (target: at most {TARGET})")
        found[f"ratio, {what}"] = ratio
    for name in ("by hand, functions", "flow, functions"):
        run = runs[name]
        small, large = await peak(run, count, "m1"), await peak(run, 10 * count, "m2")
        print(
            f"{name:20s} {small:8.0f} bytes/item at {count}, {large:.0f} at {10 * count}: "
            f"{large / small:.2f} x"
        )
        found[f"{name}, memory"] = large / small
    await store.aclose()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(main(args.items, args.repeat, Path(folder)))
    if args.json:
        args.json.write_text(json.dumps(measured))
