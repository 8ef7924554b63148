"""One visit of one node: functions, context, hooks, attempts, time limits."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.flow.kit import Kit, Order, items

from adapter import Retry, ToolFailed
from adapter.core.errors import ApprovalDenied, ApprovalPending, StoreUnavailable, ToolError
from adapter.flow import Flow, FlowContext, FlowError, Join, Route
from adapter.flow.visit import visit

pytestmark = pytest.mark.anyio

QUICK = Retry(max_attempts=3, initial_interval=0, jitter=False)


def alone(work: Any, **options: Any) -> Flow:
    return Flow("f", state=Order).node("n", work, **options).end("n")


async def state_of(kit: Kit, work: Any, **options: Any) -> Order:
    done = await kit.run(alone(work, **options), items("a"))
    assert (done.status, dict(done.visits), done.steps) == ("done", {"n": 1}, 1)
    made: Order = done.state
    return made


# -------------------------------------------------------------------------------------- functions


async def test_a_plain_function_runs_in_a_thread(kit: Kit) -> None:
    threads = []

    def work(state: Order) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return {"note": state.items[0]["item"]}

    assert (await state_of(kit, work)).note == "a"
    assert threads[0] is not threading.main_thread()


async def test_an_async_function_is_awaited(kit: Kit) -> None:
    async def work(_state: Order) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"note": "x"}

    assert (await state_of(kit, work)).note == "x"


async def test_an_object_with_an_async_call_is_awaited(kit: Kit) -> None:
    class Work:
        async def __call__(self, state: Order, ctx: FlowContext) -> dict[str, Any]:
            return {"note": ctx.node}

    assert (await state_of(kit, Work())).note == "n"


async def test_a_function_that_returns_a_coroutine_is_awaited(kit: Kit) -> None:
    async def work(_state: Order, _ctx: FlowContext, note: str) -> dict[str, Any]:
        return {"note": note}

    assert (await state_of(kit, functools.partial(work, note="y"))).note == "y"
    assert (await state_of(kit, lambda state, ctx: work(state, ctx, "z"))).note == "z"


async def test_the_context_says_where_it_stands(kit: Kit) -> None:
    def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        return {"log": [ctx.flow, ctx.node, str(ctx.visit), ctx.run_id]}

    done = await kit.run(alone(work), {}, run_id="run-7")
    assert done.state.log == ["f", "n", "1", "run-7"]


@pytest.mark.parametrize(
    "work",
    [
        lambda state, ctx: {"note": ctx.node},
        lambda state, ctx=None: {"note": ctx.node},
        lambda state, note="n": {"note": note},
        lambda *given: {"note": "n" * len(given)},
    ],
)
async def test_a_second_parameter_is_the_context_unless_it_has_a_default_of_its_own(
    kit: Kit, work: Callable[..., Any]
) -> None:
    assert (await state_of(kit, work)).note == "n"


async def test_a_builtin_without_a_signature_takes_the_state(kit: Kit) -> None:
    with pytest.raises(FlowError, match="it returned a ModelMetaclass"):
        await state_of(kit, type)


async def test_a_node_may_return_nothing(kit: Kit) -> None:
    assert await state_of(kit, lambda _state: None) == Order(items=[{"item": "a"}])


async def test_a_node_may_return_the_state(kit: Kit) -> None:
    def work(state: Order) -> Order:
        state.note = "changed"
        return state

    assert (await state_of(kit, work)).note == "changed"


async def test_changing_the_state_without_returning_it_changes_nothing(kit: Kit) -> None:
    def work(state: Order) -> None:
        state.items.clear()

    assert (await state_of(kit, work)).items == [{"item": "a"}]


async def test_an_unknown_field_is_a_flow_error_naming_node_and_field(kit: Kit) -> None:
    with pytest.raises(
        FlowError, match=r"flow 'f', node 'n': .*unknown field invoice\. Fields are"
    ):
        await kit.run(alone(lambda _state: {"invoice": "x"}), {})


async def test_a_wrong_value_is_a_flow_error_naming_node_and_field(kit: Kit) -> None:
    with pytest.raises(FlowError, match="flow 'f', node 'n': total: "):
        await kit.run(alone(lambda _state: {"total": "many"}), {})


async def test_an_error_of_the_node_passes_as_it_is_with_a_note(kit: Kit) -> None:
    error = ValueError("mine")

    def work(_state: Order) -> None:
        raise error

    with pytest.raises(ValueError, match="mine") as caught:
        await kit.run(alone(work), {})
    assert caught.value is error
    assert caught.value.__notes__ == ["flow 'f', node 'n', visit 1"]


async def test_a_node_that_cancels_itself_is_an_error_and_not_the_end_of_the_run(kit: Kit) -> None:
    async def work(_state: Order) -> None:
        raise asyncio.CancelledError

    with pytest.raises(FlowError, match="node 'n': its code cancelled itself"):
        await kit.run(alone(work), {})


async def test_a_join_may_have_a_function(kit: Kit) -> None:
    assert (await state_of(kit, Join(lambda _state: {"note": "joined"}))).note == "joined"


# ------------------------------------------------------------------------------------------ calls


async def test_calls_are_named_by_their_order(kit: Kit) -> None:
    async def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        one = await ctx.call("rate", {"item": "a"})
        more = await ctx.call_many("rate", [{"item": "bb"}, {"item": "ccc"}], concurrency=1)
        own = await ctx.call("note", {"item": "d"}, id="own")
        return {"rates": [one, *more], "note": own}

    done = await kit.run(alone(work), {}, run_id="r")
    assert (done.state.rates, done.state.note) == ([1.0, 2.0, 3.0], "noted d")
    rows = await kit.store.export_rows("r", ["f/n:1"])
    # Rows of one millisecond come in any order.
    assert sorted(row["tool_call_id"] for row in rows) == ["n:1:0", "n:1:1", "n:1:2", "own"]


async def test_calls_at_the_same_time_are_named_in_the_order_they_were_made(kit: Kit) -> None:
    async def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        calls = [ctx.call("note", {"item": name}) for name in "abc"]
        return {"log": await asyncio.gather(*reversed(calls))}

    done = await kit.run(alone(work), {}, run_id="r")
    assert done.state.log == ["noted c", "noted b", "noted a"]
    rows = await kit.store.export_rows("r", None)
    assert sorted(row["tool_call_id"] for row in rows) == ["n:1:0", "n:1:1", "n:1:2"]


async def test_the_executor_works_inside_a_node_too(kit: Kit) -> None:
    from adapter import ToolCall

    async def work(_state: Order) -> dict[str, Any]:
        call = ToolCall(name="note", arguments={"item": "a"}, id="x")
        return {"log": [await kit.executor.run(call), await kit.executor.run(call)]}

    assert (await state_of(kit, work)).log == ["noted a", "noted a"]
    assert kit.count("note") == 1


async def test_a_plain_function_calls_tools_over_the_bridge(kit: Kit) -> None:
    from adapter.langgraph import run_sync

    def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        return {"note": run_sync(ctx.call("note", {"item": "a"}))}

    assert (await state_of(kit, work)).note == "noted a"


async def test_arguments_may_be_values_with_a_json_form(kit: Kit) -> None:
    from tests.unit.flow.kit import Item

    async def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        return {"note": await ctx.call("note", dict(Item(item="a")))}

    assert (await state_of(kit, work)).note == "noted a"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [(["a"], "must be a mapping, not a list"), ({"item": object()}, "have no JSON form")],
)
async def test_arguments_of_another_kind_name_the_call(
    kit: Kit, arguments: Any, fault: str
) -> None:
    async def work(_state: Order, ctx: FlowContext) -> None:
        await ctx.call("note", arguments)

    with pytest.raises(FlowError, match=rf"node 'n': the arguments of note \(call n:1:0\) {fault}"):
        await kit.run(alone(work), {})


async def test_a_node_may_catch_a_tools_error(kit: Kit) -> None:
    kit.fail["note"] = [ToolError("sold out")]

    async def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        try:
            await ctx.call("note", {"item": "a"})
        except ToolError as error:
            return {"note": error.message}
        return {}

    assert (await state_of(kit, work)).note == "sold out"


async def test_a_pause_that_a_node_swallows_pauses_all_the_same(kit: Kit) -> None:
    async def work(_state: Order, ctx: FlowContext) -> dict[str, Any]:
        try:
            return {"receipt": await ctx.call("pay", {"amount": 5})}
        except Exception:  # noqa: BLE001 - what is tried
            return {"receipt": "went on"}

    made = alone(work)
    paused = await kit.run(made, {})
    assert (paused.status, paused.state.receipt) == ("paused", "")
    assert (await kit.decided(made, paused)).state.receipt == "paid 5"


# ------------------------------------------------------------------------------------------ hooks


async def test_hooks_run_before_and_after_in_order(kit: Kit) -> None:
    seen: list[Any] = []

    async def before(state: Order, ctx: FlowContext) -> None:
        seen.append(("before", ctx.node, state.note))

    def after(state: Order) -> None:
        seen.append(("after", state.note))

    def work(_state: Order) -> dict[str, Any]:
        seen.append("work")
        return {"note": "written"}

    await state_of(kit, work, before=before, after=[after, after])
    assert seen == [("before", "n", ""), "work", ("after", "written"), ("after", "written")]


async def test_a_hook_that_fails_before_keeps_the_node_from_running(kit: Kit) -> None:
    ran = []

    def before(_state: Order) -> None:
        raise PermissionError("closed")

    with pytest.raises(PermissionError, match="closed"):
        await kit.run(alone(lambda _state: ran.append(1), before=before, retries=QUICK), {})
    assert ran == []


async def test_calls_of_hooks_are_others_than_those_of_the_work(kit: Kit) -> None:
    async def calls(_state: Order, ctx: FlowContext) -> None:
        await ctx.call("note", {"item": "a"})

    made = alone(calls, before=[calls, calls], after=calls)
    await kit.run(made, {}, run_id="r")
    assert kit.count("note") == 4
    rows = await kit.store.export_rows("r", None)
    assert {row["tool_call_id"] for row in rows} == {
        *("n:1:before0:0", "n:1:before1:0", "n:1:0", "n:1:after0:0"),
    }


async def test_hooks_run_once_however_often_the_work_is_tried(kit: Kit) -> None:
    seen: list[str] = []

    def work(_state: Order) -> None:
        seen.append("work")
        if seen.count("work") < 3:
            raise OSError

    def hook(name: str) -> Callable[[Order], None]:
        return lambda _state: seen.append(name)

    await state_of(kit, work, before=hook("before"), after=hook("after"), retries=QUICK)
    assert seen == ["before", "work", "work", "work", "after"]


# --------------------------------------------------------------------------------------- attempts


class Stumbles:
    """Raises a number of times."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left, self.error, self.tried = times, error, 0

    def __call__(self, _state: Order) -> dict[str, Any]:
        self.tried += 1
        if self.left:
            self.left -= 1
            raise self.error
        return {"note": "done"}


