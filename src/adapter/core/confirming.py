"""What the row of a call that needs an approval says: ask about it, run it again, or it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapter.core.answers import Answer
from adapter.core.approvals import BoundRow
from adapter.core.asking import Asker
from adapter.core.budgets import Budgets
from adapter.core.errors import ConfigurationError, ToolUsageError
from adapter.core.past import OPEN, Past, executed_before
from adapter.core.scope import task_scope
from adapter.core.spec import ApprovalRule, Registry
from adapter.core.store import CallRow, Charge
from adapter.core.types import CallStatus, JsonObject
from adapter.core.work import Work

__all__ = ["Again", "Confirmer", "check_port", "check_registry"]


_PORTS = (
    "Give the Executor approval=LangGraphApproval(keys), which asks in the graph that runs, or "
    "approval=DeferredApproval(store, keys), which asks in the store (flow.run needs this one)."
)


def check_registry(registry: object) -> None:
    """Refuse bare tools where a registry is wanted.

    Args:
        registry: What was given.

    Raises:
        ConfigurationError: It is no Registry.
    """
    if not isinstance(registry, Registry):
        msg = (
            f"Tools are given as a Registry, not as a {type(registry).__name__}: "
            "registry_of(tools, specs) of adapter.langgraph makes one, with a ToolSpec for each."
        )
        raise ConfigurationError(msg)


def check_port(registry: Registry, budgets: Budgets, *, asks: bool) -> None:
    """Refuse tools and budgets that ask people where there is no approval port.

    Args:
        registry: Every tool.
        budgets: The limits.
        asks: Whether there is an approval port.

    Raises:
        ConfigurationError: Names what asks.
    """
    if asks:
        return
    if budgets.asks:
        msg = f"Budgets(on_exceeded='ask') needs an approval port. {_PORTS}"
        raise ConfigurationError(msg)
    gated = [spec.name for spec in registry if spec.approval is not None or spec.masks]
    if gated:
        msg = f"These tools need an approval port: {', '.join(gated)}. {_PORTS}"
        raise ConfigurationError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Nobody is asked: a person let the call run again, or its claim ran out.

    Attributes:
        arguments: What the earlier claim ran with.
    """

    arguments: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmer:
    """Opens the question about a call and gets an answer to it.

    Attributes:
        registry: Whose schemas check an edit that ran before.
    """

    registry: Registry
    asker: Asker
    past: Past

    def check_place(self, work: Work) -> None:
        """Refuse to ask where the host cannot pause.

        Raises:
            ConfigurationError: Says what the graph lacks.
        """
        if not work.ctx.place.durable:
            msg = (
                f"{work.spec.name} needs an approval, and this graph cannot pause: compile it "
                "with a checkpointer and give a thread_id (a LangGraph server does both)."
            )
            raise ConfigurationError(msg)

    async def gives_way(self, work: Work) -> bool:
        """Tell whether calls of the same task go first: the answer that waits is one of theirs.

        They may have been asked before this one though they are behind it, and the answer would be
        refused here.
        """
        port = self.asker.port
        if not port.contended():
            return False
        row = await self.asker.journal.store.get(work.identity.key)
        if row is not None and row.status not in OPEN:
            return False
        bound = None if row is None else await self.past.bound(row)
        return port.is_for_another(bound if isinstance(bound, BoundRow) else None)

    async def ask(
        self, work: Work, rule: ApprovalRule, charges: Sequence[Charge]
    ) -> Answer | Again | CallRow:
        """Return what is to be done about a call; pauses where nobody has answered yet.

        Args:
            work: The call.
            rule: Why a person must decide.
            charges: What it is counted in when it starts.

        Returns:
            A verified answer, leave to run again, or the row of a call that is over.

        Raises:
            ApprovalExpired: Nobody answered in time.
            ConfigurationError: The port returned an answer without a decision.
            ToolUsageError: The call cannot pause here.
        """
        port = self.asker.port
        row = await self.past.once.latest(work, await self.asker.open(work, rule, charges))
        await self._pausable(work, row)
        if row.status is CallStatus.SUSPENDED:
            # The tool's own question comes next: a used approval is no answer to it.
            port.discard_used(row)
            if await self.past.again(work, row):
                return row
        # Its answer is in the row, also where the host lost it: nobody is asked a second time.
        used = row.status is CallStatus.SUSPENDED and row.decision is not None and port.in_graph
        if used or await self.past.retried(row) or self.past.takeover(work, row):
            port.discard_used(row)
            await self.past.revisit(row)
            validate = self.registry.schemas[work.spec.name].validate
            return Again(arguments=executed_before(work, row, validate))
        if row.status not in OPEN:
            return row
        answer = await self.asker.ask(work, rule, row)
        if answer.decision is None or (answer.approves and answer.arguments is None):
            msg = "The approval port returned an answer without a decision; nothing ran."
            raise ConfigurationError(msg)
        return answer

    async def _pausable(self, work: Work, row: CallRow) -> None:
        """Refuse to pause behind a call that would run again with the task.

        Raises:
            ToolUsageError: Before anybody is asked. The request is void, so a retry is refused.
        """
        scope = task_scope.get()
        if scope is None or not scope.unjournaled or row.status is not CallStatus.REQUESTED:
            return
        await self.asker.journal.close(work.ctx, work.subject, CallStatus.VOID, None)
        msg = (
            f"{work.spec.name} cannot pause here: call {scope.unjournaled[0]!r} ran before it with "
            "arguments that cannot be journaled, and would run again after the pause. Give it JSON "
            "arguments, or a node of its own."
        )
        raise ToolUsageError(msg)
