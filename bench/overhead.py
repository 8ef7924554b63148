"""Per-call cost of the adapter beside the bare agent and LangChain's own stack, in one run.

    python bench/overhead.py [--calls 8] [--repeat 8]

Variants are interleaved, so a machine whose speed drifts shifts all of them alike. Ratios are
what counts; the store is a real SQLite file with durable audit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ToolCallLimitMiddleware,
)
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from adapter import ApprovalDecision, ApprovalRule, Budgets, Effects, Executor, ToolSpec
from adapter.langgraph import AdapterMiddleware, LangGraphApproval, registry_of
from adapter.stores import SqlStore, open_store

RUNS = 5
APPROVE = ApprovalDecision(kind="approve")


class OneBatch(BaseChatModel):
    """Asks for ``calls`` parallel additions once, then stops."""

    calls: int = 8

    @property
    def _llm_type(self) -> str:
        return "one-batch"

    def bind_tools(self, tools: Any, **kwargs: Any) -> OneBatch:
        return self

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        if any(isinstance(message, AIMessage) for message in messages):
            made = AIMessage("done")
        else:
            wanted = [
                {"name": "add", "args": {"a": i, "b": 2}, "id": f"c{i}"} for i in range(self.calls)
            ]
            made = AIMessage("", tool_calls=wanted)
        return ChatResult(generations=[ChatGeneration(message=made)])


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Variant:
    """One way of running the same eight calls."""

    def __init__(self, agent: Any, *, answer: str | None = None, port: Any = None) -> None:
        self.agent, self.answer, self.port = agent, answer, port
        self.times: list[float] = []

    async def once(self, thread: str) -> float:
        config = {"configurable": {"thread_id": thread}}
        start = time.perf_counter()
        result = await self.agent.ainvoke({"messages": [("user", "go")]}, config, version="v2")
        if self.answer == "plain":
            answers = {item.id: {"type": "approve"} for item in result.interrupts}
            result = await self.agent.ainvoke(Command(resume=answers), config, version="v2")
        elif self.answer == "signed":
            answers = {i.id: self.port.resume_value(i, APPROVE) for i in result.interrupts}
            result = await self.agent.ainvoke(Command(resume=answers), config, version="v2")
        elapsed = time.perf_counter() - start
        if result.value["messages"][-1].content != "done":
            raise RuntimeError("the agent did not finish")
        return elapsed


def variants(calls: int, stores: Iterator[SqlStore]) -> dict[str, Variant]:
    """Build every variant."""

    def agent(*middleware: Any) -> Any:
        return create_agent(
            OneBatch(calls=calls), [add], middleware=middleware, checkpointer=InMemorySaver()
        )

    def governed(effects: Effects, rule: ApprovalRule | None) -> Variant:
        tools: list[BaseTool] = [add]
        spec = ToolSpec(name="add", effects=effects, approval=rule)
        port = LangGraphApproval(b"a benchmark secret, 16+ bytes", on_invalid="ask")
        executor = Executor(
            registry_of(tools, [spec]),
            store=next(stores),
            approval=port,
            budgets=Budgets(tool_calls_per_turn=1000),
        )
        answer = "signed" if rule else None
        return Variant(agent(AdapterMiddleware(executor)), answer=answer, port=port)

    limits = (
        ModelCallLimitMiddleware(run_limit=10, thread_limit=100),
        ToolCallLimitMiddleware(run_limit=100),
    )
    review = HumanInTheLoopMiddleware({"add": True}, interrupt_mode="per_call")
    return {
        "bare agent": Variant(agent()),
        "LangChain limits": Variant(agent(*limits)),
        "adapter, read-only calls": governed(Effects(read_only=True), None),
        "adapter, ungated effects": governed(Effects(), None),
        "LangChain per-call review": Variant(agent(review), answer="plain"),
        "LangChain limits + review": Variant(agent(*limits, review), answer="plain"),
        "adapter, signed approvals": governed(
            Effects(destructive=True), ApprovalRule(name="sums", reason="a sum")
        ),
    }


async def main(calls: int, repeat: int, where: Path) -> dict[str, float]:
    """Measure and print; returns medians in seconds."""
    opened: list[SqlStore] = []

    def stores() -> Iterator[SqlStore]:
        while True:
            opened.append(open_store(f"sqlite:///{where / f'bench-{len(opened)}.db'}"))
            yield opened[-1]

    ways = variants(calls, stores())
    for round_ in range(repeat + 1):
        for name, way in ways.items():
            for i in range(RUNS):
                elapsed = await way.once(f"{name}-{round_}-{i}")
                if round_:
                    way.times.append(elapsed)
    for store in opened:
        await store.aclose()
    medians = {name: statistics.median(way.times) for name, way in ways.items()}
    bare, review = medians["bare agent"], medians["LangChain limits + review"]
    plain = medians["LangChain per-call review"]
    for name, median in medians.items():
        print(
            f"{name:28s} {median * 1e3:8.2f} ms {median / calls * 1e6:8.0f} us/call "
            f"{median / bare:6.2f} x bare {median / plain:6.2f} x review "
            f"{median / review:6.2f} x limits + review"
        )
    return medians


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--json", type=Path, help="also write the medians here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(main(args.calls, args.repeat, Path(folder)))
    if args.json:
        args.json.write_text(json.dumps(measured))
