"""Executor: tools, policy, budgets, people and a store, put together; calls go in here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import time_ns
from typing import Any

from adapter.core import programs
from adapter.core.approvals import ApprovalPort
from adapter.core.audit import Auditor
from adapter.core.batches import checked_concurrency, in_order
from adapter.core.budgets import Budgets
from adapter.core.cache import ResultCache
from adapter.core.claiming import Hook
from adapter.core.confirming import check_port, check_registry
from adapter.core.errors import ConfigurationError, ModelVisibleError
from adapter.core.functions import Unjournaled, is_plain
from adapter.core.gates import Gate
from adapter.core.gating import GateRun
from adapter.core.ids import new_id
from adapter.core.invoke import Invocation
from adapter.core.journal import Journal
from adapter.core.order import Order
from adapter.core.policy import Ghost, Policy
from adapter.core.ruling import check_ledger, warn_of_memory
from adapter.core.sealing import Sealer
from adapter.core.spec import Registry
from adapter.core.stages import Stages
from adapter.core.store import Store, check_store
from adapter.core.types import CallContext, JsonObject, JsonValue, ToolCall
from adapter.core.validation import Admission, Batch

__all__ = ["Executor", "Hook"]


class Executor:
    """Runs tool calls through every stage. One per agent; serves any number of event loops."""

    def __init__(
        self,
        registry: Registry,
        *,
        store: Store,
        approval: ApprovalPort | None = None,
        policy: Policy | None = None,
        budgets: Budgets | None = None,
        audience: str | None = None,
        approval_ttl: float = 86_400.0,
        lease: float = 30.0,
        cancel_grace: float = 10.0,
        self_approval: bool = False,
        relayed_answers: bool = True,
        before_tool: Sequence[Hook] = (),
        after_tool: Sequence[Hook] = (),
        ghost: Ghost = "refuse",
        cache: ResultCache | None = None,
        closed: bool = True,
        clock: Callable[[], int] = lambda: time_ns() // 1_000_000,
        ids: Callable[[], str] = new_id,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Wire the stages.

        Args:
            registry: Every tool with its spec and schema.
            store: Durable memory.
            approval: How people are asked; needed if any tool has an approval rule.
            policy: Rules over all tools.
            budgets: Limits per turn, thread, user and time.
            audience: Id of this installation in every binding; None takes the store's own.
            approval_ttl: Seconds a request stays open.
            lease: Seconds a claim is valid unless renewed.
            cancel_grace: Seconds a cancelled call may go on before it is in doubt.
            self_approval: Whether the authenticated requester of a call may approve it.
            relayed_answers: Whether an authenticated user may bring what another signed with a key
                that is nobody's own; without, such a key signs in the user's own name only.
            before_tool: Awaited before the claim; a failure keeps the answer.
            after_tool: Awaited after the outcome is recorded.
            ghost: What happens to undeclared arguments where the policy does not say.
            cache: Results of tools with a ``cache_ttl``; one of its own when None.
            closed: The policy is for these tools only; False lets it name others.
            clock: Milliseconds since the epoch.
            ids: Source of unique text.
            sleep: How to wait between attempts.

        Raises:
            ConfigurationError: An approval rule without a port or without signing keys, or a
                policy that names no tool or has no durable ledger.
        """
        check_registry(registry)
        check_store(store, "Executor(registry, store=…)")
        check_ledger(policy, store, asks=approval is not None)
        self.registry = registry
        self.store = store
        if policy is not None:
            policy.check(registry, closed=closed)
        self.budgets = budgets or Budgets()
        warn_of_memory(store, policy, self.budgets, registry)
        self.policy = policy
        self.port = approval
        check_port(registry, self.budgets, asks=approval is not None)
        self.audit = Auditor(clock=clock)
        self.journal = Journal(
            store=store,
            audit=self.audit,
            owner=f"worker-{ids()}",
            lease=lease,
            ids=ids,
            sealer=None if approval is None else Sealer(keys=lambda: approval.keys),
        )
        self._stages = Stages.over(
            registry,
            journal=self.journal,
            port=approval,
            policy=policy,
            budgets=self.budgets,
            strip=((policy and policy.ghost) or ghost) == "strip",
            cache=cache or ResultCache(clock=clock),
            audience=audience,
            ttl=approval_ttl,
            self_approval=self_approval,
            relayed_answers=relayed_answers,
            grace=cancel_grace,
            before=before_tool,
            after=after_tool,
            clock=clock,
            sleep=sleep,
        )
        self._order = Order(stages=self._stages, journal=self.journal)
        self.raises = self._stages.raises

    def admit(self, batch: Batch) -> Admission:
        """Check a whole batch: with any structural fault, no call of it runs."""
        return self._stages.admitter.admit(batch)

    def shown(self, tool: str, result: Any, masked: Callable[[Any, Any], Any]) -> Any:
        """Return what may be seen of a tool's result, where a front end has it from the journal.

        Args:
            tool: The tool's name.
            result: The host's result.
            masked: How the host applies a ResultMask to it.
        """
        return self._stages.ruling.shown(tool, result, masked)

    async def refuse(
        self, calls: Mapping[str, ModelVisibleError], names: Mapping[str, str], ctx: CallContext
    ) -> None:
        """Audit the refusal of calls that did not get as far as their own stages.

        Args:
            calls: Error per call id.
            names: Tool name per call id.
            ctx: Where.
        """
        await self._stages.admitter.refuse(calls, names, ctx)

    async def run(
        self,
        call: ToolCall,
        ctx: CallContext | None = None,
        invocation: Invocation | None = None,
        *,
        arguments: JsonObject | None = None,
    ) -> Any:
        """Take one call through every stage.

        Args:
            call: As the model, or the program, wrote it.
            ctx: Where it stands; None where the front end said so (inside ``one_use``).
            invocation: How the front end runs the tool and keeps results; None runs the
                registry's own implementation.
            arguments: Canonical arguments, when admission computed them already.

        Returns:
            The front end's result: of this run, or the recorded one.

        Raises:
            ModelVisibleError: Refused, rejected, expired, spent, or a tool's own message.
            ToolFailed: The tool raised.
            ToolTimeout: The tool did not end in time.
            ApprovalAlreadyDecided: This run's answer was used before.
            CallInDoubt: Started before, outcome unknown.
            CallInProgress: Another worker's live claim.
            StoreUnavailable: Nothing ran, or the outcome could not be recorded.
            ToolUsageError: No place for the call, or it could not be recognised after a pause.
        """
        ctx = ctx or programs.here()
        if invocation is None and self.registry.get(call.name) is not None:
            invocation = programs.implementation(self.registry, call)
            if not is_plain(call.arguments):
                call, invocation, arguments = programs.unjournaled(
                    call, self.registry, self.policy, invocation
                )
        work = await self._stages.admitter.work(call, ctx, invocation, arguments)
        if isinstance(work.invocation, Unjournaled):
            programs.note(work)
        else:
            self._stages.ruling.stripped(work)
        return self._stages.ruling.shown(
            work.spec.name, await self._order.run(work, self.port), work.invocation.masked
        )

    async def run_many(
        self,
        calls: Sequence[ToolCall],
        ctx: CallContext | None = None,
        *,
        concurrency: int | None = None,
    ) -> list[Any]:
        """Run several calls by the registry's implementations; results in the calls' order.

        Calls that a person must confirm go one at a time after the others.

        Args:
            calls: Each with an id of its own.
            ctx: As for ``run``.
            concurrency: How many of the others run at once; None for all.

        Raises:
            ToolUsageError: Two calls have one id.
            AdapterError: As ``run`` raises; the first in order, once no other call still runs.
        """
        programs.check_distinct(calls)
        where = ctx or programs.here()
        return await in_order(
            calls,
            confirms=self.confirms,
            run=lambda call: self.run(call, where),
            concurrency=checked_concurrency(concurrency),
        )

    def confirms(self, call: ToolCall, admission: Admission | None = None) -> bool:
        """Tell whether a person must decide about a call; one that will be refused asks nobody.

        Args:
            call: The call.
            admission: What became of its batch; None for a call by itself.
        """
        admission = admission or self.admit(Batch(calls=(call,)))
        return programs.asks_a_person(call, self.registry, self.policy, admission)

    async def gate(
        self,
        gate: Gate,
        ctx: CallContext,
        run: GateRun,
        *,
        is_pause: Callable[[BaseException], bool] = lambda _error: False,
    ) -> JsonValue:
        """Run a node of a flow once a person has approved it, at most once for each task.

        Args:
            gate: What the reviewer is asked.
            ctx: Where the node stands; its task names the question.
            run: What is behind the gate. Awaited with the reviewer's edit, or None; what it
                returns is recorded and given back when the task runs again.
            is_pause: Tells the host's control flow from a failure of the node.

        Raises:
            ApprovalDenied: The reviewer refused.
            ApprovalExpired: Nobody answered in time.
            ApprovalAlreadyDecided: The grant is spent: this run's answer was used before, or the
                node failed behind its gate.
            CallInProgress: Another worker runs the node.
            ConfigurationError: Nobody can be asked, or the graph cannot pause.
            ToolUsageError: What it returned is no JSON; it does not run again.
        """
        if self._stages.gating is None:
            msg = (
                f"Node {gate.node!r} of flow {gate.flow!r} has a gate and there is no approval "
                "port: give the Executor approval=LangGraphApproval(keys) or DeferredApproval."
            )
            raise ConfigurationError(msg)
        return await self._stages.gating.run(gate, ctx, run, is_pause)
