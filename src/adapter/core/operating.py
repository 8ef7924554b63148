"""The operator's side: saying what became of a call in doubt, closing overdue questions.

Pure work over the store and the key ring, for the command line. What a person says about a gated
call counts only under a signature, like an approval; it is verified here before anything changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.core.audit import Subject
from adapter.core.canonical import canonical_bytes
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    CallInProgress,
    ToolUsageError,
)
from adapter.core.journal import Journal
from adapter.core.keys import KeyRing
from adapter.core.outcomes import EXPIRED, error_outcome
from adapter.core.resolutions import (
    Resolution,
    Verdict,
    check_people,
    check_verdict,
    sign_statement,
)
from adapter.core.signing import to_iso
from adapter.core.store import CallRow, Resolve
from adapter.core.types import CallContext, CallStatus, JsonObject, Place

__all__ = ["Operator", "Resolution", "Verdict", "sign_statement"]

RESOLUTION_TYPE = "agent_adapter.resolution"
PAGE = 100
MOST = 1_000
"""Most calls in doubt that are looked through for a key."""
REASON = "nobody answered in time"

_STATUS: Mapping[Verdict, CallStatus] = {
    "succeeded": CallStatus.SUCCEEDED,
    "failed": CallStatus.FAILED,
    "retry": CallStatus.APPROVED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Looks after calls that no run can bring to an end.

    Attributes:
        journal: Store, audit and sealer; its owner is written nowhere.
        keys: The server's keys, which verify what reviewers sign.
    """

    journal: Journal
    keys: KeyRing

    async def doubtful(self, limit: int = PAGE) -> Sequence[CallRow]:
        """Return calls in doubt, and claimed ones whose lease ran out, oldest first."""
        return await self.journal.store.unsettled(limit)

    async def find(self, prefix: str) -> CallRow:
        """Return the one call in doubt whose key begins like this.

        Raises:
            CallInProgress: A worker is running this call.
            ApprovalAlreadyDecided: It is not in doubt: its outcome is known, or it never started.
            ToolUsageError: No such call, or several.
        """
        found = [row for row in await self.doubtful(MOST) if row.key.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        if found:
            msg = f"{len(found)} calls in doubt have a key that begins so: give more of it."
            raise ToolUsageError(msg)
        row = await self.journal.store.get(prefix)
        if row is None:
            msg = (
                f"No call in doubt has a key that begins with {prefix!r}: see `adapter calls list "
                "--in-doubt`."
            )
            raise ToolUsageError(msg)
        raise _settled(row)

    async def arguments(self, row: CallRow) -> JsonObject | None:
        """Return the masked arguments of a call, as requested or as audited; None when unknown."""
        if row.request is not None:
            return dict(row.request["arguments"])
        after = 0
        while page := await self.journal.store.events(row.thread_id, after=after):
            for event in page:
                if event.kind == "started" and event.event_id.startswith(row.key):
                    data: JsonObject = json.loads(event.line)["body"]["data"]
                    return data.get("arguments")
            after = page[-1].seq
        return None

    def statement(self, row: CallRow, resolution: Resolution) -> JsonObject:
        """Return what is signed: the call, the claim it is about, what is said, who and when.

        The outcome stands as a keyed digest: it may hold personal data, and is kept sealed.
        """
        secret = self.keys.oldest("digest")
        return {
            "type": RESOLUTION_TYPE,
            "call_key": row.key,
            "thread_id": row.thread_id,
            "tool": row.tool,
            "fence": row.fence,
            "verdict": resolution.verdict,
            "outcome": secret.mac(canonical_bytes({"outcome": resolution.outcome})),
            "by": resolution.by,
            "at": to_iso(self.journal.audit.clock()),
        }

    async def resolve(
        self,
        row: CallRow,
        resolution: Resolution,
        statement: JsonObject | None = None,
        signature: Mapping[str, Any] | None = None,
    ) -> CallRow:
        """Record what a person says became of a call, with its event, or do nothing.

        Args:
            row: The call, as ``find`` returned it.
            resolution: What is said.
            statement: What was signed; gated calls need it.
            signature: Over the statement.

        Returns:
            The row: settled, or ``approved`` for the next run to claim.

        Raises:
            InvalidAnswer: The call is gated and this is no valid signature over it, or of nobody
                its rule admits.
            ToolUsageError: A retry whose approval has run out or was several people's, or a raise
                of a budget that is said not to have happened.
            CallInProgress: A worker runs the call again.
            ApprovalAlreadyDecided: Somebody settled it meanwhile.
        """
        if row.request is not None:
            wanted = None
            if statement is not None:
                wanted = self.statement(row, resolution) | {"at": statement.get("at")}
            check_people(self.keys, row, resolution, wanted, statement, signature)
        check_verdict(row, resolution.verdict, self.journal.audit.clock())
        ctx, subject = _context(row), _subject(row)
        event = self.journal.audit.event(
            "resolved",
            ctx,
            subject,
            part=str(row.fence),
            verdict=resolution.verdict,
            by=resolution.by,
            reason=resolution.reason,
            before=str(row.status),
            statement=statement,
            signature=None if signature is None else dict(signature),
        )
        changed, now = await self.journal.store.resolve(
            Resolve(
                key=row.key,
                fence=row.fence,
                status=_STATUS[resolution.verdict],
                outcome=self.journal.sealed(subject, ctx, resolution.outcome),
                events=(event,),
            )
        )
        if now is None:
            msg = "The store has no call of this key any more; nothing was changed."
            raise ToolUsageError(msg)
        if not changed:
            raise _lost(row, now)
        return now

    async def expire(self) -> Sequence[CallRow]:
        """Close every question past its deadline; its thread gets the expiry at its next run.

        Returns:
            The closed questions.
        """
        closed: list[CallRow] = []
        while rows := await self.journal.store.overdue(PAGE):
            before = len(closed)
            for row in rows:
                ctx, subject = _context(row), _subject(row)
                # The same event that a run would have written which came upon the late question.
                event = self.journal.audit.event("expired", ctx, subject, once=True, reason=REASON)
                outcome = error_outcome(ApprovalExpired(EXPIRED))
                changed, now = await self.journal.close(
                    ctx, subject, CallStatus.EXPIRED, outcome, events=[event]
                )
                if changed and now is not None:
                    closed.append(now)
            if len(closed) == before:  # others are at it
                break
        return closed

    async def doubt(self) -> Sequence[CallRow]:
        """Note every claim whose lease ran out as a call in doubt, with one event each.

        A late outcome of its worker still counts, and an idempotent tool is still taken over.

        Returns:
            The calls that were not known to be in doubt.
        """
        noted: list[CallRow] = []
        limit = PAGE
        while True:
            rows = await self.journal.store.unsettled(limit)
            for row in rows:
                if row.status is CallStatus.CLAIMED:
                    changed, now = await self.journal.doubt(_context(row), _subject(row), row)
                    if changed and now is not None:
                        noted.append(now)
            if len(rows) < limit:
                return noted
            limit *= 2


def _settled(row: CallRow) -> ApprovalAlreadyDecided | CallInProgress:
    if row.status is CallStatus.CLAIMED:
        return CallInProgress(
            f"{row.owner} is running this call, or ran it until a moment ago: wait until its "
            "lease has run out."
        )
    return ApprovalAlreadyDecided(
        f"This call is not in doubt: it is {row.status}. Nothing was changed."
    )


def _lost(row: CallRow, now: CallRow) -> ApprovalAlreadyDecided | CallInProgress:
    """Say who was quicker: somebody's resolution, or a run that claimed the call again."""
    if now.status not in (CallStatus.CLAIMED, CallStatus.IN_DOUBT):
        return ApprovalAlreadyDecided(
            f"Somebody was quicker: this call is {now.status} by now. Nothing was changed."
        )
    if now.fence == row.fence:
        return _settled(now)
    return ApprovalAlreadyDecided(
        f"This call was started again since you looked (claim {now.fence}, not {row.fence}), and "
        "what became of the new claim is another matter. Nothing was changed: look again."
    )


def _subject(row: CallRow) -> Subject:
    return Subject(
        tool=row.tool,
        call_id=row.tool_call_id,
        key=row.key,
        arguments_digest=row.arguments_digest,
    )


def _context(row: CallRow) -> CallContext:
    """Return where a call stands, for events that no run causes."""
    place = Place(
        thread_id=row.thread_id,
        checkpoint_ns=row.checkpoint_ns,
        task_id=row.task_id,
        turn_id=row.turn_id,
    )
    return CallContext(place=place, run_id="operator")