async def test_a_node_is_tried_again(kit: Kit) -> None:
    work = Stumbles(2, OSError())
    assert (await state_of(kit, work, retries=QUICK)).note == "done"
    assert work.tried == 3


async def test_a_number_of_retries_is_the_number_of_further_attempts() -> None:
    made = alone(lambda _state: None, retries=2)
    assert made.nodes["n"].retries == Retry(max_attempts=3)


async def test_the_last_error_is_raised(kit: Kit) -> None:
    work = Stumbles(9, OSError("still"))
    with pytest.raises(OSError, match="still"):
        await kit.run(alone(work, retries=QUICK), {})
    assert work.tried == 3


async def test_without_retries_a_node_is_tried_once(kit: Kit) -> None:
    work = Stumbles(1, OSError("once"))
    with pytest.raises(OSError, match="once"):
        await kit.run(alone(work), {})
    assert work.tried == 1


@pytest.mark.parametrize(
    "error",
    [
        FlowError("x"),
        StoreUnavailable("x"),
        ToolError("x"),
        KeyboardInterrupt(),
    ],
)
async def test_what_another_attempt_cannot_mend_is_not_tried_again(
    kit: Kit, error: Exception
) -> None:
    tried = []

    async def work(_state: Order) -> None:
        tried.append(1)
        raise error

    with pytest.raises(type(error)):
        await visit_alone(kit, alone(work, retries=QUICK))
    assert len(tried) == 1


