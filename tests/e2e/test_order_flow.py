"""The flow `order` on a real server: rates, a gate, a gated order, and a reviewer elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from tests.e2e.conftest import Lab

from adapter import InvalidAnswer

ITEMS = [{"product_id": 1, "quantity": 1}, {"product_id": 4, "quantity": 2}]
RATES = [610, 730]


class Desk:
    """One order on one thread, and what is asked about it."""

    def __init__(self, lab: Lab, thread: str) -> None:
        self.lab = lab
        self.thread = thread
        self.before = self.newest()

    def newest(self) -> int:
        return int(self.lab.server.rows("select max(rowid) from orders")[0][0])

    @property
    def placed(self) -> list[tuple[Any, ...]]:
        """The orders that were entered since: the effects."""
        return self.lab.server.rows(
            "select customer_id, product_id, quantity, paid_cents from orders"
            " where rowid > ? order by rowid",
            self.before,
        )

    async def run(self, **named: Any) -> Any:
        return await self.lab.sdk.runs.wait(self.thread, "order", raise_error=False, **named)

    async def state(self) -> Any:
        return await self.lab.sdk.threads.get_state(self.thread)

    async def asked(self) -> Any:
        """The one question."""
        (pending,) = await self.lab.desk.pending(self.thread)
        return pending

    async def gate(self) -> Any:
        """The gate's question."""
        pending = await self.asked()
        assert (pending.request["kind"], pending.request["tool"]) == ("gate", "review")
        return pending

    async def call(self) -> Any:
        """The question about placing the order."""
        pending = await self.asked()
        assert (pending.request["kind"], pending.request["tool"]) == ("tool", "place_order")
        return pending


@pytest.fixture
async def desk(lab: Lab) -> Desk:
    """An order that waits at the gate; tests here run one after another, each effect is its own."""
    made = Desk(lab, await lab.thread())
    await made.run(input={"customer_id": 101, "items": ITEMS})
    assert made.placed == []
    return made


@pytest.mark.anyio
async def test_both_graphs_are_served(lab: Lab) -> None:
    found: Any = await lab.sdk.assistants.search(limit=10)
    assert {one["graph_id"] for one in found} == {"agent", "order"}


@pytest.mark.anyio
async def test_items_are_rated_a_gate_shows_the_rates_and_the_order_is_placed_once(
    desk: Desk,
) -> None:
    gate = await desk.gate()
    assert gate.request["arguments"] == {"items": ITEMS, "rates": RATES}
    await desk.lab.desk.approve(gate, reason="cheap enough")
    call = await desk.call()
    assert desk.placed == []
    assert call.request["arguments"]["items"][1] == {**ITEMS[1], "shipping_cents": 730}
    await desk.lab.desk.approve(call)
    assert desk.placed == [(101, 1, 1, 5609), (101, 4, 2, 3230)]
    assert await desk.lab.desk.pending(desk.thread) == []
    values = (await desk.state())["values"]
    assert values["shipping_cents"] == sum(RATES)
    assert len(values["receipt"]["order_ids"]) == len(ITEMS)
    await desk.run(input=None)
    assert len(desk.placed) == len(ITEMS)
    kinds = [event["kind"] for event in await desk.lab.events(desk.thread)]
    assert kinds.count("requested") == 2
    assert kinds.count("decided") == 2


@pytest.mark.anyio
async def test_a_gate_that_is_rejected_ends_the_order(desk: Desk) -> None:
    await desk.lab.desk.reject(await desk.gate(), "too dear")
    assert await desk.lab.desk.pending(desk.thread) == []
    values = (await desk.state())["values"]
    assert values["aa_flow"]["denied"]
    assert values["shipping_cents"] == 0
    await desk.run(input=None)
    assert await desk.lab.desk.pending(desk.thread) == []
    assert desk.placed == []


@pytest.mark.anyio
async def test_a_rejected_call_ends_the_order(desk: Desk) -> None:
    await desk.lab.desk.approve(await desk.gate())
    await desk.lab.desk.reject(await desk.call(), "out of budget")
    await desk.run(input=None)
    assert desk.placed == []
    assert (await desk.state())["values"]["aa_flow"]["denied"]


@pytest.mark.anyio
async def test_rates_edited_at_the_gate_are_what_is_paid(desk: Desk) -> None:
    await desk.lab.desk.approve(await desk.gate(), edited_args={"rates": [0, 100]})
    call = await desk.call()
    assert [line["shipping_cents"] for line in call.request["arguments"]["items"]] == [0, 100]
    await desk.lab.desk.approve(call)
    assert desk.placed == [(101, 1, 1, 4999), (101, 4, 2, 2600)]


@pytest.mark.anyio
async def test_a_bad_answer_at_the_gate_leaves_it_open(desk: Desk) -> None:
    gate = await desk.gate()
    for bad in (True, {"approved": True}):
        await desk.run(command={"resume": {gate.id: bad}})
        still = await desk.gate()
        assert still.id == gate.id
        assert still.refused["code"] == "invalid_answer"
    await desk.lab.desk.approve(await desk.gate())
    await desk.call()


