"""Approval requests, decisions, and the port through which a person is asked.

A port only carries a question out and an answer in. What counts as an answer is decided here, by
AnswerCheck, before any host saves it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from adapter.core.errors import InvalidAnswer, ModelVisibleError, ToolUsageError
from adapter.core.keys import KeyRing
from adapter.core.signing import (
    answer_digest,
    check_answer,
    check_seal,
    from_iso,
    sign_answer,
    to_iso,
)
from adapter.core.spec import DECISION_KINDS, DecisionKind
from adapter.core.store import CallRow
from adapter.core.types import JsonObject

__all__ = [
    "Answer",
    "AnswerCheck",
    "ApprovalDecision",
    "ApprovalPort",
    "Question",
    "Refusal",
    "sign_decision",
]

MAX_TEXT = 20_000
"""Longest reason or response, in characters."""

Delivery = Literal["keyed", "bare", "saved"]
"""How an answer came: by interrupt id in this run, unaddressed, or from the checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecision:
    """What a reviewer decides.

    Attributes:
        kind: ``approve``, ``edit``, ``reject`` or ``respond``; derived when absent.
        approved: Must agree with ``kind`` when both are given.
        edited_args: The whole argument object to run instead (kind ``edit``).
        reason: Why; shown to the model on a rejection.
        response: Text returned to the model instead of running the tool (kind ``respond``).
        reviewer: Who decides.
        expires_at: RFC 3339 time after which this answer no longer counts.
    """

    kind: DecisionKind | None = None
    approved: bool | None = None
    edited_args: JsonObject | None = None
    reason: str | None = None
    response: str | None = None
    reviewer: str | None = None
    expires_at: str | None = None

    def __post_init__(self) -> None:
        """Derive the kind and refuse contradictions."""
        kind = self.kind or self._derived()
        if kind not in get_args(DecisionKind):
            msg = f"A decision's kind is one of {', '.join(DECISION_KINDS)}, not {kind!r}."
            raise ToolUsageError(msg)
        approves = kind in ("approve", "edit")
        if (
            (self.approved is not None and self.approved is not approves)
            or ((self.edited_args is not None) is not (kind == "edit"))
            or ((self.response is not None) is not (kind == "respond"))
        ):
            msg = (
                f"The fields of this {kind} decision contradict each other: edited_args goes with "
                "edit only, response with respond only, approved with approve and edit only."
            )
            raise ToolUsageError(msg)
        if self.expires_at is not None:
            try:
                from_iso(self.expires_at)
            except (ValueError, TypeError) as error:
                msg = "expires_at must be an RFC 3339 time with a zone."
                raise ToolUsageError(msg) from error
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "approved", approves)

    def _derived(self) -> DecisionKind:
        if self.edited_args is not None:
            return "edit"
        if self.response is not None:
            return "respond"
        if self.approved is None:
            msg = "A decision needs a kind, or approved=True / False."
            raise ToolUsageError(msg)
        return "approve" if self.approved else "reject"

    def to_json(self, *, decided_at: int, reviewer: str) -> JsonObject:
        """Return the form that is signed; ``decided_at`` in milliseconds."""
        return {
            "kind": self.kind,
            "approved": self.approved,
            "edited_args": self.edited_args,
            "reason": self.reason,
            "response": self.response,
            "reviewer": self.reviewer or reviewer,
            "decided_at": to_iso(decided_at),
            "expires_at": self.expires_at,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> ApprovalDecision:
        """Read a signed decision, strictly.

        Raises:
            InvalidAnswer: A field is missing, unknown, of the wrong type or contradictory.
        """
        if value.keys() != _FIELDS or type(value["approved"]) is not bool:
            raise InvalidAnswer(_INVALID)
        texts = [value[name] for name in ("reason", "response", "expires_at")]
        if (
            not all(text is None or (isinstance(text, str) and len(text) <= MAX_TEXT) for text in texts)
            or not isinstance(value["kind"], str)
            or not isinstance(value["reviewer"], str)
            or not value["reviewer"]
            or len(value["reviewer"]) > MAX_TEXT
            or not isinstance(value["decided_at"], str)
            or not isinstance(value["edited_args"], dict | None)
        ):
            raise InvalidAnswer(_INVALID)
        try:
            from_iso(value["decided_at"])
            given = {name: item for name, item in value.items() if name != "decided_at"}
            return cls(**given)
        except (ToolUsageError, ValueError) as error:
            raise InvalidAnswer(_INVALID) from error


_FIELDS = frozenset(
    {
        "kind",
        "approved",
        "edited_args",
        "reason",
        "response",
        "reviewer",
        "decided_at",
        "expires_at",
    }
)

_INVALID = (
    "This is not a valid signed answer to this approval request; nothing ran and the request is "
    "still open. Sign the pending request again and resume with {interrupt id: signed answer}."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that counts.

    Attributes:
        decision: What was decided.
        digest: Digest of the whole signed value.
        raw: The signed decision as JSON, for the journal.
        kid: Key that signed it.
        arguments: What will run: the bound arguments, or the edited ones.
        void: A saved answer that no longer counts; ask again at the next position.
        accepted_before: The call's row holds this answer already.
        interrupt_id: Where the port took it.
    """

    digest: str
    decision: ApprovalDecision | None = None
    raw: JsonObject | None = None
    kid: str = ""
    arguments: JsonObject | None = None
    void: bool = False
    accepted_before: bool = False
    interrupt_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that did not count, for the audit and the next showing of the question."""

    code: str
    message: str
    digest: str
    delivery: Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCheck:
    """Decides whether a resume value answers one question. Synchronous, no I/O.

    Attributes:
        keys: The reviewers' decision keys.
        binding: The question's binding.
        allowed: Decision kinds offered.
        arguments: The bound arguments, canonical.
        masks: Arguments the reviewer could not see and therefore not edit.
        known: Digests of answers the call's row accepted before.
        now: The store's time, milliseconds.
        edit: Validates edited arguments and the policy for them; returns canonical arguments.
    """

    keys: KeyRing
    binding: str
    allowed: tuple[DecisionKind, ...]
    arguments: JsonObject
    masks: tuple[str, ...]
    known: tuple[str, ...]
    now: int
    edit: Callable[[JsonObject], JsonObject]

    def check(self, value: Any, *, saved: bool) -> Answer:
        """Judge a resume value.

        Args:
            value: The hostile value.
            saved: It comes from the checkpoint, not from this run's input.

        Raises:
            InvalidAnswer: It does not count; the message is constant.
        """
        seen = answer_digest(value)
        if seen in self.known:
            # LangGraph validates saved answers again on every re-run: judging this one anew
            # after its key was revoked would lock the thread for ever.
            return self._accepted(value, seen, before=True)
        try:
            return self._accepted(value, seen, before=False)
        except InvalidAnswer:
            if saved:
                return Answer(digest=seen, void=True)
            raise

    def _accepted(self, value: Any, seen: str, *, before: bool) -> Answer:
        if before:
            raw = dict(value["decision"])
        else:
            checked = check_answer(self.keys, self.binding, value)
            if checked is None:
                raise InvalidAnswer(_INVALID)
            raw = checked
        decision = ApprovalDecision.from_json(raw)
        if not before:
            expiry = decision.expires_at
            if (expiry is not None and from_iso(expiry) <= self.now) or (
                decision.kind not in self.allowed
            ):
                raise InvalidAnswer(_INVALID)
        return Answer(
            digest=seen,
            decision=decision,
            raw=raw,
            kid=value["kid"],
            arguments=self._arguments(decision, before=before),
            accepted_before=before,
        )

    def _arguments(self, decision: ApprovalDecision, *, before: bool) -> JsonObject:
        if decision.edited_args is None:
            return self.arguments
        hidden = {name: self.arguments[name] for name in self.masks if name in self.arguments}
        if before:
            # Judged when it was accepted; whether it may still run is decided at the claim.
            return decision.edited_args | hidden
        if hidden.keys() & decision.edited_args.keys():
            raise InvalidAnswer(_INVALID)
        try:
            return self.edit(decision.edited_args | hidden)
        except ModelVisibleError as error:
            raise InvalidAnswer(_INVALID) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One approval request on its way to a person.

    Attributes:
        row: The journal's row of the call.
        binding: Hexadecimal binding.
        request: What the reviewer reads.
        check: Judges an answer.
    """

    row: CallRow
    binding: str
    request: JsonObject
    check: AnswerCheck


class ApprovalPort(Protocol):
    """How a person is asked. Implementations: LangGraphApproval, DeferredApproval, your own."""

    @property
    def keys(self) -> KeyRing:
        """Keys that sign and verify this port's questions and answers."""
        ...

    async def decide(
        self, question: Question, refused: Callable[[Refusal], Any]
    ) -> Answer:
        """Return an answer that counts, or leave by the host's way of pausing.

        Args:
            question: What is asked.
            refused: Coroutine function to await for every answer that did not count; returns
                True when this refusal is new and may be shown.
        """
        ...

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which this task's gated calls go one at a time, in order."""
        ...

    def position(self) -> tuple[int, str | None]:
        """Return how many questions this task asked before, and the next question's id."""
        ...

    def answers_now(self, row: CallRow) -> bool:
        """Tell whether this run's own input answers the row's question by id."""
        ...

    def revisit(self, row: CallRow) -> None:
        """Take the saved answer of a settled row's question, to keep later positions right."""
        ...


def sign_decision(
    keys: KeyRing, value: object, decision: ApprovalDecision, *, decided_at: int, reviewer: str
) -> JsonObject:
    """Sign a decision about a sealed interrupt value.

    Args:
        keys: Ring with the server's seal key and the reviewer's decision key.
        value: The interrupt's value.
        decision: What was decided.
        decided_at: Milliseconds since the epoch.
        reviewer: Who decides, unless the decision says so.

    Returns:
        The resume value, for ``Command(resume={interrupt_id: value})``.

    Raises:
        InvalidAnswer: The value carries no valid seal, or does not offer this kind.
    """
    checked = check_seal(keys, value)
    allowed = checked["request"].get("allowed", [])
    if decision.kind not in allowed:
        msg = f"This request allows {', '.join(allowed)}; a decision of kind {decision.kind} would be refused."
        raise InvalidAnswer(msg)
    signed = decision.to_json(decided_at=decided_at, reviewer=reviewer)
    return sign_answer(keys, checked["binding"], signed)
