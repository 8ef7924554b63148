"""A46: writing to what a flow keeps of itself, or to the state a gate was approved for.

Whoever may write a thread's state gets nothing run that nobody approved. Each attack has its twin
without the forgery. Runs are counted outside the graph.
"""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field, ValidationError
from tests.support.flows import CONFIG, Board, Process, Works, shown
from tests.support.room import KEYS, open_questions, tool_of
from tests.support.toolkit import NO, YES

from adapter import (
    ApprovalAlreadyDecided,
    ApprovalDecision,
    DeferredApproval,
    Effects,
    Executor,
    KeyRing,
    Merge,
    ToolSpec,
)
from adapter.core.errors import FlowError
from adapter.flow import Call, Flow, FlowContext
from adapter.langgraph import LangGraphApproval
from adapter.langgraph.flowtold import Told
from adapter.langgraph.runflow import flow_result

pytestmark = pytest.mark.anyio

OTHER: Any = {"configurable": {"thread_id": "flow-2"}}


@pytest.fixture(params=["memory", "lasting"])
def store(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "memory" else "lasting"


def changed() -> Any:
    """What a write behind an open gate comes to."""
    return pytest.raises(ApprovalAlreadyDecided, match="state was changed")


async def written(room: Process, update: Any) -> None:
    """A client writes to the thread."""
    await room.app.ainvoke(Command(update=update), CONFIG)


async def given(room: Process, asked: Any, update: Any = None) -> None:
    """The reviewer answers a question as it was shown to them; a client adds an update.

    A signed answer that comes with it is refused; a recorded one is about another state now.
    """
    refused: Any = contextlib.nullcontext()
    if hasattr(room.shop.port, "resume_value"):
        command: Any = Command(resume=room.signed(asked).resume, update=update)
        refused = refused if update is None else pytest.raises(ValidationError)
    else:
        for row in await room.shop.port.pending():
            if row.tool == asked.value["request"]["tool"]:
                await room.shop.port.record(row, YES)
        command = None if update is None else Command(update=update)
    with refused:
        await room.app.ainvoke(command, CONFIG)


def questions(pauses: list[Any]) -> list[Any]:
    return [pause for pause in pauses if "request" in pause.value]


def effects_behind() -> Flow:
    """A gate with an effect behind it that asks nobody, and one that asks."""

    async def work(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        await ctx.call("note", {"text": "behind"})
        return {"receipt": await ctx.call("pay", {"text": "x"})}

    return Flow("f", state=Board).node("place", work, pause=shown).end("place")


@pytest.mark.parametrize("visits", [{"place": 7}, {"place": 1}, {"__overwrite__": {"place": 8}}])
async def test_visits_written_behind_an_open_gate_run_no_effect_again(
    works: Works, store: str | None, visits: Any
) -> None:
    room = works.process(effects_behind(), store=store)
    await room.run({"n": 1})
    await room.run(YES)
    assert works.ran("note") == 1
    for one in (visits, {"place": 9}):
        with changed():
            await written(room, {"aa_visits": one})
    assert (works.ran("note"), works.ran("pay")) == (1, 0)


async def test_the_effects_behind_an_open_gate_run_once_where_nobody_writes(
    works: Works, store: str | None
) -> None:
    room = works.process(effects_behind(), store=store)
    await room.run({"n": 1})
    await room.run(YES)
    await room.app.ainvoke(Command(update={"aa_visits": 5}), CONFIG)  # is no count: ignored
    assert (await room.run(YES)).status == "done"
    assert (works.ran("note"), works.ran("pay")) == (1, 1)


@pytest.mark.parametrize(
    "update", [{"aa_visits": {"place": 3}}, {"aa_loop_counts": {"place->place": 2}}], ids=str
)
async def test_counts_written_beside_an_answer_are_asked_about_anew(
    works: Works, store: str | None, update: Any
) -> None:
    room = works.process(effects_behind(), store=store)
    await room.run({"n": 1})
    (asked,) = await room.asked()
    await given(room, asked, update)
    await room.app.ainvoke(None, CONFIG)
    assert works.ran("note") == 0
    (again,) = await room.asked()
    await room.answer(again)
    assert works.ran("note") == 1


def three(works: Works) -> Flow:
    """Two gates and a node without one, in one superstep."""
    flow = Flow("f", state=Board)
    for name in "ab":
        flow.node(name, works.node(name), pause=shown)
    flow.node("c", Call("note", lambda state: {"text": f"c with {state.n}"}))
    return flow.start("a", "b", "c").end("a", "b", "c")


async def test_a_grant_for_another_state_opens_nothing_for_its_siblings(works: Works) -> None:
    room = works.process(three(works), store="lasting")
    await room.run({"n": 1})
    (first,) = questions(await room.asked())
    await room.answer(first)
    with changed():
        await written(room, {"n": 1000})
    for _ in range(3):
        (asked,) = questions(await room.asked())
        with changed():
            await given(room, asked)
        with changed():
            await room.app.ainvoke(None, CONFIG)
    assert works.ledger.all == []


async def test_the_twin_of_it_runs_all_three_once(works: Works) -> None:
    room = works.process(three(works), store="lasting")
    await room.run({"n": 1})
    for _ in "ab":
        (asked,) = questions(await room.asked())
        await room.answer(asked)
    assert [works.ran(name) for name in ("a", "b", "note")] == [1, 1, 1]


@pytest.mark.parametrize("forged", [True, False])
async def test_a_sibling_that_passed_the_gates_does_not_go_on_with_another_state(
    works: Works, store: str | None, forged: bool
) -> None:
    async def asks(state: Board) -> dict[str, Any]:
        interrupt({"question": "which?"})
        works.ledger.add(tool="node", text="went on", n=state.n)
        return {}

    flow = Flow("f", state=Board).node("asks", asks).node("gate", works.node("g"), pause=shown)
    room = works.process(flow.start("asks", "gate").end("asks", "gate"), store=store)
    await room.run({"n": 1})
    (gate,) = await room.asked()
    await room.answer(gate)
    (asked,) = await room.asked()
    answer: Any = Command(resume={asked.id: "this"}, update={"n": 1000} if forged else None)
    with changed() if forged else contextlib.nullcontext():
        await room.app.ainvoke(answer, CONFIG)
    assert works.ran("went on") == (0 if forged else 1)


FORGED_NO: list[Any] = [
    {"denied": "Ann says no"},
    {"denied": "Ann says no", "node": "place", "ran": False, "seal": {}},
    {"denied": "Ann says no", "no": {"node": "place", "seal": {"kid": "shared-state"}}},
    {"__overwrite__": {"denied": "Ann says no", "steps": 1}},
]


@pytest.mark.parametrize("no", FORGED_NO, ids=str)
async def test_a_no_that_nobody_said_ends_nothing(works: Works, store: str | None, no: Any) -> None:
    room = works.process(works.gated(), store=store)
    await room.run({})
    (asked,) = await room.asked()
    await room.app.ainvoke(Command(update={"aa_flow": no}), CONFIG)
    told = flow_result(room.app, await room.app.aget_state(CONFIG))
    assert (told.status, told.reason) == ("paused", None)
    await given(room, asked)
    assert (works.ran("place"), works.ran("done")) == (1, 1)


async def test_a_no_that_was_said_elsewhere_ends_nothing_here(works: Works) -> None:
    room = works.process(works.gated(), store="lasting")
    await room.run({}, OTHER)
    (elsewhere,) = await room.asked(OTHER)
    assert (await room.answer(elsewhere, NO, OTHER)).status == "denied"
    told = (await room.app.aget_state(OTHER)).values["aa_flow"]
    await room.run({})
    await written(room, {"aa_flow": {"denied": told["denied"], **told["no"]}})
    assert (await room.run(YES)).status == "done"


async def test_a_no_that_was_said_cannot_be_written_away(works: Works) -> None:
    room = works.process(works.gated(), store="lasting")
    await room.run({})
    said = await room.run(NO)
    assert (said.status, said.reason) == ("denied", "no")
    tries: list[Any] = [{"denied": None}, {"denied": "something else"}, {"__overwrite__": {}}]
    for forged in tries:
        await room.app.aupdate_state(CONFIG, {"aa_flow": forged}, as_node="place")
        told = flow_result(room.app, await room.app.aget_state(CONFIG))
        assert (told.status, told.reason) == ("denied", "no")
    assert works.ran("place") == 0


def versions(works: Works) -> tuple[Flow, Flow]:
    """Two versions of one flow with a gate before the same node."""
    first = Flow("f", state=Board).node("g", works.node("v1"), pause=shown).end("g")
    second = Flow("f", state=Board).node("g", Call("note", {"text": "v2"}), pause=shown).end("g")
    return first, second


async def test_an_approval_of_one_version_opens_no_gate_of_another(works: Works) -> None:
    saver = InMemorySaver()
    old, new = (works.process(one, store="shared", saver=saver) for one in versions(works))
    await old.run({"n": 1})
    (asked,) = await old.asked()
    if works.port == "deferred":
        (row,) = await old.shop.port.pending()
        await old.shop.port.record(row, YES)
        await new.app.ainvoke(None, CONFIG)
    else:
        with pytest.raises(FlowError, match="another thread, task or version"):
            await new.app.ainvoke(old.signed(asked), CONFIG)
        await new.app.ainvoke(None, CONFIG)
    assert works.ran("note") == 0
    assert (await new.run(YES)).status == "done"  # asked anew, about this version
    assert (works.ran("v1"), works.ran("note")) == (0, 1)


async def test_a_run_of_another_thread_put_in_place_opens_no_gate(works: Works) -> None:
    room = works.process(once_around_a_gate(works), store="lasting", shop=mailing(works))
    await room.run({}, OTHER)
    foreign = (await room.app.aget_state(OTHER)).values["aa_flow"]
    await room.run({})
    (asked,) = await room.asked()
    update = {"aa_flow": {"__overwrite__": foreign}}
    if works.port == "signed":
        await given(room, asked, update)
    else:
        await written(room, update)
    await room.app.ainvoke(None, CONFIG)
    assert works.ran("g") == 0
    assert len(works.ledger.of("mail")) == 2  # one on each thread
    assert (await room.run(YES)).status == "done"
    assert works.ran("g") == 1


@pytest.mark.parametrize("run", [None, "x", 5, {}])
async def test_a_run_that_was_made_up_changes_nothing(works: Works, run: Any) -> None:
    room = works.process(once_around_a_gate(works), store="lasting", shop=mailing(works))
    await room.run({})
    for _ in range(2):
        await room.app.ainvoke(
            Command(update={"aa_flow": {"__overwrite__": {"run": run, "steps": 1}}}), CONFIG
        )
    assert (await room.run(YES)).status == "done"
    assert (len(works.ledger.of("mail")), works.ran("g")) == (1, 1)


def once_around_a_gate(works: Works) -> Flow:
    """The same letter before and behind a gate, of a tool that runs once in a run."""
    return (
        Flow("f", state=Board)
        .node("a", Call("mail", {"text": "hi"}, into="receipt"))
        .node("g", works.node("g"), pause=shown)
        .node("b", Call("mail", {"text": "hi"}, into="receipt"))
        .edge("a", "g")
        .edge("g", "b")
        .end("b")
    )


def mailing(works: Works) -> dict[str, Any]:
    def mail(text: str) -> str:
        works.ledger.add(tool="mail", text=text)
        return "sent"

    spec = ToolSpec(
        name="mail", effects=Effects(destructive=True), approval=None, once_per_run=True
    )
    return {"tools": [tool_of(mail, "mail")], "specs": [spec]}


MALFORMED: list[Any] = [
    {"aa_visits": 5},
    {"aa_visits": "s"},
    {"aa_visits": {"place": "x"}},
    {"aa_visits": {"place": float("inf")}},
    {"aa_visits": {"place": 2**60}},
    {"aa_visits": {"__overwrite__": [1]}},
    {"aa_visits": {"__overwrite__": {"plan": True}}},
    {"aa_loop_counts": "s"},
    {"aa_loop_counts": {"plan->place": -1}},
    {"aa_flow": 5},
    {"aa_flow": {"steps": "many", "denied": 7}},
    {"aa_flow": {"__overwrite__": 5}},
    {"aa_flow": {"__overwrite__": {}}},
]


@pytest.mark.parametrize("update", MALFORMED, ids=str)
async def test_what_is_no_count_and_no_run_is_ignored(
    works: Works, store: str | None, update: Any
) -> None:
    room = works.process(works.gated(), store=store)
    await room.run({})
    before = (await room.app.aget_state(CONFIG)).values
    (asked,) = await room.asked()
    for _ in range(2):  # two of them are one write of the channel
        await room.app.ainvoke(Command(update=update), CONFIG)
    after = (await room.app.aget_state(CONFIG)).values
    for name in ("aa_visits", "aa_loop_counts", "aa_flow"):
        assert after[name] == before[name]
    await given(room, asked)
    assert (works.ran("place"), works.ran("done")) == (1, 1)


class Order(BaseModel):
    """A state in which a client may put JSON of any form."""

    meta: dict[str, Any] = Field(default_factory=dict)


@pytest.mark.parametrize("limit", [{"number": "5/1"}, ["number", "5/1"], "5", 5.5])
async def test_another_value_of_the_same_look_is_another_state(works: Works, limit: Any) -> None:
    saw = []

    def buy(state: Order) -> None:
        saw.append(state.meta)

    flow = Flow("f", state=Order).node("buy", buy, pause=lambda state: {"meta": state.meta})
    room = works.process(flow.end("buy"), store="lasting")
    await room.run({"meta": {"limit": 5}})
    (asked,) = await room.asked()
    await given(room, asked, {"meta": {"limit": limit}})
    await room.app.ainvoke(None, CONFIG)
    assert saw == []
    (again,) = await room.asked()
    await room.answer(again)
    assert saw == [{"limit": limit}]


class Payout(BaseModel):
    """A state whose order of keys and forms of numbers a node can see."""

    send: dict[str, Any] = Field(default_factory=lambda: {"anna": 1, "bob": 0.0})
    extra: Any = 0
    big: Any = 10**15
    wide: float = 1e22
    receipt: str = ""


def payout(*, asks: bool = True) -> Flow:
    """Behind a gate, an effect for each item that asks nobody, then one that asks."""

    async def work(state: Payout, ctx: FlowContext) -> dict[str, Any]:
        for who, much in state.send.items():
            await ctx.call("note", {"text": f"{who} {much!r} {state.extra!r} {state.big!r}"})
        return {"receipt": await ctx.call("pay", {"text": "x"})} if asks else {}

    flow = Flow("f", state=Payout)
    return flow.node("place", work, pause=lambda state: {"send": state.send}).end("place")


SAID = ["anna 1 0 1000000000000000", "bob 0.0 0 1000000000000000"]

SAME_BY_VALUE: list[Any] = [
    {"send": {"bob": 0.0, "anna": 1}},
    {"send": {"anna": 1.0, "bob": 0.0}},
    {"send": {"anna": 1, "bob": 0}},
    {"send": {"anna": 1, "bob": -0.0}},
    {"extra": 0.0},
    {"big": 1e15},
]


def notes(works: Works) -> list[str]:
    return [fact["text"] for fact in works.ledger.of("note")]


@pytest.mark.parametrize("update", SAME_BY_VALUE, ids=str)
async def test_an_equal_state_of_another_form_runs_no_effect_behind_an_open_gate_again(
    works: Works, store: str | None, update: Any
) -> None:
    room = works.process(payout(), store=store)
    await room.run({})
    await room.run(YES)
    for _ in range(2):
        with changed():
            await written(room, update)
    assert (notes(works), works.ran("pay")) == (SAID, 0)


@pytest.mark.parametrize("update", SAME_BY_VALUE, ids=str)
def test_nor_does_it_in_a_synchronous_graph(works: Works, store: str | None, update: Any) -> None:
    app = works.process(payout(), store=store).app
    app.invoke({}, CONFIG)
    if works.port == "signed":
        (asked,) = open_questions(app.get_state(CONFIG))
        port = LangGraphApproval(KEYS)
        app.invoke(Command(resume={asked.id: port.resume_value(asked, YES)}), CONFIG)
        with changed():
            app.invoke(Command(update=update), CONFIG)
    assert notes(works) == (SAID if works.port == "signed" else [])


@pytest.mark.parametrize("update", SAME_BY_VALUE, ids=str)
async def test_an_equal_state_of_another_form_beside_an_answer_is_asked_about_anew(
    works: Works, store: str | None, update: Any
) -> None:
    room = works.process(payout(asks=False), store=store)
    await room.run({})
    (asked,) = await room.asked()
    await given(room, asked, update)
    await room.app.ainvoke(None, CONFIG)
    assert notes(works) == []
    (again,) = await room.asked()
    await room.answer(again)
    assert len(notes(works)) == 2


@pytest.mark.parametrize("saver", ["memory", "sqlite"])
async def test_an_untouched_state_goes_on_in_another_process(
    works: Works, store: str | None, saver: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        kept: Any = InMemorySaver()
        if saver == "sqlite":
            opened = AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db"))
            kept = await stack.enter_async_context(opened)
        lasting = "shared" if store else None
        rooms = [works.process(payout(), store=lasting, saver=kept) for _ in range(3)]
        await rooms[0].run({})
        await rooms[1].run(YES)
        assert (await rooms[2].run(YES)).status == "done"
    assert (notes(works), works.ran("pay")) == (SAID, 1)


EDITS: list[Any] = [
    {"send": {"bob": 2, "anna": 1}},
    {"extra": 0.0},
    {"extra": -0.0},
    {"big": 1e15},
    {"wide": 1e23},
]


@pytest.mark.parametrize("edit", EDITS, ids=str)
async def test_what_a_reviewers_edit_ran_does_not_run_again_in_another_form(
    works: Works, store: str | None, edit: Any
) -> None:
    room = works.process(payout(), store=store)
    await room.run({})
    await room.run(ApprovalDecision(kind="edit", edited_args=edit))
    once = notes(works)
    assert (await room.run(YES)).status == "done"
    assert len(once) == 2
    assert (notes(works), works.ran("pay")) == (once, 1)


@pytest.mark.parametrize("edit", EDITS, ids=str)
async def test_nor_in_a_local_run(works: Works, store: str | None, edit: Any) -> None:
    flow, executor = payout(), local(works, store)
    paused = await flow.run({}, executor=executor)
    decision = ApprovalDecision(kind="edit", edited_args=edit)
    paused = await flow.run(checkpoint=paused.checkpoint, decision=decision, executor=executor)
    once = notes(works)
    await flow.run(checkpoint=paused.checkpoint, decision=YES, executor=executor)
    assert len(once) == 2
    assert (notes(works), works.ran("pay")) == (once, 1)


@pytest.mark.parametrize("update", SAME_BY_VALUE, ids=str)
async def test_a_local_run_begun_again_with_an_equal_state_of_another_form_passes_no_used_gate(
    works: Works, store: str | None, update: Any
) -> None:
    flow, executor = payout(), local(works, store)
    paused = await flow.run({}, executor=executor, run_id="order-7")
    await flow.run(checkpoint=paused.checkpoint, decision=YES, executor=executor)
    with pytest.raises(ApprovalAlreadyDecided, match="another run_id"):
        await flow.run(update, executor=executor, run_id="order-7")
    again = await flow.run({}, executor=executor, run_id="order-7")
    assert (again.status, notes(works), works.ran("pay")) == ("paused", SAID, 0)


class Tally(Board):
    """A field of every kind of rule."""

    table: Annotated[dict[str, int], Merge.union] = Field(default_factory=dict)
    most: Annotated[int, Merge.max] = 0
    sum_: Annotated[int, Merge.sum] = 0


UNMERGEABLE: list[Any] = [
    {"log": 5},
    {"log": [{"a": 1}]},
    {"seen": "x"},
    {"table": [1]},
    {"most": "x"},
    {"sum_": {}},
]


def tallied(works: Works) -> Flow:
    return Flow("f", state=Tally).node("place", works.node("place"), pause=shown).end("place")


@pytest.mark.parametrize("update", UNMERGEABLE, ids=str)
async def test_a_clients_write_that_cannot_be_merged_changes_nothing(
    works: Works, store: str | None, update: Any
) -> None:
    room = works.process(tallied(works), store=store)
    await room.run({"log": ["a"], "n": 1})
    before = (await room.app.aget_state(CONFIG)).values
    (asked,) = await room.asked()
    for _ in range(2):
        await written(room, update)
    assert (await room.app.aget_state(CONFIG)).values == before
    assert [one async for one in room.app.aget_state_history(CONFIG)]
    await given(room, asked)  # the answer to what was shown before
    assert works.ran("place") == 1
    assert (await room.app.aget_state(CONFIG)).values["log"] == ["a", "place"]


async def test_of_two_writes_of_a_client_those_that_can_be_merged_are(works: Works) -> None:
    room = works.process(tallied(works), store="lasting")
    await room.run({"log": ["a"]})
    await written(room, [("log", 5), ("log", ["b"])])
    values = (await room.app.aget_state(CONFIG)).values
    assert values["log"] == ["a", "b"]


@pytest.mark.parametrize("as_pairs", [True, False])
async def test_of_a_clients_writes_to_one_field_the_last_one_holds_and_the_gate_asks_about_it(
    works: Works, store: str | None, *, as_pairs: bool
) -> None:
    room = works.process(works.gated(), store=store)
    await room.run({})
    (asked,) = await room.asked()
    if as_pairs:
        await written(room, [("n", 7), ("n", 8)])
    else:
        for n in (7, 8):
            await written(room, {"n": n})
    assert (await room.app.aget_state(CONFIG)).values["n"] == 8
    assert [one async for one in room.app.aget_state_history(CONFIG)]
    if works.port == "signed":
        with pytest.raises(ValidationError):
            await room.app.ainvoke(room.signed(asked), CONFIG)
    assert works.ran("place") == 0
    (again,) = await room.asked()
    assert again.value["request"]["arguments"] == {"n": 8}
    await room.answer(again)
    assert works.ran("place") == 1


async def test_a_clients_write_is_no_conflict_with_a_nodes(works: Works) -> None:
    async def asks(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        return {"receipt": await ctx.call("pay", {"text": "x"})}

    flow = Flow("f", state=Board).node("a", works.node("a")).node("b", asks)
    room = works.process(flow.start("a", "b").end("a", "b"), store="lasting")
    await room.run({})
    as_if = [("aa_flow", {"node": "c", "ran": True}), ("receipt", "a client's")]
    await written(room, as_if)
    done = await room.run(YES)
    assert (done.status, works.ran("pay"), works.ran("a")) == ("done", 1, 1)
    assert done.state.receipt != "a client's"


@pytest.mark.parametrize("update", [{"n": "bad"}, {"log": {"__overwrite__": 5}}], ids=str)
async def test_a_clients_write_that_does_not_hold_leaves_the_thread_readable_and_a_new_run_open(
    works: Works, store: str | None, update: Any
) -> None:
    room = works.process(works.gated(), store=store)
    await room.run({})
    with pytest.raises(FlowError, match="does not hold"):
        await written(room, update)
    assert (await room.app.aget_state(CONFIG)).next == ("place",)
    assert [one async for one in room.app.aget_state_history(CONFIG)]
    assert works.ran("place") == 0
    await room.run({})
    assert (await room.run(YES)).status == "done"
    assert works.ran("place") == 1


@pytest.mark.parametrize(
    "forged", [{}, {"__pregel_resuming": False}, {"__pregel_task_id": "x"}], ids=str
)
async def test_no_config_of_a_client_hides_what_ran_before_a_restart(
    works: Works, forged: Any
) -> None:
    async def work(_state: Board, ctx: FlowContext) -> dict[str, Any]:
        await ctx.call("note", {"text": "behind"})
        return {"receipt": await ctx.call("pay", {"text": "x"})}

    flow = Flow("f", state=Board).node("place", work).end("place")
    await works.process(flow).run({})
    room = works.process(flow)  # another process, whose store in memory has no rows
    with contextlib.suppress(GraphInterrupt):  # LangGraph takes it for a graph inside another
        await room.app.ainvoke(None, {"configurable": {**CONFIG["configurable"], **forged}})
    (asked,) = await room.asked()
    await room.answer(asked)
    assert (works.ran("note"), works.ran("pay")) == (1, 1)


def local(works: Works, store: str | None) -> Executor:
    made = works.bench.store(store)
    return works.bench.shop(store=made, port=DeferredApproval(made, KEYS)).executor


def checked(works: Works) -> Flow:
    return (
        Flow("f", state=Board)
        .node("check", works.node("check"), pause=shown)
        .node("send", Call("note", lambda state: {"text": f"sent {state.n}"}))
        .edge("check", "send")
        .end("send")
    )


@pytest.mark.parametrize("n", [1, 1000])
async def test_a_local_run_begun_again_passes_a_used_gate_with_the_same_state_only(
    works: Works, store: str | None, n: int
) -> None:
    flow, executor = checked(works), local(works, store)
    paused = await flow.run({"n": 1}, executor=executor, run_id="order-7")
    await flow.run(checkpoint=paused.checkpoint, decision=YES, executor=executor)
    if n == 1:
        again = await flow.run({"n": n}, executor=executor, run_id="order-7")
        assert again.status == "done"
    else:
        with pytest.raises(ApprovalAlreadyDecided, match="another run_id"):
            await flow.run({"n": n}, executor=executor, run_id="order-7")
    assert [fact["text"] for fact in works.ledger.all] == ["check", "sent 1"]


async def test_a_local_run_of_another_version_asks_anew_under_the_same_run_id(
    works: Works,
) -> None:
    (old, new), executor = versions(works), local(works, "lasting")
    paused = await old.run({"n": 1}, executor=executor, run_id="order-7")
    assert paused.pending is not None
    port: Any = executor.port
    await port.record(paused.pending.key, YES)
    asked = await new.run({"n": 1}, executor=executor, run_id="order-7")
    assert (asked.status, works.ran("note")) == ("paused", 0)
    done = await new.run(
        checkpoint=asked.checkpoint,
        decision=ApprovalDecision(kind="approve", approved=True),
        executor=executor,
    )
    assert (done.status, works.ran("note")) == ("done", 1)


@pytest.mark.parametrize("lasting", [True, False])
def test_a_run_of_another_process_goes_on_where_nobody_is_asked_and_there_are_no_keys(
    lasting: bool,
) -> None:
    begun = Told(flow="f", keys=KeyRing.random).begun("flow-1", "run")
    other = KeyRing.random()
    here = Told(flow="f", keys=lambda: other, lasting=lasting)
    if lasting:
        with pytest.raises(FlowError, match="another key"):
            here.run(begun)
    else:
        assert here.run(begun) == "run"
        with pytest.raises(FlowError):
            here.run({})
