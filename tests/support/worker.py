"""One worker process's work on a thread that other processes work on too.

A graph with its checkpoints in a SQLite file and the adapter's store beside it, on SQLite or on
PostgreSQL. Effects are lines appended to a file; they outlive any process. Everything is passed
in as JSON and reported as JSON, so that a test can run each step in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import EmptyInputError
from langgraph.types import Command
from tests.support.room import Text, open_questions
from tests.support.script import Script, ai, call
from typing_extensions import override

from adapter import (
    AdapterError,
    ApprovalDecision,
    ApprovalRule,
    CallInProgress,
    Effects,
    Executor,
    KeyRing,
    ToolSpec,
    current_context,
)
from adapter.core.audit_verify import verify_chain
from adapter.core.operating import Operator, Resolution, sign_statement
from adapter.faults import CrashAt, FaultyStore
from adapter.langgraph import AdapterMiddleware, LangGraphApproval, registry_of
from adapter.langgraph.results import stated_record
from adapter.stores import open_store

KEYS = KeyRing.from_secret(b"worker-secret-0123456789-abcdefgh")
RULE = ApprovalRule(name="always", reason="It has an effect.")
KINDS: dict[str, tuple[Effects, ApprovalRule | None]] = {
    "gated": (Effects(destructive=True), RULE),
    "free": (Effects(), None),
    "gated_put": (Effects(idempotent=True), RULE),
    "put": (Effects(idempotent=True), None),
    "look": (Effects(read_only=True), None),
}


class Saver(AsyncSqliteSaver):
    """A checkpointer that says what it has saved."""

    reached: Callable[[str], None] = staticmethod(lambda point: None)
    hold = False
    """Leave the checkpoint after the model's message unsaved, as a slow disk may."""

    @override
    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self.hold and metadata["step"] >= 1:
            await asyncio.Event().wait()
        made = await super().aput(config, checkpoint, metadata, new_versions)
        messages = checkpoint["channel_values"].get("messages", [])
        if any(isinstance(message, ToolMessage) for message in messages):
            self.reached("checkpoint saved")
        return made

    @override
    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await super().aput_writes(config, writes, task_id, task_path)
        for channel, value in writes:
            if channel == "__interrupt__":
                self.reached("pause saved")
            elif channel == "__resume__":
                self.reached("answer saved")
            elif channel == "messages" and any(isinstance(one, ToolMessage) for one in value):
                self.reached("result saved")
            elif channel == "messages" and any(isinstance(one, AIMessage) for one in value):
                self.reached("message saved")


