"""ApprovalClient: the steps of the reviewer's side, driven on an event loop.

What may block (settings, key file, signing, making the connection) runs in a thread.
"""

from __future__ import annotations

import asyncio
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

__all__ = ["ApprovalClient"]

T = TypeVar("T")


class ApprovalClient(Desk):
    """The reviewer's asynchronous client.

    ``async with ApprovalClient() as desk: ...`` closes its connections; without it they are closed
    with the process. One client belongs to one event loop.
    """

    factory: ClassVar[str] = "get_client"

    async def pending(self, thread_id: str | None = None) -> list[PendingApproval]:
        """Return the approval requests of one thread, or of every thread, from their states.

        Args:
            thread_id: The thread; None scans all threads this client may see.

        Raises:
            ConfigurationError: The server cannot be reached or refuses the credential.
            ToolUsageError: There is no such thread.
        """
        return await self._run(steps.pending(thread_id, self._clock))

    async def sign(self, interrupt: object, decision: ApprovalDecision) -> JsonObject:
        """Verify the seal of an interrupt and return the signed resume value.

        Args:
            interrupt: langgraph_sdk's dict, langgraph's Interrupt, or a PendingApproval.
            decision: What was decided.

        Raises:
            InvalidAnswer: The request was altered since the server sealed it, does not allow
                this kind of decision, or an edit does not fit its schema.
            ConfigurationError: The key file is missing or unusable.
        """
        return await self._run(steps.sign(interrupt, decision, self._sign))

    async def approve(
        self,
        interrupt: object,
        *,
        edited_args: JsonObject | None = None,
        reason: str | None = None,
        thread_id: str | None = None,
    ) -> Any:
        """Sign an approval, resume the thread and return the run's result.

        Args:
            interrupt: As for `sign`.
            edited_args: The whole argument object to run instead of the one shown.
            reason: Why, for the audit.
            thread_id: The thread of an interrupt that does not say it.
        """
        return await self._answer(interrupt, approval(edited_args, reason), thread_id)

    async def reject(self, interrupt: object, reason: str, *, thread_id: str | None = None) -> Any:
        """Sign a rejection, resume the thread and return the run's result.

        Args:
            interrupt: As for `sign`.
            reason: Shown to the model.
            thread_id: The thread of an interrupt that does not say it.
        """
        decision = ApprovalDecision(kind="reject", reason=reason)
        return await self._answer(interrupt, decision, thread_id)

    async def respond(self, interrupt: object, text: str, *, thread_id: str | None = None) -> Any:
        """Answer in the tool's place, resume the thread and return the run's result.

        Args:
            interrupt: As for `sign`.
            text: What the model reads as the tool's result.
            thread_id: The thread of an interrupt that does not say it.
        """
        decision = ApprovalDecision(kind="respond", response=text)
        return await self._answer(interrupt, decision, thread_id)

    async def resume(self, thread_id: str, answers: Mapping[str, Any]) -> Any:
        """Resume a thread with signed answers by interrupt id and return the run's result."""
        return await self._run(steps.resume(thread_id, answers))

    async def heal(self, thread_id: str) -> list[PendingApproval]:
        """Bring a thread that a bad answer left in ``error`` back to its pause.

        Runs it with no input, and only when it is in error and still shows requests.

        Returns:
            The approval requests it waits for afterwards, with the same ids.
        """
        return await self._run(steps.heal(thread_id, self._clock))

    async def effect(self, approval: PendingApproval, result: object = None) -> Effect:
        """Read from the thread's state what an answer led to.

        Args:
            approval: The request that was answered.
            result: What the run returned, for the error it ended with.
        """
        return await self._run(steps.effect(approval, result))

    async def aclose(self) -> None:
        """Close the connections of a client made here."""
        if self._owns and self._sdk is not None:
            await self._sdk.aclose()
            self._sdk = None

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.aclose()

    async def _answer(
        self, interrupt: object, decision: ApprovalDecision, thread_id: str | None
    ) -> Any:
        return await self._run(steps.answer(interrupt, decision, thread_id, self._sign))

    async def _run(self, work: steps.Steps[T]) -> T:
        replies: list[Any] | None = None
        try:
            while True:
                batch = work.send(replies)  # type: ignore[arg-type]
                replies = await asyncio.gather(*map(self._do, batch))
        except StopIteration as done:
            result: T = done.value
            return result

    async def _do(self, step: steps.Step) -> Any:
        try:
            if isinstance(step, steps.Work):
                return await asyncio.to_thread(step.run)
            sdk = self._sdk or await asyncio.to_thread(self._connect)
            return await attrgetter(step.name)(sdk)(*step.arguments, **step.named)
        except AdapterError as error:
            return error
        except Exception as error:
            if isinstance(step, steps.Work):
                raise
            return self._explained(error, step)
