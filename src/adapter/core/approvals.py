"""Approval requests and the port through which a person is asked.

A port only carries a question out and an answer in. What counts as an answer is decided by
AnswerCheck, before any host saves it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self

from adapter.core.answers import Answer, AnswerCheck, Refusal
from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import InvalidAnswer
from adapter.core.keys import KeyRing
from adapter.core.signing import Binding, check_seal, sign_answer
from adapter.core.spec import DecisionKind
from adapter.core.store import CallRow
from adapter.core.types import JsonObject

__all__ = [
    "Answer",
    "AnswerCheck",
    "ApprovalDecision",
    "ApprovalPort",
    "BoundRow",
    "Question",
    "Refusal",
    "binding_of",
    "sign_decision",
]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRow(CallRow):
    """A row that asked, with the binding of its question: what an answer to it must name.

    A place in the host is not enough: where the answer that was taken at a place is lost, the
    next question gets that place, and its id.
    """

    binding: str

    @classmethod
    def of(cls, row: CallRow, request: JsonObject, audience: str) -> Self:
        """Return a row with its binding.

        Args:
            row: The row.
            request: What it asked.
            audience: Id of this installation.
        """
        binding = binding_of(
            row,
            audience=audience,
            tool=row.tool,
            arguments_digest=request["request_digest"],
            digests=(row.policy_digest, row.schema_digest),
            allowed=tuple(request["allowed"]),
        )
        known: dict[str, Any] = {one.name: getattr(row, one.name) for one in fields(CallRow)}
        return cls(**known, binding=binding)


def binding_of(
    row: CallRow,
    *,
    audience: str,
    tool: str,
    arguments_digest: str,
    digests: tuple[str, str],
    allowed: tuple[DecisionKind, ...],
) -> str:
    """Return the binding of a row's question: what an answer to it is signed for.

    Args:
        row: The row.
        audience: Id of this installation.
        tool: What runs on a yes.
        arguments_digest: Of the arguments the reviewer is asked about.
        digests: Of policy and schema, as they hold for the question.
        allowed: Decisions offered.
    """
    policy_digest, schema_digest = digests
    return Binding(
        audience=audience,
        thread_id=row.thread_id,
        checkpoint_ns=row.checkpoint_ns,
        task_id=row.task_id,
        tool_call_id=row.tool_call_id,
        tool=tool,
        kind=row.kind,
        arguments_digest=arguments_digest,
        schema_digest=schema_digest,
        policy_digest=policy_digest,
        allowed=allowed,
        quorum=row.quorum_need,
        issued_at=row.issued_at,
        expires_at=row.expires_at,
        approval_id=row.approval_id,
    ).hex()


class ApprovalPort(Protocol):
    """How a person is asked. Implementations: LangGraphApproval, DeferredApproval, your own.

    Attributes:
        deferred: Decisions are recorded in the store, so a request needs an id of its own there.
        in_graph: Asks in the host's graph only; a program without one cannot use it.
    """

    deferred: bool
    in_graph: bool

    @property
    def keys(self) -> KeyRing:
        """Keys that sign and verify this port's questions and answers."""
        ...

    async def refresh(self) -> None:
        """Learn of rotated and revoked keys; awaited before each question."""
        ...

    def enter(self) -> object:
        """Note that a call that asks nobody runs beside this task's questions."""
        ...

    def leave(self, token: object) -> None:
        """Note that such a call is over."""
        ...

    async def quiet(self, token: object) -> None:
        """Wait until no other such call of the task runs: the host ends it with the first pause."""
        ...

    async def decide(
        self, question: Question, refused: Callable[[Refusal], Awaitable[bool]]
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

    def has_answer(self) -> bool:
        """Tell whether the next question has an answer waiting: then its row exists, likely."""
        ...

    def contended(self) -> bool:
        """Tell whether an answer waits here and other calls of this task wait for their turn."""
        ...

    def is_for_another(self, row: BoundRow | None) -> bool:
        """Tell whether the answer that waits for the next question is not for this row's.

        Args:
            row: None where nobody was asked yet.
        """
        ...

    def position(self) -> tuple[int, str | None]:
        """Return how many questions this task asked before, and the next question's id."""
        ...

    def answers_now(self, row: CallRow) -> bool:
        """Tell whether this run's own input answers the row's question by id.

        Of a BoundRow, tell whether it is an answer to that question, and not to a later one that
        has its id now.
        """
        ...

    def discard_used(self, row: CallRow) -> None:
        """Take an unaddressed answer out of the way that this row has used already."""
        ...

    def discard_stale(self) -> None:
        """Take an unaddressed answer out of the way that was there before anybody was asked."""
        ...

    def resuming(self) -> bool:
        """Tell whether this run's own input answers questions by id, whichever they are."""
        ...

    def pause(self) -> None:
        """Leave by the host's way of pausing, without a question; return where there is none."""
        ...

    def revisit(self, row: CallRow) -> None:
        """Take the saved answer of a settled row's question, to keep later positions right.

        Of a BoundRow, nothing but answers to that question.
        """
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
        InvalidAnswer: The value carries no valid seal, or does not offer this kind; or the key
            may not sign in this reviewer's name.
    """
    checked = check_seal(keys, value)
    allowed = checked["request"].get("allowed", [])
    if decision.kind not in allowed:
        msg = (
            f"This request allows {', '.join(allowed)}; a decision of kind {decision.kind} would "
            "be refused."
        )
        raise InvalidAnswer(msg)
    signed = decision.to_json(decided_at=decided_at, reviewer=reviewer)
    if not keys.speaks_for(keys.newest("decision").kid, signed["reviewer"]):
        msg = (
            f"This key may not sign in the name of {signed['reviewer']}: it is another person's, "
            "or that person has a key of their own. Sign with theirs (ADAPTER_REVIEWER_KEY)."
        )
        raise InvalidAnswer(msg)
    return sign_answer(keys, checked["binding"], signed)
