"""The result cache: whose, of what, how long, how much."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.unit.core.kit import Query, tool

from adapter.core.cache import ResultCache, cache_key
from adapter.core.errors import ConfigurationError, ToolFailed
from adapter.core.policy import Policy
from adapter.core.types import CallContext, Effects
from adapter.testing import FrozenClock, Wired, make_call, make_context, wired

READ = Effects(read_only=True)
LOOK = tool("look", model=Query, effects=READ, cache_ttl=60)
DIGESTS = ("policy", "schema")


def key(value: Any = 1, *, spec: Any = None, ctx: CallContext | None = None) -> str:
    return cache_key(spec or LOOK[0], DIGESTS, {"x": value}, ctx or make_context())


def test_values_of_other_types_have_other_keys() -> None:
    assert len({key(value) for value in (1, 1.0, True, "1", None, [1], "True")}) == 7


def test_the_order_of_arguments_is_no_difference() -> None:
    ctx = make_context()
    one = cache_key(LOOK[0], DIGESTS, {"a": 1, "b": 2}, ctx)
    assert one == cache_key(LOOK[0], DIGESTS, {"b": 2, "a": 1}, ctx)


def test_tool_version_digests_and_principal_are_part_of_the_key() -> None:
    other = tool("look", model=Query, effects=READ, version="2")[0]
    keys = {
        key(),
        key(spec=other),
        key(spec=tool("see", model=Query, effects=READ)[0]),
        cache_key(LOOK[0], ("policy", "other"), {"x": 1}, make_context()),
        key(ctx=make_context("thread-2")),
        key(ctx=make_context(user="ann")),
        key(ctx=make_context(user="thread-1")),
        key(ctx=make_context(user="bob")),
    }
    assert len(keys) == 8
    assert key(ctx=make_context("t1", user="ann")) == key(ctx=make_context("t2", user="ann"))


def test_a_result_is_forgotten_after_its_time() -> None:
    clock = FrozenClock()
    cache = ResultCache(clock=clock)
    cache.put("a", {"n": [1]}, 10)
    clock.advance(9.999)
    assert cache.get("a") == {"n": [1]}
    clock.advance(0.001)
    assert cache.get("a") is None
    assert cache.get("a") is None


def test_what_is_given_out_is_a_copy() -> None:
    cache = ResultCache(clock=FrozenClock())
    cache.put("a", {"n": [1]}, 10)
    found = cache.get("a")
    assert found is not None
    found["n"].append(2)
    assert cache.get("a") == {"n": [1]}


def test_the_one_unused_for_longest_goes_first() -> None:
    cache = ResultCache(clock=FrozenClock(), max_entries=2)
    cache.put("a", 1, 10)
    cache.put("b", 2, 10)
    assert cache.get("a") == 1
    cache.put("c", 3, 10)
    assert [cache.get(name) for name in "abc"] == [1, None, 3]


def test_the_size_is_bounded_and_replacing_frees_it() -> None:
    cache = ResultCache(clock=FrozenClock(), max_bytes=10)
    cache.put("a", "123456", 10)
    cache.put("a", "abcdef", 10)
    assert cache.get("a") == "abcdef"
    cache.put("b", "1234", 10)
    assert [cache.get(name) for name in "ab"] == [None, "1234"]
    cache.put("b", "far too long for it", 10)
    assert cache.get("b") is None


@pytest.mark.parametrize("bounds", [{"max_entries": 0}, {"max_bytes": 0}])
def test_a_cache_that_holds_nothing_is_refused(bounds: Any) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        ResultCache(clock=FrozenClock(), **bounds)


async def look(kit: Wired, id: str, ctx: CallContext | None = None, **tool: Any) -> Any:
    return await kit.run(make_call("look", id=id, text="x"), ctx, **tool)


@pytest.mark.anyio
async def test_a_second_call_gets_the_first_ones_result_and_runs_nothing() -> None:
    async with wired(LOOK) as kit:
        assert await look(kit, "a", body=lambda _: "first") == "first"
        assert await look(kit, "b", body=lambda _: "second") == "first"
        assert len(kit.runs) == 1
        kit.clock.advance(61)
        assert await look(kit, "c", body=lambda _: "third") == "third"


@pytest.mark.anyio
async def test_nothing_crosses_to_another_user_or_thread() -> None:
    async with wired(LOOK) as kit:
        for number, ctx in enumerate(
            (make_context(user="ann"), make_context(user="bob"), make_context("other"))
        ):
            await look(kit, f"c{number}", ctx)
        assert len(kit.runs) == 3
        await look(kit, "again", make_context("other", user="ann"))
        assert len(kit.runs) == 3


def explode(_: Any) -> Any:
    raise ValueError


@pytest.mark.anyio
async def test_errors_and_pauses_are_not_kept() -> None:
    from adapter.testing import Paused

    def pause(_: Any) -> Any:
        raise Paused({})

    async with wired(LOOK) as kit:
        with pytest.raises(ToolFailed):
            await look(kit, "a", body=explode)
        await look(kit, "b", is_error=True)
        with pytest.raises(Paused):
            await look(kit, "c", body=pause)
        await look(kit, "d", body=lambda _: object())  # no JSON: cannot be kept
        assert await look(kit, "e", body=lambda _: "fine") == "fine"
        assert len(kit.runs) == 5


@pytest.mark.anyio
async def test_a_result_that_belongs_to_its_call_only_is_not_kept() -> None:
    async with wired(LOOK) as kit:
        await look(kit, "a", body=lambda _: None)  # None: the invocation cannot share it
        await look(kit, "b")
        assert len(kit.runs) == 2


@pytest.mark.anyio
async def test_a_gated_call_is_neither_served_nor_kept() -> None:
    policy = Policy(escalate={"look": "ask"}, approver=lambda _: True)
    async with wired(LOOK) as kit:
        from adapter.core.executor import Executor

        gated = Executor(kit.registry, store=kit.store, policy=policy, **kit.options)
        for call_id in ("a", "b"):
            call = make_call("look", id=call_id, text="x")
            await gated.run(call, make_context(), kit.invocation(call))
        assert len(kit.runs) == 2


@pytest.mark.anyio
async def test_a_tool_without_a_ttl_is_never_cached() -> None:
    async with wired(tool("look", model=Query, effects=READ)) as kit:
        await look(kit, "a")
        await look(kit, "b")
        assert len(kit.runs) == 2


@pytest.mark.anyio
async def test_a_cached_result_costs_no_call_and_is_audited() -> None:
    from adapter.core.budgets import Budgets

    async with wired(LOOK, budgets=Budgets(tool_calls_per_turn=1)) as kit:
        await look(kit, "a")
        await look(kit, "b")
        await kit.store.append([])
        kinds = [event.kind for event in await kit.store.events("thread-1")]
        assert kinds.count("started") == 1
        assert kinds.count("cached") == 1


class Anything(BaseModel):
    x: Any = None


@pytest.mark.anyio
async def test_arguments_that_are_equal_in_python_only_both_run() -> None:
    async with wired(tool("look", model=Anything, effects=READ, cache_ttl=60)) as kit:
        for number, value in enumerate((1, True, "1", 1.5)):
            await kit.run(make_call("look", id=f"c{number}", x=value))
        assert len(kit.runs) == 4
        # 1.0 is 1 in canonical JSON: the tool is given the same argument, and so the same result
        await kit.run(make_call("look", id="again", x=1.0))
        assert len(kit.runs) == 4
