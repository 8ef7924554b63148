"""Commands of tools with effects, whose messages are under any key, and whose Sends are kept."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send
from tests.support.room import KEYS, free, gated
from tests.support.toolkit import CONFIG, YES, Bench, asked, error_kind, of, results
from typing_extensions import TypedDict

from adapter import ApprovalRule, Effects, Policy
from adapter.langgraph import (
    LangGraphApproval,
    adapter_awrap_tool_call,
    adapter_wrap_tool_call,
    tool_node,
)

pytestmark = pytest.mark.anyio

FRONTS = pytest.mark.parametrize("front", ["tool_node", "wrapper"])
HOW = pytest.mark.parametrize("how", ["sync", "async"])


class State(TypedDict, total=False):
    msgs: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[AnyMessage], operator.add]
    heard: Annotated[list[str], operator.add]
    last: Any


@dataclass
class Front:
    """A node over one gated tool, and the port that signs for it."""

    node: Any
    port: Any

    def answer(self, question: Any) -> Command[Any]:
        return Command(resume={question.id: self.port.resume_value(question, YES)})


def front_of(bench: Bench, front: str, made: Callable[..., Any], store: str = "one") -> Front:
    tool = StructuredTool.from_function(made, name="act", description="Act.")
    port = LangGraphApproval(KEYS)
    if front == "tool_node":
        shop = bench.shop(tools=[tool], specs=[gated("act")], port=port, store=bench.store(store))
        return Front(tool_node(shop.registry, executor=shop.executor, messages_key="msgs"), port)
    policy = Policy(escalate={"act": ApprovalRule(name="always", reason="It acts.")})
    options: Any = {"store": bench.store(store), "approval": port, "messages_key": "msgs"}
    node = ToolNode(
        [tool],
        messages_key="msgs",
        wrap_tool_call=adapter_wrap_tool_call(policy, **options),
        awrap_tool_call=adapter_awrap_tool_call(policy, **options),
    )
    return Front(node, port)


def desk(given: Any) -> dict[str, Any]:
    return {"heard": [f"{given['text']}: {given['told'].content}, {given['all'][0].content}"]}


def graph(node: Any) -> Any:
    made: Any = StateGraph(State)
    made.add_node("tools", node)
    made.add_node("desk", desk)
    made.add_edge(START, "tools")
    return made


def asking(*calls: Any) -> dict[str, Any]:
    return {"msgs": [HumanMessage("h", id="h"), AIMessage("", tool_calls=list(calls), id="ai")]}


TWO = asking(of("act", "c1", text="a"), of("act", "c2", text="b"))


async def run(app: Any, what: Any, how: str) -> Any:
    if how == "sync":
        return await asyncio.to_thread(app.invoke, what, CONFIG)
    return await app.ainvoke(what, CONFIG)


async def through(app: Any, front: Front, how: str, given: Any = TWO) -> Any:
    """Run, and answer every question; the first call's result is then given from its record."""
    out = await run(app, given, how)
    while questions := await asked(app):
        out = await run(app, front.answer(questions[0]), how)
    return out


