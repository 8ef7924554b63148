"""A46: going around, past or back before the gate of a compiled flow; the gated node never runs.

Each attack is made on a thread that waits at its gate; each has its twin, in which the reviewer
answers afterwards and the node runs once. Runs are counted outside the graph.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from langgraph.types import Command, Send
from pydantic import ValidationError
from tests.support.flows import CONFIG, Board, Process, Works, shown
from tests.support.room import copy_thread
from tests.support.toolkit import NO, YES

from adapter import ApprovalAlreadyDecided, CallInProgress
from adapter.core.errors import FlowError
from adapter.flow import Flow, FlowContext
from adapter.langgraph.host import pause_id

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "lasting"])
async def room(works: Works, request: pytest.FixtureRequest) -> Process:
    """A flow that waits at its gate, with an ungated sibling beside it."""
    store = None if request.param == "memory" else "lasting"
    one = works.process(works.gated(siblings=("pack",)), store=store)
    paused = await one.run({})
    assert paused.status == "paused"
    return one


def nothing_ran(works: Works) -> None:
    assert [works.ran(name) for name in ("place", "done")] == [0, 0]


def refused(works: Works, error: type[Exception] = ValidationError) -> Any:
    """An answer that resumes the graph is refused; where a port reads its store it is none."""
    return pytest.raises(error) if works.port == "signed" else contextlib.nullcontext()


def durable(room: Process) -> bool:
    return getattr(room.shop.store, "durable", True)


def torn_off(room: Process) -> Any:
    """A store that forgets keeps a task's progress in its pause, which opens on its thread only."""
    if durable(room):
        return contextlib.nullcontext()
    return pytest.raises(FlowError, match="Nothing ran")


async def answered_with(works: Works, room: Process, asked: Any, update: Any) -> Any:
    """The reviewer's yes to what was shown, and an update to run the graph with beside it."""
    if works.port == "signed":
        return Command(resume=_answer(room, asked).resume, update=update)
    (row,) = await room.shop.port.pending()
    await room.shop.port.record(row, YES)
    return Command(update=update)


async def twin(works: Works, room: Process, config: Any = None) -> None:
    """The reviewer answers what is asked now: it runs, once."""
    (asked,) = await room.asked(config)
    done = await room.answer(asked, YES, config)
    assert done.status == "done"
    assert [works.ran(name) for name in ("place", "done")] == [1, 1]


async def test_a46_going_on_without_input(works: Works, room: Process) -> None:
    for _ in range(3):
        await room.app.ainvoke(None, CONFIG)
    nothing_ran(works)
    await twin(works, room)


@pytest.mark.parametrize("stops", [["done"], ["plan"], [], ["place"], "*"])
async def test_a46_a_list_of_stops_of_the_callers_own(
    works: Works, room: Process, stops: Any
) -> None:
    await room.app.ainvoke(None, CONFIG, interrupt_before=stops)
    await room.app.ainvoke(None, CONFIG, interrupt_after=stops)
    nothing_ran(works)
    await twin(works, room)


@pytest.mark.parametrize("update", [{}, {"n": 5}, {"aa_flow": {"node": "plan", "ran": True}}])
async def test_a46_goto_the_gated_node(works: Works, room: Process, update: Any) -> None:
    await room.app.ainvoke(Command(goto="place", update=update), CONFIG)
    nothing_ran(works)
    await twin(works, room)


async def test_a46_goto_the_gated_node_of_a_new_thread(works: Works, room: Process) -> None:
    config: Any = {"configurable": {"thread_id": "flow-9"}}
    with pytest.raises(FlowError, match="not a Command"):
        await room.app.ainvoke(Command(goto="place", update={"n": 5}), config)
    nothing_ran(works)
    await twin(works, room)


async def test_a46_send_the_gated_node_a_state_of_ones_own(works: Works, room: Process) -> None:
    forged = {"n": 5, "aa_flow": {}, "aa_visits": {}}
    with pytest.raises(FlowError, match="Send"):
        await room.app.ainvoke(Command(goto=Send("place", forged)), CONFIG)
    nothing_ran(works)


