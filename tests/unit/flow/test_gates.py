"""Gates here: a person decides before a node runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from tests.unit.flow.kit import KEY, NO, YES, Kit, Order, edit, items, logs, order
from typing_extensions import override

from adapter import ApprovalDecision, DeferredApproval, Executor, KeyRing
from adapter.core.answers import Answer
from adapter.core.approvals import Question, sign_decision
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    CallInProgress,
    ConfigurationError,
    InvalidAnswer,
)
from adapter.core.signing import sealed_value
from adapter.flow import Call, Flow, FlowContext, FlowError, Map
from adapter.stores import MemoryStore

pytestmark = pytest.mark.anyio


def before(name: str, _state: Order) -> dict[str, Any]:
    return {"before": name}


def gates(*names: str, free: tuple[str, ...] = ()) -> Flow:
    """One superstep of gated and other nodes, that log their names."""
    made = Flow("f", state=Order).start(*names, *free).end(*names, *free)
    for name in names:
        made.node(name, logs(name), pause=partial(before, name))
    for name in free:
        made.node(name, logs(name))
    return made


async def test_a_gate_shows_what_its_pause_says_of_the_state(kit: Kit) -> None:
    paused = await kit.run(order(), items("a", "bb"))
    asked = paused.pending
    assert asked is not None
    assert (asked.kind, asked.tool, asked.arguments) == ("gate", "place", {"rates": [1.0, 2.0]})
    assert asked.value["request"]["allowed"] == ["approve", "edit", "reject"]
    assert "required" not in asked.value["request"]["schema"]
    assert (paused.steps, paused.visits, paused.state.receipt) == (1, {"rate": 1}, "")


async def test_an_approved_gate_lets_its_node_run_once(kit: Kit) -> None:
    paused = await kit.run(order(), items("a"))
    done = await kit.decided(order(), paused)
    assert (done.status, done.steps, done.visits) == ("done", 2, {"place": 1, "rate": 1})
    assert done.state.receipt == "placed with 1 rates"


async def test_nothing_of_a_gated_superstep_runs_before_its_decision(kit: Kit) -> None:
    made = gates("a", free=("b",))
    ran: list[str] = []
    made.node("c", lambda _state: ran.append("c")).start("c").end("c")
    paused = await kit.run(made, {})
    assert (paused.status, ran) == ("paused", [])
    assert (await kit.decided(made, paused)).state.log == ["a", "b"]
    assert ran == ["c"]


async def test_the_checkpoint_with_nothing_decided_asks_the_same(kit: Kit) -> None:
    paused = await kit.run(order(), items("a"))
    again = await kit.run(order(), checkpoint=paused.checkpoint)
    assert again.pendings == paused.pendings


@pytest.mark.parametrize("waits", [False, True])
async def test_a_pause_function_may_wait(kit: Kit, waits: bool) -> None:
    async def later(_state: Order) -> dict[str, Any]:
        return {"n": 1}

    made = Flow("f", state=Order).end("a")
    made.node("a", logs("a"), pause=later if waits else lambda _state: {"n": 1})
    paused = await kit.run(made, {})
    assert paused.pending is not None
    assert paused.pending.arguments == {"n": 1}


@pytest.mark.parametrize(
    ("said", "fault"),
    [("x", "pause must return a dict, not a str"), ({"a": object()}, "has no JSON form")],
)
async def test_a_pause_function_must_return_json(kit: Kit, said: Any, fault: str) -> None:
    made = Flow("f", state=Order).node("a", logs("a"), pause=lambda _state: said).end("a")
    with pytest.raises(FlowError, match=f"flow 'f', node 'a': .*{fault}"):
        await kit.run(made, {})


# ---------------------------------------------------------------------------------------- denials


async def test_a_denied_gate_ends_the_run_without_its_superstep(kit: Kit) -> None:
    made = gates("a", free=("b",)).node("first", logs("first")).edge("first", "a", "b")
    made._starts = ("first",)
    paused = await kit.run(made, {})
    done = await kit.decided(made, paused, NO)
    assert done.status == "denied"
    assert "too dear" in str(done.reason)
    assert (done.state.log, done.steps, done.visits) == (["first"], 1, {"first": 1})


async def test_a_denied_gate_stops_one_that_was_granted(kit: Kit) -> None:
    made = gates("a", "b")
    second = await kit.decided(made, await kit.run(made, {}))
    done = await kit.decided(made, second, NO)
    assert (done.status, done.state.log, done.steps) == ("denied", [], 0)


# ------------------------------------------------------------------------------------------ edits


async def test_an_edit_is_what_the_gated_node_sees_and_is_written(kit: Kit) -> None:
    paused = await kit.run(order(), items("a", "bb"))
    done = await kit.decided(order(), paused, edit(rates=[7.5]))
    assert (done.state.rates, done.state.receipt) == ([7.5], "placed with 1 rates")


async def test_the_nodes_own_writes_are_merged_after_the_edit(kit: Kit) -> None:
    made = gates("a")
    done = await kit.decided(made, await kit.run(made, {"log": ["old"]}), edit(log=["new"]))
    assert done.state.log == ["new", "a"]


async def test_siblings_of_a_gate_see_the_edited_state_here(kit: Kit) -> None:
    made = gates("a").start("sib").end("sib")
    made.node("sib", lambda state: {"receipt": f"saw {state.note}"})
    done = await kit.decided(made, await kit.run(made, {}), edit(note="edited"))
    assert (done.state.note, done.state.receipt) == ("edited", "saw edited")


@pytest.mark.parametrize("fields", [{"nope": 1}, {"total": "many"}])
async def test_an_edit_that_does_not_hold_is_no_decision(kit: Kit, fields: dict[str, Any]) -> None:
    paused = await kit.run(order(), items("a"))
    with pytest.raises(InvalidAnswer):
        await kit.decided(order(), paused, edit(**fields))
    again = await kit.run(order(), checkpoint=paused.checkpoint)
    assert (again.status, again.state.receipt) == ("paused", "")
    assert (await kit.decided(order(), again)).status == "done"


# ------------------------------------------------------------------------- several, and used ones


async def test_several_gates_are_asked_one_by_one_and_nothing_runs_before_the_last(
    kit: Kit,
) -> None:
    made = gates("b", "a", free=("c",))
    first = await kit.run(made, {})
    assert [one.node for one in first.pendings] == ["a"]
    second = await kit.decided(made, first)
    assert ([one.node for one in second.pendings], second.state.log) == (["b"], [])
    done = await kit.decided(made, second)
    assert (done.state.log, done.steps) == (["a", "b", "c"], 1)


async def test_several_gates_are_decided_in_another_process(kit: Kit) -> None:
    made = gates("b", "a")
    second = await kit.decided(made, await kit.run(made, {}))
    other = Kit()
    done = await other.decided(made, second)
    assert done.state.log == ["a", "b"]
    await other.store.aclose()


async def test_a_spent_grant_is_already_decided(kit: Kit) -> None:
    paused = await kit.run(order(), items("a"))
    await kit.decided(order(), paused)
    with pytest.raises(ApprovalAlreadyDecided):
        await kit.decided(order(), paused)


async def test_an_old_checkpoint_without_a_decision_runs_nothing_twice(kit: Kit) -> None:
    ran: list[str] = []

    def work(_state: Order) -> dict[str, Any]:
        ran.append("a")
        return {"log": "a"}

    made = Flow("f", state=Order).node("a", work, pause=lambda _state: {}).end("a")
    paused = await kit.run(made, {})
    first = await kit.decided(made, paused)
    again = await kit.run(made, checkpoint=paused.checkpoint)
    assert (again.state, again.visits, again.steps) == (first.state, first.visits, first.steps)
    assert ran == ["a"]


async def test_a_node_that_failed_behind_its_gate_does_not_run_again(kit: Kit) -> None:
    ran: list[str] = []

    def work(_state: Order) -> None:
        ran.append("a")
        raise ValueError("broken")

    made = Flow("f", state=Order).node("a", work, pause=lambda _state: {}).end("a")
    paused = await kit.run(made, {})
    with pytest.raises(ValueError, match="broken"):
        await kit.decided(made, paused)
    with pytest.raises(ApprovalAlreadyDecided):
        await kit.run(made, checkpoint=paused.checkpoint)
    assert ran == ["a"]


async def test_a_node_behind_a_gate_may_ask_about_its_calls(kit: Kit) -> None:
    async def work(state: Order, ctx: FlowContext) -> dict[str, Any]:
        note = await ctx.call("note", {"item": state.note})
        return {"log": note, "receipt": await ctx.call("pay", {"amount": 5})}

    made = Flow("f", state=Order).node("a", work, pause=lambda _state: {}).end("a")
    gate = await kit.run(made, {})
    call = await kit.decided(made, gate, edit(note="edited"))
    assert call.pending is not None
    assert (call.pending.kind, call.pending.tool) == ("tool", "pay")
    done = await kit.decided(made, call)
    assert (done.state.log, done.state.receipt) == (["noted edited"], "paid 5")
    assert done.state.note == "edited"
    assert kit.ran == [("note", "edited"), ("pay", 5)]


async def test_a_sibling_that_pauses_does_not_undo_a_gates_edit(kit: Kit) -> None:
    made = gates("a").node("pay", Call("pay", {"amount": 1}, into="log")).start("pay").end("pay")
    made.node("sib", lambda state: {"receipt": state.note}).edge("pay", "sib").end("sib")
    call = await kit.decided(made, await kit.run(made, {}), edit(note="edited"))
    assert call.pending is not None
    assert call.pending.tool == "pay"
    done = await kit.decided(made, call)
    assert (done.state.note, done.state.receipt) == ("edited", "edited")
    assert done.state.log == ["a", "paid 1"]


async def test_a_gated_node_may_write_numbers_of_up_to_64_bits(kit: Kit) -> None:
    made = Flow("f", state=Order).end("n")
    made.node("n", lambda _state: {"total": 2**64 - 1}, pause=lambda _state: {})
    paused = await kit.run(made, {})
    assert (await kit.decided(made, paused)).state.total == 2**64 - 1
    assert (await kit.run(made, checkpoint=paused.checkpoint)).state.total == 2**64 - 1


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
async def test_a_wider_number_is_refused_by_node_and_field(kit: Kit, number: int) -> None:
    made = Flow("f", state=Order).node("n", lambda _state: {"total": number}).end("n")
    with pytest.raises(FlowError, match="'n': total: it holds a whole number of more than 64"):
        await kit.run(made, {})
    with pytest.raises(FlowError, match=r"^total: it holds a whole number of more than 64 bits"):
        await kit.run(made, {"total": number})


async def test_a_number_that_cannot_be_signed_is_refused_before_anybody_is_asked(kit: Kit) -> None:
    made = Flow("f", state=Order).end("n")
    made.node("n", lambda _state: None, pause=lambda state: {"seen": state.total})
    told = r"flow 'f', node 'n': what pause returned cannot be signed: seen holds .* 2\*\*53"
    with pytest.raises(FlowError, match=told):
        await kit.run(made, {"total": 2**53})
    paused = await kit.run(made, {"total": 2**53 - 1})
    with pytest.raises(InvalidAnswer, match=r"flow 'f', node 'n': the edit .* total holds"):
        await kit.decided(made, paused, edit(total=2**53))
    done = await kit.decided(made, paused, edit(total=2**53 - 2))
    assert done.state.total == 2**53 - 2


async def test_an_edit_that_names_no_field_is_no_decision(kit: Kit) -> None:
    made = gates("a")
    paused = await kit.run(made, {})
    with pytest.raises(InvalidAnswer, match="it names no field of the state"):
        await kit.decided(made, paused, edit())
    assert (await kit.decided(made, paused, edit(total=4))).state.total == 4


async def test_two_resumes_at_once_run_the_node_once(kit: Kit) -> None:
    ran: list[str] = []

    async def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        ran.append("n")
        return {"receipt": await ctx.call("note", {"item": "x"})}

    made = Flow("f", state=Order).node("n", work, pause=lambda _state: {}).end("n")
    paused = await kit.run(made, {})
    assert paused.pending is not None
    await kit.port.record(paused.pending.key, YES)
    both = await asyncio.gather(
        *(kit.run(made, checkpoint=paused.checkpoint) for _ in range(2)), return_exceptions=True
    )
    assert (ran, kit.count("note")) == (["n"], 1)
    assert all(
        isinstance(one, CallInProgress)
        or (not isinstance(one, BaseException) and one.state.receipt == "noted x")
        for one in both
    )


async def test_a_map_may_have_a_gate(kit: Kit) -> None:
    made = Flow("f", state=Order).end("m")
    made.node("m", Map("items", tool="note", into="log"), pause=lambda state: {"n": state.items})
    done = await kit.decided(made, await kit.run(made, items("a", "b")))
    assert done.state.log == ["noted a", "noted b"]


# ------------------------------------------------------------------------------------------ ports


class AtOnce(DeferredApproval):
    """A port of one's own that decides by itself."""

    def __init__(self, store: MemoryStore, decision: ApprovalDecision) -> None:
        super().__init__(store, KeyRing.from_secret(KEY))
        self._decision = decision

    @override
    async def decide(self, question: Question, refused: Callable[..., Awaitable[bool]]) -> Answer:
        value = sealed_value(self.keys, question.binding, question.request)
        signed = sign_decision(
            self.keys, value, self._decision, decided_at=self._clock(), reviewer="robot"
        )
        return question.check.check(signed, saved=False)


