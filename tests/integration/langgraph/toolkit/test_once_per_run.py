"""``ToolSpec.once_per_run``: of the same calls in a run one runs and asks; all get its result.

A run is a user's turn, however often it is resumed; where there are no turns, the thread.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from tests.support.front_ends import EVERYWHERE, FrontEnd, desk, eventually, over
from tests.support.graphs import ASK, Own
from tests.support.room import KEYS, Rooms, copy_thread, error_of, free, gated, pay, tool_of
from tests.support.script import ai, call
from tests.support.toolkit import CONFIG, Bench, answered, asked, direct, graph_of
from typing_extensions import TypedDict

from adapter import (
    ApprovalDecision,
    ApprovalDenied,
    ApprovalPending,
    Effects,
    Merge,
    Policy,
    ToolError,
    ToolUsageError,
)
from adapter.core.deferred import DeferredApproval
from adapter.langgraph import fan_out, one_use, reducer, tool_task

pytestmark = pytest.mark.anyio

READ = Effects(read_only=True)


def specs(**more: Any) -> list[Any]:
    return [
        gated("send_money", once_per_run=True, **more),
        free("note", once_per_run=True, **more),
        free("look", READ, once_per_run=True, **more),
    ]


class Waits:
    """Counts how often a call waited for another one."""

    def __init__(self) -> None:
        self.made = 0

    async def wait(self, seconds: float) -> None:
        self.made += 1
        await asyncio.sleep(seconds)


async def shortly(seconds: float) -> None:
    """Wait for a neighbour that never comes as often as ever, and not as long."""
    await asyncio.sleep(seconds / 20)


def twice(tool: str, first: str = "a1", second: str = "a2", text: str = "x") -> Any:
    return ai(call(tool, first, text=text), call(tool, second, text=text))


@EVERYWHERE
@pytest.mark.parametrize("tool", ["note", "look"])
async def test_the_same_call_twice_in_a_message_has_one_effect_and_two_results(
    rooms: Rooms, end: FrontEnd, tool: str
) -> None:
    room = desk(rooms, end, twice(tool), specs=specs())
    await room.say()
    assert len(rooms.ledger.of(tool)) == 1
    found = await room.results()
    assert found["a1"].content == found["a2"].content
    assert found["a1"].id != found["a2"].id
    assert {m.status for m in found.values()} == {"success"}


@EVERYWHERE
@pytest.mark.parametrize("tool", ["note", "look"])
async def test_without_the_declaration_the_same_call_twice_has_two_effects(
    rooms: Rooms, end: FrontEnd, tool: str
) -> None:
    room = desk(rooms, end, twice(tool))
    await room.say()
    assert len(rooms.ledger.of(tool)) == 2


@EVERYWHERE
@pytest.mark.parametrize("tool", ["note", "look"])
async def test_a_later_call_of_the_turn_gets_the_first_result_and_the_next_turn_runs(
    rooms: Rooms, end: FrontEnd, tool: str
) -> None:
    lines = [ai(call(tool, f"a{n}", text="x")) for n in range(2)]
    room = desk(rooms, end, *lines, ai(text="done"), specs=specs())
    await room.say()
    assert len(rooms.ledger.of(tool)) == 1
    found = await room.results()
    assert found["a0"].content == found["a1"].content
    room.model.then(ai(call(tool, "a2", text="x")), ai(text="done"))
    await room.say("again")
    assert len(rooms.ledger.of(tool)) == 2


@EVERYWHERE
async def test_other_arguments_and_other_tools_run(rooms: Rooms, end: FrontEnd) -> None:
    calls = [
        call("note", "a1", text="x"),
        call("note", "a2", text="y"),
        call("look", "a3", text="x"),
    ]
    await desk(rooms, end, ai(*calls), specs=specs()).say()
    assert len(rooms.ledger.of("note")) == 2
    assert len(rooms.ledger.of("look")) == 1


@EVERYWHERE
@pytest.mark.parametrize("delivery", ["keyed", "bare"])
async def test_the_same_gated_call_twice_is_one_question_and_one_effect(
    rooms: Rooms, end: FrontEnd, delivery: str
) -> None:
    room = desk(rooms, end, ai(pay("p1"), pay("p2")), specs=specs())
    await room.say()
    (question,) = await room.asked()
    assert rooms.ledger.paid == []
    value = room.sign(question)
    await room.resume({question.id: value} if delivery == "keyed" else value)
    assert await room.asked() == []
    assert rooms.ledger.paid == [100]
    found = await room.results()
    assert found["p1"].content == found["p2"].content == "sent 100 to bob"
    assert [event["call_id"] for event in await room.events("requested")] == [
        question.value["request"]["call_id"]
    ]


@EVERYWHERE
async def test_a_bad_answer_to_the_one_question_leaves_one_question(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = desk(rooms, end, ai(pay("p1"), pay("p2")), specs=specs(), sleep=shortly)
    await room.say()
    (question,) = await room.asked()
    await room.resume({question.id: {"approved": True}})
    assert rooms.ledger.paid == []
    (again,) = await room.asked()
    assert again.id == question.id
    await room.decide(again)
    assert rooms.ledger.paid == [100]
    assert set(await room.results()) == {"p1", "p2"}


@EVERYWHERE
async def test_a_gated_call_later_in_the_turn_asks_no_second_time_also_as_another_platform_run(
    rooms: Rooms, end: FrontEnd
) -> None:
    lines = [ai(pay("p1")), ai(pay("p2"), pay("p3", amount=7)), ai(pay("p4")), ai(text="done")]
    room = desk(rooms, end, *lines, specs=specs())

    def as_run() -> dict[str, Any]:
        return {**room.config, "run_id": uuid4()}

    await room.run({"messages": [HumanMessage("pay")]}, as_run())
    (first,) = await room.asked()
    await room.resume({first.id: room.sign(first)}, as_run())
    (second,) = await room.asked()
    assert second.value["request"]["arguments"]["amount"] == 7
    await room.resume({second.id: room.sign(second)}, as_run())
    assert await room.asked() == []
    assert rooms.ledger.paid == [100, 7]
    assert len({(await room.results())[one].content for one in ("p1", "p2", "p4")}) == 1


@EVERYWHERE
async def test_a_refused_call_is_refused_again_without_a_question(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = desk(rooms, end, ai(pay("p1")), ai(pay("p2")), ai(text="done"), specs=specs())
    await room.say()
    (question,) = await room.asked()
    await room.decide(question, "reject", reason="no")
    assert await room.asked() == []
    assert rooms.ledger.paid == []
    found = await room.results()
    assert [error_of(found[one])["kind"] for one in ("p1", "p2")] == ["ApprovalDenied"] * 2


@EVERYWHERE
async def test_an_edited_call_is_the_first_result_for_what_the_model_wrote(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = desk(rooms, end, ai(pay("p1")), ai(pay("p2")), ai(text="done"), specs=specs())
    await room.say()
    (question,) = await room.asked()
    await room.decide(question, "edit", edited_args={"to": "bob", "amount": 60})
    assert await room.asked() == []
    assert rooms.ledger.paid == [60]
    assert (await room.results())["p2"].content == "sent 60 to bob"


@EVERYWHERE
@pytest.mark.parametrize(
    ("error", "kind"), [(ToolError("sold out"), "ToolError"), (ValueError("x"), "ToolFailed")]
)
async def test_a_failed_first_call_is_the_result_and_is_not_tried_again(
    rooms: Rooms, end: FrontEnd, error: Exception, kind: str
) -> None:
    def fail(text: str) -> str:
        rooms.ledger.add(tool="fail", text=text)
        raise error

    lines = [twice("fail"), ai(call("fail", "a3", text="x")), ai(text="done")]
    spec = free("fail", once_per_run=True)
    room = desk(rooms, end, *lines, tools=[tool_of(fail, "fail")], specs=[spec])
    await room.say()
    assert len(rooms.ledger.of("fail")) == 1
    errors = [error_of(message) for message in (await room.results()).values()]
    assert [found["kind"] for found in errors] == [kind] * 3
    assert len({found["message"] for found in errors}) == 1


@EVERYWHERE
async def test_a_call_of_once_per_run_spends_one_call_of_the_budget(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = desk(rooms, end, twice("note"), specs=specs())
    await room.say()
    messages = await room.messages()
    scope = f"turn:thread-1:{messages[0].id}:tool_calls"
    assert (await room.store.charge([], show=[scope])).used[scope] == 1
    (started,) = await room.events("started")
    (replayed,) = await room.events("replayed")
    assert {started["call_id"], replayed["call_id"]} == {"a1", "a2"}


@over(how=("async",))
async def test_while_the_first_call_runs_the_others_wait_for_it(
    rooms: Rooms, end: FrontEnd
) -> None:
    begun, free_to_end = asyncio.Event(), asyncio.Event()

    async def slow(text: str) -> str:
        rooms.ledger.add(tool="slow", text=text)
        begun.set()
        await free_to_end.wait()
        return f"slow {text}"

    waits = Waits()
    spec = free("slow", once_per_run=True)
    tools = [tool_of(slow, "slow")]
    room = desk(rooms, end, twice("slow"), tools=tools, specs=[spec], sleep=waits.wait)
    running = asyncio.create_task(room.say())
    await asyncio.wait_for(begun.wait(), 10)
    await eventually(lambda: waits.made > 2)  # the other call looked, and waits on
    assert not running.done()
    free_to_end.set()
    await asyncio.wait_for(running, 10)
    assert len(rooms.ledger.of("slow")) == 1
    assert [m.content for m in (await room.results()).values()] == ["slow x"] * 2


@EVERYWHERE
@pytest.mark.parametrize("delivery", ["keyed", "bare"])
async def test_a_tool_that_asks_by_itself_asks_once(
    rooms: Rooms, end: FrontEnd, delivery: str
) -> None:
    async def chat(text: str) -> str:
        said = interrupt({"question": text})
        rooms.ledger.add(tool="chat", text=text)
        return f"{text} {said}"

    def chat_sync(text: str) -> str:
        said = interrupt({"question": text})
        rooms.ledger.add(tool="chat", text=text)
        return f"{text} {said}"

    body = chat if end.how == "async" else chat_sync
    spec = free("chat", once_per_run=True)
    room = desk(rooms, end, twice("chat"), tools=[tool_of(body, "chat")], specs=[spec])
    await room.say()
    (question,) = await room.asked()
    assert question.value == {"question": "x"}
    await room.resume({question.id: "me"} if delivery == "keyed" else "me")
    assert await room.asked() == []
    assert [m.content for m in (await room.results()).values()] == ["x me"] * 2
    assert len(rooms.ledger.of("chat")) == 1


@EVERYWHERE
async def test_defaults_filled_in_are_the_same_arguments(rooms: Rooms, end: FrontEnd) -> None:
    def order(item: str, count: int = 1) -> str:
        rooms.ledger.add(tool="order", item=item)
        return f"{count} {item}"

    spec = free("order", once_per_run=True)
    calls = [call("order", "o1", item="pen"), call("order", "o2", item="pen", count=1)]
    tools = [StructuredTool.from_function(order, description="Order.")]
    room = desk(rooms, end, ai(*calls), tools=tools, specs=[spec])
    await room.say()
    assert len(rooms.ledger.of("order")) == 1


class Counting(MessagesState):
    steps: Annotated[int, reducer(Merge.sum)]


@over("tool_node", "wrapper")
async def test_a_command_writes_its_update_once_and_the_second_call_gets_its_message(
    rooms: Rooms, end: FrontEnd
) -> None:
    def step(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Step."""
        rooms.ledger.add(tool="step", text=text)
        told = ToolMessage(f"stepped {text}", tool_call_id=tool_call_id)
        return Command(update={"steps": 1, "messages": [told]})

    spec = free("step", once_per_run=True)
    tools = [StructuredTool.from_function(step)]
    room = desk(rooms, end, twice("step"), tools=tools, specs=[spec], state=Counting)
    ended = await room.say()
    assert len(rooms.ledger.of("step")) == 1
    assert ended["steps"] == 1
    assert [m.content for m in (await room.results()).values()] == ["stepped x"] * 2


