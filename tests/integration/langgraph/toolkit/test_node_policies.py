"""LangGraph's own policies on a node neither swallow, nor repeat, nor cache a pause."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import CachePolicy, RetryPolicy
from tests.support.toolkit import CONFIG, Bench, answered, asked, asking, graph_of, of, results

from adapter.langgraph import tool_node

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_gated_call_is_the_same_under_every_durability(
    bench: Bench, durability: Any
) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    given: Any = asking(of("note", "c1", text="n"), of("pay", "c2", text="p"))
    await app.ainvoke(given, CONFIG, durability=durability)
    (question,) = await asked(app)
    out = await app.ainvoke(shop.answer(question), CONFIG, durability=durability)
    assert [message.content for message in results(out)] == ['{"noted": "n"}', "paid p"]
    assert (bench.ran("note"), bench.ran("pay")) == (1, 1)


async def test_a_retry_policy_for_everything_retries_no_pause(bench: Bench) -> None:
    shop = bench.shop()
    everything = RetryPolicy(initial_interval=0.001, max_attempts=3, retry_on=lambda error: True)
    app = graph_of(tool_node(shop.registry, executor=shop.executor), retry_policy=everything)
    await app.ainvoke(asking(of("note", "c1", text="n"), of("pay", "c2", text="p")), CONFIG)
    await answered(app, shop)
    assert (bench.ran("note"), bench.ran("pay")) == (1, 1)
    events = [event.kind for event in await shop.store.events("shop-1")]
    assert events.count("requested") == 1


async def test_a_cache_policy_caches_no_pause_and_no_approval(bench: Bench) -> None:
    shop = bench.shop()
    graph: Any = StateGraph(MessagesState)
    graph.add_node(
        tool_node(shop.registry, executor=shop.executor),
        cache_policy=CachePolicy(key_func=lambda given: "one"),
    )
    graph.add_edge(START, "tools")
    app = graph.compile(checkpointer=InMemorySaver(), cache=InMemoryCache())
    await app.ainvoke(asking(of("pay", "c1", text="p")), CONFIG)
    assert bench.ran("pay") == 0
    await answered(app, shop)
    assert bench.ran("pay") == 1


async def test_three_gated_calls_are_three_questions_with_their_own_ids(bench: Bench) -> None:
    shop = bench.shop()
    app = graph_of(tool_node(shop.registry, executor=shop.executor))
    calls = [of("pay", f"c{number}", text=f"{number}") for number in range(3)]
    await app.ainvoke(asking(*calls), CONFIG)
    ids, named = [], []
    out: Any = None
    for _ in calls:
        (question,) = await asked(app)
        ids.append(question.id)
        named.append(question.value["request"]["call_id"])
        out = await app.ainvoke(shop.answer(question), CONFIG)
    assert len(set(ids)) == 3
    assert named == ["c0", "c1", "c2"]
    assert [message.content for message in results(out)] == ["paid 0", "paid 1", "paid 2"]
    assert bench.ran("pay") == 3
