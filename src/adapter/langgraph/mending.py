"""Giving every call that was left without a result one, before a model reads the history.

A run that was cancelled, stopped or overtaken leaves such calls. What became of them is looked up
in the journal; nothing is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from typing_extensions import override

from adapter.core.executor import Executor
from adapter.core.store import CallRow
from adapter.core.types import CallContext, CallStatus
from adapter.langgraph import history, results
from adapter.langgraph.nodes import GovernedNode
from adapter.langgraph.scope import here

__all__ = ["Mender", "MendingNode", "mend_node"]

UNKNOWN = (
    "The outcome of this call is unknown: it was started and may have had its effect. Do not "
    "repeat it; tell the user."
)
REMOVED = (
    "This call was decided long ago, and the record of its outcome was removed since. Do not "
    "repeat it; tell the user."
)
NOT_EXECUTED = "Not executed: the conversation went on before this call ran."

_RANK = {
    CallStatus.SUCCEEDED: 0,
    CallStatus.RESPONDED: 1,
    CallStatus.FAILED: 2,
    CallStatus.IN_DOUBT: 3,
    CallStatus.CLAIMED: 4,
    CallStatus.SUSPENDED: 5,
    CallStatus.DENIED: 6,
    CallStatus.EXPIRED: 7,
}


@dataclass(frozen=True, slots=True)
class Mender:
    """Histories with a result for every call."""

    executor: Executor

    async def mended(
        self, messages: Sequence[BaseMessage], ctx: CallContext
    ) -> list[BaseMessage] | None:
        """Return the history with every result in its place, or None where it is so already.

        Questions that were still open for such calls are void from now on.

        Args:
            messages: The history.
            ctx: Where.
        """
        if history.in_order(messages):
            return None
        found = {
            gap.index: await self._results(messages, gap, ctx)
            for gap in history.unanswered(messages)
        }
        return history.repaired(messages, found)

    async def _results(
        self, messages: Sequence[BaseMessage], gap: history.Unanswered, ctx: CallContext
    ) -> list[ToolMessage]:
        rows: dict[str, list[CallRow]] = {}
        named = history.name_of(messages, gap.index)
        for row in await self.executor.store.of_message(ctx.thread_id, named):
            rows.setdefault(row.tool_call_id, []).append(row)
        faults: Mapping[str, Any] = {}
        if gap.message.invalid_tool_calls and not rows:
            # No node ran these: arguments that are no JSON are in no list of tool calls.
            answered = history.answered_ids(messages, gap.index)
            faults = self.executor.admit(history.batch_of(gap.message, answered)).faults
            where = replace(ctx, metadata={"message_id": gap.message.id or ""})
            await self.executor.refuse(faults, dict(gap.calls), where)
        made = []
        for call_id, name in gap.calls:
            if call_id in faults:
                made.append(results.error_message(faults[call_id], call_id, name))
                continue
            mine = rows.get(call_id, [])
            await self._overtake(mine, ctx)
            best = min(mine, key=lambda row: _RANK.get(row.status, 9), default=None)
            recorded = None if best is None else self.executor.journal.outcome(best)
            found = _outcome(best, recorded, call_id, name)
            made.append(self.executor.shown(name, found, results.masked))
        return made

    async def _overtake(self, rows: Sequence[CallRow], ctx: CallContext) -> None:
        for row in rows:
            if row.status in (CallStatus.REQUESTED, CallStatus.APPROVED):
                await self.executor.journal.overtake(ctx, row)


class MendingNode(GovernedNode):
    """The node. ``add_node(node)`` names it ``mend``."""

    name = "mend"

    def __init__(self, executor: Executor, messages_key: str) -> None:
        """Take the executor; ``mend_node`` says what each argument is."""
        self._mender = Mender(executor)
        self._key = messages_key

    @override
    async def _run(self, given: Any, config: RunnableConfig | None) -> Any:
        messages = history.messages_of(given, self._key)
        mended = await self._mender.mended(messages, here(given, self._key))
        if mended is None:
            return [] if isinstance(given, list) else {self._key: []}
        update = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *mended]
        return update if isinstance(given, list) else {self._key: update}


def mend_node(executor: Executor, *, messages_key: str = "messages") -> MendingNode:
    """Return a node for the way to a model: afterwards every call in the state has one result.

    It is what AdapterMiddleware does before each model call. The state's messages need LangGraph's
    ``add_messages``.

    Args:
        executor: The one that governs the calls; of a policy, ``PolicyGate.executor(tools)``.
        messages_key: Where the state's messages are.
    """
    return MendingNode(executor, messages_key)


def _outcome(row: CallRow | None, recorded: Any, call_id: str, name: str) -> ToolMessage:
    if isinstance(recorded, dict):
        if isinstance(recorded.get("error"), dict):
            content = json.dumps({"error": recorded["error"]})
            return ToolMessage(content, tool_call_id=call_id, name=name, status="error")
        for message in results.result_messages(recorded.get("result")):
            if message.tool_call_id == call_id:
                return message
    doubtful = (CallStatus.CLAIMED, CallStatus.SUSPENDED, CallStatus.IN_DOUBT)
    removed = row is not None and row.status.settled
    unknown = removed or (row is not None and row.status in doubtful)
    error = {
        "kind": "CallInDoubt" if unknown else "NotExecuted",
        "message": REMOVED if removed else UNKNOWN if unknown else NOT_EXECUTED,
    }
    return ToolMessage(
        json.dumps({"error": error}), tool_call_id=call_id, name=name, status="error"
    )