@EVERYWHERE
async def test_another_process_on_the_same_store_gives_the_first_result(
    rooms: Rooms, end: FrontEnd
) -> None:
    saver = InMemorySaver()
    first = desk(rooms, end, ai(pay("p1")), specs=specs(), store="one.db", saver=saver)
    await first.say()
    (question,) = await first.asked()
    later = desk(
        rooms, end, ai(pay("p2")), ai(text="done"), specs=specs(), store="one.db", saver=saver
    )
    await later.decide(question)
    assert await later.asked() == []
    assert rooms.ledger.paid == [100]
    assert len(await later.results()) == 2


@EVERYWHERE
async def test_a_copied_thread_is_another_run(rooms: Rooms, end: FrontEnd) -> None:
    room = desk(rooms, end, ai(call("note", "n1", text="x")), specs=specs())
    await room.say()
    copy_thread(room.saver, "thread-1", "thread-2")
    room.model.then(ai(call("note", "n2", text="x")), ai(text="done"))
    state = await room.agent.aget_state(room.config)
    there = room.on("thread-2")
    await there.agent.aupdate_state(there.config, {"messages": []}, as_node="tools")
    await there.run(None)
    assert state.next == ()
    assert len(rooms.ledger.of("note")) == 2


@EVERYWHERE
async def test_a_fork_within_the_turn_asks_where_nobody_answered_and_runs_once(
    rooms: Rooms, end: FrontEnd
) -> None:
    room = desk(rooms, end, ai(pay("p1")), specs=specs(), sleep=shortly)
    await room.say()
    (question,) = await room.asked()
    history = [one async for one in room.agent.aget_state_history(room.config)]
    before = next(one for one in history if one.next and "tools" not in one.next)
    room.model.then(ai(pay("p1")), ai(text="done"))
    await room.run(None, before.config)
    (again,) = await room.asked()
    assert again.id != question.id
    await room.decide(again)
    assert rooms.ledger.paid == [100]
    room.model.then(ai(pay("p9")), ai(text="done"))
    await room.run(None, before.config)
    assert await room.asked() == []
    assert rooms.ledger.paid == [100]
    assert (await room.results())["p9"].content == "sent 100 to bob"


