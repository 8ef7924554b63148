"""What a newcomer's mistake is answered with: what is wrong, by its name, and the cure."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from tests.unit.flow.kit import KEY, NO, YES, Kit, Order, items, logs, order

import adapter.flow
from adapter import (
    ApprovalDecision,
    ConfigurationError,
    DeferredApproval,
    Executor,
    KeyRing,
    ToolUsageError,
)
from adapter.core.errors import FlowCompileError, FlowError
from adapter.flow import Call, Flow, Map, Retry
from adapter.langgraph import LangGraphApproval, tool_node
from adapter.stores import MemoryStore

pytestmark = pytest.mark.anyio


def test_every_name_of_a_flow_comes_from_one_place() -> None:
    names = adapter.flow.__all__
    assert len(names) == len(set(names))
    assert all(hasattr(adapter.flow, name) for name in names)
    assert "Retry" in names
    Flow("f", state=Order).node("n", logs("n"), retries=Retry(max_attempts=2)).end("n").validate()


@pytest.mark.parametrize("secret", [b"x" * 16, b"short", "text"])
async def test_a_bad_checkpoint_key_is_told_by_its_name(secret: Any) -> None:
    flow = Flow("f", state=Order).node("n", logs("n")).end("n")
    with pytest.raises(ConfigurationError, match=r"^checkpoint_key "):
        await flow.run({}, checkpoint_key=secret)
    assert (await flow.run({}, checkpoint_key=KEY)).status == "done"


async def test_an_error_of_a_pause_function_names_flow_and_node() -> None:
    def pause(_state: Order) -> dict[str, Any]:
        raise ZeroDivisionError

    flow = Flow("f", state=Order).node("n", logs("n"), pause=pause).end("n")
    with pytest.raises(ZeroDivisionError) as caught:
        await flow.run({})
    assert caught.value.__notes__ == ["flow 'f', node 'n', its pause= function"]


def test_a_wrong_argument_of_a_flow_is_told_of_the_flow() -> None:
    made: Any = Flow
    with pytest.raises(TypeError, match=re.escape("Flow.node()")):
        made("f", state=Order).node("n", logs("n"), retry=2)
    with pytest.raises(TypeError, match=re.escape("Flow.__init__()")):
        made("f")


def test_a_call_without_what_its_tool_needs_is_a_fault_before_it_runs(kit: Kit) -> None:
    flow = Flow("f", state=Order).node("n", Call("pay")).end("n")
    with pytest.raises(FlowCompileError, match="'pay' needs amount, and the state has no such"):
        flow.validate(kit.executor.registry)
    lacking = Flow("f", state=Order).node("n", Call("pay", {"cents": 1})).end("n")
    with pytest.raises(FlowCompileError, match="'pay' needs amount, which arguments= lacks"):
        lacking.validate(kit.executor.registry)
    for given in ({"amount": 1}, lambda _state: {"amount": 1}):
        whole = Flow("f", state=Order).node("n", Call("pay", given)).end("n")
        whole.validate(kit.executor.registry)


async def test_a_map_over_plain_texts_names_arguments(kit: Kit) -> None:
    texts = Map(lambda _state: ["a"], tool="note", into="log")
    flow = Flow("f", state=Order).node("n", texts).end("n")
    with pytest.raises(FlowError, match=re.escape("arguments=lambda item:")):
        await kit.run(flow, {})
    cured = Map(lambda _state: ["a"], tool="note", arguments=lambda one: {"item": one}, into="log")
    done = await kit.run(Flow("f", state=Order).node("n", cured).end("n"), {})
    assert done.state.log == ["noted a"]


@pytest.mark.parametrize("given", [True, {"approved": True}])
async def test_what_is_no_decision_names_the_type_of_one(kit: Kit, given: Any) -> None:
    paused = await kit.run(order(), items("a"))
    with pytest.raises(ToolUsageError, match="A decision is an ApprovalDecision"):
        await kit.decided(order(), paused, given)
    assert (await kit.decided(order(), paused, YES)).status == "done"


async def test_a_denied_gate_gives_the_reviewers_own_words(kit: Kit) -> None:
    denied = await kit.decided(order(), await kit.run(order(), items("a")), NO)
    assert (denied.status, denied.reason) == ("denied", "too dear")
    plain = ApprovalDecision(approved=False)
    silent = await kit.decided(order(), await kit.run(order(), items("a")), plain)
    assert silent.reason == "A person refused it and gave no reason."


async def test_a_denied_call_gives_the_reviewers_own_words(kit: Kit) -> None:
    flow = Flow("f", state=Order).node("n", Call("pay", {"amount": 1})).end("n")
    denied = await kit.decided(flow, await kit.run(flow, {}), NO)
    assert (denied.reason, kit.ran) == ("too dear", [])


async def test_a_flow_that_asks_is_refused_at_once_where_the_port_asks_in_a_graph(kit: Kit) -> None:
    executor = kit.make(approval=LangGraphApproval(KEY))
    with pytest.raises(ToolUsageError, match=r"at place,.*DeferredApproval\(store, keys\)"):
        await order().run(items("a"), executor=executor)
    pays = Flow("f", state=Order).node("n", Call("pay", {"amount": 1})).end("n")
    with pytest.raises(ToolUsageError, match="at n,"):
        await pays.run({}, executor=executor)
    assert kit.ran == []


def test_tools_without_a_port_are_told_of_both_ports(kit: Kit) -> None:
    with pytest.raises(ConfigurationError, match=r"LangGraphApproval.*DeferredApproval"):
        kit.make(approval=None)


async def test_parts_in_the_wrong_place_are_refused_when_they_are_given(kit: Kit) -> None:
    store, keys, wrong = MemoryStore(), KeyRing.random(), cast("Any", Executor)
    registry = kit.executor.registry
    with pytest.raises(ConfigurationError, match=r"DeferredApproval\(store, keys\) takes a store"):
        DeferredApproval(cast("Any", keys), cast("Any", store))
    with pytest.raises(ConfigurationError, match="takes a store, not a str"):
        wrong(registry, store="sqlite:///adapter.db", approval=kit.port)
    with pytest.raises(ConfigurationError, match=r"not as a list: registry_of\(tools, specs\)"):
        wrong([], store=store)
    with pytest.raises(ConfigurationError, match=r"not as a list: registry_of\(tools, specs\)"):
        tool_node(cast("Any", []))
    with pytest.raises(ConfigurationError, match="takes bytes, not a str"):
        LangGraphApproval(cast("Any", "a secret as text"))
    Executor(registry, store=store, approval=DeferredApproval(store, keys))
    await store.aclose()
