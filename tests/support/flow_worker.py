"""One process's work on a flow's run that other processes go on with after it was killed.

The same flow, here with its sealed checkpoint in a file, or as a compiled graph with a SQLite
checkpointer; the adapter's store on SQLite or PostgreSQL beside it. Effects are lines of a file.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import BaseModel, Field
from tests.support.room import Text, tool_of
from typing_extensions import override

from adapter import (
    AdapterError,
    ApprovalAlreadyDecided,
    ApprovalDecision,
    ApprovalRule,
    CallInDoubt,
    CallInProgress,
    DeferredApproval,
    Effects,
    Executor,
    KeyRing,
    Merge,
    ToolSpec,
    current_context,
)
from adapter.faults import CrashAt, FaultyStore
from adapter.flow import Call, Flow, FlowContext, FlowResult, Join, Map
from adapter.langgraph import LangGraphApproval, compile_flow, registry_of, run_compiled
from adapter.stores import MemoryStore, open_store

SECRET = b"worker-secret-0123456789-abcdefgh"
KEYS = KeyRing.from_secret(SECRET)
YES = ApprovalDecision(approved=True)
RULE = ApprovalRule(name="always", reason="It has an effect.")
EFFECTS = ["a", "b1", "b2", "c", "d", "paid d"]
"""What one whole run does, each of it once."""


class Trip(BaseModel):
    """The state: what was done."""

    log: Annotated[list[str], Merge.append] = Field(default_factory=list)
    words: list[str] = Field(default_factory=lambda: ["b1", "b2"])


async def begin(state: Trip, ctx: FlowContext) -> dict[str, Any]:
    return {"log": await ctx.call("note", {"text": "a"})}


async def pay(state: Trip, ctx: FlowContext) -> dict[str, Any]:
    noted = await ctx.call("note", {"text": "d"})
    return {"log": [noted, await ctx.call("pay", {"text": "paid d"})]}


def trip() -> Flow:
    """Effects alone, side by side, for each item, and behind a gate with an approval of its own."""
    return (
        Flow("trip", state=Trip)
        .node("a", begin)
        .node("b", Map("words", tool="note", into="log", arguments=lambda word: {"text": word}))
        .node("c", Call("note", {"text": "c"}, into="log"))
        .node("d", pay, pause=lambda state: {"done": state.log})
        .node("e", Join(lambda state: {"log": "e"}))
        .edge("a", "b", "c")
        .edge("b", "d")
        .edge("c", "d")
        .edge("d", "e")
        .end("e")
    )


class Saver(AsyncSqliteSaver):
    """A checkpointer that says when it begins to save and what it has saved."""

    reached: Any = staticmethod(lambda point: None)

    @override
    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.reached("before checkpoint")
        made = await super().aput(config, checkpoint, metadata, new_versions)
        self.reached("after checkpoint")
        return made

    @override
    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self.reached("before writes")
        await super().aput_writes(config, writes, task_id, task_path)
        self.reached("after writes")


class Worker:
    """A process's own view of one run."""

    def __init__(
        self,
        folder: str,
        uri: str,
        how: str,
        *,
        thread: str,
        idempotent: bool = True,
        durability: str | None = None,
        crash: str | None = None,
        nth: int = 1,
        lease: float = 0.3,
    ) -> None:
        self.folder = Path(folder)
        self.how = how
        self.thread = thread
        self.durability = durability
        self.crash = CrashAt(crash, nth=nth)
        self.real = MemoryStore() if uri == "memory" else open_store(uri)
        store = FaultyStore.around(self.real, self.crash)
        effects = Effects(idempotent=idempotent)
        specs = [
            ToolSpec(name="note", effects=effects, approval=None),
            ToolSpec(name="pay", effects=effects, approval=RULE),
        ]
        tools = [tool_of(self._effect, spec.name, Text) for spec in specs]
        self.executor = Executor(
            registry_of(tools, specs),
            store=store,
            approval=LangGraphApproval(KEYS)
            if how == "compiled"
            else DeferredApproval(store, KEYS),
            lease=lease,
        )
        self.flow = trip()

    async def _effect(self, text: str) -> str:
        context = current_context()
        assert context is not None
        self.crash("before effect")
        line = json.dumps({"text": text, "key": context.idempotency_key, "pid": os.getpid()})
        with (self.folder / "effects.jsonl").open("a") as file:
            file.write(line + "\n")
        self.crash("in effect")
        return text

    async def run(self) -> FlowResult:
        """Go on from wherever the run stands, saying yes to everything."""
        if self.how == "compiled":
            return await self._compiled()
        return await self._local()

    @property
    def _file(self) -> Path:
        return self.folder / "checkpoint"

    def _save(self, checkpoint: str) -> None:
        self.crash("before checkpoint")
        beside = self._file.with_suffix(".new")
        beside.write_text(checkpoint)
        beside.replace(self._file)
        self.crash("after checkpoint")

    async def _local(self) -> FlowResult:
        given: dict[str, Any] = {"state": {}}
        if self._file.exists():
            given = {"checkpoint": self._file.read_text()}
        while True:
            result = await self.flow.run(
                executor=self.executor,
                run_id=self.thread,
                checkpoint_key=SECRET,
                on_checkpoint=self._save,
                **given,
            )
            if result.status != "paused":
                return result
            given = {"checkpoint": result.checkpoint, "decision": YES}

    async def _compiled(self) -> FlowResult:
        config: RunnableConfig = {"configurable": {"thread_id": self.thread}}
        options = {} if self.durability is None else {"durability": self.durability}
        async with Saver.from_conn_string(str(self.folder / "graph.db")) as saver:
            saver.reached = self.crash  # type: ignore[attr-defined]
            graph = compile_flow(self.flow, executor=self.executor, checkpoint_key=SECRET)
            app = graph.compile(checkpointer=saver)
            begun = (await app.aget_state(config)).created_at is not None
            result = await run_compiled(app, None if begun else {}, config, **options)
            while result.status == "paused":
                result = await run_compiled(app, YES, config, **options)
            return result

    async def close(self) -> None:
        await self.real.aclose()


# ------------------------------------------------------- steps, each in a process of its own


def whole(**named: Any) -> Any:
    """Run from the beginning to the end; report every point that was reached."""

    async def work() -> Any:
        worker = Worker(**named)
        result = await worker.run()
        await worker.close()
        return {"status": result.status, "reached": worker.crash.reached}

    return asyncio.run(work())


def recover(seconds: float = 20.0, **named: Any) -> Any:
    """Go on as an operator would who knows nothing, waiting out a dead worker's lease."""

    async def work() -> Any:
        worker = Worker(**named)
        ends: list[str] = []
        result: FlowResult | None = None
        async with asyncio.timeout(seconds):
            while result is None and "in_doubt" not in ends and len(ends) < 200:
                try:
                    result = await worker.run()
                except CallInProgress as error:
                    ends.append(error.code)
                    await asyncio.sleep(0.05)
                except (ApprovalAlreadyDecided, CallInDoubt) as error:
                    ends.append(error.code)
                except AdapterError as error:
                    ends.append(f"{error.code}: {error.message}")
        await worker.close()
        if result is None:
            return {"status": "raised", "ends": ends}
        shown = {"visits": dict(result.visits), "steps": result.steps, "log": result.state.log}
        return {"status": result.status, "ends": ends, **shown}

    return asyncio.run(work())