class Worker:
    """A process's own view of one thread."""

    def __init__(
        self,
        folder: str,
        uri: str,
        kind: str,
        *,
        crash: str | None = None,
        lease: float = 30.0,
        pause: float = 0.0,
        thread: str = "thread-1",
        saver: str = "graph.db",
        durability: str | None = None,
        hold: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.kind = kind
        self.thread = thread
        self.file = str(self.folder / saver)
        self.crash = CrashAt(crash)
        self.pause = pause
        self.durability = durability
        self.hold = hold
        self.real = open_store(uri)
        self.store = FaultyStore.around(self.real, self.crash)
        self.approval = LangGraphApproval(KEYS, on_invalid="ask")
        effects, rule = KINDS[kind]
        self.tool = StructuredTool(
            name=kind, description="An effect.", args_schema=Text, coroutine=self._effect
        )
        self.executor = Executor(
            registry_of([self.tool], [ToolSpec(name=kind, effects=effects, approval=rule)]),
            store=self.store,
            approval=self.approval,
            lease=lease,
        )

    async def _effect(self, text: str) -> str:
        context = current_context()
        assert context is not None
        while self.hold and "message saved" not in self.crash.reached:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        self.crash("before effect")
        line = json.dumps({"tool": self.kind, "key": context.idempotency_key, "pid": os.getpid()})
        with (self.folder / "effects.jsonl").open("a") as file:
            file.write(line + "\n")
        self.crash("in effect")
        await asyncio.sleep(self.pause)
        return f"did {text}"

    @property
    def config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self.thread}}

    def model(self, messages: list[BaseMessage]) -> AIMessage:
        """Propose the call once, as a model would that is asked again after a crash."""
        if any(isinstance(message, AIMessage) for message in messages):
            return ai(text="done")
        return ai(call(self.kind, "c1", text="x"))

    def graph(self, saver: Any) -> Any:
        saver.reached = self.crash
        saver.hold = self.hold
        return create_agent(
            Script.of(*[self.model] * 1_000),
            [self.tool],
            middleware=[AdapterMiddleware(self.executor)],
            checkpointer=saver,
        )

    async def say(self) -> list[Any]:
        """The first run: the model calls the tool. Returns the open questions, answered."""
        async with Saver.from_conn_string(self.file) as saver:
            graph = self.graph(saver)
            await graph.ainvoke(
                {"messages": [HumanMessage("go")]}, self.config, durability=self.durability
            )
            return await self._answers(graph)

    async def go_on(self, answer: Any = None, run_id: str | None = None) -> str:
        """A later run. Returns ``done``, ``paused`` or the code of the error it ended with.

        A thread that was killed before its first checkpoint has nothing to go on with.
        """
        given: Any = None if answer is None else Command(resume=answer)
        config = self.config
        if run_id is not None:
            config["run_id"] = uuid.UUID(run_id)
            config["configurable"]["run_id"] = run_id
        async with Saver.from_conn_string(self.file) as saver:
            graph = self.graph(saver)
            try:
                await graph.ainvoke(given, config, durability=self.durability)
            except AdapterError as error:
                return error.code
            except EmptyInputError:
                return "nothing"
            return "paused" if await self._answers(graph) else "done"

    async def _answers(self, graph: Any) -> list[Any]:
        asked = open_questions(await graph.aget_state(self.config))
        yes = ApprovalDecision(approved=True)
        return [{one.id: self.approval.resume_value(one, yes)} for one in asked]

    async def seen(self) -> dict[str, Any]:
        """What the store and the thread say in the end."""
        async with Saver.from_conn_string(self.file) as saver:
            state = await self.graph(saver).aget_state(self.config)
            messages = state.values.get("messages", [])
            rows: list[Any] = []
            for message in messages:
                rows += await self.real.of_message(self.thread, message.id or "")
            found = [one.content for one in messages if isinstance(one, ToolMessage)]
            asked = await self._answers(self.graph(saver))
            links = await self.real.events(self.thread)
            heads = await self.real.heads(self.thread)
            return {
                "rows": [str(row.status) for row in rows],
                "fences": [row.fence for row in rows],
                "results": found,
                "answers": asked,
                "events": [link.kind for link in links],
                "faults": [f.kind for f in verify_chain(links, heads[0] if heads else None)],
                "last": messages[-1].content if messages else "",
            }

    async def close(self) -> None:
        await self.real.aclose()


# ------------------------------------------------------- steps, each in a process of its own


def first(**named: Any) -> Any:
    """Say something; the reported answers are signed already."""

    async def work() -> Any:
        worker = Worker(**named)
        answers = await worker.say()
        await worker.close()
        return answers

    return asyncio.run(work())


def again(answer: Any = None, run_id: str | None = None, **named: Any) -> Any:
    """Run the thread once more."""

    async def work() -> Any:
        worker = Worker(**named)
        ended = await worker.go_on(answer, run_id)
        await worker.close()
        return ended

    return asyncio.run(work())


def resolve(verdict: str, text: str = "", **named: Any) -> Any:
    """Say what became of the thread's call in doubt, as the command line would."""

    async def work() -> Any:
        worker = Worker(**named)
        operator = Operator(journal=replace(worker.executor.journal, store=worker.real), keys=KEYS)
        (row,) = [one for one in await operator.doubtful(1000) if one.thread_id == worker.thread]
        said: Any = verdict
        resolution = Resolution(verdict=said, by="olga")
        if verdict == "succeeded":
            outcome = stated_record(text, row.tool_call_id, row.tool)
            resolution = replace(resolution, outcome=outcome)
        statement = operator.statement(row, resolution)
        signature = sign_statement(KEYS, statement)
        done = await operator.resolve(row, resolution, statement, signature)
        await worker.close()
        return str(done.status)

    return asyncio.run(work())


def recover(answer: Any = None, seconds: float = 20.0, **named: Any) -> Any:
    """Go on as an operator would who knows nothing: wait out a lease, answer what is asked.

    Returns every run's end in order, and what is seen then.
    """

    async def work() -> Any:
        worker = Worker(**named)
        ends: list[str] = []
        given = answer
        async with asyncio.timeout(seconds):
            for _ in range(6):
                end = await worker.go_on(given)
                while end == CallInProgress.code:
                    await asyncio.sleep(0.02)
                    if not ends or ends[-1] != end:
                        ends.append(end)
                    end = await worker.go_on(given)
                ends.append(end)
                if end in ("done", "in_doubt", "nothing"):
                    break
                # A used answer: go on without one. A question: answer it.
                open_now = (await worker.seen())["answers"]
                given = open_now[0] if end == "paused" and open_now else None
        seen = await worker.seen()
        await worker.close()
        return {"ends": ends, **seen}

    return asyncio.run(work())
