"""The same agent over every front end: the middleware, our tool node, a ToolNode under our wrapper.

Sync and async. A test is written once and names the front ends it is true for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Interrupt
from tests.support.room import KEYS, Clock, Room, Rooms, money_tools
from tests.support.script import Line, Script
from typing_extensions import override

from adapter import Budgets, Executor, ToolSpec
from adapter.core.policy import Policy
from adapter.langgraph import (
    LangGraphApproval,
    PolicyGate,
    adapter_awrap_tool_call,
    adapter_wrap_tool_call,
    mend_node,
    registry_of,
    tool_node,
)
from adapter.stores import SqlStore

KINDS = ("middleware", "tool_node", "wrapper")
OWN = ("tool_node", "wrapper")
"""Those whose graph is built by hand."""


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """One way of putting the adapter around tools, and of running the graph."""

    kind: str
    how: str


def over(*kinds: str, how: Sequence[str] = ("async", "sync")) -> pytest.MarkDecorator:
    """Run a test over front ends; without names, over all of them."""
    found = [
        pytest.param(FrontEnd(kind, way), id=f"{kind}-{way}")
        for kind in kinds or KINDS
        for way in how
    ]
    return pytest.mark.parametrize("end", found)


EVERYWHERE = over()


@dataclass
class Desk(Room):
    """A room that runs its graph the way its front end does."""

    how: str = "async"

    @override
    async def run(self, given: Any, config: dict[str, Any] | None = None, **named: Any) -> Any:
        if self.how == "async":
            return await self.agent.ainvoke(given, config or self.config, **named)
        return self.agent.invoke(given, config or self.config, **named)

    async def answered(
        self, kinds: Sequence[str] | Callable[[Interrupt], str] = (), **more: Any
    ) -> list[str]:
        """Answer open questions one by one until none is left; return the calls asked about.

        Args:
            kinds: Decisions in the order the questions come, or by question; then approvals.
            more: Further fields of every decision.
        """
        left = [] if callable(kinds) else list(kinds)
        seen: list[str] = []
        for _ in range(50):
            open_now = await self.asked()
            if not open_now:
                return seen
            question = min(open_now, key=lambda one: str(one.value["request"]["call_id"]))
            kind = kinds(question) if callable(kinds) else left.pop(0) if left else "approve"
            seen.append(question.value["request"]["call_id"])
            await self.decide(question, kind, **more)
        raise AssertionError(seen)


def desk(
    rooms: Rooms,
    end: FrontEnd,
    *lines: Line,
    tools: Sequence[BaseTool] | None = None,
    specs: Sequence[ToolSpec] | None = None,
    store: SqlStore | str | None = None,
    saver: Any = None,
    budgets: Budgets | None = None,
    policy: Policy | None = None,
    clock: Clock | None = None,
    thread: Any = "thread-1",
    failure: Any = "message",
    model: Script | None = None,
    node: dict[str, Any] | None = None,
    compiled: dict[str, Any] | None = None,
    handle: Any = False,
    state: Any = MessagesState,
    **executor: Any,
) -> Desk:
    """Build the agent.

    Args:
        rooms: Where its effects are counted and its store is closed.
        end: The front end.
        lines: What the model says.
        tools: Beside the money tools that ``specs`` name; None for the money tools.
        specs: One for each tool.
        store: Or the name of a file; None is in memory.
        saver: The checkpointer; ``inherit`` takes that of the graph around.
        budgets: Limits.
        policy: Rules over all tools.
        clock: The adapter's.
        thread: The thread's id.
        failure: ``on_tool_failure``.
        model: Instead of ``lines``.
        node: Options of a hand-built graph's tool node, such as ``retry_policy``.
        compiled: Options of compiling a hand-built graph, such as ``cache``.
        handle: A plain ToolNode's ``handle_tool_errors``.
        state: A hand-built graph's.
        executor: Further arguments of the Executor.
    """
    if specs is not None and tools is None:
        tools = []
    if end.kind == "middleware":
        room = rooms(
            *lines,
            tools=tools,
            specs=specs,
            store=store,
            saver=saver,
            budgets=budgets,
            policy=policy,
            clock=clock,
            thread=thread,
            middleware={"on_tool_failure": failure},
            **executor,
        )
        made = Desk(**vars(room), how=end.how)
        if model is not None:
            raise AssertionError("a model of one's own is for hand-built graphs")
        return made
    own_tools, own_specs = money_tools(rooms.ledger)
    specs = own_specs if specs is None else list(specs)
    given = [] if tools is None else list(tools)
    named = {spec.name for spec in specs} - {tool.name for tool in given}
    listed = [*given, *(tool for tool in own_tools if tool.name in named)]
    if not isinstance(store, SqlStore):
        store = rooms.store(store, clock)
    timed: dict[str, Any] = {} if clock is None else {"clock": clock}
    approval = LangGraphApproval(KEYS, on_invalid="ask", **timed)
    options: dict[str, Any] = {
        "store": store,
        "approval": approval,
        "budgets": budgets,
        **timed,
        **executor,
    }
    governed: Any = None
    tool_step: Any
    if end.kind == "tool_node":
        registry = registry_of(listed, specs)
        governed = Executor(registry, policy=policy, **options)
        tool_step = tool_node(registry, executor=governed, on_tool_failure=failure)
    else:
        rules = policy or Policy(ghost="refuse")
        options |= {"specs": specs, "on_tool_failure": failure}
        tool_step = ToolNode(
            listed,
            wrap_tool_call=adapter_wrap_tool_call(rules, **options),
            awrap_tool_call=adapter_awrap_tool_call(rules, **options),
            handle_tool_errors=handle,
        )
        governed = PolicyGate(rules, **options).executor(listed)
    said = model or Script.of(*lines)
    graph: Any = StateGraph(state)
    graph.add_node(mend_node(governed))
    graph.add_node("model", _speaks(said))
    graph.add_node("tools", tool_step, **(node or {}))
    graph.add_edge(START, "mend")
    graph.add_edge("mend", "model")
    graph.add_conditional_edges("model", _next, ["tools", END])
    graph.add_edge("tools", "mend")
    if saver is None:
        saver = InMemorySaver()
    return Desk(
        agent=graph.compile(checkpointer=None if saver == "inherit" else saver, **(compiled or {})),
        model=said,
        ledger=rooms.ledger,
        executor=governed,
        approval=approval,
        store=store,
        saver=saver,
        clock=clock,
        thread=thread,
        how=end.how,
    )


def _speaks(model: Script) -> Any:
    def speak(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    return speak


def _next(state: Any) -> str:
    last = state["messages"][-1]
    calls = isinstance(last, AIMessage) and (last.tool_calls or last.invalid_tool_calls)
    return "tools" if calls else END


async def eventually(true: Callable[[], Any]) -> None:
    """Wait until something is true that happens beside the test; ten seconds at most."""
    for _ in range(2000):
        found = true()
        if await found if isawaitable(found) else found:
            return
        await asyncio.sleep(0.005)
    msg = "it never came true"
    raise AssertionError(msg)
