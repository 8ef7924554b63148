"""A policy over a user's own ToolNode and over create_agent: refuse, ask, count, strip, mask."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from tests.support.graphs import ASK, CONFIG, Own
from tests.support.room import KEYS, Rooms, error_of, open_questions, paired, pay, tool_of
from tests.support.script import Script, ai, call
from typing_extensions import override

from adapter import ApprovalDecision, ApprovalRule, Condition, Effects, ToolSpec
from adapter.core.errors import ConfigurationError, ToolFailed
from adapter.core.policy import Policy
from adapter.langgraph import (
    LangGraphApproval,
    PolicyGate,
    adapter_middleware,
    adapter_wrap_tool_call,
    filter_tools,
)
from adapter.stores import MemoryStore

HOW = pytest.mark.parametrize("how", ["async", "sync"])
LARGE = ApprovalRule(
    name="large",
    reason="a large sum",
    when=Condition(argument="amount", op="gt", value=50),
)


def results(state: Any) -> dict[str, ToolMessage]:
    paired(state["messages"])
    return {m.tool_call_id: m for m in state["messages"] if isinstance(m, ToolMessage)}


async def asked(own: Own) -> list[Any]:
    return open_questions(await own.graph.aget_state(CONFIG))


def yes(own: Own, question: Any, **more: Any) -> Command[Any]:
    decision = ApprovalDecision(kind=more.pop("kind", "approve"), **more)
    return Command(resume={question.id: own.approval.resume_value(question, decision)})


@pytest.mark.anyio
@HOW
async def test_a_denied_tool_never_runs_and_the_model_reads_why(rooms: Rooms, how: str) -> None:
    own = Own(rooms, Policy(deny={"send_*": "frozen"}), ai(pay()))
    message = results(await own.run(how=how))["c1"]
    assert error_of(message) == {
        "kind": "PolicyDenied",
        "message": "The policy does not allow send_money: frozen.",
    }
    assert own.ledger.all == []


@pytest.mark.anyio
@HOW
async def test_an_allowed_tool_runs_once(rooms: Rooms, how: str) -> None:
    own = Own(rooms, Policy(allow=("send_*",)), ai(pay()))
    message = results(await own.run(how=how))["c1"]
    assert (message.content, message.status) == ("sent 100 to bob", "success")
    assert own.ledger.paid == [100]


@pytest.mark.anyio
@HOW
async def test_an_escalated_call_waits_for_a_signed_answer(rooms: Rooms, how: str) -> None:
    own = Own(rooms, Policy(escalate={"send_money": LARGE}), ai(pay()))
    await own.run(how=how)
    (question,) = await asked(own)
    assert question.value["request"]["reason"] == "a large sum"
    await own.run(Command(resume={question.id: {"approved": True}}), how=how)
    assert own.ledger.all == []
    (question,) = await asked(own)
    answer = yes(own, question)
    results(await own.run(answer, how=how))
    assert own.ledger.paid == [100]
    await own.run(answer, how=how)
    assert own.ledger.paid == [100]


@pytest.mark.anyio
async def test_a_call_the_condition_does_not_cover_asks_nobody(rooms: Rooms) -> None:
    own = Own(rooms, Policy(escalate={"send_money": LARGE}), ai(pay(amount=50)))
    await own.run()
    assert own.ledger.paid == [50]


@pytest.mark.anyio
@pytest.mark.parametrize("said", [True, False])
@HOW
async def test_the_policys_approver_decides_without_a_pause(
    rooms: Rooms, how: str, said: bool
) -> None:
    policy = Policy(escalate={"send_money": LARGE}, approver=lambda _: said)
    own = Own(rooms, policy, ai(pay()), asks=False, saver=False)
    results(await own.run(how=how))
    assert own.ledger.paid == ([100] if said else [])


@pytest.mark.anyio
async def test_with_nobody_to_ask_an_escalated_call_is_refused(rooms: Rooms) -> None:
    own = Own(rooms, Policy(escalate={"send_money": LARGE}), ai(pay()), asks=False)
    message = results(await own.run())["c1"]
    assert error_of(message)["kind"] == "PolicyDenied"
    assert own.ledger.all == []


@pytest.mark.parametrize("store", [None, "memory"])
def test_escalations_without_a_durable_ledger_are_refused_at_wiring(
    rooms: Rooms, store: str | None
) -> None:
    policy = Policy(escalate={"send_money": "x"})
    approval = LangGraphApproval(KEYS)
    ledger = None if store is None else rooms.store()
    with pytest.raises(ConfigurationError, match="no durable ledger"):
        adapter_wrap_tool_call(policy, store=ledger, approval=approval)


@pytest.mark.anyio
async def test_escalations_in_a_graph_without_a_checkpointer_are_refused(rooms: Rooms) -> None:
    own = Own(rooms, Policy(escalate={"send_money": LARGE}), ai(pay()), saver=False)
    with pytest.raises(ConfigurationError, match="checkpointer"):
        await own.run()
    assert own.ledger.all == []


@pytest.mark.anyio
@HOW
async def test_a_tool_the_node_does_not_have_is_refused(rooms: Rooms, how: str) -> None:
    own = Own(rooms, Policy(), ai(call("drop_table", "d1", table="users")))
    message = results(await own.run(how=how))["d1"]
    assert error_of(message)["kind"] == "UnknownTool"


@pytest.mark.anyio
@HOW
async def test_undeclared_arguments_are_stripped_and_audited(rooms: Rooms, how: str) -> None:
    ghostly = call("note", "n1", text="x", force=True)
    own = Own(rooms, Policy(), ai(ghostly))
    assert results(await own.run(how=how))["n1"].content == "noted x"
    kinds = [event.kind for event in await own.store.events("thread-1")]
    assert "arguments_stripped" in kinds


@pytest.mark.anyio
async def test_undeclared_arguments_are_refused_where_the_policy_says_so(rooms: Rooms) -> None:
    own = Own(rooms, Policy(ghost="refuse"), ai(call("note", "n1", text="x", force=True)))
    assert error_of(results(await own.run())["n1"])["kind"] == "ToolArgsInvalid"
    assert own.ledger.all == []


@pytest.mark.anyio
async def test_what_a_person_approves_is_what_runs_without_the_stripped(rooms: Rooms) -> None:
    ghostly = call("send_money", "c1", to="bob", amount=100, urgent=True)
    own = Own(rooms, Policy(escalate={"send_money": "x"}), ai(ghostly))
    await own.run()
    (question,) = await asked(own)
    assert question.value["request"]["arguments"] == {"to": "bob", "amount": 100}
    await own.run(yes(own, question))
    assert own.ledger.paid == [100]


@pytest.mark.anyio
async def test_each_call_spends_one_token_over_question_and_answer(rooms: Rooms) -> None:
    policy = Policy(escalate={"send_money": "x"}, rates={"send_*": "2/hour"})
    own = Own(rooms, policy, ai(pay("c1"), pay("c2"), pay("c3")))
    await own.run()
    for _ in range(3):
        questions = await asked(own)
        if not questions:
            break
        await own.run(yes(own, questions[0]))
    assert own.ledger.paid == [100, 100]
    state = await own.graph.aget_state(CONFIG)
    kinds = [error_of(m)["kind"] for m in results(state.values).values() if m.status == "error"]
    assert kinds == ["RateLimited"]


@pytest.mark.anyio
@HOW
async def test_sync_and_async_wrappers_of_one_policy_share_a_window(rooms: Rooms, how: str) -> None:
    policy = Policy(rates={"note": "1/hour"})
    first, second = ai(call("note", "n1", text="x")), ai(call("note", "n2", text="x"))
    own = Own(rooms, policy, first, ai(text="ok"), second)
    await own.run(how=how)
    await own.run(how="sync" if how == "async" else "async")
    assert len(own.ledger.of("note")) == 1


@pytest.mark.anyio
async def test_results_are_masked_and_stay_masked_in_the_thread(rooms: Rooms) -> None:
    def customer(text: str) -> dict[str, Any]:
        return {"email": "ann@example.org", "name": "Ann", "note": "password=hunter2222"}

    own = Own(
        rooms,
        Policy(results={"cust*": ["email"]}),
        ai(call("customer", "k1", text="x")),
        tools=[tool_of(customer, "customer")],
    )
    message = results(await own.run())["k1"]
    found = json.loads(str(message.content))
    assert (found["email"], found["name"]) == ("***", "Ann")
    assert "hunter" not in str(own.model.sent)


@pytest.mark.anyio
async def test_content_blocks_and_artifacts_are_masked(rooms: Rooms) -> None:
    def blocks(text: str) -> Any:
        return (
            [{"type": "text", "text": '{"email": "a@b.c"}'}, "token=abcdefgh123"],
            {"email": "a@b.c"},
        )

    def odd(text: str) -> Any:
        return "fine", object()

    own = Own(
        rooms,
        Policy(results={"*": ["email"]}),
        ai(call("blocks", "b1", text="x"), call("odd", "o1", text="x")),
        tools=[
            tool_of(blocks, "blocks", response_format="content_and_artifact"),
            tool_of(odd, "odd", response_format="content_and_artifact"),
        ],
    )
    found = results(await own.run())
    assert "a@b.c" not in repr(found)
    assert "abcdefgh" not in repr(found)
    assert found["b1"].artifact == {"email": "***"}
    assert found["o1"].artifact is None


@pytest.mark.anyio
async def test_a_command_is_passed_on_as_it_is(rooms: Rooms) -> None:
    def jump(text: str) -> Command[Any]:
        return Command(
            update={"messages": [ToolMessage('{"email": "a@b.c"}', tool_call_id="j1", name="jump")]}
        )

    own = Own(
        rooms,
        Policy(results={"*": ["email"]}),
        ai(call("jump", "j1", text="x")),
        tools=[tool_of(jump, "jump")],
    )
    assert "a@b.c" in str(results(await own.run())["j1"].content)


@pytest.mark.anyio
@HOW
async def test_one_bad_call_of_three_stops_all(rooms: Rooms, how: str) -> None:
    bad = call("send_money", "bad", to="bob", amount="7")
    own = Own(rooms, Policy(), ai(pay(), bad, call("note", "n1", text="x")))
    found = results(await own.run(how=how))
    assert own.ledger.all == []
    assert {message.status for message in found.values()} == {"error"}


def test_refused_tools_are_never_offered_and_escalated_ones_are(rooms: Rooms) -> None:
    policy = Policy(deny={"send_*": "no"}, escalate={"note": "x"})
    assert Own(rooms, policy).offered == ["note", "look"]


def test_filter_tools_takes_every_form_a_model_can_be_given(rooms: Rooms) -> None:
    def drop_all() -> None: ...

    class DropTable: ...

    tools: list[Any] = [
        drop_all,
        DropTable,
        {"type": "function", "function": {"name": "drop_x"}},
        {"name": "keep", "input_schema": {}},
        {"title": "drop_y", "type": "object"},
        {"type": "web_search"},
        {"type": "function", "function": {}, "name": "also"},
    ]
    kept = filter_tools(tools, Policy(deny={"drop_*": "x", "Drop*": "x"}))
    assert kept == [tools[3], tools[5], tools[6]]
    with pytest.raises(ConfigurationError, match="has no name"):
        filter_tools([object()], Policy())


@pytest.mark.anyio
async def test_full_specs_take_the_place_of_made_ones(rooms: Rooms) -> None:
    spec = ToolSpec(name="look", effects=Effects(read_only=True), approval=None, cache_ttl=60)
    own = Own(
        rooms,
        Policy(),
        ai(call("look", "l1", text="x")),
        ai(call("look", "l2", text="x")),
        specs=[spec],
    )
    found = results(await own.run())
    assert [found[name].content for name in ("l1", "l2")] == ["saw x", "saw x"]
    assert len(own.ledger.of("look")) == 1


@pytest.mark.anyio
async def test_a_failing_tool_is_shown_or_ends_the_run(rooms: Rooms) -> None:
    def odd(text: str) -> str:
        raise ValueError("secret")

    tools = [tool_of(odd, "odd")]
    line = ai(call("odd", "o1", text="x"))
    shown = results(await Own(rooms, Policy(), line, tools=tools).run())["o1"]
    assert error_of(shown)["kind"] == "ToolFailed"
    assert "secret" not in str(shown.content)
    raising = Own(rooms, Policy(), line, tools=tools, on_tool_failure="raise")
    with pytest.raises(ToolFailed):
        await raising.run(config={"configurable": {"thread_id": "other"}})
    with pytest.raises(ConfigurationError, match="on_tool_failure"):
        PolicyGate(Policy(), on_tool_failure="ignore")


def test_one_executor_serves_one_set_of_tools(rooms: Rooms) -> None:
    gate = PolicyGate(Policy(), store=rooms.store())
    tools = Own(rooms, Policy()).tools
    first = gate.executor(tools)
    assert gate.executor(list(reversed(tools))) is first
    assert gate.executor(tools[:1]) is not first
    for number in range(70):
        gate.executor([tool_of(lambda text: text, f"t{number}")])
    assert gate.executor(tools) is not first


def test_a_policy_has_one_ledger_in_memory() -> None:
    policy = Policy()
    one, two = PolicyGate(policy), PolicyGate(policy)
    assert isinstance(one.executor([]).store, MemoryStore)
    assert one.executor([]).store is two.executor([]).store
    assert PolicyGate(Policy()).executor([]).store is not one.executor([]).store


def agent(rooms: Rooms, policy: Policy, *lines: AIMessage, **options: Any) -> tuple[Any, Script]:
    own = Own(rooms, Policy())
    model = Script.of(*lines)
    options = {"store": own.store, "approval": own.approval} | options
    made = create_agent(
        model,
        own.tools,
        middleware=[adapter_middleware(policy, **options)],
        checkpointer=InMemorySaver(),
    )
    return made, model


@pytest.mark.anyio
@HOW
async def test_the_middleware_keeps_the_policy_in_create_agent(rooms: Rooms, how: str) -> None:
    policy = Policy(deny={"look": "no"}, escalate={"send_money": LARGE})
    lines = (ai(pay()), ai(call("look", "l1", text="x")))
    made, _ = agent(rooms, policy, *lines)

    async def run(given: Any) -> Any:
        return await made.ainvoke(given, CONFIG) if how == "async" else made.invoke(given, CONFIG)

    await run(ASK)
    (question,) = open_questions(await made.aget_state(CONFIG))
    approval = LangGraphApproval(KEYS)
    answer = approval.resume_value(question, ApprovalDecision(kind="approve"))
    ended = await run(Command(resume={question.id: answer}))
    assert rooms.ledger.paid == [100]
    assert rooms.ledger.of("look") == []
    assert results(ended)["l1"].status == "error"


@pytest.mark.anyio
async def test_the_middleware_offers_no_refused_tool(rooms: Rooms) -> None:
    offered: list[list[str]] = []

    class Bound(Script):
        @override
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            offered.append([tool.name for tool in tools])
            return self

    own = Own(rooms, Policy())
    made: Any = create_agent(
        Bound.of(ai(text="hello")),
        own.tools,
        middleware=[adapter_middleware(Policy(deny={"send_*": "no"}), store=own.store)],
    )
    await made.ainvoke(ASK)
    assert offered == [["note", "look"]]


@pytest.mark.anyio
async def test_a_redefined_tool_asks_again(rooms: Rooms) -> None:
    from pydantic import BaseModel

    class Other(BaseModel):
        to: str
        amount: int
        memo: str = ""

    policy = Policy(escalate={"send_money": "x"})
    saver = InMemorySaver()
    before = Own(rooms, policy, ai(pay()), saver=saver)
    await before.run()
    (question,) = await asked(before)

    def send_money(to: str, amount: int, memo: str = "") -> str:
        rooms.ledger.add(tool="send_money", to=to, amount=amount)
        return "sent"

    redefined = StructuredTool.from_function(
        send_money, name="send_money", description="x", args_schema=Other
    )
    after = Own(rooms, policy, tools=[redefined], saver=saver, store=before.store)
    await after.run(yes(before, question))
    assert rooms.ledger.all == []
    kinds = [event.kind for event in await after.store.events("thread-1")]
    assert "schema_changed" in kinds
    (again,) = await asked(after)
    await after.run(yes(after, again))
    assert rooms.ledger.paid == [100]


def test_messages_are_needed(rooms: Rooms) -> None:
    """A call that is in no message of the model is nobody's, and refused."""
    own = Own(rooms, Policy(), ai(text="hello"))
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.types import Send

    graph = StateGraph(MessagesState)
    graph.add_node("tools", own.node)
    graph.add_conditional_edges(START, lambda _: [Send("tools", [dict(pay())])], ["tools"])
    found = graph.compile().invoke({"messages": [HumanMessage("x")]})
    assert found["messages"][-1].status == "error"
    assert own.ledger.all == []
