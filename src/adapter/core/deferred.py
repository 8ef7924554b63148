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

from adapter.core.approvals import Answer, ApprovalDecision, BoundRow, Question, Refusal
from adapter.core.errors import (
    ApprovalPending,
    InvalidAnswer,
    ToolUsageError,
)
from adapter.core.keys import KeyRing, KeySource, source_of
from adapter.core.recording import (
    LISTED,
    SEALED,
    SIGNED,
    is_decided,
    record_answer,
    record_decision,
    waiting_in,
)
from adapter.core.signing import answer_digest, sealed_value
from adapter.core.store import CallRow, Close, Store, check_store
from adapter.core.types import CallStatus, JsonObject

__all__ = ["DeferredApproval", "OutsideGraph", "is_decided", "record_answer", "record_decision"]


class OutsideGraph:
    """What a port does about the host's tasks and their answers when it keeps none there: nothing.

    A port of your own begins with this, and says how it decides.
    """

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

    def contended(self) -> bool:
        """Return False: answers have no order here."""
        return False

    def is_for_another(self, _row: BoundRow | None) -> bool:
        """Return False."""
        return False

    def discard_stale(self) -> None:
        """Discard nothing."""

    def resuming(self) -> bool:
        """Tell that no run brings answers by id."""
        return False

    def pause(self) -> None:
        """Return: there is no pause without a question."""

    def revisit(self, row: CallRow) -> None:
        """Take nothing: no answer is delivered."""

    def enter(self) -> object:
        """Note nothing."""
        return None

    def leave(self, token: object) -> None:
        """Note nothing."""

    async def quiet(self, token: object) -> None:
        """Wait for nothing."""


class DeferredApproval(OutsideGraph):
    """An approval port whose answers come from the store only.

    A gated call raises ApprovalPending until its request is decided; then the thread goes on with
    ``None``. With ``key=None`` the keys are random, and decisions count in this process only.
    """

    deferred = True
    in_graph = False

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
            ConfigurationError: The secret is short or a placeholder, or this is no store.
        """
        check_store(store, "DeferredApproval(store, keys)")
        self.store = store
        self._source = source_of(key)
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
        return waiting_in(await self.store.requested(thread_id, LISTED))

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
            self.store,
            self.keys,
            row,
            decision,
            decided_at=self._clock(),
            reviewer=self._reviewer,
            judge=self.keys,
        )

    async def decide(
        self, question: Question, refused: Callable[[Refusal], Awaitable[bool]]
    ) -> Answer:
        """Return the recorded decision, if it counts.

        Raises:
            ApprovalPending: There is none.
        """
        while True:
            row = await self.store.get(question.row.key) or question.row
            kept: JsonObject = dict(row.decision or {})
            if row.answers and not kept.keys() & {SEALED, SIGNED}:
                # Claimed before, and suspended or given back: the decision was judged then.
                return question.check.before(kept, row.answers[-1])
            answer, given = await self._judged(question, row, refused)
            if answer is not None:
                return answer
            if await self._wait(row, {SEALED: self._sealed(question), SIGNED: given}):
                break
        msg = (
            f"{row.tool} waits for a decision in the store (request {row.approval_id or row.key}). "
            "Decide it there (`adapter approvals`, or DeferredApproval.record), then continue the "
            "thread without input; a resume value decides nothing here."
        )
        raise ApprovalPending(msg, key=row.key, value=self._sealed(question))

    async def _judged(
        self, question: Question, row: CallRow, refused: Callable[[Refusal], Awaitable[bool]]
    ) -> tuple[Answer | None, list[Any]]:
        """Return the next answer that counts, and those worth keeping."""
        given = list((row.decision or {}).get(SIGNED, []))
        standing = {vote.answer for vote in question.check.people.votes}
        for value in list(given):
            seen = answer_digest(value)
            if seen in row.answers:
                # Counted before the votes were read, and not among them: its key was revoked or
                # its role lost, so that its reviewer may vote again.
                if row.quorum_need > 1 and seen in question.row.answers and seen not in standing:
                    given.remove(value)
                continue
            try:
                return question.check.check(value, saved=False), given
            except InvalidAnswer as error:
                given.remove(value)
                await refused(
                    Refusal(code=error.code, message=error.message, digest=seen, delivery="saved")
                )
        return None, given

    def _sealed(self, question: Question) -> JsonObject:
        return sealed_value(self.keys, question.binding, question.request)

    async def _wait(self, row: CallRow, wanted: JsonObject) -> bool:
        """Leave the sealed request beside its row, for whoever decides.

        Returns:
            False when somebody decided meanwhile: what they recorded has to be judged first.
        """
        if row.status is CallStatus.REQUESTED and row.decision == wanted:
            return True
        changed, now = await self.store.close_question(
            Close(
                key=row.key,
                status=CallStatus.REQUESTED,
                decision=wanted,
                compare=True,
                before=row.decision,
            )
        )
        return changed or now is None or now.decision == row.decision
