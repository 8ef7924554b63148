"""The local runner: superstep after superstep, until the flow ends or waits for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from adapter.core.decisions import ApprovalDecision, no_decision
from adapter.core.deferred import DeferredApproval
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    FlowError,
    FlowLoopExceeded,
)
from adapter.core.executor import Executor
from adapter.core.ids import new_id
from adapter.core.outcomes import plain_reason
from adapter.core.recording import is_decided
from adapter.core.types import CallStatus, JsonObject
from adapter.flow.checkpoint import Progress, Seal, give_rows, take_rows
from adapter.flow.gating import check_edit_of
from adapter.flow.results import FlowResult, Pending
from adapter.flow.shape import Shape
from adapter.flow.steps import Position, advance, begin
from adapter.flow.superstep import Ended, Superstep
from adapter.flow.visit import OnProgress, Visited
from adapter.flow.work import done

__all__ = ["LocalRun", "OnCheckpoint", "decide", "resumed", "started"]

OnCheckpoint = Callable[[str], Any]
"""Given each sealed checkpoint; sync or async."""


def started(flow: Shape, state: Any, run_id: str | None) -> Progress:
    """Return the progress of a run that begins.

    Raises:
        FlowError: The state does not hold.
    """
    return Progress(
        run_id=run_id or new_id(),
        values=flow.fields.initial(state),
        position=begin(flow.nodes, flow.starts),
    )


async def resumed(
    seal: Seal, executor: Executor, checkpoint: str, state: Any, run_id: str | None
) -> Progress:
    """Return the progress that a checkpoint holds, its rows given to a store that lacks them.

    Raises:
        FlowError: It does not open, is another run's, or a new state was given with it.
    """
    if state is not None:
        msg = "A checkpoint goes on with its own state: give run(None, checkpoint=…)."
        raise FlowError(msg)
    progress = seal.open(checkpoint)
    if run_id is not None and run_id != progress.run_id:
        msg = f"The checkpoint is of the run {progress.run_id!r}, and not of {run_id!r}."
        raise FlowError(msg)
    await give_rows(executor, progress)
    return progress


async def decide(
    flow: Shape,
    executor: Executor,
    progress: Progress,
    decision: ApprovalDecision | Mapping[str, ApprovalDecision],
) -> None:
    """Record what was decided about a paused run's questions.

    Args:
        flow: The flow.
        executor: Whose port records it.
        progress: From the checkpoint of the pause.
        decision: About the first question, or about several by key.

    Raises:
        FlowError: A key is none of this run's, or the port takes no decisions.
        ApprovalAlreadyDecided: Nothing is asked, or it was decided or closed before.
        InvalidAnswer: An edit does not hold; nothing was recorded.
        ToolUsageError: It is no ApprovalDecision.
    """
    offered = decision.values() if isinstance(decision, Mapping) else [decision]
    if not all(isinstance(one, ApprovalDecision) for one in offered):
        raise no_decision(decision)
    port = executor.port
    if not progress.asked:
        msg = "Nothing of this run waits for a decision: it was decided, or never asked."
        raise ApprovalAlreadyDecided(msg)
    if not isinstance(port, DeferredApproval):
        msg = (
            "A decision is recorded in the store, and this executor's port takes none from there. "
            "Run flows here with Executor(approval=DeferredApproval(store, keys))."
        )
        raise FlowError(msg)
    keys = [key for _, key in progress.asked]
    given = decision if isinstance(decision, Mapping) else {keys[0]: decision}
    unknown = sorted(set(given) - set(keys))
    if unknown:
        msg = f"This run does not ask {', '.join(unknown)}; its questions are {', '.join(keys)}."
        raise FlowError(msg)
    nodes = {key: node for node, key in progress.asked}
    for key, said in given.items():
        row = await executor.store.get(key)
        check_edit_of(flow.name, nodes[key], "" if row is None else row.kind, said)
    for key, said in given.items():
        try:
            await port.record(key, said)
        except ApprovalExpired:
            continue  # too late: the run itself closes the question, and ends by it
        except ApprovalAlreadyDecided:
            row = await executor.store.get(key)
            if row is None or row.status is not CallStatus.EXPIRED:
                raise


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """One call of ``Flow.run``.

    Attributes:
        max_steps: Supersteps it may make.
        token: Tells this call from every other.
    """

    flow: Shape
    executor: Executor
    seal: Seal
    max_steps: int
    on_progress: OnProgress | None
    on_checkpoint: OnCheckpoint | None
    token: str

    async def go(self, progress: Progress) -> FlowResult:
        """Go on until the flow ends or waits.

        Raises:
            FlowLoopExceeded: There is more to do after ``max_steps``.
            Exception: Of the first node by name that failed.
        """
        for _ in range(self.max_steps):
            if not progress.position.active:
                break
            result = await self._step(progress)
            if result is not None:
                return result
        if progress.denied is not None:
            return self._result("denied", progress, reason=progress.denied)
        if progress.position.active:
            msg = (
                f"flow {self.flow.name!r} is not over after {self.max_steps} supersteps; next come "
                f"{', '.join(progress.position.active)}. Raise max_steps=, or cap its loops."
            )
            raise FlowLoopExceeded(msg)
        return self._result("done", progress)

    async def _step(self, progress: Progress) -> FlowResult | None:
        step = Superstep(
            self.flow,
            self.executor,
            progress,
            run_token=self.token,
            on_progress=self.on_progress,
        )
        ended = await step.run()
        progress.asked = []
        if ended.errors:
            raise await self._failed(progress, step, ended)
        if ended.paused and not ended.denied:
            return await self._pause(progress, step)
        self._merge(progress, ended)
        await self._keep(progress, None)
        return None

    async def _failed(self, progress: Progress, step: Superstep, ended: Ended) -> BaseException:
        """Keep what ended, and return the error of the first node by name."""
        error = next(iter(ended.errors.values()))
        try:
            if ended.paused and self.on_checkpoint is not None:
                await self._asked(progress, step)
            await self._keep(progress, step)
        except Exception as later:  # noqa: BLE001 - the node's own error must not be lost
            error.add_note(f"and no checkpoint was kept: {type(later).__name__}")
        return error

    async def _asked(self, progress: Progress, step: Superstep) -> tuple[Pending, ...]:
        """Return the superstep's open questions, and note them."""
        places = step.places
        rows = [
            row
            for row in await self.executor.store.requested(progress.run_id)
            if row.checkpoint_ns in places and not is_decided(row)
        ]
        rows.sort(key=lambda row: (places[row.checkpoint_ns], row.position, row.issued_at))
        pendings = tuple(Pending.of_row(row, places[row.checkpoint_ns]) for row in rows)
        progress.asked = [(one.node, one.key) for one in pendings]
        return pendings

    async def _pause(self, progress: Progress, step: Superstep) -> FlowResult:
        pendings = await self._asked(progress, step)
        checkpoint = await self._keep(progress, step, always=True)
        return self._result("paused", progress, pendings=pendings, checkpoint=checkpoint)

    async def _keep(
        self, progress: Progress, step: Superstep | None, *, always: bool = False
    ) -> str | None:
        """Seal the progress, and hand it to whoever keeps it."""
        if self.on_checkpoint is None and not always:
            return None
        await take_rows(self.executor, progress, () if step is None else tuple(step.places))
        sealed = self.seal.close(progress)
        if self.on_checkpoint is not None:
            await done(self.on_checkpoint(sealed))
        return sealed

    def _merge(self, progress: Progress, ended: Ended) -> None:
        """Make a finished superstep's writes the next one's state."""
        made = {name: Visited.from_json(progress.done[name]) for name in sorted(progress.done)}
        progress.values = self._values(progress, made)
        for name, one in made.items():
            progress.visits[name] = progress.visits.get(name, 0) + 1
            progress.counts.update(one.counts)
        if not ended.denied:
            targets = {name: one.targets for name, one in made.items()}
            progress.position = advance(self.flow.nodes, progress.position, targets)
        else:
            progress.denied = plain_reason(next(iter(ended.denied.values())).message)
            progress.position = Position(active=())
        progress.steps += not (ended.denied and ended.shut)
        progress.done = {}

    def _values(self, progress: Progress, made: Mapping[str, Visited]) -> JsonObject:
        where = f"flow {self.flow.name!r}, superstep of {', '.join(made)}"
        values = dict(progress.values)
        for name in made:
            values |= progress.done[name]["edited"] or {}
        try:
            writes = {name: one.writes for name, one in made.items()}
            self.flow.fields.conflict(writes)
            values = self.flow.fields.apply(values, writes.values())
        except FlowError as error:
            msg = f"{where}: {error.message}"
            raise FlowError(msg) from error
        self.flow.fields.load(values, where=where)
        return values

    def _result(
        self,
        status: Literal["done", "paused", "denied"],
        progress: Progress,
        **more: Any,
    ) -> FlowResult:
        return FlowResult(
            status=status,
            state=self.flow.fields.load(progress.values, where=f"flow {self.flow.name!r}"),
            visits=dict(sorted(progress.visits.items())),
            steps=progress.steps,
            **more,
        )
