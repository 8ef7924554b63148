"""States whose models judge: both runners read the same input, and refuse the same writes."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Self

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator, model_validator
from tests.flow.parity import NO, YES, Case, edited
from tests.flow.runners import KEY, Process
from tests.flow.world import World

from adapter import ApprovalDecision, Executor, FlowError, InvalidAnswer, Registry
from adapter.flow import Call, Flow, FlowResult
from adapter.langgraph import compile_flow, run_compiled
from adapter.langgraph.runflow import flow_result
from adapter.stores import MemoryStore

pytestmark = pytest.mark.anyio

CONFIG: Any = {"configurable": {"thread_id": "models"}}
WIDE = 2**53


class Colour(Enum):
    RED = "red"


class Strictly(BaseModel):
    model_config = ConfigDict(strict=True)

    day: date
    tags: set[int]
    colour: Colour
    price: Decimal
    seen: tuple[int, ...] = (1,)


class Either(BaseModel):
    when: date | datetime


class Counting(BaseModel):
    n: Annotated[int, AfterValidator(lambda n: n + 1)] = 0
    m: int = 0
    log: list[str] = []

    @field_validator("m")
    @classmethod
    def more(cls, m: int) -> int:
        return m + 1


class Ordered(BaseModel):
    low: int = 0
    high: int = 5
    note: str = ""

    @model_validator(mode="after")
    def holds(self) -> Self:
        if self.low > self.high:
            raise ValueError("low above high")
        return self

    @field_validator("low")
    @classmethod
    def small(cls, low: int) -> int:
        if low > 90:
            raise ValueError("too much")
        return low


def nothing(_state: Any) -> None:
    """Write nothing."""


def line(state: Any, *works: Callable[..., Any] | Call, **how: Any) -> Flow:
    """Nodes one after the other, of which the first may be gated."""
    flow = Flow("line", state=state)
    names = "abc"[: len(works)]
    for name, work in zip(names, works, strict=True):
        flow.node(name, work, **(how if name == "a" else {}))
    for name, then in itertools.pairwise(names):
        flow.edge(name, then)
    return flow.end(names[-1])


def beside(state: Any, **works: Callable[..., Any] | Call) -> Flow:
    """Nodes of one superstep."""
    flow = Flow("beside", state=state)
    for name, work in works.items():
        flow.node(name, work)
    return flow.start(*works).end(*works)


class Both:
    """Runs a flow by both runners."""

    def __init__(self) -> None:
        self.made: list[Process] = []

    def process(self, flow: Flow, port: str = "deferred") -> Process:
        self.made.append(Process(Case(id="both", build=lambda _: flow), World(), port, None))
        return self.made[-1]

    async def local(self, flow: Flow, given: Any, *decisions: ApprovalDecision) -> FlowResult:
        executor = self.process(flow).executor
        result = await flow.run(given, executor=executor)
        for decision in decisions:
            result = await flow.run(
                checkpoint=result.checkpoint, decision=decision, executor=executor
            )
        return result

    def app(self, flow: Flow, port: str = "deferred") -> Any:
        graph = compile_flow(flow, executor=self.process(flow, port).executor, checkpoint_key=KEY)
        return graph.compile(checkpointer=InMemorySaver())

    async def compiled(
        self, flow: Flow, given: Any, *decisions: ApprovalDecision, port: str = "deferred"
    ) -> FlowResult:
        app = self.app(flow, port)
        result = await run_compiled(app, given, CONFIG)
        for decision in decisions:
            result = await run_compiled(app, decision, CONFIG)
        return result

    async def agree(self, flow: Flow, given: Any, *decisions: ApprovalDecision) -> FlowResult:
        local = await self.local(flow, given, *decisions)
        for port in ("deferred", "signed"):
            other = await self.compiled(flow, given, *decisions, port=port)
            assert (other.status, other.state, other.visits, other.steps) == (
                *(local.status, local.state, local.visits, local.steps),
            )
        return local

    async def refuse(
        self, error: type[Exception], text: str, flow: Flow, given: Any, *decisions: Any
    ) -> None:
        with pytest.raises(error, match=text):
            await self.local(flow, given, *decisions)
        for port in ("deferred", "signed"):
            with pytest.raises(error, match=text):
                await self.compiled(flow, given, *decisions, port=port)


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    made = Both()
    yield made
    for process in made.made:
        await process.close()


STRICT: dict[str, Any] = {
    "day": date(2030, 1, 2),
    "tags": {3, 1},
    "colour": Colour.RED,
    "price": Decimal("1.50"),
}


@pytest.mark.parametrize("given", [STRICT, Strictly(**STRICT)])
async def test_a_strict_model_starts(both: Both, given: Any) -> None:
    done = await both.agree(line(Strictly, nothing, nothing), given)
    assert done.state == Strictly(**STRICT)


async def test_a_strict_model_starts_from_the_json_that_a_server_gets(both: Both) -> None:
    flow = line(Strictly, nothing)
    app = both.app(flow)
    await app.ainvoke(flow.fields.initial(STRICT), CONFIG)
    assert flow_result(app, await app.aget_state(CONFIG)).state == Strictly(**STRICT)


@pytest.mark.parametrize(
    "when", [datetime(2030, 1, 2, tzinfo=UTC), date(2030, 1, 2), "2030-01-02T00:00:00"]
)
async def test_an_input_of_several_types_is_the_same_one(both: Both, when: Any) -> None:
    await both.agree(line(Either, nothing), {"when": when})


async def test_a_validator_that_changes_its_value_reads_the_input_once(both: Both) -> None:
    await both.agree(line(Counting, lambda s: {"log": [f"{s.n} {s.m}"]}, nothing), {"n": 1, "m": 1})


async def test_an_input_that_only_says_it_was_read_is_refused(both: Both) -> None:
    app = both.app(line(Ordered, nothing))
    forged: list[Any] = [{}, {"read": {}}, {"read": {"alg": "x", "kid": "y", "sig": "z"}}, 7]
    for told in forged:
        with pytest.raises(FlowError, match="there is no field aa_flow"):
            await app.ainvoke({"low": 9, "aa_flow": told}, CONFIG)
    await app.ainvoke({"low": 1}, CONFIG)


async def test_what_another_process_read_without_a_key_is_read_again(both: Both) -> None:
    flow = line(Ordered, nothing)
    store = MemoryStore()
    executor = Executor(Registry([], {}), store=store)  # without a port, so without its keys
    one = compile_flow(flow, executor=executor, checkpoint_key=KEY)
    other = compile_flow(flow, executor=executor).compile(checkpointer=InMemorySaver())
    values = flow.fields.initial({"low": 1})
    told = one.wiring.told.read(values)
    given: Any = {**values, "aa_flow": told}
    await other.ainvoke(given, CONFIG)
    with pytest.raises(FlowError, match="low above high"):
        await other.ainvoke({**given, "low": 9}, CONFIG)
    await store.aclose()


@pytest.mark.parametrize("after", [(), (nothing,)])
@pytest.mark.parametrize(
    ("wrote", "fault"),
    [(9, "state: Value error, low above high"), (91, "low: Value error, too much")],
)
async def test_a_write_that_the_model_refuses_is_refused_at_its_superstep(
    both: Both, wrote: int, fault: str, after: Any
) -> None:
    flow = line(Ordered, lambda _: {"low": wrote}, *after)
    told = f"^flow 'line', superstep of a: the state does not hold: {fault}"
    await both.refuse(FlowError, told, flow, {})


async def test_writes_that_hold_together_only_are_judged_together(both: Both) -> None:
    flow = beside(Ordered, a=lambda _: {"low": 9}, b=lambda _: {"high": 10}, c=nothing)
    assert (await both.agree(flow, {})).state == Ordered(low=9, high=10)


async def test_writes_that_do_not_hold_together_name_all_nodes(both: Both) -> None:
    flow = beside(Ordered, a=lambda _: {"low": 4}, b=lambda _: {"high": 3}, c=nothing)
    told = "^flow 'beside', superstep of a, b, c: the state does not hold: state: Value error"
    await both.refuse(FlowError, told, flow, {})


@pytest.mark.parametrize(("decision", "low"), [(YES, 9), (NO, 4)])
async def test_a_superstep_is_judged_when_its_last_node_ends_after_a_pause(
    both: Both, decision: ApprovalDecision, low: int
) -> None:
    pay = Call("pay", {"text": "x"}, into="note")
    flow = beside(Ordered, a=lambda _: {"low": 9}, b=pay, c=lambda _: {"high": 10})
    result = await both.agree(flow, {}, decision)
    assert (result.state.low, result.state.high) == (9, 10)
    flow = beside(Ordered, a=lambda _: {"low": 4}, b=pay, c=lambda _: {"high": 3})
    await both.refuse(FlowError, "^flow 'beside', superstep of", flow, {}, decision)


async def test_an_edit_and_a_write_are_judged_together(both: Both) -> None:
    flow = line(Ordered, lambda _: {"low": 9}, pause=lambda _: {})
    assert (await both.agree(flow, {}, edited(high=10))).state == Ordered(low=9, high=10)
    await both.refuse(FlowError, "superstep of a: the state", flow, {}, edited(high=6))


async def test_a_number_that_cannot_be_signed_is_named(both: Both) -> None:
    flow = line(Ordered, nothing, pause=lambda state: {"seen": state.high})
    assert (await both.agree(flow, {"high": WIDE - 1}, YES)).state.high == WIDE - 1
    told = r"^flow 'line', node 'a': what pause returned cannot be signed: seen holds .* 2\*\*53"
    await both.refuse(FlowError, told, flow, {"high": WIDE})
    told = r"^flow 'line', node 'a': the edit does not hold: high holds .* 2\*\*53"
    await both.refuse(InvalidAnswer, told, flow, {}, edited(high=WIDE))


async def test_an_edit_of_no_field_is_no_edit(both: Both) -> None:
    flow = line(Ordered, nothing, pause=lambda _: {})
    await both.refuse(InvalidAnswer, "it names no field of the state", flow, {}, edited())


async def test_a_number_of_more_than_64_bits_is_named(both: Both) -> None:
    flow = line(Ordered, lambda _: {"high": 2**64 - 1})
    assert (await both.agree(flow, {"high": 2**63})).state.high == 2**64 - 1
    await both.refuse(FlowError, "^high: it holds a whole number of more", flow, {"high": 2**64})
    flow = line(Ordered, lambda _: {"high": 2**64})
    await both.refuse(FlowError, "^flow 'line', node 'a': high: it holds a whole", flow, {})


async def test_a_decision_with_another_checkpoint_key_decides_nothing(both: Both) -> None:
    flow = line(Ordered, Call("pay", {"text": "x"}, into="note"))
    executor, saver = both.process(flow).executor, InMemorySaver()
    mine, other = (
        compile_flow(flow, executor=executor, checkpoint_key=key).compile(checkpointer=saver)
        for key in (KEY, KEY[::-1])
    )
    await run_compiled(mine, {}, CONFIG)
    with pytest.raises(FlowError, match="sealed with another key"):
        await run_compiled(other, YES, CONFIG)
    assert (await run_compiled(mine, YES, CONFIG)).state.note == "paid x"
