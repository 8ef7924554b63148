"""A policy at work in one executor: windows, approver, result cache, result masks.

Decides nothing about people, which is the asker's, and nothing about order, which is the
executor's.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from adapter.core.budgets import Budgets
from adapter.core.cache import ResultCache, cache_key
from adapter.core.errors import (
    ApprovalDenied,
    ConfigurationError,
    ModelVisibleError,
    PolicyDenied,
    ToolUsageError,
)
from adapter.core.journal import Journal, arguments_digest, error_outcome
from adapter.core.past import Past
from adapter.core.policy import Decision, Escalation, Policy, decide
from adapter.core.redaction import mask_arguments
from adapter.core.spec import ApprovalRule, Registry, ToolSpec
from adapter.core.store import Charge, Store
from adapter.core.types import CallStatus
from adapter.core.validation import ghosts
from adapter.core.work import Work

__all__ = ["MISSING", "Ruling", "check_ledger", "warn_of_memory"]

MISSING: Any = object()
"""Nothing is cached; None may be a result."""

_NAMED = 20
"""Names of stripped arguments that are audited."""


def check_ledger(policy: Policy | None, store: Store | None, *, asks: bool) -> None:
    """Refuse a policy that escalates to people over a ledger that is lost with the process.

    Args:
        policy: The policy.
        store: Where questions and used answers are kept.
        asks: Whether there is an approval port; an approver in process keeps nothing.

    Raises:
        ConfigurationError: Names what is missing and the cure.
    """
    if policy is None or not policy.escalates or not asks:
        return
    if store is None or not getattr(store, "durable", True):
        msg = (
            "Policy.escalate puts calls to people, whose answers come after this process may have "
            "ended, and there is no durable ledger: give store=open_store('sqlite:///adapter.db') "
            "(adapter.stores), or a Policy(approver=...) that decides in process."
        )
        raise ConfigurationError(msg)


def warn_of_memory(
    store: Store, policy: Policy | None, budgets: Budgets, specs: Iterable[ToolSpec]
) -> None:
    """Warn that rates over a store in memory are those of one process.

    Args:
        store: Where windows are kept.
        policy: Its rates.
        budgets: Their rates.
        specs: Those of single tools.
    """
    rates = [budgets.tool_rate, budgets.model_rate, *(spec.limits.rate for spec in specs)]
    if getattr(store, "durable", True) or not (any(rates) or (policy and policy.rates)):
        return
    warnings.warn(
        "Rate limits over a store in memory count in this process only: with several workers the "
        "real limit is a multiple of what was set. Give store=open_store('sqlite:///adapter.db') "
        "(adapter.stores), or a PostgreSQL URI for several machines.",
        stacklevel=3,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """One executor's policy.

    Attributes:
        registry: With digests that cover the policy.
        strip: Whether undeclared arguments are stripped.
        cache: Results of read-only tools; None keeps none.
    """

    policy: Policy | None
    registry: Registry
    budgets: Budgets
    journal: Journal
    past: Past
    strip: bool
    cache: ResultCache | None

    async def decided(self, work: Work) -> Decision:
        """Return what the policy says of a call: it may run, or a person decides.

        Raises:
            PolicyDenied: It may not.
        """
        gate = decide(work.spec, work.arguments, self.policy, work.ctx.context)
        if gate.lowered and await self.journal.store.get(work.identity.key) is not None:
            # Asked under a lower limit: a run that sets none does not take the question back.
            gate = decide(work.spec, work.arguments, self.policy)
        return gate

    def charges(self, work: Work, *, again: bool = False) -> tuple[Charge, ...]:
        """Return everything a call that starts is counted in.

        Args:
            work: The call.
            again: Count it in the windows of rates with each run, not once.
        """
        mark = f"{work.identity.key}:{work.ctx.run_token}" if again else work.identity.key
        charges = self.budgets.tool_call(work.ctx, work.spec, mark)
        if self.policy is None:
            return charges
        return (*charges, *self.policy.charges(work.spec.name, mark))

    def refusals(self, work: Work) -> tuple[Charge, ...]:
        """Return what a person's no to this very call, however it is spelt, is counted in."""
        digest = work.identity.arguments_digest
        if not work.spec.masks:
            digest = arguments_digest(work.arguments, None)
        return self.budgets.refusals(work.ctx, f"{work.spec.name}:{digest}")

    async def denied(self, work: Work) -> None:
        """Count a person's no, so that the same call is not asked about for ever."""
        charges = self.refusals(work)
        if charges:
            await self.journal.store.charge(charges)

    def stripped(self, work: Work) -> None:
        """Audit the names of arguments that were stripped, committed before anything runs."""
        if not self.strip:
            return
        schema = self.registry.schemas[work.spec.name].json_schema
        names = ghosts(work.call.arguments, schema)
        if names:
            event = self.journal.audit.event(
                "arguments_stripped",
                work.ctx,
                work.subject,
                once=True,
                names=[name[:64] for name in names[:_NAMED]],
            )
            self.journal.store.post([event])

    async def approved(self, work: Work, rule: ApprovalRule) -> None:
        """Ask the policy's approver; a call that was claimed before is not asked about again.

        Raises:
            PolicyDenied: There is nobody to ask.
            ApprovalDenied: The approver did not say True.
        """
        approver = None if self.policy is None else self.policy.approver
        if approver is None:
            await self._refuse(
                work,
                PolicyDenied(
                    f"Not executed: {work.spec.name} needs a person's approval "
                    f"({rule.reason or rule.name}), and there is nobody to ask here."
                ),
            )
        elif await self.journal.store.get(work.identity.key) is None:
            said = await _answer(approver, _escalation(work, rule))
            event = self.journal.audit.event(
                "decided",
                work.ctx,
                work.subject,
                part=work.ctx.run_token,
                once=True,
                decision="approve" if said is True else "reject",
                reviewer="approver of the policy",
                rule=rule.name,
            )
            self.journal.store.post([event])
            if said is not True:
                error = ApprovalDenied(
                    "Not executed: the policy's approver refused this call; do not retry it."
                )
                if work.spec.once_per_run:
                    await self._remember(work, error)
                await self._refuse(work, error)

    async def _refuse(self, work: Work, error: ModelVisibleError) -> None:
        await self.past.refused(work, error)
        raise error

    async def _remember(self, work: Work, error: ModelVisibleError) -> None:
        """Keep a refusal for the same calls of this run, so that nobody is asked again."""
        await self.journal.store.open(self.journal.new_call(work.call, work.ctx, work.identity))
        outcome = error_outcome(error)
        await self.journal.close(work.ctx, work.subject, CallStatus.DENIED, outcome)

    def cached(self, work: Work) -> Any:
        """Return the host's result from the cache, or MISSING."""
        if self.cache is None or work.spec.cache_ttl is None:
            return MISSING
        recorded = self.cache.get(self._key(work))
        result = None if recorded is None else work.invocation.share(recorded)
        if result is None:
            return MISSING
        event = self.journal.audit.event("cached", work.ctx, work.subject, once=True)
        self.journal.store.post([event])
        return result

    def keep(self, work: Work, result: Any) -> None:
        """Keep a result that is no error and can be given to another call."""
        if self.cache is None or work.spec.cache_ttl is None or work.invocation.failed(result):
            return
        try:
            recorded = work.invocation.record(result)
        except ToolUsageError:
            return
        if work.invocation.share(recorded) is not None:
            self.cache.put(self._key(work), recorded, work.spec.cache_ttl)

    def shown(self, tool: str, result: Any, masked: Callable[[Any, Any], Any]) -> Any:
        """Return what may be seen of a tool's result.

        Args:
            tool: The tool's name.
            result: The host's result.
            masked: How the host applies a mask to it.
        """
        mask = None if self.policy is None else self.policy.mask(tool)
        return result if mask is None else masked(result, mask)

    def _key(self, work: Work) -> str:
        digests = self.registry.digests(work.spec.name)
        return cache_key(work.spec, digests, work.arguments, work.ctx)


def _escalation(work: Work, rule: ApprovalRule) -> Escalation:
    return Escalation(
        tool=work.spec.name,
        arguments=mask_arguments(work.arguments, work.spec.masks),
        rule=rule.name,
        reason=rule.reason,
        call_id=work.call.id,
        thread_id=work.ctx.thread_id,
        user=work.ctx.user,
    )


async def _answer(approver: Callable[[Escalation], Any], asked: Escalation) -> Any:
    if inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(
        getattr(approver, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return await approver(asked)
    # A person at a terminal, a request to a service: it may block.
    said = await asyncio.to_thread(approver, asked)
    return await said if inspect.isawaitable(said) else said
