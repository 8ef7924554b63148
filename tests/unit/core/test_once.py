"""Calls that share a row, because their tool runs once in a run for the same arguments."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.kit import CARD, NO, YES, events, flaky, hang, tool, used

from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalDenied,
    ApprovalExpired,
    CallInDoubt,
    PolicyDenied,
    ToolError,
)
from adapter.core.executor import Executor
from adapter.core.journal import identify
from adapter.core.keys import KeyRing
from adapter.core.types import CallStatus, Effects
from adapter.testing import Paused, make_call, make_context, wired

pytestmark = pytest.mark.anyio

ONCE = tool("write", once_per_run=True)
AGAIN = tool("put", effects=Effects(idempotent=True), once_per_run=True)
ASKS = tool("send", gated=True, once_per_run=True)
SECRET = tool("pay", gated=True, masks=("card",), once_per_run=True)


def first(name: str, **arguments: Any) -> Any:
    return make_call(name, id="one", to="bob", **arguments)


def second(name: str, message_id: str = "message-2", **arguments: Any) -> Any:
    return make_call(name, id="two", message_id=message_id, to="bob", **arguments)


LATER = make_context(run_id="run-2", task_id="task-2")


async def test_calls_of_a_run_have_one_key_and_of_two_runs_two() -> None:
    once = {"to": "bob"}
    here = identify(first("write"), make_context(), once=once)
    assert identify(second("write"), LATER, once=once).key == here.key
    assert identify(second("write"), LATER, once={"to": "ann"}).key != here.key
    assert identify(second("other"), LATER, once=once).key != here.key
    for elsewhere in (make_context(turn_id="turn-2"), make_context("thread-2")):
        assert identify(first("write"), elsewhere, once=once).key != here.key
    assert identify(first("write"), make_context()).key != here.key


async def test_a_key_gives_no_masked_argument_away() -> None:
    keys = KeyRing.random().oldest("digest")
    once = {"card": CARD}
    plain = identify(first("pay"), make_context(), once=once)
    assert identify(first("pay"), make_context(), keys, once=once).key != plain.key


async def test_another_call_gets_the_recorded_result_and_costs_nothing() -> None:
    async with wired(ONCE) as kit:
        made = await kit.run(first("write"))
        assert await kit.run(second("write", amount=1), LATER) == made
        assert await kit.run(second("write", amount=2), LATER) != made
        assert [run[0] for run in kit.runs] == ["one", "two"]
        assert await used(kit) == 2


async def test_the_call_itself_again_is_a_re_run_like_any_other() -> None:
    async with wired(ASKS) as kit:
        with pytest.raises(Paused):
            await kit.run(first("send"))
        await kit.run(first("send"), make_context(run_id="run-2"), YES)
        with pytest.raises(ApprovalAlreadyDecided):
            await kit.run(first("send"), make_context(run_id="run-3"), YES)
        assert await kit.run(second("send"), LATER, YES) == await kit.run(first("send"))
        assert len(kit.runs) == 1
        assert len(kit.port.questions) == 2


async def test_hooks_before_a_call_are_not_told_of_one_that_will_not_run() -> None:
    told: list[str] = []

    async def hook(call: Any, _ctx: Any) -> None:
        told.append(call.id)

    async with wired(ONCE, before_tool=[hook]) as kit:
        await kit.run(first("write"))
        await kit.run(second("write"), LATER)
        assert told == ["one"]


async def test_an_error_is_the_first_result_too() -> None:
    def fail(_arguments: Any) -> None:
        raise ToolError("sold out")

    async with wired(ONCE) as kit:
        for call, ctx in ((first("write"), make_context()), (second("write"), LATER)):
            with pytest.raises(ToolError, match="sold out"):
                await kit.run(call, ctx, body=fail)
        assert len(kit.runs) == 1


async def test_a_refusal_is_the_first_result_too() -> None:
    async with wired(ASKS) as kit:
        with pytest.raises(ApprovalDenied):
            await kit.run(first("send"), None, NO)
        with pytest.raises(ApprovalDenied):
            await kit.run(second("send"), LATER, YES)
        assert kit.runs == []
        assert len(kit.port.questions) == 1


async def test_a_question_that_ran_out_is_the_first_result_too() -> None:
    async with wired(ASKS) as kit:
        with pytest.raises(Paused):
            await kit.run(first("send"))
        kit.clock.advance(100_000)
        for call, ctx in ((first("send"), make_context()), (second("send"), LATER)):
            with pytest.raises(ApprovalExpired):
                await kit.run(call, ctx, YES)
        assert kit.runs == []


async def test_an_overtaken_question_is_a_refusal_that_the_model_may_read() -> None:
    async with wired(ASKS) as kit:
        with pytest.raises(Paused):
            await kit.run(first("send"))
        (row,) = await kit.store.requested("thread-1")
        subject = replace(
            kit.executor.journal.subject(
                first("send"), identify(first("send"), make_context()), None
            ),
            key=row.key,
        )
        await kit.executor.journal.close(make_context(), subject, CallStatus.VOID, None)
        with pytest.raises(PolicyDenied, match="before in this run"):
            await kit.run(second("send"), LATER, YES)
        with pytest.raises(ApprovalAlreadyDecided):
            await kit.run(first("send"), make_context(), YES)
        assert kit.runs == []


@pytest.mark.parametrize("made", [ONCE, AGAIN])
async def test_a_first_call_whose_worker_is_lost_is_taken_over_or_in_doubt(made: Any) -> None:
    name = made[0].name
    async with wired(made, lease=30, cancel_grace=0.01) as kit:
        begun, waits = asyncio.Event(), asyncio.Event()

        async def sleep(_seconds: float) -> None:
            waits.set()
            await asyncio.sleep(0)

        def body(arguments: Any) -> Any:
            begun.set()
            return hang(arguments)

        lost = asyncio.create_task(kit.run(first(name), body=body))
        await asyncio.wait_for(begun.wait(), 10)
        other = asyncio.create_task(kit.restarted(sleep=sleep).run(second(name), LATER))
        await asyncio.wait_for(waits.wait(), 10)
        assert not other.done()
        kit.clock.advance(31)
        if made is AGAIN:
            assert (await asyncio.wait_for(other, 10))["ran"]["to"] == "bob"
        else:
            with pytest.raises(CallInDoubt):
                await asyncio.wait_for(other, 10)
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        assert len(kit.runs) == (2 if made is AGAIN else 1)


async def test_a_call_beside_it_waits_for_the_one_that_takes_this_runs_answer() -> None:
    kit, store = flaky(ASKS, sleep=asyncio.sleep)
    async with kit:
        with pytest.raises(Paused):
            await kit.run(first("send"))
        kit.port.resume(YES)
        beside = second("send", message_id="message-1")
        other = asyncio.create_task(kit.executor.run(beside, LATER, kit.invocation(beside)))
        for _ in range(20):
            await asyncio.sleep(0)
        call = first("send")
        # The script's answers are the first call's: a host gives each task its own.
        made = await kit.executor.run(call, make_context(run_id="run-2"), kit.invocation(call))
        assert await asyncio.wait_for(other, 10) == made
        assert len(kit.runs) == 1
        assert store.calls.count("claim") == 1


async def test_a_call_in_a_fork_asks_the_same_question_where_it_is_open() -> None:
    async with wired(ASKS) as kit:
        with pytest.raises(Paused) as asked:
            await kit.run(first("send"))
        with pytest.raises(Paused) as again:
            await kit.run(first("send"), LATER)
        assert asked.value.value["binding"] == again.value.value["binding"]
        assert len(await kit.store.requested("thread-1")) == 1
        await kit.run(first("send"), LATER, kit.port.resume_value(asked.value, YES))
        assert len(kit.runs) == 1


async def test_what_another_call_is_given_is_audited_once_for_each() -> None:
    async with wired(ONCE) as kit:
        await kit.run(first("write"))
        for _ in range(2):
            await kit.run(second("write"), LATER)
        found = [event for event in await events(kit) if event["kind"] == "replayed"]
        assert [event["call_id"] for event in found] == ["two"]


async def test_where_nobody_is_asked_a_call_goes_on_for_the_one_beside_it_that_paused() -> None:
    effects: list[Any] = []

    def pause(_arguments: Any) -> None:
        raise Paused({})

    async with wired(ONCE) as kit:
        alone = Executor(kit.registry, store=kit.store, clock=kit.clock, sleep=kit.options["sleep"])
        call, beside = first("write"), second("write", message_id="message-1")
        with pytest.raises(Paused):
            await alone.run(call, make_context(), kit.invocation(call, body=pause))
        made = await alone.run(
            beside, make_context(), kit.invocation(beside, body=lambda given: effects.append(given))
        )
        assert await alone.run(call, make_context(), kit.invocation(call)) == made
        assert len(effects) == 1
