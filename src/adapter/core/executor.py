"""The only place that knows the order of the stages a tool call goes through.

resolve, validate, identify, settled?, decide, ask, verify, claim, invoke, settle. Everything
before the claim may run many times; everything after it runs once per call key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from time import time_ns
from typing import Any

from adapter.core.approvals import Answer, ApprovalPort
from adapter.core.asking import Asker
from adapter.core.audit import Auditor, Subject
from adapter.core.batches import checked_concurrency, in_order
from adapter.core.budgets import Budgets
from adapter.core.cache import ResultCache
from adapter.core.deciding import Decider
from adapter.core.errors import (
    ApprovalExpired,
    ConfigurationError,
    ModelVisibleError,
    PolicyDenied,
    ToolUsageError,
    UnknownTool,
)
from adapter.core.functions import Unjournaled, is_plain
from adapter.core.ids import new_id
from adapter.core.invoke import Invocation
from adapter.core.journal import Journal, identify
from adapter.core.past import OPEN, Past, executed_before
from adapter.core.policy import Ghost, Policy, decide
from adapter.core.questions import QuestionBuilder
from adapter.core.raises import Raises
from adapter.core.ruling import MISSING, Ruling, check_ledger
from adapter.core.running import Runner
from adapter.core.scope import task_scope
from adapter.core.sealing import Sealer
from adapter.core.spec import ApprovalRule, Registry
from adapter.core.store import CallRow, Claimed, Store
from adapter.core.types import CallContext, CallStatus, JsonObject, ToolCall
from adapter.core.validation import Admission, Batch, admit
from adapter.core.work import Work

__all__ = ["Executor", "Hook"]

Hook = Callable[[ToolCall, CallContext], Awaitable[None]]


def _now() -> int:
    return time_ns() // 1_000_000


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
        before_tool: Sequence[Hook] = (),
        after_tool: Sequence[Hook] = (),
        ghost: Ghost = "refuse",
        cache: ResultCache | None = None,
        closed: bool = True,
        clock: Callable[[], int] = _now,
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
        check_ledger(policy, store, asks=approval is not None)
        self.registry = registry
        self.store = store
        ruled = registry
        if policy is not None:
            policy.check(registry, closed=closed)
            ruled = policy.over(registry)
        self.budgets = budgets or Budgets()
        self.policy = policy
        self.port = approval
        self._hooks = (tuple(before_tool), tuple(after_tool))
        self.audit = Auditor(clock=clock)
        owner = f"worker-{ids()}"
        self.journal = Journal(
            store=store,
            audit=self.audit,
            owner=owner,
            lease=lease,
            ids=ids,
            sealer=None if approval is None else Sealer(keys=lambda: approval.keys),
        )
        self._runner = Runner(journal=self.journal, grace=cancel_grace, sleep=sleep)
        self._asker: Asker | None = None
        self._past = Past(journal=self.journal, port=approval, clock=clock)
        self._decider = Decider(journal=self.journal)
        self._ruling = Ruling(
            policy=policy,
            registry=ruled,
            budgets=self.budgets,
            journal=self.journal,
            past=self._past,
            strip=((policy and policy.ghost) or ghost) == "strip",
            cache=cache or ResultCache(clock=clock),
        )
        if approval is not None:
            approval.keys.require("seal", "digest", "state")
            self._asker = Asker(
                registry=ruled,
                journal=self.journal,
                port=approval,
                words=QuestionBuilder(registry=ruled, port=approval, policy=policy, clock=clock),
                audience=audience,
                ttl=approval_ttl,
                self_approval=self_approval,
                clock=clock,
            )
        self.raises: Raises | None = None
        if self.budgets.asks:
            if self._asker is None:
                msg = (
                    "Budgets(on_exceeded='ask') needs an approval port: give the Executor "
                    "approval=LangGraphApproval(keys)."
                )
                raise ConfigurationError(msg)
            self.raises = Raises.over(
                self._asker, past=self._past, decider=self._decider, budgets=self.budgets
            )
        gated = [spec.name for spec in registry if spec.approval is not None or spec.masks]
        if gated and approval is None:
            msg = (
                f"These tools need an approval port: {', '.join(gated)}. Give the Executor "
                "approval=LangGraphApproval(keys)."
            )
            raise ConfigurationError(msg)

    def admit(self, batch: Batch) -> Admission:
        """Check a whole batch: with any structural fault, no call of it runs."""
        return admit(batch, self.registry, strip=self._ruling.strip)

    def shown(self, tool: str, result: Any, masked: Callable[[Any, Any], Any]) -> Any:
        """Return what may be seen of a tool's result, where a front end has it from the journal.

        Args:
            tool: The tool's name.
            result: The host's result.
            masked: How the host applies a ResultMask to it.
        """
        return self._ruling.shown(tool, result, masked)

    async def refuse(
        self, calls: Mapping[str, ModelVisibleError], names: Mapping[str, str], ctx: CallContext
    ) -> None:
        """Audit the refusal of calls that did not get as far as their own stages.

        Args:
            calls: Error per call id.
            names: Tool name per call id.
            ctx: Where.
        """
        events = [
            self.audit.event(
                "refused",
                ctx,
                Subject(tool=names.get(call_id, ""), call_id=call_id, key=call_id),
                part=ctx.metadata.get("message_id", ""),
                once=True,
                error=error.kind,
                reason=error.message,
            )
            for call_id, error in calls.items()
        ]
        await self.store.append(events)

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
        ctx = ctx or _here()
        if invocation is None and self.registry.get(call.name) is not None:
            invocation = self._implementation(call)
            if not is_plain(call.arguments):
                return await self._unjournaled(call, ctx, invocation)
        work = await self._work(call, ctx, invocation, arguments)
        self._ruling.stripped(work)
        return self._ruling.shown(work.spec.name, await self._run(work), work.invocation.masked)

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
        if len({call.id for call in calls}) != len(calls):
            msg = "run_many: two calls have the same id; give each its own, the same on a re-run."
            raise ToolUsageError(msg)
        where = ctx or _here()
        return await in_order(
            calls,
            confirms=self.confirms,
            run=lambda call: self.run(call, where),
            concurrency=checked_concurrency(concurrency),
        )

    def confirms(self, call: ToolCall) -> bool:
        """Tell whether a person must decide about a call; one that will be refused asks nobody."""
        spec = self.registry.get(call.name)
        arguments = self.admit(Batch(calls=(call,))).arguments.get(call.id)
        if spec is None or arguments is None:
            return False
        try:
            return decide(spec, arguments, self.policy).rule is not None
        except PolicyDenied:
            return False

    def _implementation(self, call: ToolCall) -> Invocation:
        made = self.registry.implementations.get(call.name)
        if made is None:
            msg = (
                f"The registry has no implementation of {call.name}: make it with "
                "registry_of(tools, specs), or give Registry(implementations=...)."
            )
            raise ConfigurationError(msg)
        return made.invocation(call)  # type: ignore[no-any-return]

    async def _unjournaled(self, call: ToolCall, ctx: CallContext, inner: Invocation) -> Any:
        """Run a call whose arguments have no JSON form; it has a row, and no replay."""
        spec, schema = self.registry.get(call.name), self.registry.schemas[call.name]
        values = getattr(schema, "values", dict)(call.arguments)
        if spec is not None and decide(spec, values, self.policy).rule is not None:
            msg = (
                f"{call.name} needs an approval, and its arguments are no JSON: nobody could sign "
                "for them. Give JSON arguments (a path as text)."
            )
            raise ToolUsageError(msg)
        blank: JsonObject = {"unjournaled": True}
        work = await self._work(
            replace(call, arguments=blank), ctx, Unjournaled(inner, values), blank
        )
        scope = task_scope.get()
        if scope is not None:
            scope.unjournaled.append(call.id)
        return self._ruling.shown(call.name, await self._run(work), inner.masked)

    async def _run(self, work: Work) -> Any:
        try:
            gate = decide(work.spec, work.arguments, self.policy, work.ctx.context)
            if gate.lowered and await self.store.get(work.identity.key) is not None:
                # Asked under a lower limit: a run that sets none does not take the question back.
                gate = decide(work.spec, work.arguments, self.policy)
        except PolicyDenied as error:
            row = await self.store.get(work.identity.key)
            if row is not None and row.status.settled:
                return await self._past.earlier(work, row)
            await self._past.refused(work, error)
            raise
        if gate.rule is not None:
            if self.port is not None or work.spec.approval is not None:
                return await self._gated(work, gate.rule)
            await self._ruling.approved(work, gate.rule)
            return await self._free(work, gated=True)
        if self.port is None:
            return await self._free(work)
        token = self.port.enter()
        try:
            return await self._free(work)
        finally:
            self.port.leave(token)

    async def _free(self, work: Work, *, gated: bool = False) -> Any:
        """Run a call that needs nobody's approval, or has it already."""
        charges = self._ruling.charges(work)
        if work.spec.effects.read_only and not _journaled(work):
            known = MISSING if gated else self._ruling.cached(work)
            if known is not MISSING:
                return known
            await self._before(work)
            spent, result = await self._runner.read(work, charges)
            if spent is not None:
                await self._past.spent(work, spent)
            if not gated:
                self._ruling.keep(work, result)
            await self._after(work)
            return result
        await self._before(work)
        return await self._claimed(
            work,
            work.arguments,
            charges=charges,
            new=self.journal.new_call(work.call, work.ctx, work.identity),
            unique=True,
        )

    async def _work(
        self,
        call: ToolCall,
        ctx: CallContext,
        invocation: Invocation | None,
        arguments: JsonObject | None,
    ) -> Work:
        spec = self.registry.get(call.name)
        secret = None
        if spec is not None and spec.masks and self.port is not None:
            secret = self.port.keys.oldest("digest")
        try:
            if spec is None or arguments is None:
                admission = self.admit(Batch(calls=(call,)))
                if call.id in admission.faults:
                    raise admission.faults[call.id]
                arguments = admission.arguments[call.id]
        except ModelVisibleError as error:
            await self.refuse({call.id: error}, {call.id: call.name}, ctx)
            raise
        if spec is None or invocation is None:
            raise UnknownTool(call.name)
        identity = identify(call, ctx, secret)
        ctx = replace(ctx, call_id=call.id, idempotency_key=identity.idempotency_key)
        return Work(
            spec=spec,
            call=call,
            ctx=ctx,
            identity=identity,
            subject=self.journal.subject(call, identity, spec),
            arguments=arguments,
            invocation=invocation,
        )

    async def _gated(self, work: Work, rule: ApprovalRule) -> Any:
        if self._asker is None or self.port is None:
            msg = f"{work.spec.name} needs an approval and there is no approval port."
            raise ConfigurationError(msg)
        if not work.ctx.place.durable:
            msg = (
                f"{work.spec.name} needs an approval, and this graph cannot pause: compile it "
                "with a checkpointer and give a thread_id (a LangGraph server does both)."
            )
            raise ConfigurationError(msg)
        async with self.port.turn():
            charges = self._ruling.charges(work)
            try:
                row = await self._asker.open(work, rule, charges)
                await self._pausable(work, row)
                if row.status is CallStatus.SUSPENDED:
                    # The tool's own question comes next: a used approval is no answer to it.
                    self.port.discard_used(row)
                    if self._past.again(work, row):
                        return await self._past.earlier(work, row)
                if self._past.retried(row) or self._past.takeover(work, row):
                    self.port.discard_used(row)
                    self.port.revisit(row)
                    return await self._claim(work, None, self._executed(work, row))
                if row.status not in OPEN:
                    return await self._past.earlier(work, row)
                answer = await self._asker.ask(work, rule, row)
            except ModelVisibleError as error:
                if not isinstance(error, ApprovalExpired):
                    await self._past.refused(work, error)
                raise
            return await self._answered(work, answer)

    def _executed(self, work: Work, row: CallRow) -> JsonObject:
        return executed_before(work, row, self.registry.schemas[work.spec.name].validate)

    async def _pausable(self, work: Work, row: CallRow) -> None:
        """Refuse to pause behind a call that would run again with the task.

        Raises:
            ToolUsageError: Before anybody is asked. The request is void, so a retry is refused.
        """
        scope = task_scope.get()
        if scope is None or not scope.unjournaled or row.status is not CallStatus.REQUESTED:
            return
        await self.journal.close(work.ctx, work.subject, CallStatus.VOID, None)
        msg = (
            f"{work.spec.name} cannot pause here: call {scope.unjournaled[0]!r} ran before it with "
            "arguments that cannot be journaled, and would run again after the pause. Give it JSON "
            "arguments, or a node of its own."
        )
        raise ToolUsageError(msg)

    async def _answered(self, work: Work, answer: Answer) -> Any:
        if answer.decision is None or (answer.approves and answer.arguments is None):
            msg = "The approval port returned an answer without a decision; nothing ran."
            raise ConfigurationError(msg)
        if answer.approves and answer.arguments is not None:
            return await self._claim(work, answer, answer.arguments)
        closed, result = await self._decider.close(work, answer)
        if closed:
            return result
        return await self._past.earlier(work, await self.store.get(work.identity.key))

    async def _claim(self, work: Work, answer: Answer | None, arguments: JsonObject) -> Any:
        await self._before(work)
        fields: dict[str, Any] = {}
        if answer is not None:
            fields = {
                "events": [self._decider.event(work, answer)],
                "decision": answer.raw,
                "answer": answer.digest,
                "interrupt_id": answer.interrupt_id,
            }
        return await self._claimed(work, arguments, charges=self._ruling.charges(work), **fields)

    async def _claimed(self, work: Work, arguments: JsonObject, **claim: Any) -> Any:
        """Claim and run a call; where it cannot be claimed, deal with its past."""

        async def make() -> Claimed:
            return await self.journal.claim(
                work.ctx,
                work.subject,
                arguments=arguments,
                repeatable=work.spec.effects.repeatable,
                **claim,
            )

        claimed, result = await self._runner.run(work, make, arguments)
        if claimed.state == "claimed":
            await self._after(work)
            return result
        if claimed.state == "exceeded":
            await self._past.spent(work, claimed.exceeded or "")
        if claimed.state == "expired" and claimed.row is not None and self._asker is not None:
            await self._asker.expire(work, claimed.row)
        return await self._past.earlier(work, claimed.row)

    async def _before(self, work: Work) -> None:
        for hook in self._hooks[0]:
            await hook(work.call, work.ctx)

    async def _after(self, work: Work) -> None:
        for hook in self._hooks[1]:
            await hook(work.call, work.ctx)


def _here() -> CallContext:
    scope = task_scope.get()
    if scope is None or scope.context is None:
        msg = (
            "This call has no place: give executor.run(call, ctx) a context (bind_context() inside "
            "a LangGraph node), or wrap the node with one_use."
        )
        raise ToolUsageError(msg)
    return scope.context


def _journaled(work: Work) -> bool:
    """Tell whether even a read is recorded: what the node's code decides by it must not change."""
    scope = task_scope.get()
    return scope is not None and scope.journaled and not isinstance(work.invocation, Unjournaled)
