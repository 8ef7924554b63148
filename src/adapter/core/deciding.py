"""Decisions that lead to no run: a reviewer's no, and a reviewer's own words.

Each closes the question in the journal together with its audit event; an approval goes on to the
claim instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adapter.core.answers import Answer
from adapter.core.errors import AdapterError, ApprovalDenied
from adapter.core.journal import Journal
from adapter.core.outcomes import REASON, REFUSED, error_outcome
from adapter.core.redaction import mask_arguments
from adapter.core.store import Event
from adapter.core.types import CallStatus, JsonObject
from adapter.core.work import Work

__all__ = ["Decider"]


def _shown(work: Work, edited: JsonObject | None) -> JsonObject | None:
    return None if edited is None else mask_arguments(edited, work.spec.masks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """Carries out rejections and responses."""

    journal: Journal

    def event(self, work: Work, answer: Answer) -> Event:
        """Return the audit event of a decision that counted."""
        raw = answer.raw or {}
        return self.journal.audit.event(
            "decided",
            work.ctx,
            work.subject,
            part=answer.digest[:16],
            once=True,
            decision=raw.get("kind"),
            reviewer=raw.get("reviewer"),
            reason=raw.get("reason"),
            edited_args=_shown(work, raw.get("edited_args")),
            kid=answer.kid,
            answer_digest=answer.digest,
        )

    async def close(self, work: Work, answer: Answer) -> tuple[bool, Any]:
        """End the question by the reviewer's no or words.

        Returns:
            Whether it was still open, and the host's result.

        Raises:
            ApprovalDenied: The reviewer refused the call.
        """
        decision = answer.decision
        denied: AdapterError | None = None
        result: Any = None
        if decision is not None and decision.kind == "respond":
            result = work.invocation.responded(decision.response or "")
            status, outcome = CallStatus.RESPONDED, {"result": work.invocation.record(result)}
        else:
            given = "" if decision is None or not decision.reason else f"{REASON}{decision.reason}"
            denied = ApprovalDenied(f"{REFUSED}{given}")
            status, outcome = CallStatus.DENIED, error_outcome(denied)
        changed = await self._close(work, answer, status, outcome)
        if changed and denied is not None:
            raise denied
        return changed, result

    async def _close(
        self, work: Work, answer: Answer, status: CallStatus, outcome: JsonObject
    ) -> bool:
        changed, _ = await self.journal.close(
            work.ctx,
            work.subject,
            status,
            outcome,
            events=[self.event(work, answer)],
            decision=answer.raw,
            answer=answer.digest,
            interrupt_id=answer.interrupt_id,
        )
        return changed
