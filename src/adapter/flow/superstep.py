"""One superstep of a local run: its gates, its nodes at the same time, and what came of each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pydantic_core import from_json, to_json

from adapter.core.errors import ApprovalDenied, ApprovalExpired, FlowError
from adapter.core.executor import Executor
from adapter.core.scope import TaskScope, scoped
from adapter.core.types import CallContext, JsonObject, JsonValue, Place
from adapter.flow.checkpoint import Progress
from adapter.flow.context import is_pending
from adapter.flow.gates import Barrier, NotGranted
from adapter.flow.gating import gate_of, gate_state
from adapter.flow.kinds import Node
from adapter.flow.shape import Shape
from adapter.flow.visit import OnProgress, Visited, journaled, visit

__all__ = ["Ended", "Superstep"]

_NO = (ApprovalDenied, ApprovalExpired)


def _waits(error: BaseException) -> bool:
    return is_pending(error) or isinstance(error, NotGranted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What came of a superstep's nodes.

    Attributes:
        paused: Nodes that wait for a person, or for another node's gate.
        denied: A person's no, or their silence, by node.
        errors: What else was raised, by node.
        shut: A gate was denied, so that no node ran.
    """

    paused: list[str] = field(default_factory=list)
    denied: dict[str, ApprovalDenied | ApprovalExpired] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    shut: bool = False


class Superstep:
    """Runs the nodes of a superstep that have not ended yet."""

    def __init__(
        self,
        flow: Shape,
        executor: Executor,
        progress: Progress,
        *,
        run_token: str,
        on_progress: OnProgress | None,
    ) -> None:
        """Take the run's progress; ``run`` adds to its ``done``."""
        self._flow = flow
        self._executor = executor
        self._progress = progress
        self._token = run_token
        self._on_progress = on_progress
        names = progress.position.active
        self._gated = [name for name in names if flow.nodes[name].gated]
        self._barrier = Barrier(self._gated, names)
        self._opened: set[str] = set()
        self._values = flow.fields.given(progress.values)
        told: JsonObject = {"visits": progress.visits, "counts": progress.counts}
        self._state = gate_state(flow, self._values, told)
        for name, made in progress.done.items():
            self._grant(name, made["edited"])

    def number(self, name: str) -> int:
        """Return which visit of a node this superstep makes."""
        return self._progress.visits.get(name, 0) + 1

    def place(self, name: str) -> str:
        """Return the namespace of a node's calls: the same whenever this visit runs."""
        return f"{self._flow.name}/{name}:{self.number(name)}"

    @property
    def places(self) -> dict[str, str]:
        """Each node's namespace."""
        return {self.place(name): name for name in self._progress.position.active}

    async def run(self) -> Ended:
        """Run what is left; finished visits are added to the progress.

        Raises:
            CancelledError: This run was cancelled; no node runs any more.
        """
        left = [name for name in self._progress.position.active if name not in self._progress.done]
        tasks = {name: asyncio.create_task(self._one(name), name=name) for name in left}
        try:
            await asyncio.wait(tasks.values())
        except asyncio.CancelledError:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            raise
        ended = Ended(shut=bool(set(self._gated) - self._opened))
        for name, task in tasks.items():
            self._sort(ended, name, task)
        return ended

    def _sort(self, ended: Ended, name: str, task: asyncio.Task[JsonObject]) -> None:
        if task.cancelled():
            msg = f"flow {self._flow.name!r}, node {name!r}: its code cancelled itself."
            ended.errors[name] = FlowError(msg)
            return
        error = task.exception()
        if error is None:
            self._progress.done[name] = task.result()
        elif _waits(error):
            ended.paused.append(name)
        elif isinstance(error, _NO):
            ended.denied[name] = error
        else:
            ended.errors[name] = error

    async def _one(self, name: str) -> JsonObject:
        node = self._flow.nodes[name]
        if node.gated:
            return await self._behind_gate(node)
        await self._barrier.wait(name)
        return await self._visit(node, None)

    async def _behind_gate(self, node: Node) -> JsonObject:
        async def work(edited: JsonObject | None) -> JsonValue:
            self._grant(node.name, edited)
            await self._barrier.wait(node.name)
            # As text: a state may hold numbers that the journal's canonical form does not keep.
            return to_json(await self._visit(node, edited)).decode()

        try:
            await self._barrier.turn(node.name)
            gate = await gate_of(
                self._flow,
                node,
                self._values,
                state=self._state,
                group=f"{self._flow.name}:{self._progress.steps}",
            )
            recorded = await self._executor.gate(
                gate, self._context(node.name), work, is_pause=_waits
            )
        except BaseException as error:
            self._barrier.closed(node.name, denied=isinstance(error, _NO))
            raise
        made: JsonObject = from_json(recorded)
        self._grant(node.name, made["edited"])
        return made

    def _grant(self, name: str, edited: JsonObject | None) -> None:
        if name in self._gated:
            self._opened.add(name)
            self._barrier.granted(name, edited)

    async def _visit(self, node: Node, edited: JsonObject | None) -> JsonObject:
        values = dict(self._values)
        for _, edit in self._barrier.edits:
            values |= self._flow.fields.given(edit)
        scope = TaskScope(
            task=self,
            context=self._context(node.name),
            journaled=journaled(node, self._executor),
        )
        with scoped(scope):
            made: Visited = await visit(
                self._flow,
                node,
                values,
                executor=self._executor,
                number=self.number(node.name),
                run_id=self._progress.run_id,
                counts=self._progress.counts,
                is_pause=_waits,
                on_progress=self._on_progress,
            )
        return {**made.to_json(), "edited": edited}

    def _context(self, name: str) -> CallContext:
        run_id, place = self._progress.run_id, self.place(name)
        return CallContext(
            place=Place(
                thread_id=run_id,
                checkpoint_ns=place,
                task_id=place,
                turn_id=run_id,
                turnless=True,
            ),
            run_id=run_id,
            run_token=self._token,
        )