# ------------------------------------------------------------------ graphs without messages


class State(TypedDict, total=False):
    items: list[Any]
    out: Annotated[list[Any], reducer(Merge.append)]


def once_shop(bench: Bench, **more: Any) -> Any:
    def stamp(text: str) -> str:
        bench.ledger.add(tool="stamp", text=text)
        return f"stamped {text}"

    def sell(text: str) -> str:
        bench.ledger.add(tool="sell", text=text)
        return f"sold {text}"

    tools = [tool_of(stamp, "stamp"), tool_of(sell, "sell")]
    own = [free("stamp", once_per_run=True), gated("sell", once_per_run=True)]
    return bench.shop(tools=tools, specs=own, **more)


def fanned(shop: Any, tool: str) -> Any:
    graph: Any = StateGraph(State)
    graph.add_node("plan", lambda state: {})
    graph.add_node(tool_task(shop.registry.get(tool), executor=shop.executor, into="out"))
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", fan_out(tool, "items"), [tool])
    return graph.compile(checkpointer=InMemorySaver())


SAME = {"items": [{"text": "x"}, {"text": "x"}, {"text": "y"}]}


@pytest.mark.parametrize("how", ["async", "sync"])
async def test_tool_tasks_of_the_same_item_have_one_effect(bench: Bench, how: str) -> None:
    app = fanned(once_shop(bench), "stamp")
    if how == "async":
        out = await app.ainvoke(SAME, CONFIG)
    else:
        out = await asyncio.to_thread(app.invoke, SAME, CONFIG)
    assert out["out"] == ["stamped x", "stamped x", "stamped y"]
    assert bench.ran("stamp") == 2


