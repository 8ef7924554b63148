"""A node of a flow as a node of the graph: where it stands, and how long its gate may take."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.config import get_config
from langgraph.types import Command, Interrupt
from typing_extensions import override

from adapter.core.errors import FlowError
from adapter.flow.kinds import Node
from adapter.flow.visit import journaled
from adapter.langgraph.bridge import run_sync
from adapter.langgraph.flowchannels import FLOW
from adapter.langgraph.flowmeeting import Wiring, ended_before
from adapter.langgraph.flowvisit import Visit
from adapter.langgraph.host import configurable, is_sent
from adapter.langgraph.scope import own_task
from adapter.langgraph.supersteps import last_pause, pauses_at, superstep

__all__ = ["FlowNode"]

_CROWDED = 0.02
"""Part of the wait for a gate that is left where not all nodes of a superstep run at once."""


class FlowNode(Runnable[Any, Any]):
    """A node of the flow as a node of the graph.

    Attributes:
        executor: What governs its calls.
    """

    def __init__(self, wiring: Wiring, node: Node) -> None:
        """Take the node."""
        self.name = node.name
        self.executor = wiring.executor
        self._wiring = wiring
        self._node = node

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **_kwargs: Any) -> Any:
        """Run in a synchronous graph."""
        asked, crowd = self._may_have_run()
        at = pauses_at(configurable()) if asked or crowd else None
        found = None if at is None else at[0].get_tuple(at[1])
        pauses = last_pause(configurable(), found) if asked else ()
        return run_sync(self._visited(input, found, pauses, threads=True))

    @override
    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **_kwargs: Any
    ) -> Any:
        """Run in an asynchronous graph."""
        asked, crowd = self._may_have_run()
        at = pauses_at(configurable()) if asked or crowd else None
        found = None if at is None else await at[0].aget_tuple(at[1])
        pauses = last_pause(configurable(), found) if asked else ()
        return await self._visited(input, found, pauses, threads=False)

    def _may_have_run(self) -> tuple[bool, bool]:
        """Tell whether this task may have paused before, and others of its superstep ended."""
        conf = configurable()
        step = superstep(conf, self._wiring.flow.nodes)
        again = not step.run[FLOW].begun
        return self._wiring.seal.wanted(conf, again=again), again and len(step.active) > 1

    async def _visited(
        self,
        given: Mapping[str, Any],
        found: CheckpointTuple | None,
        pauses: Sequence[Interrupt],
        *,
        threads: bool,
    ) -> Command[Any]:
        flow = self._wiring.flow
        if is_sent(get_config()):
            msg = (
                f"flow {flow.name!r}: node {self._node.name!r} was started by a Send. Nodes of a "
                "compiled flow work on the flow's state only; use goto with the node's name."
            )
            raise FlowError(msg)
        told = given.get(FLOW)
        values = flow.fields.given(given)
        with own_task(values, journaled=journaled(self._node, self.executor)) as scope:
            assert scope.context is not None  # noqa: S101 - own_task sets it
            # The run stands in the turn's place: what may run once in a run is known by it.
            run = self._wiring.told.run(told)
            if self._wiring.told.denied(told, scope.context.thread_id) is not None:
                return Command()  # the flow is over; this superstep was on its way already
            place = replace(scope.context.place, turnless=True, turn_id=run)
            scope.context = replace(scope.context, place=place)
            one = Visit(
                wiring=self._wiring,
                node=self._node,
                values=values,
                given=given,
                ctx=scope.context,
                step=superstep(configurable(), flow.nodes),
                wait=self._wait(threads=threads),
                earlier=ended_before(configurable(), found, flow.fields),
            )
            return await one.run(pauses)

    def _wait(self, *, threads: bool) -> float:
        """Return how long a gate may take to show up where some nodes may not even have begun."""
        crowd = len(superstep(configurable(), self._wiring.flow.nodes).active)
        limit = get_config().get("max_concurrency")
        if limit is None and threads:
            limit = min(32, (os.cpu_count() or 1) + 4)  # as many as LangChain's executor has
        crowded = limit is not None and limit < crowd
        return self._wiring.wait * (_CROWDED if crowded else 1)
