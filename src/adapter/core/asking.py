"""Putting one call to a person: the request, its binding, and what happens to bad answers.

Opens the question in the store first, so that every re-run in every process derives the same
binding; then leaves the asking itself to the port.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from adapter.core.approvals import Answer, ApprovalPort, BoundRow, Refusal
from adapter.core.budgets import exceeded
from adapter.core.errors import ApprovalAlreadyDecided, ApprovalExpired
from adapter.core.journal import Journal
from adapter.core.outcomes import EXPIRED, error_outcome
from adapter.core.people import People, executed_digest
from adapter.core.questions import QuestionBuilder
from adapter.core.spec import ApprovalRule, Registry
from adapter.core.store import CallRow, Charge, Vote
from adapter.core.types import CallStatus
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
        self_approval: Whether a call's authenticated requester may approve it.
        relayed_answers: Whether others may bring what was signed with a shared key.
        clock: Milliseconds since the epoch.
    """

    registry: Registry
    journal: Journal
    port: ApprovalPort
    words: QuestionBuilder
    audience: str | None
    ttl: float
    self_approval: bool
    relayed_answers: bool
    clock: Callable[[], int]
    _audience: str | None = field(default=None, init=False)

    def about(self, kind: str, registry: Registry) -> Asker:
        """Return one that asks about something else than tools, else in the same way.

        Args:
            kind: The requests' kind.
            registry: What they name, with its arguments; no policy says more about it.
        """
        words = replace(self.words, registry=registry, policy=None, kind=kind)
        return replace(self, registry=registry, words=words)

    async def ask(self, work: Work, rule: ApprovalRule, row: CallRow) -> Answer:
        """Return an answer that counts; for a quorum, the one that completes it.

        Args:
            work: The call.
            rule: Why a person must decide.
            row: The call's row, still open.

        Raises:
            ApprovalExpired: Nobody answered in time.
        """
        if row.status is CallStatus.REQUESTED and self._late(row):
            await self.expire(work, row)
        await self.port.refresh()
        audience = await self._installation()

        async def refused(refusal: Refusal) -> bool:
            return await self._refused(work, refusal)

        while True:
            people = await self._people(rule, row, work.ctx.user)
            question = self.words.build(work, rule, row, audience, people)
            answer = await self.port.decide(question, refused)
            if row.quorum_need == 1 or not answer.approves:
                return answer
            if answer.accepted_before and row.status is CallStatus.SUSPENDED:
                return answer
            if answer.accepted_before:
                # A vote of an earlier run, taken again from the checkpoint to keep its place.
                continue
            if len(people.votes) + 1 >= row.quorum_need:
                return answer
            row = await self._vote(work, row, answer)

    async def _people(self, rule: ApprovalRule, row: CallRow, user: str | None) -> People:
        people = People(
            roles=rule.roles,
            excluded=None if self.self_approval else row.requester,
            signed_in=None if self.relayed_answers or not self.port.in_graph else user,
        )
        if row.quorum_need == 1:
            return people
        votes = await self.journal.store.votes(row.key)
        return replace(people, votes=people.standing(self.port.keys, votes))

    async def _vote(self, work: Work, row: CallRow, answer: Answer) -> CallRow:
        raw = answer.raw or {}
        vote = Vote(
            key=row.key,
            reviewer=str(raw.get("reviewer")),
            kid=answer.kid,
            answer=answer.digest,
            executed_digest=executed_digest(answer.arguments or {}),
            decision=raw,
        )
        event = self.journal.audit.event(
            "voted",
            work.ctx,
            work.subject,
            part=answer.digest[:16],
            once=True,
            reviewer=vote.reviewer,
            kid=vote.kid,
            answer_digest=vote.answer,
        )
        if not await self.journal.store.vote(vote, [event]):
            raise ApprovalAlreadyDecided(
                "This question was decided or closed meanwhile; the vote was not kept."
            )
        return replace(row, answers=(*row.answers, answer.digest))

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
        assert row.request is not None  # noqa: S101 - it asked
        self.port.revisit(BoundRow.of(row, row.request, await self._installation()))
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
        if self.port.has_answer():
            row = await self.journal.store.get(work.identity.key)
            if row is not None and (row.policy_digest, row.schema_digest) == (
                policy_digest,
                schema_digest,
            ):
                return row
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
                kind=self.words.kind,
                policy_digest=policy_digest,
                schema_digest=schema_digest,
                interrupt_id=interrupt_id,
                position=position,
                request=self.words.request(work, rule),
                ttl=self.ttl if rule.ttl is None else rule.ttl,
                quorum_need=rule.quorum,
                approval_id=self.journal.ids() if self.port.deferred else None,
            ),
            [event],
            peek,
        )
        if opened.row is None:
            raise exceeded(opened.exceeded or "")
        if opened.created:
            # Whatever waits unaddressed was said before anybody was asked this.
            self.port.discard_stale()
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
            unless=f"{event.thread_id}\n{event.id}",
        )
        if turn.exceeded is None:
            return await self.journal.store.append([event]) > 0
        return await self.journal.record(
            "answers_refused_merged", work.ctx, work.subject, part=str(minute), once=True
        )
