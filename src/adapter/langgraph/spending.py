"""Whether a model call may be made, and what happens when a budget is spent.

The counters and limits are the core's; this room knows a model turn: what was refused in it, and
how it ends well formed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from adapter.core.audit import Subject
from adapter.core.budgets import exceeded
from adapter.core.errors import BudgetExceeded, RateLimited
from adapter.core.executor import Executor
from adapter.core.store import Charge, Turn
from adapter.core.types import CallContext

__all__ = ["Spending", "closing"]

RECENT = 50
"""Audit entries kept in the graph's state for clients."""

_SPENT = (
    "I have used up what I may do in one turn before finishing this request. Please narrow it "
    "down, or tell me to go on."
)
_SPENT_FOR_LONGER = (
    "I have used up what I may do here before finishing this request. The budget of this "
    "conversation or user has to be raised before I can go on."
)
_TOO_OFTEN = "I am being asked too often at the moment. Please try again a little later."


@dataclass(frozen=True, slots=True)
class Spending:
    """Budgets around model calls."""

    executor: Executor

    async def earlier(self, ctx: CallContext, messages: Sequence[BaseMessage]) -> str | None:
        """Ask for raises before the model call, once per run of the task.

        Those an earlier run of this task asked for, and one for tool calls that were just refused.

        Returns:
            The scope of a raise that was refused or expired; then the turn ends.
        """
        raises = self.executor.raises
        if raises is None:
            return None
        turns = {message.id for message in messages if isinstance(message, HumanMessage)}
        await raises.overtaken(ctx, turns)
        refused = await raises.earlier(ctx)
        if refused is not None or not _refused(messages):
            return refused
        budgets = self.executor.budgets
        scopes = [
            scope for scope, (name, _) in budgets.named(ctx).items() if name.startswith("tool")
        ]
        counters = [f"raise:{scope}" for scope in scopes]
        used = (await self.executor.store.charge([], show=[*scopes, *counters])).used
        for scope in scopes:
            size = budgets.named(ctx)[scope][1] + used[f"raise:{scope}"]
            if used[scope] >= size and not await raises.ask(ctx, scope):
                return scope
        return None

    async def charged(self, ctx: CallContext, held: Sequence[Charge], refused: str | None) -> Turn:
        """Charge one model call, asking for raises where budgets are set to.

        Args:
            ctx: Where.
            held: What is held back of tokens and cost.
            refused: Scope that ends the turn whatever is left elsewhere.

        Returns:
            The counters; with ``exceeded``, no model call may be made.
        """
        mark = self.executor.journal.ids()
        if refused is not None:
            turn = replace(await self._charge(ctx, ()), exceeded=refused)
        else:
            turn = await self._charge(ctx, (*self._counts(ctx, mark), *held))
        while turn.exceeded is not None:
            raises = self.executor.raises
            if (
                refused is not None
                or raises is None
                or turn.exceeded not in self.executor.budgets.named(ctx)
                or not await raises.ask(ctx, turn.exceeded)
            ):
                await self._audit(ctx, turn.exceeded, mark)
                break
            turn = await self._charge(ctx, (*self._counts(ctx, mark), *held))
        return turn

    def last(self, ctx: CallContext, used: Mapping[str, int]) -> str:
        """Return the scope that leaves no room for the calls just proposed, or nothing.

        A call whose result no model call would read is not run. Where refusing is enough, tool
        calls are refused one by one instead; where a person is asked, that comes later.
        """
        budgets = self.executor.budgets
        if budgets.asks:
            return ""
        for scope, (name, size) in budgets.named(ctx).items():
            counts = budgets.on_exceeded == "end" or not name.startswith("tool")
            if counts and used.get(scope, 0) >= size:
                return scope
        return ""

    def _counts(self, ctx: CallContext, mark: str) -> tuple[Charge, ...]:
        return self.executor.budgets.model_call(ctx, mark)

    async def _charge(self, ctx: CallContext, charges: Sequence[Charge]) -> Turn:
        budgets = self.executor.budgets
        return await self.executor.store.charge(
            charges,
            show=(*budgets.named(ctx), budgets.thread_total(ctx)),
            recent=(ctx.thread_id, ctx.place.turn_id, RECENT),
        )

    async def _audit(self, ctx: CallContext, scope: str, mark: str) -> None:
        error = exceeded(scope)
        subject = Subject(tool="", call_id="", key=f"model:{mark}")
        event = self.executor.audit.event(
            "refused", ctx, subject, error=error.kind, code=error.code, scope=scope
        )
        await self.executor.store.append([event])


def closing(scope: str) -> str:
    """Return the words that end a turn whose budget or rate is spent."""
    if isinstance(exceeded(scope), RateLimited):
        return _TOO_OFTEN
    return _SPENT if scope.startswith("turn:") else _SPENT_FOR_LONGER


def _refused(messages: Sequence[BaseMessage]) -> bool:
    """Tell whether a budget refused a call in the newest batch."""
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            return False
        if message.status == "error" and _kind(message) == BudgetExceeded.__name__:
            return True
    return False


def _kind(message: ToolMessage) -> str:
    try:
        return str(json.loads(str(message.content))["error"]["kind"])
    except (ValueError, KeyError, TypeError):
        return ""
