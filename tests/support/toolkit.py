"""Graphs built by hand over the adapter: own nodes, tool nodes, tasks, and their effects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Interrupt
from tests.support.room import KEYS, Ledger, free, gated, open_questions, tool_of

from adapter import ApprovalDecision, Effects, Executor, Registry, ToolCall
from adapter.langgraph import LangGraphApproval, registry_of
from adapter.stores import MemoryStore, SqlStore, open_store

CONFIG: Any = {"configurable": {"thread_id": "shop-1"}}
YES = ApprovalDecision(approved=True)
NO = ApprovalDecision(approved=False, reason="no")


def of(name: str, call_id: str | None, **arguments: Any) -> dict[str, Any]:
    """A tool call in a message."""
    return {"name": name, "args": arguments, "id": call_id, "type": "tool_call"}


def direct(name: str, call_id: str, **arguments: Any) -> ToolCall:
    """A call of a node's own code."""
    return ToolCall(name=name, arguments=arguments, id=call_id)


def asking(*calls: Any, **more: Any) -> dict[str, Any]:
    """A state whose last message calls tools."""
    return {"messages": [AIMessage("", tool_calls=list(calls), **more)]}


@dataclass
class Shop:
    """One executor over the shop's tools, as one process has it.

    Attributes:
        ledger: ``rate`` (read-only), ``note`` (an effect), ``pay`` (gated); each run is a line.
    """

    executor: Executor
    registry: Registry
    port: Any
    store: SqlStore
    ledger: Ledger

    def sign(self, asked: Interrupt, decision: ApprovalDecision = YES) -> Any:
        return self.port.resume_value(asked, decision)

    def answer(self, asked: Interrupt, decision: ApprovalDecision = YES) -> Command[Any]:
        return Command(resume={asked.id: self.sign(asked, decision)})


@dataclass
class Bench:
    """Makes shops in one folder, and closes their stores."""

    folder: Path
    stores: list[SqlStore] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / "effects.jsonl")

    def ran(self, tool: str) -> int:
        return len(self.ledger.of(tool))

    def store(self, name: str | None = None) -> SqlStore:
        made = (
            MemoryStore() if name is None else open_store(f"sqlite:///{self.folder / f'{name}.db'}")
        )
        self.stores.append(made)
        return made

    def tools(self) -> tuple[list[Any], list[Any]]:
        ledger = self.ledger

        def rate(text: str) -> float:
            ledger.add(tool="rate", text=text)
            return float(len(text))

        def note(text: str) -> dict[str, Any]:
            ledger.add(tool="note", text=text)
            return {"noted": text}

        def pay(text: str) -> str:
            ledger.add(tool="pay", text=text)
            return f"paid {text}"

        async def refund(text: str) -> str:
            ledger.add(tool="refund", text=text)
            return f"refunded {text}"

        tools = [tool_of(run, run.__name__) for run in (rate, note, pay, refund)]
        specs = [free("rate", Effects(read_only=True)), free("note"), gated("pay"), gated("refund")]
        return tools, specs

    def shop(
        self,
        *,
        tools: Sequence[Any] = (),
        specs: Sequence[Any] = (),
        port: Any = None,
        store: SqlStore | None = None,
        **options: Any,
    ) -> Shop:
        """An executor over the usual tools and some more."""
        own_tools, own_specs = self.tools()
        registry = registry_of([*own_tools, *tools], [*own_specs, *specs])
        store = store or self.store()
        port = port or LangGraphApproval(KEYS)
        executor = Executor(registry, store=store, approval=port, **options)
        return Shop(executor, registry, port, store, self.ledger)

    def close(self) -> None:
        for store in self.stores:
            asyncio.run(store.aclose())


def graph_of(node: Any, saver: Any = None, schema: Any = MessagesState, **how: Any) -> Any:
    """A graph of one node, named by itself."""
    graph: Any = StateGraph(schema)
    graph.add_node(node, **how)
    (name,) = graph.nodes
    graph.add_edge(START, name)
    return graph.compile(checkpointer=InMemorySaver() if saver is None else saver)


async def asked(app: Any, config: Any = CONFIG) -> list[Interrupt]:
    return open_questions(await app.aget_state(config))


async def answered(app: Any, shop: Shop, decision: ApprovalDecision = YES) -> Any:
    """Answer the one open question."""
    (question,) = await asked(app)
    return await app.ainvoke(shop.answer(question, decision), CONFIG)


def results(out: Any, key: str = "messages") -> list[ToolMessage]:
    return [message for message in out[key] if isinstance(message, ToolMessage)]


def error_kind(message: ToolMessage) -> str:
    assert message.status == "error"
    found: str = json.loads(str(message.content))["error"]["kind"]
    return found


class FailsOnce:
    """Raises at its first call of each place, and never again."""

    def __init__(self, error: Callable[[], Exception] = lambda: RuntimeError("stumbled")) -> None:
        self.error = error
        self.left = 1

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            raise self.error()