FORGED = [
    {"aa_flow": {"steps": 9, "ran": True, "granted": ["place"]}},
    {"aa_flow": {"node": "place", "denied": None, "ran": True}},
    {"aa_visits": {"place": 1}},
    {"aa_loop_counts": {"plan->place": 99}},
    {"aa_state": {"passed": True}},
]


@pytest.mark.parametrize("values", FORGED, ids=str)
@pytest.mark.parametrize("node", ["plan", None])
async def test_a46_update_state_forges_what_the_flow_says_of_itself(
    works: Works, room: Process, values: Any, node: str | None
) -> None:
    await room.app.aupdate_state(CONFIG, values, as_node=node)
    await room.app.ainvoke(None, CONFIG)
    nothing_ran(works)
    await twin(works, room)


@pytest.mark.parametrize("values", FORGED, ids=str)
async def test_a46_update_state_in_the_name_of_a_sibling_ends_the_wait_and_opens_nothing(
    works: Works, room: Process, values: Any
) -> None:
    await room.app.aupdate_state(CONFIG, values, as_node="pack")
    await room.app.ainvoke(None, CONFIG)
    nothing_ran(works)
    assert await room.asked() == []


async def test_a46_update_state_in_the_name_of_the_gated_node_runs_nothing_of_it(
    works: Works, room: Process
) -> None:
    await room.app.aupdate_state(CONFIG, {"receipt": "forged"}, as_node="place")
    await room.app.ainvoke(None, CONFIG)
    assert works.ran("place") == 0  # what follows it is no secret of the gate: it has run


async def test_a46_a_copied_thread(works: Works, room: Process) -> None:
    (asked,) = await room.asked()
    copy_thread(works.saver, "flow-1", "copy")
    copy: Any = {"configurable": {"thread_id": "copy"}}
    with torn_off(room):
        await room.app.ainvoke(None, copy)
    with refused(works) if durable(room) else torn_off(room):
        await room.app.ainvoke(_answer(room, asked), copy)
    nothing_ran(works)
    await twin(works, room)


async def test_a46_the_answer_does_not_count_in_a_copy_made_after_it(
    works: Works, room: Process
) -> None:
    (asked,) = await room.asked()
    copy_thread(works.saver, "flow-1", "copy")
    assert (await room.answer(asked)).status == "done"
    copy: Any = {"configurable": {"thread_id": "copy"}}
    with pytest.raises(FlowError, match="Nothing ran"):
        await room.app.ainvoke(_answer(room, asked), copy)
    with torn_off(room):
        await room.app.ainvoke(None, copy)
    assert works.ran("place") == 1


def _answer(room: Process, asked: Any) -> Command[Any]:
    port = room.shop.port
    if hasattr(port, "resume_value"):
        return Command(resume={asked.id: port.resume_value(asked, YES)})
    return Command(resume={asked.id: True})


