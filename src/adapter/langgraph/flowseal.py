"""A paused node's progress, sealed into its interrupt value and read back when it runs again.

The newest pause of a task carries all that came before it. With a store that outlives the process
the journal is there, and the seal only says that the superstep's gates were open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.types import Interrupt

from adapter.core.errors import (
    AdapterError,
    CallInProgress,
    ConfigurationError,
    FlowError,
    StoreUnavailable,
    ToolUsageError,
)
from adapter.core.executor import Executor
from adapter.core.ids import new_id
from adapter.core.sealing import Sealer
from adapter.core.signing import APPROVAL_TYPE, USED
from adapter.core.types import CallContext, JsonObject, JsonValue
from adapter.langgraph.host import pause_id, task_answers
from adapter.langgraph.supersteps import (
    is_resumed,
    last_pause,
    pauses_at,
    replace_pauses,
)

__all__ = ["STATE", "TaskSeal"]

STATE: Final = "aa_state"
"""Key of the sealed progress in an interrupt's value."""

_PURPOSE = "flow-task/v1"

_UNUSED = (GraphBubbleUp, CallInProgress, ConfigurationError, StoreUnavailable)
"""What a task may leave with while its answer still waits for its claim."""


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

    def wanted(self, conf: Mapping[str, Any]) -> bool:
        """Tell whether the running task may have paused before, so that its pause must be read."""
        return task_answers(conf).keyed > 0 or (not self.durable and is_resumed(conf))

    def look(self, conf: Mapping[str, Any]) -> tuple[Interrupt, ...]:
        """Return the running task's last pauses, from a synchronous graph's thread."""
        at = pauses_at(conf) if self.wanted(conf) else None
        return () if at is None else last_pause(conf, at[0].get_tuple(at[1]))

    async def alook(self, conf: Mapping[str, Any]) -> tuple[Interrupt, ...]:
        """Return the running task's last pauses."""
        at = pauses_at(conf) if self.wanted(conf) else None
        return () if at is None else last_pause(conf, await at[0].aget_tuple(at[1]))

    async def open(
        self, conf: Mapping[str, Any], ctx: CallContext, pauses: Sequence[Interrupt]
    ) -> bool:
        """Take up a task's progress; returns whether its superstep's gates were open.

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
            return False
        try:
            opened = self.read(sealed, ctx.thread_id, ctx.place.checkpoint_ns)
        except StoreUnavailable as error:
            raise FlowError(self._shut(ctx)) from error
        await self.adopt(opened)
        return bool(opened["passed"])

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
        self, ctx: CallContext, pauses: Sequence[Interrupt], *, passed: bool, key: str = ""
    ) -> tuple[Interrupt, ...]:
        """Return a task's pauses with its progress in them.

        Args:
            ctx: Where the task stands.
            pauses: What it raised.
            passed: Its superstep's gates were open.
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

    def spend(self, conf: Mapping[str, Any], pauses: Sequence[Interrupt], error: Exception) -> None:
        """Say in a failed task's pause that its question was answered, and the answer is used up.

        LangGraph goes on listing the question; whoever reads the thread's state sees this in it.

        Args:
            conf: The configurable part of the task's config.
            pauses: Its last ones.
            error: What the task fails with.
        """
        if isinstance(error, _UNUSED) or is_invalid_resume(error):
            return
        answers = task_answers(conf)
        taken = range(min(answers.asked, answers.keyed))
        ids = {pause_id(answers.namespace, number) for number in taken}
        said = {"code": getattr(error, "code", "failed"), "message": _told(error)}
        marked = [_marked(pause, said) if pause.id in ids else pause for pause in pauses]
        if marked != list(pauses):
            replace_pauses(conf, marked)

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


def _marked(pause: Interrupt, said: JsonObject) -> Interrupt:
    """Return a pause whose answer is used; what failed first stays the reason."""
    value = pause.value
    if not isinstance(value, Mapping) or value.get("type") != APPROVAL_TYPE or USED in value:
        return pause
    return Interrupt({**value, USED: said}, id=pause.id, response_schema=pause.response_schema)


def _told(error: Exception) -> str:
    """Return what every reader of the thread may see of an error."""
    name = type(error).__name__
    return f"{name}: {error.message}" if isinstance(error, AdapterError) else name


def _node(ctx: CallContext) -> str:
    return f"node {ctx.place.checkpoint_ns.rpartition('|')[2].partition(':')[0]!r}"