@pytest.mark.parametrize(("decision", "status"), [(YES, "done"), (NO, "denied")])
async def test_a_gate_whose_port_decides_at_once_does_not_stop_the_run(
    kit: Kit, decision: ApprovalDecision, status: str
) -> None:
    executor = kit.make(approval=AtOnce(kit.store, decision))
    done = await order().run(items("a"), executor=executor)
    assert done.status == status
    assert done.state.receipt == ("placed with 1 rates" if status == "done" else "")


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"totl": 4}, "totl: the state has no such field"),
        ({"total": "abc"}, "total: must be of type integer"),
        ({"rates": ["a"]}, r"rates\.0: must be of type number"),
        ({"before": "a"}, "before: the state has no such field"),
    ],
)
async def test_an_edit_that_does_not_fit_is_refused_by_field_and_decides_nothing(
    kit: Kit, wrong: dict[str, Any], fault: str
) -> None:
    made = gates("a")
    paused = await kit.run(made, {})
    assert paused.pending is not None
    with pytest.raises(InvalidAnswer, match=fault):
        await kit.decided(made, paused, edit(**wrong))
    with pytest.raises(InvalidAnswer, match=fault):
        await kit.port.record(paused.pending.key, edit(**wrong))
    assert len(await kit.port.pending()) == 1
    done = await kit.decided(made, paused, edit(total=4, rates=[1]))
    assert (done.status, done.state.total, done.state.rates) == ("done", 4, [1.0])