def _altered(works: Works, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite the pauses that the checkpointer holds."""
    for writes in works.saver.writes.values():
        for at, (task, channel, (kind, raw), path) in list(writes.items()):
            if channel == "__interrupt__":
                (pause,) = works.saver.serde.loads_typed((kind, raw))
                change(pause.value)
                writes[at] = (task, channel, works.saver.serde.dumps_typed((pause,)), path)


def _forged(value: dict[str, Any]) -> None:
    value["aa_state"] = {"passed": True, "rows": [], "audience": "", "key": ""}


def _flipped(value: dict[str, Any]) -> None:
    data = value["aa_state"]["sealed"]["data"]
    value["aa_state"]["sealed"]["data"] = data[:-6] + ("AAAAA=" if data[-2] != "A" else "BBBBB=")


def _gone(value: dict[str, Any]) -> None:
    del value["aa_state"]


@pytest.mark.parametrize("change", [_forged, _flipped, _gone])
async def test_a46_progress_that_was_forged(
    works: Works, room: Process, change: Callable[[dict[str, Any]], None]
) -> None:
    (asked,) = await room.asked()
    _altered(works, change)
    with pytest.raises(FlowError, match="Nothing ran"):
        await room.app.ainvoke(_answer(room, asked), CONFIG)
    nothing_ran(works)


async def test_a46_progress_of_a_task_that_passed_its_gate_moved_to_another(works: Works) -> None:
    """Sealed ``passed`` of an ungated node is no grant of a gated one."""

    async def wait(_state: Board) -> dict[str, Any]:
        from langgraph.types import interrupt

        return {"receipt": interrupt({"question": "which?"})}

    flow = (
        Flow("f", state=Board)
        .node("asks", wait)
        .node("gate", works.node("gate"), pause=shown)
        .node("open", works.node("open"), pause=shown)
        .start("asks", "open")
        .edge("open", "gate")
        .end("gate", "asks")
    )
    one = works.process(flow, store="lasting")
    await one.run({})
    (asked,) = await one.asked()
    await one.answer(asked)  # ``asks`` has passed the gate before ``open``, and pauses
    questions = {pause.value.get("question"): pause for pause in await one.asked()}
    sealed = questions["which?"].value["aa_state"]
    await one.run({}, {"configurable": {"thread_id": "other"}})

    def moved(value: dict[str, Any]) -> None:
        value["aa_state"] = sealed

    _altered(works, moved)
    config: Any = {"configurable": {"thread_id": "other"}}
    (gate,) = await one.asked(config)
    with pytest.raises(FlowError, match="Nothing ran"):
        await one.app.ainvoke(_answer(one, gate), config)
    assert works.ran("gate") == 0
    assert works.ran("open") == 1


async def test_a46_an_answer_delivered_to_a_task_before_it_asked(
    works: Works, room: Process
) -> None:
    """Who knows how LangGraph names pauses answers one that was never shown."""
    config: Any = {"configurable": {"thread_id": "flow-1"}}
    state = await room.app.aget_state(config)
    tasks = {task.name: task for task in state.tasks}
    forged = {
        pause_id(f"{name}:{task.id}", n): True for name, task in tasks.items() for n in (0, 1)
    }
    with pytest.raises(FlowError, match=r"carries no progress\. Nothing ran"):
        await room.app.ainvoke(Command(resume=forged), config)
    nothing_ran(works)
    await twin(works, room)


async def test_a46_answers_that_nobody_signed(works: Works, room: Process) -> None:
    (asked,) = await room.asked()
    for value in (True, "approve", {"approved": True}, {"decisions": [{"type": "approve"}]}):
        given: Any
        for given in (Command(resume={asked.id: value}), Command(resume=value)):
            with refused(works):
                await room.app.ainvoke(given, CONFIG)
    nothing_ran(works)
    await twin(works, room)


async def test_a46_an_answer_in_the_config(works: Works, room: Process) -> None:
    (asked,) = await room.asked()
    forged = {**CONFIG["configurable"], "__pregel_resume_map": {asked.id: True}}
    with refused(works):
        await room.app.ainvoke(None, {"configurable": forged})
    nothing_ran(works)
    await twin(works, room)


async def test_a46_an_old_checkpoint_without_the_answer_runs_nothing_twice(
    works: Works, room: Process
) -> None:
    waiting = (await room.app.aget_state(CONFIG)).config
    await twin(works, room)
    history = [one.config async for one in room.app.aget_state_history(CONFIG)]
    for old in [waiting, *history]:
        await room.app.ainvoke(None, old)
        if works.ran("done") == 2:
            break
    assert works.ran("place") == 1


async def test_a46_an_old_checkpoint_with_the_answer_is_refused(
    works: Works, room: Process
) -> None:
    (asked,) = await room.asked()
    waiting = (await room.app.aget_state(CONFIG)).config
    given = _answer(room, asked)
    await twin(works, room)
    with refused(works, ApprovalAlreadyDecided):
        await room.app.ainvoke(given, waiting)
    assert works.ran("place") == 1


async def test_a46_two_resumes_at_once_run_it_once(works: Works, room: Process) -> None:
    (asked,) = await room.asked()
    given: Any = _answer(room, asked)
    if works.port == "deferred":
        (row,) = await room.shop.port.pending()
        await room.shop.port.record(row, YES)
        given = None

    async def resume() -> Any:
        return await room.app.ainvoke(given, CONFIG)

    ended = await asyncio.gather(*(_outcome(resume()) for _ in range(3)))
    late = [one for one in ended if isinstance(one, Exception)]
    assert len(late) < 3
    assert all(isinstance(one, ApprovalAlreadyDecided | CallInProgress) for one in late)
    assert works.ran("place") == 1


async def _outcome(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error


async def test_a46_two_processes_on_one_store_run_it_once(works: Works) -> None:
    flow = works.gated()
    one = works.process(flow, store="shared")
    other = works.process(flow, store="shared")
    await one.run({})
    (asked,) = await one.asked()
    given: Any = _answer(one, asked)
    if works.port == "deferred":
        (row,) = await one.shop.port.pending()
        await one.shop.port.record(row, YES)
        given = None
    ended = await asyncio.gather(
        *(_outcome(process.app.ainvoke(given, CONFIG)) for process in (one, other))
    )
    late = [one for one in ended if isinstance(one, Exception)]
    assert len(late) < 2
    assert all(isinstance(one, ApprovalAlreadyDecided | CallInProgress) for one in late)
    assert works.ran("place") == 1


async def test_a46_a_denied_gate_stays_denied_whatever_is_tried_on_its_checkpoint(
    works: Works, room: Process
) -> None:
    (asked,) = await room.asked()
    waiting = (await room.app.aget_state(CONFIG)).config
    assert (await room.answer(asked, NO)).status == "denied"
    yes = _answer(room, asked)
    await room.app.ainvoke(yes, CONFIG)  # nothing waits there
    with refused(works, ApprovalAlreadyDecided):
        await room.app.ainvoke(yes, waiting)
    for given in (None, Command(goto="place")):
        for config in (CONFIG, waiting):
            await room.app.ainvoke(given, config)
    nothing_ran(works)


async def test_a46_an_answer_together_with_another_state(works: Works, room: Process) -> None:
    """The reviewer signed for what was shown; whoever resumes puts another state beside it."""
    (asked,) = await room.asked()
    assert asked.value["request"]["arguments"] == {"n": 1}
    given = await answered_with(works, room, asked, {"n": 10_000})
    with refused(works):
        await room.app.ainvoke(given, CONFIG)
    nothing_ran(works)
    await room.app.ainvoke(None, CONFIG)
    nothing_ran(works)
    (again,) = await room.asked()
    assert again.value["request"]["arguments"] == {"n": 10_000}
    await twin(works, room)


async def test_a46_a_part_of_the_state_that_is_not_shown_is_signed_for_too(
    works: Works, room: Process
) -> None:
    (asked,) = await room.asked()
    given = await answered_with(works, room, asked, {"receipt": "forged"})
    with refused(works):
        await room.app.ainvoke(given, CONFIG)
    nothing_ran(works)
    await room.app.ainvoke(None, CONFIG)
    nothing_ran(works)
    await twin(works, room)


async def behind_a_gate(works: Works) -> Process:
    """A node whose gate was answered, and that asks for a payment then."""

    async def buy(state: Board, ctx: FlowContext) -> dict[str, Any]:
        works.ledger.add(tool="node", text="saw", n=state.n)
        return {"receipt": await ctx.call("pay", {"text": "x"})}

    flow = Flow("f", state=Board).node("buy", buy, pause=shown).end("buy")
    one = works.process(flow, store="lasting")
    await one.run({"n": 1})
    await one.run(YES)
    return one


async def test_a46_another_state_behind_an_open_gate(works: Works) -> None:
    one = await behind_a_gate(works)
    (asked,) = await one.asked()
    given = await answered_with(works, one, asked, {"n": 10_000})
    with pytest.raises(ApprovalAlreadyDecided, match="state was changed"):
        await one.app.ainvoke(given, CONFIG)
    assert works.ran("pay") == 0
    assert [fact["n"] for fact in works.ledger.all if fact.get("text") == "saw"] == [1]


async def test_a46_the_twin_of_it_runs_with_the_state_that_was_approved(works: Works) -> None:
    one = await behind_a_gate(works)
    assert (await one.run(YES)).status == "done"
    assert works.ran("pay") == 1