@pytest.mark.parametrize(
    ("error", "status"), [(ApprovalDenied("no"), "denied"), (ApprovalPending("wait"), "paused")]
)
async def test_a_no_and_a_pause_are_never_tried_again(
    kit: Kit, error: Exception, status: str
) -> None:
    work = Stumbles(9, error)
    done = await kit.run(alone(work, retries=QUICK), {})
    assert done.status == status
    assert work.tried == 1


async def test_the_wait_between_attempts_grows_and_has_jitter(kit: Kit) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    retry = Retry(max_attempts=4, initial_interval=1, max_interval=3)
    flow = alone(Stumbles(3, OSError()), retries=retry)
    await visit_alone(kit, flow, sleep=sleep)
    assert all(low <= wait <= low + 1 for low, wait in zip([1, 2, 3], waits, strict=True))


async def visit_alone(kit: Kit, flow: Flow, **options: Any) -> Any:
    values = flow.fields.initial({})
    return await visit(
        flow, flow.nodes["n"], values, executor=kit.executor, number=1, run_id="r", **options
    )


async def test_finished_calls_are_not_made_again_by_a_retry(kit: Kit) -> None:
    stumble = Stumbles(1, OSError())

    async def work(state: Order, ctx: FlowContext) -> dict[str, Any]:
        rate = await ctx.call("rate", {"item": "abc"})
        noted = await ctx.call("note", {"item": "a"})
        stumble(state)
        return {"rates": rate, "note": noted}

    assert (await state_of(kit, work, retries=QUICK)).note == "noted a"
    assert (kit.count("rate"), kit.count("note"), stumble.tried) == (1, 1, 2)


