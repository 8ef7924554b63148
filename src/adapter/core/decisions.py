"""What a reviewer decides, in the one strict form that is signed.

Contradictory fields are refused when a decision is made and again when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from adapter.core.errors import InvalidAnswer, ToolUsageError
from adapter.core.signing import from_iso, to_iso
from adapter.core.spec import DECISION_KINDS, DecisionKind
from adapter.core.types import JsonObject

__all__ = ["INVALID", "MAX_TEXT", "ApprovalDecision", "no_decision"]

MAX_TEXT = 20_000
"""Longest reason or response, in characters."""


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
        for field, needs, wanted, what in (
            ("edited_args", "edit", dict, "edited_args={…}, what to run with instead"),
            ("response", "respond", str, "response=…, the text to answer with"),
        ):
            given = getattr(self, field)
            if kind == needs and given is None:
                msg = f"{field} is missing: a decision of kind {needs} needs {what}."
                raise ToolUsageError(msg)
            if given is not None and not isinstance(given, wanted):
                msg = f"{field} is of type {type(given).__name__}: {needs} needs {what}."
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
            raise InvalidAnswer(INVALID)
        texts = [value[name] for name in ("reason", "response", "expires_at")]
        if (
            not all(
                text is None or (isinstance(text, str) and len(text) <= MAX_TEXT) for text in texts
            )
            or not isinstance(value["kind"], str)
            or not isinstance(value["reviewer"], str)
            or not value["reviewer"]
            or len(value["reviewer"]) > MAX_TEXT
            or not isinstance(value["decided_at"], str)
            or not isinstance(value["edited_args"], dict | None)
        ):
            raise InvalidAnswer(INVALID)
        try:
            from_iso(value["decided_at"])
            given = {name: item for name, item in value.items() if name != "decided_at"}
            return cls(**given)
        except (ToolUsageError, ValueError) as error:
            raise InvalidAnswer(INVALID) from error


def no_decision(given: object) -> ToolUsageError:
    """Return the error for what was given in a decision's place."""
    return ToolUsageError(
        f"A decision is an ApprovalDecision, and not a {type(given).__name__}: give "
        "ApprovalDecision(approved=True), or a mapping of the questions to one each."
    )


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

INVALID = (
    "This is not a valid signed answer to this approval request; nothing ran and the request is "
    "still open. Sign the pending request again and resume with {interrupt id: signed answer}."
)
