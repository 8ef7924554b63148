"""Whether a resume value answers a question: the one judge of hostile input.

Synchronous and without I/O, because it runs inside the host's own validation, before anything is
saved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from adapter.core.canonical import canonical_bytes
from adapter.core.decisions import INVALID, ApprovalDecision
from adapter.core.errors import InvalidAnswer, ModelVisibleError
from adapter.core.keys import KeyRing
from adapter.core.people import People
from adapter.core.redaction import mask_arguments
from adapter.core.signing import answer_digest, check_answer, from_iso
from adapter.core.spec import DecisionKind
from adapter.core.types import JsonObject

__all__ = ["Answer", "AnswerCheck", "Delivery", "Refusal"]

Delivery = Literal["keyed", "bare", "saved"]
"""How an answer came: by interrupt id in this run, unaddressed, or from the checkpoint."""


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

    @property
    def approves(self) -> bool:
        """Whether the call may go on to its claim."""
        return self.decision is not None and bool(self.decision.approved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that did not count, for the audit and the next showing of the question."""

    code: str
    message: str
    digest: str
    delivery: Delivery


def completed(edited: JsonObject, bound: JsonObject, masks: tuple[str, ...]) -> JsonObject:
    """Return what a reviewer who saw masks means by an edit.

    Declared masks keep their bound value; so does an argument given back exactly as it was shown.
    """
    shown = mask_arguments(bound, masks)
    kept = {name: bound[name] for name in masks if name in bound}
    same = {
        name: bound[name]
        for name, value in edited.items()
        if name in bound and _same(value, shown[name]) and not _same(value, bound[name])
    }
    return edited | same | kept


def _same(one: Any, other: Any) -> bool:
    """Compare as JSON: for Python True is 1, and 1 is 1.0."""
    try:
        return one == other and canonical_bytes(one) == canonical_bytes(other)
    except ValueError:
        return False


def fills_in(made: Any, signed: Any, shown: Any) -> bool:
    """Tell whether an edit leaves something out that would run with a value nobody was shown.

    Args:
        made: What the edit came to: the tool's schema fills in what is left out.
        signed: The edit.
        shown: What the reviewer was asked about.
    """
    if isinstance(made, dict) and isinstance(signed, dict):
        known = shown if isinstance(shown, dict) else {}
        return any(
            fills_in(value, signed[name], known.get(name))
            if name in signed
            else name not in known or not _same(value, known[name])
            for name, value in made.items()
        )
    if isinstance(made, list) and isinstance(signed, list):
        same = isinstance(shown, list) and len(shown) == len(made)
        return any(map(fills_in, made, signed, shown if same else [None] * len(made)))
    return False


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
        people: Who may answer.
        now: The store's time, milliseconds.
        edit: Validates edited arguments and the policy for them; returns canonical arguments.
    """

    keys: KeyRing
    binding: str
    allowed: tuple[DecisionKind, ...]
    arguments: JsonObject
    masks: tuple[str, ...]
    known: tuple[str, ...]
    people: People
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

    def before(self, raw: JsonObject, seen: str) -> Answer:
        """Return an answer the call's row used before, from the decision the row keeps.

        Args:
            raw: The decision.
            seen: Digest of the signed value it came in.
        """
        return self._accepted({"decision": raw, "kid": ""}, seen, before=True)

    def _accepted(self, value: Any, seen: str, *, before: bool) -> Answer:
        if before:
            raw = dict(value["decision"])
        else:
            checked = check_answer(self.keys, self.binding, value)
            if checked is None:
                raise InvalidAnswer(INVALID)
            raw = checked
        decision = ApprovalDecision.from_json(raw)
        if not before:
            expiry = decision.expires_at
            if (expiry is not None and from_iso(expiry) <= self.now) or (
                decision.kind not in self.allowed
            ):
                raise InvalidAnswer(INVALID)
            self.people.check(
                self.keys,
                decision.reviewer or "",
                value["kid"],
                approves=bool(decision.approved),
            )
        arguments = self._arguments(decision, before=before)
        if not before and decision.approved:
            self.people.agree(arguments)
        return Answer(
            digest=seen,
            decision=decision,
            raw=raw,
            kid=value["kid"],
            arguments=arguments,
            accepted_before=before,
        )

    def _arguments(self, decision: ApprovalDecision, *, before: bool) -> JsonObject:
        if decision.edited_args is None:
            return self.arguments
        if set(self.masks) & decision.edited_args.keys():
            raise InvalidAnswer(INVALID)
        wanted = completed(decision.edited_args, self.arguments, self.masks)
        try:
            made = self.edit(wanted)
        except ModelVisibleError as error:
            if before:
                # Judged when it was accepted; whether it may still run is decided at the claim.
                return wanted
            raise InvalidAnswer(INVALID) from error
        if not before and fills_in(made, wanted, self.arguments):
            raise InvalidAnswer(INVALID)
        return made