async def test_a_failed_effect_is_not_run_again_by_a_retry(kit: Kit) -> None:
    kit.fail["note"] = [OSError(), OSError(), OSError()]

    async def work(_state: Order, ctx: FlowContext) -> None:
        await ctx.call("note", {"item": "a"})

    with pytest.raises(ToolFailed):
        await kit.run(alone(work, retries=QUICK), {})
    assert kit.count("note") == 1


# ------------------------------------------------------------------------------------ time limits


async def test_a_node_that_is_late_is_a_flow_error_naming_it(kit: Kit) -> None:
    async def work(_state: Order) -> None:
        await asyncio.Event().wait()

    with pytest.raises(FlowError, match=r"flow 'f', node 'n': it did not end within 0\.01 s\."):
        await kit.run(alone(work, timeout=0.01), {})


async def test_a_plain_function_that_is_late_is_left_behind(kit: Kit) -> None:
    leave = threading.Event()

    def work(_state: Order) -> None:
        leave.wait(30)

    try:
        with pytest.raises(FlowError, match="did not end within"):
            await kit.run(alone(work, timeout=0.01), {})
    finally:
        leave.set()


async def test_each_attempt_has_the_whole_time(kit: Kit) -> None:
    tried = []

    async def work(_state: Order) -> dict[str, Any]:
        tried.append(1)
        if len(tried) == 1:
            await asyncio.Event().wait()
        return {"note": "second"}

    assert (await state_of(kit, work, timeout=0.05, retries=QUICK)).note == "second"


async def test_a_node_in_time_is_not_touched(kit: Kit) -> None:
    assert (await state_of(kit, lambda _state: {"note": "x"}, timeout=30)).note == "x"


async def test_a_time_limit_of_the_nodes_own_code_is_its_own_error(kit: Kit) -> None:
    def work(_state: Order) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await kit.run(alone(work, timeout=30), {})


async def test_cancelling_a_run_passes_through(kit: Kit) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(_state: Order) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    running = asyncio.create_task(kit.run(alone(work, retries=QUICK), {}))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


# ---------------------------------------------------------------------------------------- targets


async def test_a_visit_says_its_writes_targets_and_counts(kit: Kit) -> None:
    made = (
        Flow("f", state=Order)
        .node("n", lambda _state: {"log": "x"})
        .node("b", lambda _state: None)
        .edge("n", "b", Route(lambda state: state.log, to=("x", "n"), caps={"x": 2}))
        .node("x", lambda _state: None)
        .end("b", "x")
    )
    seen = await visit_alone(kit, made, counts={"n->x": 1})
    assert (seen.writes, seen.targets, seen.counts) == ({"log": [["x"]]}, ("b", "x"), {"n->x": 2})
    assert type(seen).from_json(seen.to_json()) == seen
