"""A paused node's progress, sealed into its interrupt value and read back when it runs again.

The newest pause of a task carries all that came before it. With a store that outlives the process
the journal is there, and the seal only says that the superstep's gates were open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph.types import Interrupt

from adapter.core.errors import FlowError, StoreUnavailable, ToolUsageError
from adapter.core.executor import Executor
from adapter.core.ids import new_id
from adapter.core.sealing import Sealer
from adapter.core.signing import APPROVAL_TYPE
from adapter.core.types import CallContext, JsonObject, JsonValue
from adapter.langgraph.host import task_answers

__all__ = ["STATE", "TaskSeal"]

STATE: Final = "aa_state"
"""Key of the sealed progress in an interrupt's value."""

_PURPOSE = "flow-task/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSeal:
    """Seals the progress of one flow's tasks.

    Attributes:
        flow: The flow's name, for messages.
        digest: Digest of the flow: another flow's, or another version's, progress does not open.
    """

    flow: str
    digest: str
    executor: Executor
    sealer: Sealer

    @property
    def durable(self) -> bool:
        """Whether the executor's store outlives this process."""
        return bool(getattr(self.executor.store, "durable", True))

    def wanted(self, conf: Mapping[str, Any], *, again: bool) -> bool:
        """Tell whether the running task may have paused before, so that its pause must be read.

        Args:
            conf: The configurable part of its config.
            again: Its superstep may have been run before.
        """
        return task_answers(conf).keyed > 0 or (not self.durable and again)

    async def open(
        self, conf: Mapping[str, Any], ctx: CallContext, pauses: Sequence[Interrupt]
    ) -> str:
        """Take up a task's progress; returns what its superstep's gates were opened for.

        Args:
            conf: The configurable part of the task's config.
            ctx: Where the task stands.
            pauses: Its last ones.

        Raises:
            FlowError: An answer comes without the progress it belongs to, or that progress does
                not open; nothing has run.
        """
        values = [pause.value for pause in pauses if isinstance(pause.value, Mapping)]
        sealed = next((value[STATE] for value in values if STATE in value), None)
        if sealed is None:
            asked = any(value.get("type") == APPROVAL_TYPE for value in values)
            if asked or (not pauses and task_answers(conf).keyed > 0):
                raise FlowError(self._gone(ctx))
            return ""
        try:
            opened = self.read(sealed, ctx.thread_id, ctx.place.checkpoint_ns)
        except StoreUnavailable as error:
            raise FlowError(self._shut(ctx)) from error
        await self.adopt(opened)
        return str(opened["passed"])

    def read(self, sealed: JsonValue, thread_id: str, namespace: str) -> JsonObject:
        """Return what a pause's seal holds.

        Raises:
            StoreUnavailable: It was not sealed for this task of this flow with these keys.
        """
        opened = self.sealer.open(sealed, _PURPOSE, self.digest, thread_id, namespace)
        if not isinstance(opened, dict):
            msg = "Nothing is sealed here."
            raise StoreUnavailable(msg)
        return opened

    async def adopt(self, opened: JsonObject) -> None:
        """Give a task's rows to a store that forgets them."""
        if opened["rows"] and not self.durable:
            # Part of every binding: the questions of these rows were asked under it.
            await self.executor.store.audience(opened["audience"])
            await self.executor.store.adopt_rows(opened["rows"])

    async def close(
        self, ctx: CallContext, pauses: Sequence[Interrupt], *, passed: str, key: str = ""
    ) -> tuple[Interrupt, ...]:
        """Return a task's pauses with its progress in them.

        Args:
            ctx: Where the task stands.
            pauses: What it raised.
            passed: The state its superstep's gates were opened for; empty where they were not.
            key: Of the call that waits, where the port says it.

        Raises:
            ToolUsageError: A pause of the node's own cannot carry it, and the store forgets.
        """
        rows: list[JsonObject] = []
        audience = ""
        if not self.durable:
            # A call that may run once in a run is known to the whole of it.
            whole = any(spec.once_per_run for spec in self.executor.registry)
            places = None if whole else [ctx.place.checkpoint_ns]
            rows = await self.executor.store.export_rows(ctx.thread_id, places)
            audience = await self.executor.store.audience(new_id())
        told: JsonObject = {"passed": passed, "rows": rows, "audience": audience, "key": key}
        place = ctx.place
        sealed = self.sealer.seal(told, _PURPOSE, self.digest, place.thread_id, place.checkpoint_ns)
        return tuple(self._with(pause, sealed, rows) for pause in pauses)

    def _with(self, pause: Interrupt, sealed: JsonValue, rows: Sequence[JsonObject]) -> Interrupt:
        if isinstance(pause.value, Mapping):
            value = {**pause.value, STATE: sealed}
            return Interrupt(value, id=pause.id, response_schema=pause.response_schema)
        if rows:
            msg = (
                f"flow {self.flow!r}: interrupt() with a value that is no mapping, after calls "
                "that only this process knows of. Give it a mapping, or the executor a store that "
                "lasts."
            )
            raise ToolUsageError(msg)
        return pause

    def _gone(self, ctx: CallContext) -> str:
        return (
            f"flow {self.flow!r}, {_node(ctx)}: an answer came, and the pause it belongs to "
            "carries no progress. Nothing ran. Continue the thread without input, or fork it."
        )

    def _shut(self, ctx: CallContext) -> str:
        return (
            f"flow {self.flow!r}, {_node(ctx)}: the progress in its pause does not open: it was "
            "altered, it belongs to another thread, task or version of the flow, or it was sealed "
            "with another key (checkpoint_key=, or the keys of the executor's port). Nothing ran."
        )


def _node(ctx: CallContext) -> str:
    return f"node {ctx.place.checkpoint_ns.rpartition('|')[2].partition(':')[0]!r}"