async def test_a_calls_edit_that_does_not_fit_is_refused_by_argument(kit: Kit) -> None:
    made = Flow("f", state=Order).node("pay", Call("pay", {"amount": 5}, into="receipt")).end("pay")
    paused = await kit.run(made, {})
    for wrong in ({"amonut": 3}, {"amount": "3"}):
        with pytest.raises(InvalidAnswer, match="pay: amo"):
            await kit.decided(made, paused, edit(**wrong))
    assert kit.ran == []
    assert (await kit.decided(made, paused, edit(amount=3))).state.receipt == "paid 3"


async def test_a_node_that_failed_behind_its_gate_says_how_to_go_on_here(kit: Kit) -> None:
    def fails(_state: Order) -> None:
        msg = "broke"
        raise ValueError(msg)

    made = Flow("f", state=Order).node("a", fails, pause=partial(before, "a")).end("a")
    paused = await kit.run(made, {})
    with pytest.raises(ValueError, match="broke"):
        await kit.decided(made, paused)
    with pytest.raises(ApprovalAlreadyDecided, match=r"used up.*Begin a new run: it asks again"):
        await kit.run(made, checkpoint=paused.checkpoint)
    assert (await kit.run(made, {})).status == "paused"


async def test_a_gate_without_a_port_says_so() -> None:
    from adapter import Registry

    store = MemoryStore()
    made = gates("a")
    with pytest.raises(ConfigurationError):
        await made.run({}, executor=Executor(Registry([], {}), store=store))
    await store.aclose()
