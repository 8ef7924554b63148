"""Running here: pauses, decisions, denials, errors, and what goes on from a checkpoint."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.unit.flow.kit import KEY, NO, YES, Kit, Order, items, logs, order

from adapter import ApprovalDecision, DeferredApproval, Executor, KeyRing, Registry
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ConfigurationError,
    StoreUnavailable,
)
from adapter.flow import END, Call, Flow, FlowCompileError, FlowContext, FlowError, Join, Map, Route
from adapter.stores import MemoryStore, open_store
from adapter.testing import FrozenClock

pytestmark = pytest.mark.anyio


async def pays(state: Order, ctx: FlowContext) -> dict[str, Any]:
    noted = await ctx.call("note", {"item": "before"})
    return {"receipt": await ctx.call("pay", {"amount": 5}), "log": noted}


def paying() -> Flow:
    return Flow("f", state=Order).node("n", pays).end("n")


# ---------------------------------------------------------------------------------------- results


async def test_a_run_that_ends_is_done_and_has_nothing_pending(kit: Kit) -> None:
    done = await kit.run(Flow("f", state=Order).node("a", logs("a")).end("a"), {})
    assert (done.status, done.steps, done.visits) == ("done", 1, {"a": 1})
    assert (done.pending, done.pendings, done.checkpoint, done.reason) == (None, (), None, None)
    assert done.state == Order(log=["a"])


async def test_a_pause_says_what_is_asked(kit: Kit) -> None:
    paused = await kit.run(paying(), {})
    asked = paused.pending
    assert asked is not None
    assert (asked.kind, asked.node, asked.tool, asked.arguments) == (
        "tool",
        "n",
        "pay",
        {"amount": 5},
    )
    assert asked.value["request"]["tool"] == "pay"
    assert (await kit.store.get(asked.key)) is not None
    assert (paused.status, paused.steps, paused.visits) == ("paused", 0, {})


async def test_questions_are_listed_by_the_nodes_names(kit: Kit) -> None:
    made = Flow("f", state=Order).start("b", "a").end("a", "b")
    for name, amount in (("b", 2), ("a", 1)):
        made.node(name, Call("pay", {"amount": amount}, into="log"))
    paused = await kit.run(made, {})
    assert [(one.node, one.arguments["amount"]) for one in paused.pendings] == [("a", 1), ("b", 2)]
    again = await kit.decided(made, paused)
    assert [one.node for one in again.pendings] == ["b"]
    done = await kit.decided(made, again)
    assert (done.state.log, done.steps) == (["paid 1", "paid 2"], 1)


async def test_several_questions_are_decided_at_once_by_key(kit: Kit) -> None:
    made = Flow("f", state=Order).start("b", "a").end("a", "b")
    for name, amount in (("b", 2), ("a", 1)):
        made.node(name, Call("pay", {"amount": amount}, into="log"))
    paused = await kit.run(made, {})
    decision = {one.key: YES for one in paused.pendings}
    done = await kit.run(made, checkpoint=paused.checkpoint, decision=decision)
    assert done.state.log == ["paid 1", "paid 2"]


async def test_a_decision_in_the_store_is_found_without_input(kit: Kit) -> None:
    paused = await kit.run(paying(), {})
    assert paused.pending is not None
    await kit.port.record(paused.pending.key, YES)
    done = await kit.run(paying(), checkpoint=paused.checkpoint)
    assert (done.status, done.state.receipt) == ("done", "paid 5")


async def test_without_a_decision_a_run_waits_on_and_asks_nothing_new(kit: Kit) -> None:
    paused = await kit.run(paying(), {})
    again = await kit.run(paying(), checkpoint=paused.checkpoint)
    assert again.status == "paused"
    assert again.pendings == paused.pendings
    assert kit.ran == [("note", "before")]


async def test_finished_calls_are_replayed_after_a_pause(kit: Kit) -> None:
    made = paying()
    done = await kit.decided(made, await kit.run(made, {}))
    assert (done.state.receipt, done.state.log) == ("paid 5", ["noted before"])
    assert kit.ran == [("note", "before"), ("pay", 5)]


async def test_edited_arguments_run_as_signed(kit: Kit) -> None:
    made = paying()
    edited = ApprovalDecision(edited_args={"amount": 3})
    assert (await kit.decided(made, await kit.run(made, {}), edited)).state.receipt == "paid 3"


async def test_a_finished_sibling_of_a_pause_does_not_run_again(kit: Kit) -> None:
    seen: list[str] = []
    made = Flow("f", state=Order).node("n", pays).start("n", "sib").end("n", "sib")
    made.node("sib", lambda _state: seen.append("sib"))
    paused = await kit.run(made, {})
    done = await kit.decided(made, paused)
    assert (seen, done.visits, done.steps) == (["sib"], {"n": 1, "sib": 1}, 1)


# ---------------------------------------------------------------------------------------- denials


async def test_a_denied_call_ends_the_flow(kit: Kit) -> None:
    made = paying().node("later", logs("later")).edge("n", "later").end("later")
    done = await kit.decided(made, await kit.run(made, {}), NO)
    assert done.status == "denied"
    assert done.reason is not None
    assert "too dear" in done.reason
    assert (done.visits, done.steps, done.state.log, kit.count("pay")) == ({}, 1, [], 0)
    assert done.checkpoint is None


async def test_siblings_of_a_denied_call_finish_and_their_writes_count(kit: Kit) -> None:
    made = paying().node("sib", logs("sib")).start("n", "sib").end("sib")
    done = await kit.decided(made, await kit.run(made, {}), NO)
    assert (done.status, done.state.log, done.visits) == ("denied", ["sib"], {"sib": 1})


async def test_a_denial_beats_a_siblings_pause(kit: Kit) -> None:
    made = Flow("f", state=Order).start("a", "b").end("a", "b")
    for name in "ab":
        made.node(name, Call("pay", {"amount": ord(name)}, into="log"))
    done = await kit.decided(made, await kit.run(made, {}), NO)
    assert (done.status, done.pendings, kit.ran) == ("denied", (), [])


async def test_a_denial_that_the_nodes_code_catches_does_not_end_the_flow(kit: Kit) -> None:
    from adapter.core.errors import ApprovalDenied

    async def careful(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        try:
            return {"receipt": await ctx.call("pay", {"amount": 5})}
        except ApprovalDenied:
            return {"receipt": "not paid"}

    made = Flow("f", state=Order).node("n", careful).end("n")
    done = await kit.decided(made, await kit.run(made, {}), NO)
    assert (done.status, done.state.receipt) == ("done", "not paid")


async def test_a_question_nobody_answered_in_time_ends_the_flow() -> None:
    clock = FrozenClock()
    store = MemoryStore(clock=clock)
    kit = Kit(store=store)
    kit.executor = kit.make(clock=clock, approval_ttl=60)
    paused = await kit.run(paying(), {})
    clock.advance(61)
    done = await kit.run(paying(), checkpoint=paused.checkpoint)
    assert done.status == "denied"
    assert "in time" in str(done.reason)
    assert (await kit.decided(paying(), paused)).status == "denied"
    assert kit.count("pay") == 0
    await store.aclose()


async def test_a_decision_that_comes_too_late_ends_the_flow() -> None:
    clock = FrozenClock()
    store = MemoryStore(clock=clock)
    kit = Kit(store=store)
    kit.port = DeferredApproval(store, kit.keys, clock=clock)
    kit.executor = kit.make(clock=clock, approval_ttl=60)
    paused = await kit.run(paying(), {})
    clock.advance(61)
    assert (await kit.decided(paying(), paused)).status == "denied"
    assert kit.count("pay") == 0
    await store.aclose()


async def test_a_denied_run_stays_denied(kit: Kit) -> None:
    kept: list[str] = []
    paused = await kit.run(paying(), {})
    denied = await kit.decided(paying(), paused, NO, on_checkpoint=kept.append)
    again = await kit.run(paying(), checkpoint=kept[-1])
    assert (again.status, again.reason) == ("denied", denied.reason)


# ----------------------------------------------------------------------------------------- errors


async def test_the_error_of_the_first_node_by_name_is_raised_once_all_have_ended(kit: Kit) -> None:
    ended: list[str] = []

    def fails(name: str) -> Any:
        async def work(_state: Order) -> None:
            await asyncio.sleep(0)
            ended.append(name)
            raise ValueError(name)

        return work

    made = Flow("f", state=Order).start("b", "a", "c").end("a", "b", "c")
    for name in "bac":
        made.node(name, fails(name))
    with pytest.raises(ValueError, match=r"^a\n"):
        await kit.run(made, {})
    assert sorted(ended) == ["a", "b", "c"]


async def test_an_error_beats_a_denial_and_a_pause(kit: Kit) -> None:
    def broken(_state: Order) -> None:
        raise ValueError("broken")

    made = paying().node("z", broken).start("n", "z").end("z")
    with pytest.raises(ValueError, match="broken"):
        await kit.run(made, {})


async def test_what_ended_before_an_error_does_not_run_again(kit: Kit) -> None:
    seen: list[str] = []
    broken = [ValueError("broken")]

    async def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        made = await ctx.call("note", {"item": "a"})
        if broken:
            raise broken.pop()
        return {"note": made}

    made = Flow("f", state=Order).node("n", work).start("n", "sib").end("n", "sib")
    made.node("sib", lambda _state: seen.append("sib"))
    kept: list[str] = []
    with pytest.raises(ValueError, match="broken"):
        await kit.run(made, {}, on_checkpoint=kept.append)
    done = await kit.run(made, checkpoint=kept[-1])
    assert (done.state.note, seen, kit.ran) == ("noted a", ["sib"], [("note", "a")])


async def test_a_question_beside_an_error_can_be_decided_from_the_checkpoint(kit: Kit) -> None:
    broken = [ValueError("broken")]

    def work(_state: Order) -> None:
        if broken:
            raise broken.pop()

    made = paying().node("z", work).start("n", "z").end("z")
    kept: list[str] = []
    with pytest.raises(ValueError, match="broken"):
        await kit.run(made, {}, on_checkpoint=kept.append)
    done = await kit.run(made, checkpoint=kept[-1], decision=YES)
    assert (done.status, done.state.receipt) == ("done", "paid 5")


async def test_an_error_is_not_lost_where_its_checkpoint_cannot_be_kept(kit: Kit) -> None:
    def work(_state: Order) -> None:
        raise ValueError("broken")

    def full(_checkpoint: str) -> None:
        raise OSError("disk full")

    made = Flow("f", state=Order).node("n", work).end("n")
    with pytest.raises(ValueError, match="broken") as caught:
        await kit.run(made, {}, on_checkpoint=full)
    assert caught.value.__notes__[-1] == "and no checkpoint was kept: OSError"


async def test_a_checkpoint_that_cannot_be_kept_stops_the_run(kit: Kit) -> None:
    def full(_checkpoint: str) -> None:
        raise OSError("disk full")

    made = Flow("f", state=Order).node("n", logs("n")).end("n")
    with pytest.raises(OSError, match="disk full"):
        await kit.run(made, {}, on_checkpoint=full)


async def test_the_same_run_on_the_same_store_begins_again_without_a_checkpoint(kit: Kit) -> None:
    broken = [ValueError("broken")]

    async def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        made = await ctx.call("note", {"item": "a"})
        if broken:
            raise broken.pop()
        return {"note": made}

    made = Flow("f", state=Order).node("n", work).end("n")
    with pytest.raises(ValueError, match="broken"):
        await kit.run(made, {}, run_id="order-1")
    assert (await kit.run(made, {}, run_id="order-1")).state.note == "noted a"
    assert kit.count("note") == 1


async def test_another_run_makes_its_own_calls(kit: Kit) -> None:
    made = Flow("f", state=Order).node("n", Call("note", {"item": "a"})).end("n")
    await kit.run(made, {})
    await kit.run(made, {})
    assert kit.count("note") == 2


async def test_more_calls_than_a_turn_may_make_are_no_fault_of_a_flow(kit: Kit) -> None:
    made = Flow("f", state=Order).node("n", Map("items", tool="note", into="log")).end("n")
    done = await kit.run(made, items(*(str(n) for n in range(50))))
    assert len(done.state.log) == kit.count("note") == 50


async def test_a_flow_with_a_fault_runs_nothing(kit: Kit) -> None:
    ran: list[int] = []
    made = Flow("f", state=Order).node("a", lambda _state: ran.append(1)).edge("a", "b")
    with pytest.raises(FlowCompileError):
        await kit.run(made, {})
    assert ran == []


async def test_an_unknown_tool_runs_nothing(kit: Kit) -> None:
    with pytest.raises(FlowCompileError, match="calls the tool 'nope'"):
        await kit.run(Flow("f", state=Order).node("a", Call("nope")).end("a"), {})


async def test_a_state_that_does_not_hold_runs_nothing(kit: Kit) -> None:
    with pytest.raises(FlowError, match="state: there is no field"):
        await kit.run(paying(), {"nope": 1})


# ------------------------------------------------------------------------------------ checkpoints


async def test_a_checkpoint_comes_after_each_superstep_and_before_a_pause(kit: Kit) -> None:
    kept: list[str] = []

    async def keep(checkpoint: str) -> None:
        kept.append(checkpoint)

    paused = await kit.run(order(), items("a"), on_checkpoint=keep)
    assert len(kept) == 2
    assert kept[-1] == paused.checkpoint
    await kit.decided(order(), paused, on_checkpoint=kept.append)
    assert len(kept) == 3
    done = await kit.run(order(), checkpoint=kept[-1])
    assert (done.status, done.steps, done.state.receipt) == ("done", 2, "placed with 1 rates")


async def test_a_checkpoint_shows_nothing_of_the_state(kit: Kit) -> None:
    paused = await kit.run(order(), items("secret-item"))
    assert paused.checkpoint is not None
    assert "secret-item" not in paused.checkpoint
    assert b"secret-item" not in base64.urlsafe_b64decode(paused.checkpoint)
    assert "checkpoint" not in repr(paused)


async def test_a_checkpoint_resumes_in_another_process_whose_store_knows_nothing(kit: Kit) -> None:
    made = paying()
    paused = await kit.run(made, {})
    other = Kit()
    done = await other.decided(made, paused)
    assert (done.status, done.state.receipt) == ("done", "paid 5")
    assert done.state.log == ["noted before"]
    assert other.ran == [("pay", 5)]
    await other.store.aclose()


async def test_with_a_durable_store_the_checkpoint_carries_no_rows(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    one, other = Kit(store=open_store(url)), Kit(store=open_store(url))
    memory = Kit()
    try:
        paused = await one.run(paying(), {})
        assert paused.checkpoint is not None
        bigger = (await memory.run(paying(), {})).checkpoint
        assert bigger is not None
        assert len(paused.checkpoint) < len(bigger) / 2
        done = await other.decided(paying(), paused)
        assert (done.state.receipt, other.ran) == ("paid 5", [("pay", 5)])
        with pytest.raises(ApprovalAlreadyDecided):
            await one.decided(paying(), paused)
        assert one.ran == [("note", "before")]
    finally:
        for kit in (one, other, memory):
            await kit.store.aclose()


async def test_a_checkpoint_is_sealed_with_the_given_key(kit: Kit) -> None:
    secret = b"another secret of 16 or more"
    paused = await kit.run(order(), items("a"), checkpoint_key=secret)
    with pytest.raises(FlowError, match="does not open"):
        await kit.decided(order(), paused)
    done = await kit.decided(order(), paused, checkpoint_key=secret)
    assert done.status == "done"


async def test_a_short_checkpoint_key_is_refused(kit: Kit) -> None:
    with pytest.raises(ConfigurationError):
        await kit.run(order(), items("a"), checkpoint_key=b"short")


def altered(checkpoint: str, run: str = "other") -> str:
    inner = json.loads(base64.urlsafe_b64decode(checkpoint))
    return base64.urlsafe_b64encode(json.dumps(inner | {"run": run}).encode()).decode()


@pytest.mark.parametrize(
    "spoil",
    [
        altered,
        lambda checkpoint: checkpoint[:-8],
        lambda _checkpoint: "",
        lambda _checkpoint: "no base64 at all é",
        lambda _checkpoint: base64.urlsafe_b64encode(b"[]").decode(),
        lambda _checkpoint: base64.urlsafe_b64encode(b"{}").decode(),
    ],
)
async def test_a_checkpoint_that_was_altered_runs_nothing(kit: Kit, spoil: Any) -> None:
    paused = await kit.run(paying(), {})
    before = list(kit.ran)
    with pytest.raises(FlowError, match="The checkpoint of flow 'f' does not open") as caught:
        await kit.run(paying(), checkpoint=spoil(paused.checkpoint), decision=YES)
    assert kit.ran == before
    assert KEY.decode() not in str(caught.value)


async def test_a_checkpoint_of_another_version_of_the_flow_does_not_open(kit: Kit) -> None:
    paused = await kit.run(paying(), {})
    changed = paying().node("x", logs("x")).edge("n", "x").end("x")
    with pytest.raises(FlowError, match="another version of this one"):
        await kit.run(changed, checkpoint=paused.checkpoint)


async def test_a_checkpoint_that_is_nested_too_deeply_does_not_open(kit: Kit) -> None:
    deep = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    with pytest.raises(FlowError, match="The checkpoint of flow 'f' does not open"):
        await kit.run(paying(), checkpoint=deep)


def version(work: Any, otherwise: str | None = None) -> Flow:
    made = Flow("f", state=Order).node("n", work).end("n").node("m", logs("m")).end("m")
    return made.edge("n", Route(lambda _state: "m", to=("m", END), caps=1, otherwise=otherwise))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (version(Call("pay", {"amount": 1})), version(Call("pay", {"amount": 2}))),
        (version(Call("pay", {"amount": 1})), version(Call("pay", lambda _state: {"amount": 1}))),
        (version(Call("pay", into="note")), version(Call("pay", into="receipt"))),
        (version(Map("items", tool="pay")), version(Map("rates", tool="pay"))),
        (version(logs("n")), version(logs("n"), otherwise="m")),
        (version(logs("n"), otherwise=END), version(logs("n"), otherwise="m")),
    ],
)
def test_what_a_node_was_declared_with_is_part_of_the_version(one: Flow, other: Flow) -> None:
    assert one.digest != other.digest


def test_the_same_declaration_is_the_same_version() -> None:
    one, other = ({"amount": 1, "more": {"x", "y"}}, {"more": {"y", "x"}, "amount": 1})
    assert version(Call("pay", one)).digest == version(Call("pay", other)).digest
    assert version(logs("n")).digest == version(logs("other")).digest
    assert version(Call("pay", {"amount": object()})).digest


async def test_a_checkpoint_opens_where_only_a_fields_type_was_widened(kit: Kit) -> None:
    class Before(BaseModel):
        note: str = Field(default="x", description="old")

    class After(BaseModel):
        note: str | None = Field(default="x", description="new")

    def of(state: Any) -> Flow:
        return Flow("f", state=state).node("n", Call("pay", {"amount": 1})).end("n")

    paused = await kit.run(of(Before), {})
    assert (await kit.decided(of(After), paused)).state == After()


async def test_a_checkpoint_and_a_state_contradict_each_other(kit: Kit) -> None:
    paused = await kit.run(paying(), {})
    with pytest.raises(FlowError, match="goes on with its own state"):
        await kit.run(paying(), {}, checkpoint=paused.checkpoint)


async def test_a_checkpoint_of_another_run_is_refused(kit: Kit) -> None:
    paused = await kit.run(paying(), {}, run_id="one")
    with pytest.raises(FlowError, match="of the run 'one', and not of 'two'"):
        await kit.run(paying(), checkpoint=paused.checkpoint, run_id="two")
    same = await kit.run(paying(), checkpoint=paused.checkpoint, run_id="one")
    assert same.status == "paused"


async def test_a_call_that_may_run_once_in_a_run_is_remembered_in_another_process() -> None:
    from tests.unit.flow.kit import Amount, Item

    from adapter import Effects, ToolSpec
    from adapter.core.validation import PydanticSchema

    ran: list[str] = []

    def process() -> tuple[Executor, MemoryStore]:
        from adapter import ApprovalRule, FunctionTool

        specs = [
            ToolSpec(name="once", effects=Effects(), approval=None, once_per_run=True),
            ToolSpec(name="pay", effects=Effects(), approval=ApprovalRule(name="money")),
        ]

        def once(item: str) -> int:
            ran.append(item)
            return len(ran)

        def pay(amount: int) -> str:
            return f"paid {amount}"

        tools = {"once": FunctionTool(once), "pay": FunctionTool(pay)}
        schemas = {"once": PydanticSchema(Item), "pay": PydanticSchema(Amount)}
        store = MemoryStore()
        port = DeferredApproval(store, KeyRing.from_secret(KEY))
        return Executor(Registry(specs, schemas, tools), store=store, approval=port), store

    made = (
        Flow("f", state=Order)
        .node("a", Call("once", {"item": "x"}, into="total"))
        .node("b", Call("pay", {"amount": 1}, into="log"))
        .node("c", Call("once", {"item": "x"}, into="total"))
        .edge("a", "b")
        .edge("b", "c")
        .end("c")
    )
    executor, store = process()
    paused = await made.run({}, executor=executor)
    await store.aclose()
    executor, store = process()
    done = await made.run(checkpoint=paused.checkpoint, decision=YES, executor=executor)
    await store.aclose()
    assert (done.state.total, ran) == (2, ["x"])


# -------------------------------------------------------------------------------------- decisions


async def test_a_decision_without_a_question_is_refused(kit: Kit) -> None:
    with pytest.raises(ApprovalAlreadyDecided, match="Nothing of this run waits for a decision"):
        await kit.run(paying(), {}, decision=YES)
    assert kit.ran == []


async def test_a_decision_for_a_run_that_went_on_is_refused(kit: Kit) -> None:
    kept: list[str] = []
    await kit.decided(paying(), await kit.run(paying(), {}), on_checkpoint=kept.append)
    with pytest.raises(ApprovalAlreadyDecided):
        await kit.run(paying(), checkpoint=kept[-1], decision=YES)


async def test_a_decision_about_another_question_is_refused(kit: Kit) -> None:
    paused = await kit.run(paying(), {})
    with pytest.raises(FlowError, match="This run does not ask feed"):
        await kit.run(paying(), checkpoint=paused.checkpoint, decision={"feed": YES})


async def test_a_port_that_takes_no_decisions_from_the_store_says_the_cure(kit: Kit) -> None:
    paused = await kit.run(paying(), {})
    bare = Executor(kit.executor.registry, store=kit.store, approval=_Bare(kit.port))
    with pytest.raises(FlowError, match=r"approval=DeferredApproval\(store, keys\)"):
        await paying().run(checkpoint=paused.checkpoint, decision=YES, executor=bare)


class _Bare:
    """A port without a record."""

    def __init__(self, port: DeferredApproval) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        if name == "record":
            raise AttributeError(name)
        return getattr(self._port, name)


# ------------------------------------------------------------------------------- without executor


async def test_a_flow_without_tools_needs_no_executor() -> None:
    made = Flow("f", state=Order).node("a", logs("a")).node("j", Join()).edge("a", "j").end("j")
    assert (await made.run({})).state.log == ["a"]


@pytest.mark.parametrize("key", [None, b"a secret of 16 or more"])
async def test_a_gate_without_an_executor_is_decided_by_its_checkpoint(key: bytes | None) -> None:
    made = Flow("f", state=Order).node("a", logs("a"), pause=lambda _state: {"ask": 1}).end("a")
    paused = await made.run({}, checkpoint_key=key)
    assert paused.pending is not None
    assert paused.pending.arguments == {"ask": 1}
    done = await made.run(checkpoint=paused.checkpoint, decision=YES, checkpoint_key=key)
    assert done.state.log == ["a"]


async def test_a_flow_with_tools_says_that_it_needs_an_executor() -> None:
    with pytest.raises(FlowError, match=r"calls the tools rate: give run\(…, executor=Executor"):
        await order().run(items("a"))


async def test_an_executor_without_a_port_runs_what_asks_nobody() -> None:
    store = MemoryStore()
    executor = Executor(Registry([], {}), store=store)
    made = Flow("f", state=Order).node("a", logs("a")).end("a")
    kept: list[str] = []
    await made.run({}, executor=executor, on_checkpoint=kept.append)
    assert (await made.run(checkpoint=kept[0], executor=executor)).state.log == ["a"]
    await store.aclose()


# ----------------------------------------------------------------------------------- cancellation


async def test_a_cancelled_run_goes_on_from_its_last_checkpoint(kit: Kit) -> None:
    begun, hold = asyncio.Event(), [True]

    async def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        made = await ctx.call("note", {"item": "b"})
        begun.set()
        if hold:
            await asyncio.Event().wait()
        return {"log": made}

    made = Flow("f", state=Order).node("a", logs("a")).node("b", work).edge("a", "b").end("b")
    kept: list[str] = []
    running = asyncio.create_task(kit.run(made, {}, on_checkpoint=kept.append))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    hold.clear()
    done = await kit.run(made, checkpoint=kept[-1])
    assert (done.state.log, kit.count("note")) == (["a", "noted b"], 1)


async def test_the_store_being_down_is_raised_and_the_run_goes_on_later(kit: Kit) -> None:
    paused = await kit.run(paying(), {})
    real = kit.store.get

    async def down(key: str) -> Any:
        raise StoreUnavailable("down")

    kit.store.get = down
    with pytest.raises(StoreUnavailable):
        await kit.decided(paying(), paused)
    kit.store.get = real
    assert (await kit.decided(paying(), paused)).state.receipt == "paid 5"
    assert kit.ran == [("note", "before"), ("pay", 5)]