async def test_tool_tasks_of_the_same_gated_item_are_one_question(bench: Bench) -> None:
    shop = once_shop(bench)
    app = fanned(shop, "sell")
    await app.ainvoke(SAME, CONFIG)
    questions = await asked(app, CONFIG)
    assert sorted(q.value["request"]["arguments"]["text"] for q in questions) == ["x", "y"]
    out: Any = None
    for question in questions:
        out = await app.ainvoke(shop.answer(question), CONFIG)
    assert out["out"] == ["sold x", "sold x", "sold y"]
    assert bench.ran("sell") == 2


async def test_in_a_one_use_node_the_second_call_gets_the_first_result(bench: Bench) -> None:
    shop = once_shop(bench)

    async def node(state: State) -> dict[str, Any]:
        found = [
            await shop.executor.run(direct(tool, f"{tool}-{n}", text="x"))
            for tool in ("stamp", "sell")
            for n in range(2)
        ]
        return {"out": found}

    app = graph_of(one_use(node), schema=State)
    await app.ainvoke({"items": []}, CONFIG)
    out = await app.ainvoke(shop.answer((await asked(app, CONFIG))[0]), CONFIG)
    assert out["out"] == ["stamped x", "stamped x", "sold x", "sold x"]
    assert (bench.ran("stamp"), bench.ran("sell")) == (1, 1)


