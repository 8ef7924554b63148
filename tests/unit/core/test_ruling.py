"""A policy at work: approver, windows, stripped arguments, masked results, the durable ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.core.kit import LOOK, SEND, WRITE, YES, tool

from adapter.core.errors import (
    ApprovalDenied,
    ConfigurationError,
    PolicyDenied,
    RateLimited,
    ToolArgsInvalid,
)
from adapter.core.executor import Executor
from adapter.core.policy import Escalation, Policy
from adapter.core.rules import ApprovalRule, Condition
from adapter.core.ruling import check_ledger
from adapter.stores import MemoryStore, open_store
from adapter.testing import Paused, Wired, make_call, make_context, wired

WRITING = make_call("write", to="bob")


def portless(kit: Wired, policy: Policy, **options: Any) -> Wired:
    from dataclasses import replace

    executor = Executor(kit.registry, store=kit.store, policy=policy, **(kit.options | options))
    return replace(kit, executor=executor)


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["plain", "async", "object", "returns an awaitable"])
async def test_the_approver_decides_where_there_is_no_port(how: str) -> None:
    seen: list[Escalation] = []

    def plain(asked: Escalation) -> bool:
        seen.append(asked)
        return True

    async def later(asked: Escalation) -> bool:
        return plain(asked)

    class Asker:
        async def __call__(self, asked: Escalation) -> bool:
            return plain(asked)

    approvers: dict[str, Any] = {
        "plain": plain,
        "async": later,
        "object": Asker(),
        "returns an awaitable": lambda asked: later(asked),
    }
    policy = Policy(escalate={"wri*": "it writes"}, approver=approvers[how])
    async with wired(WRITE) as kit:
        desk = portless(kit, policy)
        await desk.run(WRITING)
        assert len(desk.runs) == 1
        (asked,) = seen
        assert (asked.tool, asked.reason, asked.arguments["to"]) == ("write", "it writes", "bob")
        await desk.run(WRITING)  # recorded: neither asked nor run again
        assert (len(seen), len(desk.runs)) == (1, 1)


@pytest.mark.anyio
@pytest.mark.parametrize("said", [False, None, 1, "yes"])
async def test_anything_but_true_refuses(said: Any) -> None:
    policy = Policy(escalate={"*": "x"}, approver=lambda _: said)
    async with wired(WRITE) as kit:
        desk = portless(kit, policy)
        with pytest.raises(ApprovalDenied):
            await desk.run(WRITING)
        assert desk.runs == []
        kinds = [event.kind for event in await kit.store.events("thread-1")]
        assert kinds == ["decided", "refused"]


@pytest.mark.anyio
async def test_an_escalation_with_nobody_to_ask_is_refused() -> None:
    async with wired(WRITE) as kit:
        desk = portless(kit, Policy(escalate={"*": "it writes"}))
        with pytest.raises(PolicyDenied, match=r"\(it writes\), and there is nobody to ask"):
            await desk.run(WRITING)
        named = portless(kit, Policy(escalate={"*": ApprovalRule(name="rule-7")}))
        with pytest.raises(PolicyDenied, match="rule-7"):
            await named.run(make_call("write", id="other", to="bob"))
        assert desk.runs == []


@pytest.mark.anyio
async def test_a_port_is_asked_rather_than_the_approver() -> None:
    policy = Policy(escalate={"*": "x"}, approver=lambda _: True)
    async with wired(WRITE, policy=policy) as kit:
        with pytest.raises(Paused):
            await kit.run(WRITING)
        await kit.run(WRITING, None, YES)
        assert len(kit.runs) == 1


@pytest.mark.anyio
async def test_a_changed_policy_asks_again() -> None:
    async with wired(WRITE, policy=Policy(escalate={"*": "x"})) as kit:
        with pytest.raises(Paused) as first:
            await kit.run(WRITING)
        later = kit.restarted(policy=Policy(escalate={"*": "y"}))
        old = later.port.resume_value(first.value, YES)
        with pytest.raises(Exception, match="answer"):
            await later.run(WRITING, None, old)
        assert kit.runs == []
        assert [e.kind for e in await kit.store.events("thread-1") if "changed" in e.kind] == [
            "policy_changed"
        ]
        await later.run(WRITING, None, YES)
        assert len(kit.runs) == 1


@pytest.mark.anyio
async def test_a_window_counts_a_call_once_over_question_and_answer() -> None:
    policy = Policy(rates={"s*": "1/minute"})
    async with wired(SEND, policy=policy) as kit:
        first = make_call("send", id="a", to="bob")
        with pytest.raises(Paused):
            await kit.run(first)
        await kit.run(first, None, YES)
        with pytest.raises(RateLimited, match=r"calls of s\*"):
            await kit.run(make_call("send", id="b", to="bob"))
        kit.clock.advance(61)
        await kit.run(make_call("send", id="c", to="bob"), None, YES)
        assert len(kit.runs) == 2


@pytest.mark.anyio
async def test_undeclared_arguments_are_refused_or_stripped_and_audited() -> None:
    ghostly = make_call("write", to="bob", force=True)
    async with wired(WRITE) as kit:
        with pytest.raises(ToolArgsInvalid, match="force: unknown"):
            await kit.run(ghostly)
        stripping = kit.restarted(policy=Policy(ghost="strip"))
        await stripping.run(ghostly)
        await stripping.run(make_call("write", id="plain", to="bob"))
        await kit.restarted(ghost="strip").run(make_call("write", id="b", to="bob", dry=1))
        strict = kit.restarted(policy=Policy(ghost="refuse"), ghost="strip")
        with pytest.raises(ToolArgsInvalid):
            await strict.run(make_call("write", id="c", to="bob", force=True))
        assert [arguments for _, arguments in kit.runs] == [
            {"to": "bob", "amount": 1, "card": None}
        ] * 3
        lines = [e.line for e in await kit.store.events("thread-1")]
        assert sum(b"arguments_stripped" in bytes(str(line), "utf-8") for line in lines) == 2


@pytest.mark.anyio
async def test_an_undeclared_argument_that_is_no_json_is_refused_even_where_stripped() -> None:
    async with wired(WRITE, ghost="strip") as kit:
        with pytest.raises(ToolArgsInvalid, match="not a JSON value"):
            await kit.run(make_call("write", to="bob", force=float("nan")))


@pytest.mark.anyio
async def test_results_are_masked_also_when_they_are_replayed() -> None:
    async with wired(WRITE, LOOK, policy=Policy(results={"write": ["card"]})) as kit:
        body: dict[str, Any] = {"body": lambda _: {"card": "4000", "n": 1}}
        assert await kit.run(WRITING, **body) == {"card": "***", "n": 1}
        assert await kit.run(WRITING, **body) == {"card": "***", "n": 1}
        assert await kit.run(make_call("look", id="l", text=""), **body) == {"card": "4000", "n": 1}
        assert kit.executor.shown("write", {"card": 1}, lambda r, m: m.value(r)) == {"card": "***"}


def test_escalations_need_a_durable_ledger(tmp_path: Path) -> None:
    import asyncio

    policy = Policy(escalate={"*": "x"})
    memory, file = MemoryStore(), open_store(f"sqlite:///{tmp_path / 'a.db'}")
    stores: list[Any] = [None, memory]
    for store in stores:
        with pytest.raises(ConfigurationError, match="no durable ledger"):
            check_ledger(policy, store, asks=True)
    check_ledger(policy, file, asks=True)
    check_ledger(policy, memory, asks=False)
    check_ledger(Policy(), memory, asks=True)
    check_ledger(None, memory, asks=True)
    asyncio.run(memory.aclose())
    asyncio.run(file.aclose())


@pytest.mark.anyio
async def test_a_graph_that_cannot_pause_is_named() -> None:
    async with wired(WRITE, policy=Policy(escalate={"*": "x"})) as kit:
        with pytest.raises(ConfigurationError, match="checkpointer"):
            await kit.run(WRITING, make_context(durable=False))


@pytest.mark.anyio
async def test_a_policy_that_names_no_tool_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'write'"):
        wired(WRITE, policy=Policy(deny={"Write": "x"}))


@pytest.mark.anyio
async def test_an_edit_into_stricter_rules_is_refused() -> None:
    large = ApprovalRule(
        name="large", quorum=2, when=Condition(argument="amount", op="gt", value=100)
    )
    from adapter.core.decisions import ApprovalDecision

    async with wired(
        tool("write"), policy=Policy(escalate={"write": [ApprovalRule(name="any"), large]})
    ) as kit:
        edit = ApprovalDecision(kind="edit", edited_args={"to": "bob", "amount": 500})
        with pytest.raises(Exception, match="answer"):
            await kit.run(make_call("write", to="bob", amount=1), None, edit)
        assert kit.runs == []
        smaller = ApprovalDecision(kind="edit", edited_args={"to": "bob", "amount": 2})
        await kit.run(make_call("write", to="bob", amount=1), None, smaller)
        assert len(kit.runs) == 1


@pytest.mark.anyio
async def test_a_tool_that_takes_any_arguments_has_none_stripped() -> None:
    from pydantic import BaseModel, ConfigDict

    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    async with wired(tool("open", model=Open), ghost="strip") as kit:
        await kit.run(make_call("open", more=1))
        assert kit.runs == [("call-1", {"more": 1})]
