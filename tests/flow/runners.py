"""Runs a case: here, and as a compiled graph, with each port; and looks at what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from langgraph.errors import GraphRecursionError
from langgraph.types import Command
from tests.flow.parity import Case, Seen
from tests.flow.world import World
from tests.support.room import KEYS
from typing_extensions import override

from adapter import ApprovalDecision, DeferredApproval, Executor, FlowLoopExceeded
from adapter.core.approvals import Answer, Question, Refusal, sign_decision
from adapter.core.signing import sealed_value
from adapter.flow import FlowResult
from adapter.langgraph import LangGraphApproval, compile_flow, run_compiled
from adapter.langgraph.runflow import flow_result
from adapter.stores import MemoryStore

KEY = b"checkpoint-secret-0123456789-abcdef"


class AtOnce(DeferredApproval):
    """A port of one's own that decides by itself, always the same."""

    deferred = False

    def __init__(self, store: MemoryStore, decision: ApprovalDecision) -> None:
        super().__init__(store, KEYS)
        self._decision = decision

    @override
    async def decide(
        self, question: Question, refused: Callable[[Refusal], Awaitable[bool]]
    ) -> Answer:
        value = sealed_value(self.keys, question.binding, question.request)
        signed = sign_decision(
            self.keys, value, self._decision, decided_at=self._clock(), reviewer="robot"
        )
        return question.check.check(signed, saved=False)


class Lasting(MemoryStore):
    """A store that lasts as long as the run, whatever becomes of its processes."""

    durable = True


class Process:
    """One process's executor over one run's world, with a port and a store."""

    def __init__(self, case: Case, world: World, port: str, store: MemoryStore | None) -> None:
        self.lasts = store is not None
        self.store = store or MemoryStore()
        self.port: Any = LangGraphApproval(KEYS)
        if case.decides_at_once:
            self.port = AtOnce(self.store, case.decisions[0])
        elif port == "deferred":
            self.port = DeferredApproval(self.store, KEYS)
        self.executor = Executor(world.registry(), store=self.store, approval=self.port)
        world.executor = self.executor
        self.flow = case.build(world)

    async def close(self) -> None:
        if not self.lasts:
            await self.store.aclose()


class Run:
    """One case on its way: its world, the process it is in now, and what was seen."""

    def __init__(self, case: Case, port: str, *, anew: bool) -> None:
        self.case = case
        self.port = port
        self.anew = anew
        self.world = World()
        self.store = Lasting() if case.durable else None
        self.process = Process(case, self.world, port, self.store)
        self.thread = uuid4().hex

    async def see(
        self,
        first: Callable[[], Awaitable[FlowResult]],
        then: Callable[[FlowResult, ApprovalDecision], Awaitable[FlowResult]],
    ) -> Seen:
        """Run to the end, answering as the case says."""
        left = list(self.case.decisions)
        pauses: list[Any] = []
        try:
            result = await first()
            while result.status == "paused":
                pauses.append(tuple((one.kind, one.tool, one.arguments) for one in result.pendings))
                if self.anew:
                    await self.process.close()
                    self.process = Process(self.case, self.world, self.port, self.store)
                assert left, f"nobody expects a further question: {pauses}"
                result = await then(result, left.pop(0))
        except Exception as error:
            kind, text = self.case.error or ((), "")
            if not isinstance(error, kind) or text not in str(error):
                raise
            return self._seen("raised", pauses)
        finally:
            await self.process.close()
            if self.store is not None:
                await self.store.aclose()
        assert self.case.decides_at_once or self.case.unasked or not left, f"not asked: {left}"
        return self._seen(result.status, pauses, result)

    def _seen(self, status: str, pauses: list[Any], result: FlowResult | None = None) -> Seen:
        return Seen(
            status=status,
            state=None if result is None else result.state,
            visits=None if result is None else dict(result.visits),
            steps=None if result is None else result.steps,
            pauses=pauses,
            ran=sorted(self.world.ran, key=repr),
        )


@dataclass(frozen=True, kw_only=True)
class Local:
    """Runs a case without LangGraph.

    Attributes:
        anew: Each run in a process of its own, that knows the sealed checkpoint only.
    """

    anew: bool = False

    async def run(self, case: Case) -> Seen:
        run = Run(case, "deferred", anew=self.anew)

        def step(**given: Any) -> Awaitable[FlowResult]:
            process = run.process
            options = {"checkpoint_key": KEY, **case.options}
            return process.flow.run(executor=process.executor, **options, **given)

        return await run.see(
            lambda: step(state=case.given),
            lambda paused, decision: step(checkpoint=paused.checkpoint, decision=decision),
        )


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """Runs a case as a graph.

    Attributes:
        saver: The checkpointer.
        port: ``signed`` answers resume the graph; ``deferred`` ones are put into the store.
        anew: Each run in a process of its own, that knows the checkpointer only.
        sync: By ``invoke`` and the answers that LangGraph takes, not by ``run_compiled``.
    """

    saver: Any
    port: str = "signed"
    anew: bool = False
    sync: bool = False

    def app(self, run: Run) -> Any:
        graph = compile_flow(run.process.flow, executor=run.process.executor, checkpoint_key=KEY)
        return graph.compile(checkpointer=self.saver)

    async def run(self, case: Case) -> Seen:
        run = Run(case, self.port, anew=self.anew)
        steps = case.options.get("max_steps", 100)
        # LangGraph's own limit counts the graph's start too; run_compiled makes up for it.
        limit = {"recursion_limit": steps + 1 if self.sync else steps}
        config: Any = {"configurable": {"thread_id": run.thread}, **limit}

        async def first() -> FlowResult:
            if self.sync:
                return await asyncio.to_thread(self._invoke, run, case.given, config)
            return await run_compiled(self.app(run), case.given, config)

        async def then(paused: FlowResult, decision: ApprovalDecision) -> FlowResult:
            if self.sync:
                given = await self._answer(run, paused, decision)
                return await asyncio.to_thread(self._invoke, run, given, config)
            return await run_compiled(self.app(run), decision, config)

        return await run.see(first, then)

    def _invoke(self, run: Run, given: Any, config: Any) -> FlowResult:
        app = self.app(run)
        try:
            app.invoke(given, config)
        except GraphRecursionError as error:
            raise FlowLoopExceeded(str(error)) from error
        return flow_result(app, app.get_state(config))

    async def _answer(self, run: Run, paused: FlowResult, decision: ApprovalDecision) -> Any:
        pending = paused.pending
        assert pending is not None
        if self.port == "deferred":
            port: DeferredApproval = run.process.port
            asked = pending.value["binding"]
            rows = await port.pending(run.thread)
            (row,) = [row for row in rows if (row.decision or {})["sealed"]["binding"] == asked]
            await port.record(row, decision)
            return None
        value = run.process.port.resume_value(pending, decision)
        return Command(resume={pending.interrupt_id: value})
