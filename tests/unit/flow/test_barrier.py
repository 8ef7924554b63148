"""Where the nodes of a superstep meet before any of them works."""

from __future__ import annotations

import asyncio

import pytest

from adapter.flow.gates import Barrier, NotGranted

pytestmark = pytest.mark.anyio


async def test_without_gates_nobody_waits() -> None:
    await Barrier([], ["a", "b"]).wait("a")


async def test_a_gate_waits_for_those_before_it_by_name() -> None:
    barrier = Barrier(["b", "a"])
    waiting = asyncio.create_task(barrier.turn("b"))
    await barrier.turn("a")
    await asyncio.sleep(0)
    assert not waiting.done()
    barrier.granted("a")
    await waiting


async def test_work_waits_for_all_gates() -> None:
    barrier = Barrier(["a", "b"], ["c"])
    waiting = asyncio.create_task(barrier.wait("c"))
    barrier.granted("a", {"x": 1})
    await asyncio.sleep(0)
    assert not waiting.done()
    barrier.granted("b")
    await waiting
    assert barrier.edits == [("a", {"x": 1})]


@pytest.mark.parametrize("denied", [False, True])
async def test_a_gate_that_stays_shut_sends_everybody_away(denied: bool) -> None:
    barrier = Barrier(["a", "b"], ["c"])
    barrier.closed("a", denied=denied)
    for waits in (barrier.turn("b"), barrier.wait("b"), barrier.wait("c")):
        with pytest.raises(NotGranted) as caught:
            await waits
        assert (caught.value.gate, caught.value.denied) == ("a", denied)


async def test_a_gated_node_does_not_work_before_its_own_gate_is_open() -> None:
    barrier = Barrier(["a"])
    barrier.closed("a")
    with pytest.raises(NotGranted):
        await barrier.wait("a")
    barrier.granted("a")
    await barrier.wait("a")


async def test_an_open_gate_stays_open() -> None:
    barrier = Barrier(["a"])
    barrier.granted("a")
    barrier.closed("a", denied=True)
    await barrier.wait("a")


async def test_a_node_that_does_not_show_up_in_time_keeps_its_gate_shut() -> None:
    barrier = Barrier(["a"], ["b"], timeout=0)
    with pytest.raises(NotGranted, match="the gate before a is not open"):
        await barrier.wait("b")


async def test_a_reviewer_may_take_longer_than_that() -> None:
    barrier = Barrier(["a"], ["b"], timeout=0.01)
    await barrier.turn("a")
    waiting = asyncio.create_task(barrier.wait("b"))
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    barrier.granted("a")
    await waiting