@pytest.mark.anyio
async def test_an_answer_replayed_from_the_old_checkpoint_is_refused(desk: Desk) -> None:
    gate = await desk.gate()
    at_gate = (await desk.state())["checkpoint"]["checkpoint_id"]
    yes = {gate.id: await desk.lab.sign(gate)}
    await desk.lab.desk.resume(desk.thread, yes)
    call = await desk.call()
    at_call = (await desk.state())["checkpoint"]["checkpoint_id"]
    paid = {call.id: await desk.lab.sign(call)}
    await desk.lab.desk.resume(desk.thread, paid)
    assert len(desk.placed) == len(ITEMS)
    for answer, checkpoint in ((paid, at_call), (yes, at_gate)):
        again = await desk.run(command={"resume": answer}, checkpoint_id=checkpoint)
        assert "ApprovalAlreadyDecided" in str(again)
        assert len(desk.placed) == len(ITEMS)


@pytest.mark.anyio
async def test_nothing_goes_around_the_gate(desk: Desk) -> None:
    gate = await desk.gate()
    await desk.run(input=None)
    assert (await desk.gate()).id == gate.id
    for goto in ("place", "review", {"node": "place", "input": {"customer_id": 101}}):
        await desk.run(command={"goto": goto})
        await desk.run(input=None)
        assert desk.placed == [], goto
    forged = {"aa_flow": {"steps": 9}, "aa_visits": {"review": 1}, "shipping_cents": 5}
    await desk.run(command={"update": forged, "goto": "place"})
    assert desk.placed == []


@pytest.mark.anyio
async def test_the_gates_answer_on_a_copied_thread_is_refused(desk: Desk) -> None:
    gate = await desk.gate()
    copied: Any = await desk.lab.sdk.threads.copy(desk.thread)
    twin = Desk(desk.lab, copied["thread_id"])
    ended = await twin.run(command={"resume": {gate.id: await desk.lab.sign(gate)}})
    assert "FlowError" in str(ended)
    assert (await twin.state())["values"]["shipping_cents"] == 0
    await twin.run(input=None)
    own = await twin.gate()
    assert own.value["binding"] != gate.value["binding"]
    await desk.lab.desk.approve(own)
    await twin.call()
    assert desk.placed == []


@pytest.mark.anyio
async def test_an_order_that_cannot_be_is_refused_before_anybody_is_asked(lab: Lab) -> None:
    order = Desk(lab, await lab.thread())
    ended = await order.run(input={"customer_id": 101, "items": [{"product_id": 99}]})
    assert "ToolError" in str(ended)
    assert await lab.desk.pending(order.thread) == []


@pytest.mark.anyio
async def test_a_second_order_on_one_thread_begins_anew(desk: Desk) -> None:
    await desk.lab.desk.approve(await desk.gate())
    await desk.lab.desk.approve(await desk.call())
    await desk.run(input={"customer_id": 102, "items": ITEMS[:1]})
    gate = await desk.gate()
    assert gate.request["arguments"] == {"items": ITEMS[:1], "rates": RATES[:1]}
    await desk.lab.desk.approve(gate)
    await desk.lab.desk.approve(await desk.call())
    assert desk.placed[2:] == [(102, 1, 1, 5609)]


@pytest.mark.anyio
async def test_a_node_that_fails_behind_its_gate_leaves_no_question(desk: Desk) -> None:
    gate = await desk.gate()
    ended = await desk.lab.desk.approve(gate, edited_args={"rates": [1]})
    assert "one rate for each item" in str(ended)
    assert await desk.lab.desk.pending(desk.thread) == []
    assert await desk.lab.desk.heal(desk.thread) == []
    effect = await desk.lab.desk.effect(gate, ended)
    assert effect.kind == "used"
    assert "one rate for each item" in effect.message
    again = await desk.lab.desk.approve(gate)
    assert "ApprovalAlreadyDecided" in str(again)
    assert (await desk.lab.desk.effect(gate, again)).kind == "used"
    await desk.run(input={"customer_id": 101, "items": ITEMS})
    await desk.gate()
    assert desk.placed == []


@pytest.mark.anyio
async def test_a_call_that_fails_behind_its_approval_leaves_no_question(lab: Lab) -> None:
    order = Desk(lab, await lab.thread())
    await order.run(input={"customer_id": 9999, "items": ITEMS})
    await lab.desk.approve(await order.gate())
    call = await order.call()
    ended = await lab.desk.approve(call)
    assert "ToolError" in str(ended)
    assert await lab.desk.pending(order.thread) == []
    assert (await lab.desk.effect(call, ended)).kind == "used"
    assert order.placed == []


@pytest.mark.anyio
async def test_an_edit_that_does_not_fit_is_refused_by_field_before_it_is_sent(desk: Desk) -> None:
    gate = await desk.gate()
    for wrong, fault in (
        ({"rates": ["a", 1]}, r"rates\.0: must be of type integer"),
        ({"rtes": [1, 1]}, "rtes: the state has no such field"),
        ({"items": [{"product_id": 0}]}, r"items\.0\.product_id: minimum is 1"),
    ):
        with pytest.raises(InvalidAnswer, match=fault):
            await desk.lab.desk.approve(gate, edited_args=wrong)
    assert (await desk.gate()).refused is None
    await desk.lab.desk.approve(gate, edited_args={"rates": [1, 1]})
    await desk.call()
