"""Flow: nodes, edges and a state, declared once; run here or compiled for LangGraph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import FlowCompileError
from adapter.core.executor import Executor
from adapter.core.ids import new_id
from adapter.core.spec import Registry
from adapter.flow.checkpoint import seal_for
from adapter.flow.checks import faults, tool_faults
from adapter.flow.defaults import check_port, executor_of
from adapter.flow.drawing import mermaid, svg
from adapter.flow.results import FlowResult
from adapter.flow.runner import LocalRun, OnCheckpoint, decide, resumed, started
from adapter.flow.shape import Shape
from adapter.flow.visit import OnProgress

__all__ = ["Flow"]


class Flow(Shape):
    """A graph of nodes over a state. Each declaring method returns the flow, so they chain.

    Mistakes are collected and said all at once by ``validate``, which every run calls first.
    """

    def validate(self, registry: Registry | None = None) -> None:
        """Check the whole flow.

        Args:
            registry: The tools there are; None leaves tools out.

        Raises:
            FlowCompileError: Lists every fault at once.
        """
        found = list(dict.fromkeys(faults(self)))
        if registry is not None:
            found += tool_faults(self, registry)
        if found:
            listed = "\n".join(f"- {fault}" for fault in found)
            count = "1 fault" if len(found) == 1 else f"{len(found)} faults"
            msg = f"Flow {self.name!r} has {count}:\n{listed}"
            raise FlowCompileError(msg)

    def mermaid(self) -> str:
        """Return the flow as a Mermaid flowchart."""
        return mermaid(self)

    def svg(self) -> str:
        """Return the flow as SVG, drawn by Graphviz' ``dot`` on this machine.

        Raises:
            FlowError: Graphviz is not installed, or failed.
        """
        return svg(self)

    async def run(
        self,
        state: Any = None,
        *,
        executor: Executor | None = None,
        run_id: str | None = None,
        checkpoint: str | None = None,
        decision: ApprovalDecision | Mapping[str, ApprovalDecision] | None = None,
        checkpoint_key: bytes | None = None,
        max_steps: int = 100,
        on_progress: OnProgress | None = None,
        on_checkpoint: OnCheckpoint | None = None,
    ) -> FlowResult:
        """Run the flow here, without LangGraph, until it ends or waits for a person.

        Args:
            state: A model or a mapping of fields to begin with; None with a checkpoint.
            executor: Governs every call. None makes one over memory for a flow without tools.
            run_id: Names the run in call keys and audit; by default a new one. Run again with the
                same name and the same durable store, finished calls give their recorded results.
            checkpoint: Where an earlier run stood; goes on from there.
            decision: What is decided about the first pending question, or by key about several.
            checkpoint_key: Secret of 16 or more bytes that seals the checkpoint; by default the
                keys of the executor's port, else random ones of this process.
            max_steps: Supersteps this call may make.
            on_progress: Told of each finished item of a Map, with a FlowProgress; sync or async.
            on_checkpoint: Given the sealed checkpoint after each superstep, before a pause, and
                before an error is raised; sync or async.

        Returns:
            How far it came.

        Raises:
            FlowCompileError: The flow is not well formed, or names an unknown tool.
            FlowLoopExceeded: A loop went past its cap, or the run past ``max_steps``.
            FlowError: The state, a node's result, or the checkpoint does not hold.
            ApprovalAlreadyDecided: The question was decided before.
            ToolUsageError: The executor's port asks in LangGraph only, and the flow asks.
        """
        self.validate(None if executor is None else executor.registry)
        if executor is not None:
            check_port(self, executor)
        async with executor_of(self, executor, checkpoint_key) as governing:
            if governing.port is not None:
                await governing.port.refresh()
            seal = seal_for(self, governing, checkpoint_key)
            if checkpoint is None:
                progress = started(self, state, run_id)
            else:
                progress = await resumed(seal, governing, checkpoint, state, run_id)
            if decision is not None:
                await decide(self, governing, progress, decision)
            running = LocalRun(
                flow=self,
                executor=governing,
                seal=seal,
                max_steps=max_steps,
                on_progress=on_progress,
                on_checkpoint=on_checkpoint,
                token=new_id(),
            )
            return await running.go(progress)
