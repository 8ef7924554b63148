"""DeferredApproval: the store decides, and no resume value ever does.

A request waits in its row under the server's seal; a reviewer's signed decision is put beside it
by whoever holds a key: a program, a command, a desk. The next run of the call finds it there. A
decision counts by its signature here as everywhere: writing the store approves nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from time import time_ns
from typing import Any

from adapter.core.approvals import Answer, ApprovalDecision, Question, Refusal, sign_decision
from adapter.core.errors import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    ApprovalPending,
    InvalidAnswer,
    ToolUsageError,
)
from adapter.core.journal import EXPIRED
from adapter.core.keys import KeyRing, KeySource
from adapter.core.signing import answer_digest, sealed_value
from adapter.core.store import CallRow, Close, Store
from adapter.core.types import CallStatus, JsonObject

__all__ = ["DeferredApproval", "is_decided", "record_decision"]

_SEALED, _SIGNED = "sealed", "signed"


async def record_decision(
    store: Store,
    keys: KeyRing,
    row: CallRow,
    decision: ApprovalDecision,
    *,
    decided_at: int,
    reviewer: str,
) -> CallRow:
    """Put a signed decision beside its request. Nothing runs: the thread goes on with ``None``.

    Args:
        store: Where the request waits.
        keys: Ring with the server's seal key and the reviewer's decision key.
        row: The request, as ``store.requested`` lists it.
        decision: What was decided.
        decided_at: Milliseconds since the epoch.
        reviewer: Who decides, unless the decision says so.

    Returns:
        The row, ``approved``: decided, and waiting for its run.

    Raises:
        InvalidAnswer: The request is not under the server's seal, does not offer this kind, the
            key may not sign in this reviewer's name, or they voted before.
        ApprovalExpired: Past its deadline.
        ApprovalAlreadyDecided: Decided, used or closed already.
    """
    if is_decided(row) or row.status is not CallStatus.REQUESTED:
        msg = f"This request is {row.status} and decided already; nothing was changed."
        raise ApprovalAlreadyDecided(msg)
    if row.expires_at is not None and row.expires_at <= decided_at:
        raise ApprovalExpired(EXPIRED)
    kept = dict(row.decision or {})
    signed = sign_decision(
        keys, kept.get(_SEALED), decision, decided_at=decided_at, reviewer=reviewer
    )
    given = list(kept.get(_SIGNED, []))
    if any(one["decision"]["reviewer"] == signed["decision"]["reviewer"] for one in given):
        msg = "This reviewer has decided about the request already; another one must."
        raise InvalidAnswer(msg)
    given.append(signed)
    decided = len(given) >= row.quorum_need or not decision.approved
    status = CallStatus.APPROVED if decided and row.quorum_need == 1 else CallStatus.REQUESTED
    changed, now = await store.close_question(
        Close(key=row.key, status=status, decision={**kept, _SIGNED: given})
    )
    if not changed or now is None:
        msg = "This request was used or closed meanwhile; nothing was changed."
        raise ApprovalAlreadyDecided(msg)
    return now


def is_decided(row: CallRow) -> bool:
    """Tell whether a request has all the decisions it needs and only waits for its run."""
    given = (row.decision or {}).get(_SIGNED, [])
    return len(given) >= row.quorum_need or any(
        not one["decision"].get("approved") for one in given
    )


class DeferredApproval:
    """An approval port whose answers come from the store only.

    A gated call raises ApprovalPending until its request is decided; then the thread goes on with
    ``None``. With ``key=None`` the keys are random, and decisions count in this process only.
    """

    deferred = True

    def __init__(
        self,
        store: Store,
        key: bytes | KeyRing | KeySource | None = None,
        *,
        reviewer: str = "local",
        clock: Callable[[], int] = lambda: time_ns() // 1_000_000,
    ) -> None:
        """Take the store.

        Args:
            store: The executor's own.
            key: A key ring or a source of one, a shared secret of 16 or more bytes, or None.
            reviewer: Name put into decisions recorded here that name nobody.
            clock: Milliseconds since the epoch.

        Raises:
            ConfigurationError: The secret is short or a placeholder.
        """
        self.store = store
        self._source: KeySource = KeyRing.random() if key is None else _source(key)
        self._reviewer = reviewer
        self._clock = clock

    @property
    def keys(self) -> KeyRing:
        """The keys as last loaded; no I/O."""
        return self._source.current()

    async def refresh(self) -> None:
        """Learn of rotated and revoked keys."""
        await self._source.refresh()

    async def pending(self, thread_id: str | None = None) -> Sequence[CallRow]:
        """Return requests that need a decision, oldest first."""
        return [row for row in await self.store.requested(thread_id) if not is_decided(row)]

    async def record(self, request: CallRow | str, decision: ApprovalDecision) -> CallRow:
        """Decide a request, signing with this port's keys.

        Args:
            request: The row, or its key.
            decision: What was decided.

        Raises:
            ToolUsageError: The store has no such request.
            AdapterError: As ``record_decision`` raises.
        """
        key = request if isinstance(request, str) else request.key
        row = await self.store.get(key)
        if row is None:
            msg = "The store has no request of this key."
            raise ToolUsageError(msg)
        return await record_decision(
            self.store, self.keys, row, decision, decided_at=self._clock(), reviewer=self._reviewer
        )

    async def decide(
        self, question: Question, refused: Callable[[Refusal], Awaitable[bool]]
    ) -> Answer:
        """Return the recorded decision, if it counts.

        Raises:
            ApprovalPending: There is none.
        """
        row = await self.store.get(question.row.key) or question.row
        kept: JsonObject = dict(row.decision or {})
        if row.answers and not kept.keys() & {_SEALED, _SIGNED}:
            # Claimed before, and suspended or given back: the decision was judged then.
            return question.check.before(kept, row.answers[-1])
        given = list(kept.get(_SIGNED, []))
        for value in list(given):
            seen = answer_digest(value)
            if seen in row.answers:
                continue  # a vote that was counted
            try:
                return question.check.check(value, saved=False)
            except InvalidAnswer as error:
                given.remove(value)
                await refused(
                    Refusal(code=error.code, message=error.message, digest=seen, delivery="saved")
                )
        await self._wait(row, {_SEALED: self._sealed(question), _SIGNED: given})
        msg = (
            f"{row.tool} waits for a decision in the store (request {row.approval_id or row.key}). "
            "Decide it there, then continue the thread without input; a resume value decides "
            "nothing here."
        )
        raise ApprovalPending(msg)

    def _sealed(self, question: Question) -> JsonObject:
        return sealed_value(self.keys, question.binding, question.request)

    async def _wait(self, row: CallRow, wanted: JsonObject) -> None:
        """Leave the sealed request beside its row, for whoever decides."""
        if row.status is not CallStatus.REQUESTED or row.decision != wanted:
            await self.store.close_question(
                Close(key=row.key, status=CallStatus.REQUESTED, decision=wanted)
            )

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Order nothing: whichever call comes first is asked about first."""
        return nullcontext()

    def has_answer(self) -> bool:
        """Tell that no answer waits in the host."""
        return False

    def position(self) -> tuple[int, str | None]:
        """Return no place: nothing is asked in the host."""
        return 0, None

    def answers_now(self, row: CallRow) -> bool:  # noqa: ARG002 - the protocol's
        """Tell that a run never brings an answer."""
        return False

    def discard_used(self, row: CallRow) -> None:
        """Discard nothing: no answer is delivered."""

    def revisit(self, row: CallRow) -> None:
        """Take nothing: no answer is delivered."""

    def enter(self) -> object:
        """Note nothing."""
        return None

    def leave(self, token: object) -> None:
        """Note nothing."""


def _source(key: bytes | KeyRing | KeySource) -> Any:
    return KeyRing.from_secret(key) if isinstance(key, bytes) else key
