"""Putting one call to a person: the request, its binding, and what happens to bad answers.

Opens the question in the store first, so that every re-run in every process derives the same
binding; then leaves the asking itself to the port.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adapter.core.approvals import Answer, AnswerCheck, ApprovalPort, Question, Refusal
from adapter.core.budgets import exceeded
from adapter.core.errors import ApprovalExpired, PolicyDenied
from adapter.core.journal import EXPIRED, Journal, arguments_digest, error_outcome
from adapter.core.policy import Policy, decide
from adapter.core.redaction import mask_arguments
from adapter.core.signing import Binding, to_iso
from adapter.core.spec import ApprovalRule, Registry
from adapter.core.store import CallRow, Charge
from adapter.core.types import CallStatus, JsonObject
from adapter.core.work import Work

__all__ = ["Asker"]

REFUSALS_PER_MINUTE = 20
"""Refused answers of one question that are audited one by one within a minute."""


@dataclass(kw_only=True)
class Asker:
    """Asks people about calls.

    Attributes:
        audience: Id of this installation inside every binding; None takes the store's.
        ttl: Seconds a request stays open unless its rule says otherwise.
        clock: Milliseconds since the epoch.
    """

    registry: Registry
    journal: Journal
    port: ApprovalPort
    policy: Policy | None
    audience: str | None
    ttl: float
    clock: Callable[[], int]
    _audience: str | None = field(default=None, init=False)

    async def ask(self, work: Work, rule: ApprovalRule, row: CallRow) -> Answer:
        """Return an answer that counts.

        Args:
            work: The call.
            rule: Why a person must decide.
            row: The call's row, still open.

        Raises:
            ApprovalExpired: Nobody answered in time.
        """
        if row.status is CallStatus.REQUESTED and self._late(row):
            await self.expire(work, row)
        question = self._question(work, rule, row, await self._installation())

        async def refused(refusal: Refusal) -> bool:
            return await self._refused(work, refusal)

        return await self.port.decide(question, refused)

    async def expire(self, work: Work, row: CallRow) -> None:
        """Close a question nobody answered in time.

        Raises:
            ApprovalExpired: Always.
        """
        error = ApprovalExpired(EXPIRED)
        outcome = error_outcome(error)
        event = self.journal.audit.event(
            "expired", work.ctx, work.subject, once=True, reason="nobody answered in time"
        )
        self.port.revisit(row)
        changed, _ = await self.journal.close(
            work.ctx, work.subject, CallStatus.EXPIRED, outcome, events=[event]
        )
        if not changed:  # the claim found it late and closed it; the event is still missing
            await self.journal.store.append([event])
        raise error

    def _late(self, row: CallRow) -> bool:
        return row.expires_at is not None and row.expires_at <= self.clock()

    async def _installation(self) -> str:
        if self._audience is None:
            self._audience = self.audience or await self.journal.store.audience(self.journal.ids())
        return self._audience

    async def open(self, work: Work, rule: ApprovalRule, peek: Sequence[Charge]) -> CallRow:
        """Return the call's row, making it when there is none: the first writer wins.

        Args:
            work: The call.
            rule: Why a person must decide.
            peek: Counters that must have something left before anybody is asked.

        Raises:
            BudgetExceeded: The call would be refused anyway.
        """
        policy_digest, schema_digest = self.registry.digests(work.spec.name)
        position, interrupt_id = self.port.position()
        event = self.journal.audit.event(
            "requested",
            work.ctx,
            work.subject,
            part=f"{policy_digest[:8]}{schema_digest[:8]}",
            once=True,
            arguments=work.arguments,
            rule=rule.name,
            reason=rule.reason,
        )
        opened = await self.journal.store.open(
            self.journal.new_call(
                work.call,
                work.ctx,
                work.identity,
                policy_digest=policy_digest,
                schema_digest=schema_digest,
                interrupt_id=interrupt_id,
                position=position,
                request=self._request(work, rule),
                ttl=self.ttl if rule.ttl is None else rule.ttl,
                quorum_need=rule.quorum,
            ),
            [event],
            peek,
        )
        if opened.row is None:
            raise exceeded(opened.exceeded or "")
        if opened.replaced is not None:
            await self._changed(work, opened.replaced, policy_digest, schema_digest)
        return opened.row

    async def _changed(self, work: Work, before: tuple[str, str], policy: str, schema: str) -> None:
        for kind, old, new in (
            ("policy_changed", before[0], policy),
            ("schema_changed", before[1], schema),
        ):
            if old != new:
                await self.journal.record(
                    kind, work.ctx, work.subject, part=new[:16], once=True, before=old, after=new
                )

    def _request(self, work: Work, rule: ApprovalRule) -> JsonObject:
        return {
            "tool": work.spec.name,
            "arguments": mask_arguments(work.arguments, work.spec.masks),
            "kind": "tool",
            "rule": rule.name,
            "reason": rule.reason,
            "call_id": work.call.id,
            "run_id": work.ctx.run_id,
            "request_digest": self._digest(work, work.arguments),
            "allowed": list(rule.allowed),
            "schema": self.registry.schemas[work.spec.name].json_schema,
        }

    def _digest(self, work: Work, arguments: JsonObject) -> str:
        secret = self.port.keys.oldest("digest") if work.spec.masks else None
        return arguments_digest(arguments, secret)

    def _question(self, work: Work, rule: ApprovalRule, row: CallRow, audience: str) -> Question:
        place = work.ctx.place
        policy_digest, schema_digest = self.registry.digests(work.spec.name)
        binding = Binding(
            audience=audience,
            thread_id=place.thread_id,
            checkpoint_ns=place.checkpoint_ns,
            task_id=place.task_id,
            tool_call_id=work.call.id,
            tool=work.spec.name,
            kind=row.kind,
            arguments_digest=self._digest(work, work.arguments),
            schema_digest=schema_digest,
            policy_digest=policy_digest,
            allowed=rule.allowed,
            quorum=row.quorum_need,
            issued_at=row.issued_at,
            expires_at=row.expires_at,
            approval_id=row.approval_id,
        ).hex()
        expires = None if row.expires_at is None else to_iso(row.expires_at)
        request = (row.request or self._request(work, rule)) | {
            "issued_at": to_iso(row.issued_at),
            "expires_at": expires,
            "quorum": {"need": row.quorum_need, "have": 0, "by": []},
        }
        check = AnswerCheck(
            keys=self.port.keys,
            binding=binding,
            allowed=rule.allowed,
            arguments=work.arguments,
            masks=work.spec.masks,
            known=row.answers,
            now=self.clock(),
            edit=lambda edited: self._edited(work, rule, edited),
        )
        return Question(row=row, binding=binding, request=request, check=check)

    def _edited(self, work: Work, rule: ApprovalRule, edited: JsonObject) -> JsonObject:
        """Judge edited arguments as strictly as the model's, and by the policy for them."""
        valid = self.registry.schemas[work.spec.name].validate(edited)
        decision = decide(work.spec, valid, self.policy)
        if decision.rule is not None and decision.rule.quorum > rule.quorum:
            msg = "The edited arguments need more reviewers than have signed."
            raise PolicyDenied(msg)
        return valid

    async def _refused(self, work: Work, refusal: Refusal) -> bool:
        minute = self.clock() // 60_000
        part = refusal.digest[:16]
        if refusal.delivery != "bare":
            part = f"{part}:{work.ctx.run_token}"
        event = self.journal.audit.event(
            "answer_refused",
            work.ctx,
            work.subject,
            part=part,
            once=True,
            code=refusal.code,
            answer_digest=refusal.digest,
            delivery=refusal.delivery,
        )
        scope = f"refused:{work.subject.key}:{minute}"
        turn = await self.journal.store.charge(
            [Charge(scope=scope, limit=REFUSALS_PER_MINUTE)],
            [event],
            unless=f"{event.thread_id}\n{event.id}",
            show=[scope],
        )
        if turn.exceeded is None:
            return True
        return await self.journal.record(
            "answers_refused_merged", work.ctx, work.subject, part=str(minute), once=True
        )
