"""The flow `order`: well formed, wired as the agent is, and run without LangGraph too."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from adapter import ApprovalDecision, DeferredApproval, Executor, FlowError
from adapter.langgraph import registry_of
from adapter.langgraph.bridge import run_sync
from adapter.stores import MemoryStore
from agent.database import AcmeDatabase
from agent.flows import Order, order_flow
from agent.policies import ORDER_SPECS
from agent.settings import AgentSettings
from agent.tools import build_order_tools
from agent.wiring import Parts, build_order, build_parts

ROOT = Path(__file__).resolve().parents[3]
YES = ApprovalDecision(approved=True)
ITEMS = [{"product_id": 1, "quantity": 1}, {"product_id": 4, "quantity": 30}]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = build_parts(AgentSettings.load({"ADAPTER_DATA_DIR": str(tmp_path)}, None))
    yield made
    run_sync(made.store.aclose())


def test_both_exported_graphs_are_in_files_that_exist() -> None:
    config = json.loads((ROOT / "langgraph.json").read_text("utf-8"))
    assert sorted(config["graphs"]) == ["agent", "order"]
    for place in config["graphs"].values():
        file, _, attribute = place.partition(":")
        assert f"\n{attribute} = " in (ROOT / file).read_text("utf-8")


def test_the_exported_flow_brings_no_checkpointer(parts: Parts) -> None:
    graph = build_order(parts)
    assert graph.checkpointer is None
    assert graph.name == "order"


def test_both_graphs_share_store_port_and_budgets(parts: Parts) -> None:
    assert parts.ordering.store is parts.executor.store
    assert parts.ordering.port is parts.executor.port
    assert parts.ordering.budgets is parts.executor.budgets
    assert parts.ordering.registry.names == ("place_order", "shipping_rate")


def test_the_flow_is_well_formed_and_says_what_asks(parts: Parts) -> None:
    flow = order_flow()
    flow.validate(parts.ordering.registry)
    assert [name for name, node in flow.nodes.items() if node.gated] == ["review"]
    gated = [spec.name for spec in ORDER_SPECS if spec.approval is not None]
    assert gated == ["place_order"]


@pytest.fixture
async def here(tmp_path: Path) -> Any:
    """The flow's executor without a graph, and the books."""
    acme = AcmeDatabase(tmp_path / "acme.db")
    store = MemoryStore()
    registry = registry_of(build_order_tools(acme), ORDER_SPECS)
    yield Executor(registry, store=store, approval=DeferredApproval(store)), acme
    await store.aclose()


@pytest.mark.anyio
async def test_it_runs_without_langgraph(here: Any) -> None:
    executor, acme = here
    flow = order_flow()
    gate = await flow.run({"customer_id": 101, "items": ITEMS}, executor=executor)
    assert gate.pending is not None
    assert gate.pending.arguments == {"items": ITEMS, "rates": [610, 0]}
    call = await flow.run(executor=executor, checkpoint=gate.checkpoint, decision=YES)
    assert call.pending is not None
    assert call.pending.tool == "place_order"
    done = await flow.run(executor=executor, checkpoint=call.checkpoint, decision=YES)
    assert done.status == "done"
    assert isinstance(done.state, Order)
    assert done.state.shipping_cents == 610
    assert done.state.receipt["order_ids"] == ["A-1121", "A-1122"]
    with closing(sqlite3.connect(acme.path)) as db:
        (count,) = db.execute("select count(*) from orders where order_id > 'A-1120'").fetchone()
    assert count == len(ITEMS)


@pytest.mark.anyio
async def test_an_edit_that_leaves_an_item_without_a_rate_places_nothing(here: Any) -> None:
    executor, acme = here
    flow = order_flow()
    gate = await flow.run({"customer_id": 101, "items": ITEMS}, executor=executor)
    short = ApprovalDecision(edited_args={"rates": [0]})
    with pytest.raises(ValueError, match="one rate for each item"):
        await flow.run(executor=executor, checkpoint=gate.checkpoint, decision=short)
    with closing(sqlite3.connect(acme.path)) as db:
        assert db.execute("select count(*) from placements").fetchone() == (0,)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "given",
    [
        {"customer_id": 101, "items": []},
        {"customer_id": 0, "items": ITEMS},
        {"customer_id": 101, "items": [{"product_id": 1, "quantity": 0}]},
        {"customer_id": 101, "items": [{"product_id": 1, "price": 5}]},
        {"items": ITEMS},
    ],
)
async def test_what_is_no_order_is_refused(here: Any, given: dict[str, Any]) -> None:
    executor, _ = here
    with pytest.raises(FlowError):
        await order_flow().run(given, executor=executor)
