"""One agent in process, its gate and the effects of its tools, counted outside the process.

Every effect is a line appended to a file, so that a second run of a tool shows however it came
about: in another thread, another event loop or another process.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Interrupt
from pydantic import BaseModel, ConfigDict
from tests.support.script import Line, Script, ai, call

from adapter import ApprovalDecision, ApprovalRule, Budgets, Effects, Executor, KeyRing, ToolSpec
from adapter.core.audit_verify import verify_chain
from adapter.core.policy import Policy
from adapter.langgraph import AdapterMiddleware, LangGraphApproval, registry_of
from adapter.stores import MemoryStore, SqlStore, open_store

SECRET = b"room-secret-0123456789-abcdefghijk"
KEYS = KeyRing.from_secret(SECRET)
START = 1_800_000_000_000


class Ledger:
    """A file with one line per effect."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, **fact: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fact) + "\n")

    @property
    def all(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    def of(self, tool: str) -> list[dict[str, Any]]:
        return [fact for fact in self.all if fact["tool"] == tool]

    @property
    def paid(self) -> list[int]:
        """Amounts of money sent, in the order it happened."""
        return [fact["amount"] for fact in self.of("send_money")]


class Clock:
    """Milliseconds that pass only when a test says so."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1000)


class SendMoney(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    to: str
    amount: int


class Text(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    text: str


def tool_of(
    run: Callable[..., Any], name: str, schema: type[BaseModel] = Text, **more: Any
) -> BaseTool:
    """A tool from a plain or a coroutine function."""
    how = {"coroutine": run} if asyncio.iscoroutinefunction(run) else {"func": run}
    return StructuredTool(name=name, description=f"{name}.", args_schema=schema, **how, **more)


def gated(name: str, **more: Any) -> ToolSpec:
    rule = more.pop("approval", ApprovalRule(name="always", reason="Money leaves."))
    return ToolSpec(name=name, effects=Effects(destructive=True), approval=rule, **more)


def free(name: str, effects: Effects | None = None, **more: Any) -> ToolSpec:
    return ToolSpec(name=name, effects=effects or Effects(), approval=None, **more)


def money_tools(ledger: Ledger) -> tuple[list[BaseTool], list[ToolSpec]]:
    """send_money (gated), note (an ungated effect), look (read-only)."""

    def send_money(to: str, amount: int) -> str:
        ledger.add(tool="send_money", to=to, amount=amount)
        return f"sent {amount} to {to}"

    def note(text: str) -> str:
        ledger.add(tool="note", text=text)
        return f"noted {text}"

    def look(text: str) -> str:
        ledger.add(tool="look", text=text)
        return f"saw {text}"

    tools = [
        tool_of(send_money, "send_money", SendMoney),
        tool_of(note, "note"),
        tool_of(look, "look"),
    ]
    return tools, [gated("send_money"), free("note"), free("look", Effects(read_only=True))]


@dataclass
class Room:
    """One agent, and everything a test looks at."""

    agent: Any
    model: Script
    ledger: Ledger
    executor: Executor
    approval: LangGraphApproval
    store: SqlStore
    saver: Any
    clock: Clock | None = None
    thread: Any = "thread-1"

    @property
    def config(self) -> dict[str, Any]:
        return {"configurable": {"thread_id": self.thread}}

    def on(self, thread: Any) -> Room:
        """The same agent on another thread."""
        return replace(self, thread=thread)

    async def run(self, given: Any, config: dict[str, Any] | None = None, **named: Any) -> Any:
        return await self.agent.ainvoke(given, config or self.config, **named)

    async def say(self, text: str = "pay", **named: Any) -> Any:
        return await self.run({"messages": [HumanMessage(text)]}, **named)

    async def resume(self, answers: Any, config: dict[str, Any] | None = None) -> Any:
        return await self.run(Command(resume=answers), config)

    async def asked(self) -> list[Interrupt]:
        """The open questions, in task order."""
        return open_questions(await self.agent.aget_state(self.config))

    async def question(self, text: str = "pay", **named: Any) -> Interrupt:
        """Say something and return the one question it leads to."""
        await self.say(text, **named)
        (asked,) = await self.asked()
        return asked

    def sign(self, asked: Interrupt, kind: Any = "approve", **more: Any) -> dict[str, Any]:
        return self.approval.resume_value(asked, ApprovalDecision(kind=kind, **more))

    async def decide(self, asked: Interrupt, kind: Any = "approve", **more: Any) -> Any:
        return await self.resume({asked.id: self.sign(asked, kind, **more)})

    async def messages(self) -> list[BaseMessage]:
        state = await self.agent.aget_state(self.config)
        return list(state.values.get("messages", []))

    async def results(self) -> dict[str, ToolMessage]:
        """Results by call id; each call has exactly one."""
        messages = await self.messages()
        paired(messages)
        return {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}

    async def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Bodies of the thread's audit events; of these kinds if any is named."""
        found = [
            json.loads(event.line)["body"] for event in await self.store.events(str(self.thread))
        ]
        return [body for body in found if not kinds or body["kind"] in kinds]

    async def verified(self) -> int:
        """The length of the thread's chain, which is whole."""
        thread = str(self.thread)
        links = await self.store.events(thread)
        (head,) = await self.store.heads(thread)
        assert list(verify_chain(links, head)) == []
        return len(links)

    async def status(self, call_id: str) -> list[str]:
        """States of the rows of one call."""
        found = []
        for message in await self.messages():
            if isinstance(message, AIMessage):
                rows = await self.store.of_message(str(self.thread), message.id or "")
                found += [str(row.status) for row in rows if row.tool_call_id == call_id]
        return found


def open_questions(state: Any) -> list[Interrupt]:
    return [asked for task in state.tasks if task.result is None for asked in task.interrupts]


def copy_thread(saver: InMemorySaver, source: str, target: str) -> None:
    """What threads.copy does: the same checkpoints, ids and all, under another thread id."""
    saver.storage[target] = deepcopy(saver.storage[source])
    for writes in [key for key in saver.writes if key[0] == source]:
        saver.writes[(target, *writes[1:])] = deepcopy(saver.writes[writes])
    for blob in [key for key in saver.blobs if key[0] == source]:
        saver.blobs[(target, *blob[1:])] = saver.blobs[blob]


def paired(messages: Iterable[BaseMessage]) -> None:
    """Every call has exactly one result, right after its message, and no result is an orphan."""
    open_now: Counter[str] = Counter()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert open_now[message.tool_call_id] == 1, f"result without call: {message!r}"
            del open_now[message.tool_call_id]
        else:
            assert not open_now, f"calls without result before {message!r}: {open_now}"
        if isinstance(message, AIMessage):
            ids = [c["id"] or "" for c in (*message.tool_calls, *message.invalid_tool_calls)]
            open_now = Counter(ids)
            assert all(ids), "a call without an id"
            assert len(set(ids)) == len(ids), "an id twice"
    assert not open_now, f"calls without result at the end: {open_now}"


def error_of(message: ToolMessage) -> dict[str, str]:
    """The error an error ToolMessage reports."""
    assert message.status == "error", message
    found: dict[str, str] = json.loads(str(message.content))["error"]
    return found


def pay(call_id: str | None = "c1", amount: int = 100, to: str = "bob") -> Any:
    return call("send_money", call_id, to=to, amount=amount)


class Rooms:
    """Builds rooms in one folder and closes their stores afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = Ledger(folder / "effects.jsonl")
        self._stores: list[SqlStore] = []
        self.stack = ExitStack()

    def store(self, name: str | None = None, clock: Clock | None = None) -> SqlStore:
        """A store in memory, or in a file of this name."""
        made = (
            MemoryStore(clock=clock)
            if name is None
            else open_store(f"sqlite:///{self.folder / name}", clock=clock)
        )
        self._stores.append(made)
        return made

    def __call__(
        self,
        *lines: Line,
        tools: Sequence[BaseTool] | None = None,
        specs: Sequence[ToolSpec] | None = None,
        store: SqlStore | str | None = None,
        saver: Any = None,
        on_invalid: Any = "ask",
        before: Sequence[Any] = (),
        after: Sequence[Any] = (),
        budgets: Budgets | None = None,
        policy: Policy | None = None,
        clock: Clock | None = None,
        keys: KeyRing = KEYS,
        thread: Any = "thread-1",
        middleware: dict[str, Any] | None = None,
        agent: dict[str, Any] | None = None,
        **executor: Any,
    ) -> Room:
        """Build an agent whose middleware is ``before``, ours, ``after``."""
        own_tools, own_specs = money_tools(self.ledger)
        if specs is None:
            specs = own_specs
        if tools is None:
            tools = own_tools
        else:
            known = {tool.name for tool in tools}
            named = {spec.name for spec in specs}
            tools = [*tools, *(t for t in own_tools if t.name in named - known)]
        if not isinstance(store, SqlStore):
            store = self.store(store, clock)
        named_clock: dict[str, Any] = {} if clock is None else {"clock": clock}
        approval = LangGraphApproval(keys, on_invalid=on_invalid, **named_clock)
        made = Executor(
            registry_of(tools, specs),
            store=store,
            approval=approval,
            budgets=budgets,
            policy=policy,
            **named_clock,
            **executor,
        )
        model = Script.of(*lines)
        if saver is None:
            saver = InMemorySaver()
        elif saver == "inherit":
            saver = None
        graph = create_agent(
            model,
            tools,
            middleware=[*before, AdapterMiddleware(made, **(middleware or {})), *after],
            checkpointer=saver,
            **(agent or {}),
        )
        return Room(
            agent=graph,
            model=model,
            ledger=self.ledger,
            executor=made,
            approval=approval,
            store=store,
            saver=saver,
            clock=clock,
            thread=thread,
        )

    def paying(self, *calls: Any, **named: Any) -> Room:
        """A room whose model sends money once."""
        return self(ai(*(calls or (pay(),))), **named)

    def close(self) -> None:
        self.stack.close()
        for store in self._stores:
            asyncio.run(store.aclose())
