"""SyncApprovalClient: the steps of the reviewer's side, driven without an event loop."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from adapter.client import steps
from adapter.client.desk import Desk, approval
from adapter.client.pending import Effect, PendingApproval
from adapter.core.approvals import ApprovalDecision
from adapter.core.errors import AdapterError
from adapter.core.types import JsonObject

__all__ = ["SyncApprovalClient"]

T = TypeVar("T")


class SyncApprovalClient(Desk):
    """The reviewer's client for code without an event loop: the same names, the same meaning."""

    factory: ClassVar[str] = "get_sync_client"

    def pending(self, thread_id: str | None = None) -> list[PendingApproval]:
        """Return the approval requests of one thread, or of every thread; see ApprovalClient."""
        return self._run(steps.pending(thread_id, self._clock))

    def sign(self, interrupt: object, decision: ApprovalDecision) -> JsonObject:
        """Verify the seal of an interrupt and return the signed resume value."""
        return self._run(steps.sign(interrupt, decision, self._sign))

    def approve(
        self,
        interrupt: object,
        *,
        edited_args: JsonObject | None = None,
        reason: str | None = None,
        thread_id: str | None = None,
    ) -> Any:
        """Sign an approval, resume the thread and return the run's result."""
        return self._answer(interrupt, approval(edited_args, reason), thread_id)

    def reject(self, interrupt: object, reason: str, *, thread_id: str | None = None) -> Any:
        """Sign a rejection, resume the thread and return the run's result."""
        return self._answer(interrupt, ApprovalDecision(kind="reject", reason=reason), thread_id)

    def respond(self, interrupt: object, text: str, *, thread_id: str | None = None) -> Any:
        """Answer in the tool's place, resume the thread and return the run's result."""
        return self._answer(interrupt, ApprovalDecision(kind="respond", response=text), thread_id)

    def resume(self, thread_id: str, answers: Mapping[str, Any]) -> Any:
        """Resume a thread with signed answers by interrupt id and return the run's result."""
        return self._run(steps.resume(thread_id, answers))

    def heal(self, thread_id: str) -> list[PendingApproval]:
        """Bring a thread that a bad answer left in ``error`` back to its pause."""
        return self._run(steps.heal(thread_id, self._clock))

    def effect(self, approval: PendingApproval, result: object = None) -> Effect:
        """Read from the thread's state what an answer led to."""
        return self._run(steps.effect(approval, result))

    def close(self) -> None:
        """Close the connections of a client made here."""
        if self._owns and self._sdk is not None:
            self._sdk.close()
            self._sdk = None

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _answer(self, interrupt: object, decision: ApprovalDecision, thread_id: str | None) -> Any:
        return self._run(steps.answer(interrupt, decision, thread_id, self._sign))

    def _run(self, work: steps.Steps[T]) -> T:
        replies: list[Any] | None = None
        try:
            while True:
                batch = work.send(replies)  # type: ignore[arg-type]
                replies = [self._do(step) for step in batch]
        except StopIteration as done:
            result: T = done.value
            return result

    def _do(self, step: steps.Step) -> Any:
        try:
            if isinstance(step, steps.Work):
                return step.run()
            return attrgetter(step.name)(self._connect())(*step.arguments, **step.named)
        except AdapterError as error:
            return error
        except Exception as error:
            if isinstance(step, steps.Work):
                raise
            return self._explained(error, step)
