"""A graph of one's own: a model node and a ToolNode under our wrapper, beside the rooms' ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from tests.support.room import KEYS, Rooms, money_tools
from tests.support.script import Line, Script

from adapter.core.policy import Policy
from adapter.langgraph import (
    LangGraphApproval,
    adapter_awrap_tool_call,
    adapter_wrap_tool_call,
    filter_tools,
)

ASK: dict[str, Any] = {"messages": [HumanMessage("pay")]}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "thread-1"}}


class Own:
    """A user's own graph whose ToolNode runs under a policy."""

    def __init__(
        self,
        rooms: Rooms,
        policy: Policy,
        *lines: Line,
        tools: Sequence[BaseTool] | None = None,
        saver: Any = None,
        asks: bool = True,
        node: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.ledger = rooms.ledger
        self.model = Script.of(*lines)
        self.tools = money_tools(rooms.ledger)[0] if tools is None else list(tools)
        self.store = options.pop("store", None) or rooms.store("adapter.db")
        self.approval = LangGraphApproval(KEYS, on_invalid="ask")
        options |= {"store": self.store, "approval": self.approval if asks else None}
        self.node = ToolNode(
            self.tools,
            wrap_tool_call=adapter_wrap_tool_call(policy, **options),
            awrap_tool_call=adapter_awrap_tool_call(policy, **options),
            **(node or {}),
        )
        self.offered = [tool.name for tool in filter_tools(self.tools, policy)]
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [self.model.invoke(state["messages"])]})
        graph.add_node("tools", self.node)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        self.graph: Any = graph.compile(
            checkpointer=InMemorySaver() if saver is None else saver or None
        )

    async def run(self, given: Any = ASK, how: str = "async", config: Any = CONFIG) -> Any:
        if how == "async":
            return await self.graph.ainvoke(given, config)
        return self.graph.invoke(given, config)