@FRONTS
@HOW
@pytest.mark.parametrize("several", [False, True], ids=["one Send", "Sends"])
async def test_messages_under_any_key_and_sends_come_back_over_a_pause(
    bench: Bench, front: str, how: str, several: bool
) -> None:
    def act(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        bench.ledger.add(tool="act", text=text)
        told = ToolMessage(f"did {text}", tool_call_id=tool_call_id)
        said = AIMessage(f"said {text}", id=f"said-{text}")
        send = Send("desk", {"text": text, "told": told, "all": [said, told]})
        update: dict[str, Any] = {"msgs": [told], "log": [said]}
        if text == "a":
            update["last"] = said
        return Command(update=update, goto=[send] if several else send)

    made = front_of(bench, front, act)
    app = graph(made.node).compile(checkpointer=InMemorySaver())
    out = await through(app, made, how)
    assert bench.ran("act") == 2
    assert [message.content for message in results(out, "msgs")] == ["did a", "did b"]
    assert [message.content for message in out["log"]] == ["said a", "said b"]
    assert out["last"] == AIMessage("said a", id="said-a")
    assert sorted(out["heard"]) == ["a: did a, said a", "b: did b, said b"]


@FRONTS
@HOW
async def test_handoffs_to_a_parent_graph_are_all_followed_over_a_pause(
    bench: Bench, front: str, how: str
) -> None:
    def act(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        bench.ledger.add(tool="act", text=text)
        told = ToolMessage(f"did {text}", tool_call_id=tool_call_id)
        arg = {"text": text, "told": told, "all": [told]}
        return Command(graph=Command.PARENT, goto=[Send("desk", arg)])

    made = front_of(bench, front, act)
    app = graph(graph(made.node).compile()).compile(checkpointer=InMemorySaver())
    out = await through(app, made, how)
    assert bench.ran("act") == 2
    assert sorted(out["heard"]) == ["a: did a, did a", "b: did b, did b"]


@FRONTS
@HOW
async def test_one_send_to_a_parent_keeps_its_update(bench: Bench, front: str, how: str) -> None:
    def act(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        bench.ledger.add(tool="act", text=text)
        told = ToolMessage(f"did {text}", tool_call_id=tool_call_id)
        send = Send("desk", {"text": text, "told": told, "all": [told]})
        return Command(graph=Command.PARENT, goto=send, update={"msgs": [told]})

    made = front_of(bench, front, act)
    app = graph(graph(made.node).compile()).compile(checkpointer=InMemorySaver())
    out = await through(app, made, how, asking(of("act", "c1", text="a")))
    assert bench.ran("act") == 1
    assert [message.content for message in results(out, "msgs")] == ["did a"]
    assert out["heard"] == ["a: did a, did a"]


@FRONTS
async def test_another_process_gives_the_recorded_command(bench: Bench, front: str) -> None:
    def act(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        bench.ledger.add(tool="act", text=text)
        told = ToolMessage(f"did {text}", tool_call_id=tool_call_id)
        send = Send("desk", {"text": text, "told": told, "all": [told]})
        return Command(update={"msgs": [told], "log": [told]}, goto=send)

    saver, out = InMemorySaver(), dict[str, Any]()
    for left in (1, 1, 0):
        made = front_of(bench, front, act)
        app = graph(made.node).compile(checkpointer=saver)
        questions = await asked(app)
        out = await run(app, made.answer(questions[0]) if questions else TWO, "async")
        assert len(await asked(app)) == left
    assert bench.ran("act") == 2
    assert [message.content for message in results(out, "msgs")] == ["did a", "did b"]
    assert sorted(out["heard"]) == ["a: did a, did a", "b: did b, did b"]


async def test_a_second_call_of_one_run_gets_the_message_that_is_under_another_key(
    bench: Bench,
) -> None:
    def step(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        bench.ledger.add(tool="step", text=text)
        told = ToolMessage(f"stepped {text}", tool_call_id=tool_call_id)
        return Command(update={"msgs": [told], "heard": ["once"]})

    tool = StructuredTool.from_function(step, description="Step.")
    shop = bench.shop(tools=[tool], specs=[free("step", once_per_run=True)])
    node = tool_node(shop.registry, executor=shop.executor, messages_key="msgs")
    app = graph(node).compile(checkpointer=InMemorySaver())
    calls = [of("step", "c1", text="a"), of("step", "c2", text="a")]
    out = await app.ainvoke(asking(*calls), CONFIG)
    assert bench.ran("step") == 1
    assert out["heard"] == ["once"]
    found = {message.tool_call_id: message.content for message in results(out, "msgs")}
    assert found == {"c1": "stepped a", "c2": "stepped a"}


@HOW
@pytest.mark.parametrize("told", [True, False], ids=["with the key", "without it"])
async def test_a_wrapper_reads_the_messages_where_it_is_told_to(
    bench: Bench, how: str, told: bool
) -> None:
    def act(text: str) -> str:
        bench.ledger.add(tool="act", text=text)
        return f"did {text}"

    policy = Policy(effects={"*": Effects(read_only=True)})
    options: Any = {"store": bench.store()} | ({"messages_key": "msgs"} if told else {})
    node = ToolNode(
        [StructuredTool.from_function(act, description="Act.")],
        messages_key="msgs",
        wrap_tool_call=adapter_wrap_tool_call(policy, **options),
        awrap_tool_call=adapter_awrap_tool_call(policy, **options),
    )
    app = graph(node).compile(checkpointer=InMemorySaver())
    first, second = results(await run(app, TWO, how), "msgs")
    assert bench.ran("act") == (2 if told else 0)
    if told:
        assert (first.content, second.content) == ("did a", "did b")
    else:
        assert error_kind(first) == error_kind(second) == "ToolArgsInvalid"