async def test_two_one_use_nodes_of_a_step_share_one_effect(bench: Bench) -> None:
    shop = once_shop(bench)
    graph: Any = StateGraph(State)
    for name in ("left", "right"):

        async def node(state: State, name: str = name) -> dict[str, Any]:
            return {"out": [await shop.executor.run(direct("sell", name, text="x"))]}

        graph.add_node(name, one_use(node))
        graph.add_edge(START, name)
    app = graph.compile(checkpointer=InMemorySaver())
    await app.ainvoke({"items": []}, CONFIG)
    for question in await asked(app, CONFIG):
        await app.ainvoke(shop.answer(question), CONFIG)
        if not await asked(app, CONFIG):
            break
    state = await app.aget_state(CONFIG)
    assert state.values["out"] == ["sold x", "sold x"]
    assert bench.ran("sell") == 1


async def test_without_turns_a_thread_is_one_run(bench: Bench) -> None:
    app = fanned(once_shop(bench), "stamp")
    await app.ainvoke(SAME, CONFIG)
    await app.ainvoke(SAME, CONFIG)
    assert bench.ran("stamp") == 2
    await app.ainvoke(SAME, {"configurable": {"thread_id": "another"}})
    assert bench.ran("stamp") == 4


async def test_with_a_deferred_port_one_record_serves_both_calls(bench: Bench) -> None:
    store = bench.store("deferred")
    port = DeferredApproval(store, KEYS)
    shop = once_shop(bench, store=store, port=port)
    app = fanned(shop, "sell")
    with pytest.raises(ApprovalPending):
        await app.ainvoke({"items": SAME["items"][:2]}, CONFIG)
    (row,) = await port.pending()
    await port.record(row, ApprovalDecision(approved=True))
    out = await app.ainvoke(None, CONFIG)
    assert out["out"] == ["sold x", "sold x"]
    assert bench.ran("sell") == 1


async def test_a_denied_call_raises_in_both_places_of_a_node(bench: Bench) -> None:
    shop = once_shop(bench)

    async def node(state: State) -> dict[str, Any]:
        told = []
        for name in ("one", "two"):
            try:
                await shop.executor.run(direct("sell", name, text="x"))
            except ApprovalDenied as error:
                told.append(error.kind)
        return {"out": told}

    app = graph_of(one_use(node), schema=State)
    await app.ainvoke({"items": []}, CONFIG)
    out = await answered(app, shop, ApprovalDecision(approved=False, reason="no"))
    assert out["out"] == ["ApprovalDenied", "ApprovalDenied"]
    assert bench.ran("sell") == 0


async def test_arguments_that_are_no_json_are_refused(bench: Bench) -> None:
    def save(path: Path) -> str:
        bench.ledger.add(tool="save", path=str(path))
        return "saved"

    tools = [StructuredTool.from_function(save, description="Save.")]
    shop = bench.shop(tools=tools, specs=[free("save", once_per_run=True)])

    async def node(state: State) -> dict[str, Any]:
        return {"out": [await shop.executor.run(direct("save", "s1", path=state["items"][0]))]}

    app = graph_of(one_use(node), schema=State)
    with pytest.raises(ToolUsageError, match="once_per_run"):
        await app.ainvoke({"items": [Path("/tmp/x")]}, CONFIG)
    assert bench.ran("save") == 0
    assert (await app.ainvoke({"items": ["/tmp/x"]}, CONFIG))["out"] == ["saved"]


@pytest.mark.parametrize("how", ["async", "sync"])
@pytest.mark.parametrize("says", [True, False])
async def test_the_policys_approver_is_asked_once(rooms: Rooms, how: str, says: bool) -> None:
    seen: list[Any] = []
    waits = Waits()

    async def approver(escalation: Any) -> bool:
        seen.append(escalation)
        await eventually(lambda: waits.made)  # the other call of the message came meanwhile
        return says

    policy = Policy(escalate={"note": "x"}, approver=approver)
    lines = [twice("note"), ai(call("note", "a3", text="x")), ai(text="done")]
    spec = free("note", once_per_run=True)
    own = Own(rooms, policy, *lines, asks=False, specs=[spec], sleep=waits.wait)
    ended = (
        await own.run(ASK)
        if how == "async"
        else await asyncio.to_thread(own.graph.invoke, ASK, CONFIG)
    )
    assert len(seen) == 1
    assert len(rooms.ledger.of("note")) == (1 if says else 0)
    found = [m for m in ended["messages"] if isinstance(m, ToolMessage)]
    assert [m.tool_call_id for m in found] == ["a1", "a2", "a3"]
    assert len({str(m.content) for m in found}) == 1
