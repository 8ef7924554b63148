"""Wording one question: the request a reviewer reads, its binding, and the judge of its answers.

Pure: everything that must be the same on every re-run comes from the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from adapter.core.approvals import AnswerCheck, ApprovalPort, Question, binding_of
from adapter.core.errors import PolicyDenied
from adapter.core.journal import arguments_digest
from adapter.core.people import People
from adapter.core.policy import Policy, decide
from adapter.core.redaction import mask_arguments
from adapter.core.signing import to_iso
from adapter.core.spec import ApprovalRule, Registry
from adapter.core.store import CallRow
from adapter.core.types import JsonObject
from adapter.core.work import Work

__all__ = ["QuestionBuilder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionBuilder:
    """Builds questions.

    Attributes:
        clock: Milliseconds since the epoch.
        kind: What is asked about: a ``tool`` call, or a raise of a ``budget``.
    """

    registry: Registry
    port: ApprovalPort
    policy: Policy | None
    clock: Callable[[], int]
    kind: str = "tool"

    def request(self, work: Work, rule: ApprovalRule) -> JsonObject:
        """Return what a reviewer reads, without the times that only the row knows."""
        return {
            "tool": work.spec.name,
            "arguments": mask_arguments(work.arguments, work.spec.masks),
            "kind": self.kind,
            "rule": rule.name,
            "reason": rule.reason,
            "call_id": work.call.id,
            "run_id": work.ctx.run_id,
            "request_digest": self._digest(work),
            "allowed": list(rule.allowed),
            "roles": list(rule.roles),
            "schema": self.registry.schemas[work.spec.name].json_schema,
        }

    def _digest(self, work: Work) -> str:
        if work.arguments == work.call.arguments:
            # Nothing was filled in: the digest that names the call is the arguments' own.
            return work.identity.arguments_digest
        secret = self.port.keys.oldest("digest") if work.spec.masks else None
        return arguments_digest(work.arguments, secret)

    def build(
        self, work: Work, rule: ApprovalRule, row: CallRow, audience: str, people: People
    ) -> Question:
        """Return the question of a row: its binding, its wording, and the judge of its answers."""
        binding = binding_of(
            row,
            audience=audience,
            tool=work.spec.name,
            arguments_digest=self._digest(work),
            digests=self.registry.digests(work.spec.name),
            allowed=rule.allowed,
        )
        expires = None if row.expires_at is None else to_iso(row.expires_at)
        request = (row.request or self.request(work, rule)) | {
            "issued_at": to_iso(row.issued_at),
            "expires_at": expires,
            "quorum": {
                "need": row.quorum_need,
                "have": len(people.votes),
                "by": [vote.reviewer for vote in people.votes],
                **_edited_so_far(people, work.spec.masks),
            },
        }
        if row.approval_id is not None:
            request["approval_id"] = row.approval_id
        check = AnswerCheck(
            keys=self.port.keys,
            binding=binding,
            allowed=rule.allowed,
            arguments=work.arguments,
            masks=work.spec.masks,
            known=row.answers,
            people=people,
            now=self.clock(),
            edit=lambda edited: self._edited(work, rule, edited),
        )
        return Question(row=row, binding=binding, request=request, check=check)

    def _edited(self, work: Work, rule: ApprovalRule, edited: JsonObject) -> JsonObject:
        """Judge edited arguments as strictly as the model's, and by the policy for them."""
        valid = self.registry.schemas[work.spec.name].validate(edited)
        decision = decide(work.spec, valid, self.policy, work.ctx.context)
        if decision.rule is not None and not decision.rule.admits(rule):
            msg = "The edited arguments need other or more reviewers than those asked."
            raise PolicyDenied(msg)
        return valid


def _edited_so_far(people: People, masks: Iterable[str]) -> JsonObject:
    """Return the edit that the votes are for: only the very same edit adds to them."""
    for vote in people.votes:
        edited = vote.decision.get("edited_args")
        if edited is not None:
            return {"edited": mask_arguments(edited, masks)}
    return {}
