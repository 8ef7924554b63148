"""Flows compiled over the toolkit's shop: their nodes and tools leave a line for each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Interrupt
from pydantic import BaseModel, Field
from tests.support.room import KEYS, Ledger, open_questions
from tests.support.toolkit import YES, Bench, Shop
from typing_extensions import override

from adapter import ApprovalDecision, DeferredApproval, Merge
from adapter.core.approvals import Answer, Question, sign_decision
from adapter.core.signing import sealed_value
from adapter.flow import Flow, FlowResult, Route
from adapter.langgraph import LangGraphApproval, compile_flow, run_compiled
from adapter.stores import SqlStore

CONFIG: Any = {"configurable": {"thread_id": "flow-1"}}


class Board(BaseModel):
    """What the flows of these tests work on."""

    log: Annotated[list[str], Merge.append] = Field(default_factory=list)
    n: int = 0
    total: int = 0
    seen: Annotated[list[int], Merge.append] = Field(default_factory=list)
    receipt: str = ""


def does(ledger: Ledger, name: str, **writes: Any) -> Callable[[Board], dict[str, Any]]:
    """A node that leaves a line outside the graph, and one in the state."""

    def work(state: Board) -> dict[str, Any]:
        ledger.add(tool="node", text=name, n=state.n)
        return {"log": [name], **writes}

    return work


def shown(state: Board) -> dict[str, Any]:
    """What a gate shows."""
    return {"n": state.n}


class AtOnce(DeferredApproval):
    """A port of one's own that decides by itself."""

    deferred = False

    @override
    async def decide(self, question: Question, refused: Any) -> Answer:
        value = sealed_value(self.keys, question.binding, question.request)
        signed = sign_decision(self.keys, value, YES, decided_at=self._clock(), reviewer="robot")
        return question.check.check(signed, saved=False)


@dataclass
class Process:
    """One process that has a flow compiled: its executor and store, and the shared checkpointer."""

    flow: Flow
    shop: Shop
    saver: Any
    key: bytes | None = None
    config: Any = field(default_factory=lambda: CONFIG)

    def __post_init__(self) -> None:
        self.graph = compile_flow(
            self.flow, executor=self.shop.executor, checkpoint_key=self.key, gate_wait=5.0
        )
        self.app: Any = self.graph.compile(checkpointer=self.saver)

    async def run(self, given: Any, config: Any = None, **options: Any) -> FlowResult:
        return await run_compiled(self.app, given, config or self.config, **options)

    async def asked(self, config: Any = None) -> list[Interrupt]:
        return open_questions(await self.app.aget_state(config or self.config))

    async def answer(
        self, asked: Interrupt, decision: ApprovalDecision = YES, config: Any = None
    ) -> FlowResult:
        """Answer one question, however this process's port is answered."""
        return await self.run({asked.id: decision}, config)

    def signed(self, asked: Interrupt, decision: ApprovalDecision = YES) -> Command[Any]:
        return Command(resume={asked.id: self.shop.port.resume_value(asked, decision)})


@dataclass
class Works:
    """Makes processes over one checkpointer and one ledger.

    Attributes:
        port: ``signed`` answers resume the graph, ``deferred`` ones are put into the store.
    """

    bench: Bench
    port: str = "signed"
    saver: Any = field(default_factory=InMemorySaver)

    @property
    def ledger(self) -> Ledger:
        return self.bench.ledger

    def ran(self, name: str) -> int:
        """How often a node, or a tool, ran."""
        return sum(name in (fact.get("text"), fact["tool"]) for fact in self.ledger.all)

    def node(self, name: str, **writes: Any) -> Callable[[Board], dict[str, Any]]:
        return does(self.ledger, name, **writes)

    def process(
        self,
        flow: Flow,
        *,
        store: SqlStore | str | None = None,
        port: str | None = None,
        keys: Any = KEYS,
        key: bytes | None = None,
        saver: Any = None,
        shop: Mapping[str, Any] | None = None,
    ) -> Process:
        made = store if isinstance(store, SqlStore) else self.bench.store(store)
        kind = port or self.port
        asks: Any = LangGraphApproval(keys)
        if kind == "deferred":
            asks = DeferredApproval(made, keys)
        elif kind == "at once":
            asks = AtOnce(made, keys)
        return Process(
            flow,
            self.bench.shop(store=made, port=asks, **(shop or {})),
            self.saver if saver is None else saver,
            key,
        )

    def gated(self, *, siblings: tuple[str, ...] = ()) -> Flow:
        """``plan`` -> ``place`` (gated) beside its siblings -> ``done``."""
        flow = (
            Flow("order", state=Board)
            .node("plan", self.node("plan", n=1))
            .node("place", self.node("place"), pause=shown)
            .node("done", self.node("done"))
            .edge("plan", "place", *siblings)
            .edge("place", "done")
            .end("done", *siblings)
        )
        for name in siblings:
            flow.node(name, self.node(name))
        return flow

    def looping(self, times: int) -> Flow:
        """A node that goes round so often."""

        def again(state: Board) -> str:
            return "round" if state.n < times else "out"

        def turn(state: Board) -> dict[str, Any]:
            return {"n": state.n + 1}

        return (
            Flow("loop", state=Board)
            .node("round", turn)
            .node("out", self.node("out"))
            .edge("round", Route(again, to=("round", "out"), caps={"round": 10_000}))
            .end("out")
        )
