"""Running a claimed call, and recording how it ended.

The outcome is settled in the same shielded piece as the invocation, so that neither a sibling's
refusal nor a cancelled run separates an effect from its record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from adapter.core.errors import (
    AdapterError,
    ModelVisibleError,
    ToolFailed,
    ToolTimeout,
    ToolUsageError,
)
from adapter.core.invoke import Fence, held, timed
from adapter.core.journal import Journal
from adapter.core.leases import Lease
from adapter.core.outcomes import error_outcome
from adapter.core.redaction import mask_text
from adapter.core.retrying import recorded, tried
from adapter.core.scope import task_scope
from adapter.core.store import CallRow, Claimed
from adapter.core.types import CallStatus, JsonObject, running_call
from adapter.core.work import Work

__all__ = ["Runner"]

_log = logging.getLogger(__name__)

_UNKNOWN = "its outcome is unknown: it may have happened. Do not repeat it; tell the user."
_LATE_PAUSE = (
    "Middleware inside the adapter asked a question after the tool had run, and going on from "
    "there would run the tool again. Put it before the adapter in the list. The call is recorded."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs tools.

    Attributes:
        grace: Seconds a cancelled call may go on before it is in doubt.
        sleep: How to wait between attempts.
    """

    journal: Journal
    grace: float
    sleep: Callable[[float], Awaitable[None]]

    async def run(
        self, work: Work, claim: Callable[[], Awaitable[Claimed]], arguments: JsonObject
    ) -> tuple[Claimed, Any]:
        """Claim a call, run it and settle it, as one piece that cancellation does not tear.

        Args:
            work: The call.
            claim: Makes the claim.
            arguments: What is claimed; differs from the model's after an edit.

        Returns:
            What became of the claim, and the host's result if it was claimed.

        Raises:
            ToolError: Raised by the tool for the model.
            ToolFailed: The tool raised something else.
            ToolTimeout: It did not end in time.
        """
        held_by: list[tuple[Work, int]] = []

        async def piece() -> tuple[Claimed, Any]:
            claimed = await claim()
            if claimed.state != "claimed" or claimed.row is None:
                return claimed, None
            mine = _taken_over(work, claimed.row)
            held_by.append((mine, claimed.row.fence))
            await work.invocation.recall(self.journal.outcome(claimed.row))
            return claimed, await self._invoke_and_settle(mine, claimed.row.fence, arguments)

        async def abandon() -> None:
            for mine, number in held_by:
                await self.settle(
                    mine, number, CallStatus.IN_DOUBT, None, reason="cancelled while running"
                )

        return await held(
            piece(),
            self.grace,
            abandon,
            stop=work.invocation.cancellable,
        )

    async def _invoke_and_settle(self, work: Work, number: int, arguments: JsonObject) -> Any:
        running_call.set(work.ctx)
        # What the tool does inside is no longer the front end's: a question there would wait for
        # this call, and this call for it.
        task_scope.set(None)
        fence = Fence(arguments)
        keeper = Lease(self.journal, work.subject.key, number)
        try:
            result = await self.attempts(work, arguments, fence, number)
        except Exception as error:
            if work.invocation.is_pause(error):
                await self._paused(work, number, fence, error)
                raise
            raise await self._failure(work, number, fence, error) from error
        finally:
            keeper.stop()
        return await self._success(work, number, fence, result)

    async def _paused(self, work: Work, number: int, fence: Fence, pause: Exception) -> None:
        """Suspend a call whose tool, or what stands before it, asks; no tool runs after its end.

        Raises:
            ToolFailed: The tool had failed, and middleware asked about another try.
            ToolUsageError: The tool had ended well, and middleware asked behind it.
        """
        if not work.spec.effects.repeatable:
            if fence.returned:
                await self._success(work, number, fence, fence.result)
                raise ToolUsageError(_LATE_PAUSE)
            failed = fence.error
            if isinstance(failed, Exception) and not work.invocation.is_pause(failed):
                raise await self._failure(work, number, fence, failed) from failed
        await self.settle(work, number, CallStatus.SUSPENDED, work.invocation.told(pause))

    async def _success(self, work: Work, number: int, fence: Fence, result: Any) -> Any:
        failed = work.invocation.failed(result)
        status = CallStatus.FAILED if failed else CallStatus.SUCCEEDED
        data: dict[str, Any] = {}
        doubtful = fence.ambiguous and not work.spec.effects.repeatable
        if doubtful or (not fence.consumed and not failed):
            status = CallStatus.IN_DOUBT
            data["reason"] = "fence_bypassed" if not fence.consumed else "outcome unknown"
        try:
            recorded = {"result": work.invocation.record(result)}
        except ToolUsageError as error:
            await self.settle(work, number, CallStatus.FAILED, error_outcome(error), **data)
            raise
        await self.settle(work, number, status, recorded, **data)
        return result

    async def _failure(
        self, work: Work, number: int, fence: Fence, error: Exception
    ) -> AdapterError:
        late = isinstance(error, ToolTimeout)
        doubtful = not work.spec.effects.repeatable and (late or fence.ambiguous)
        still_running = late and not work.invocation.cancellable
        unknown = fence.consumed and (doubtful or still_running)
        shown = self.shown(work, error, unknown=unknown)
        status = CallStatus.IN_DOUBT if unknown else CallStatus.FAILED
        await self.settle(work, number, status, error_outcome(shown), error=shown.kind)
        return shown

    def shown(self, work: Work, error: Exception, *, unknown: bool) -> AdapterError:
        """Return what the model or the caller may know; the log gets the masked detail."""
        if isinstance(error, ModelVisibleError):
            return error
        reference = self.journal.ids()[-12:]
        _log.warning(
            "tool %s failed, reference %s: %s: %s",
            work.spec.name,
            reference,
            type(error).__name__,
            mask_text(str(error)),
        )
        ending = f"; {_UNKNOWN}" if unknown else "."
        if isinstance(error, ToolTimeout):
            return ToolTimeout(f"{work.spec.name} timed out (reference {reference}){ending}")
        name = type(error).__name__.lstrip("_")
        return ToolFailed(f"{work.spec.name} failed: {name} (reference {reference}){ending}")

    async def attempts(
        self, work: Work, arguments: JsonObject, fence: Fence | None, number: int = 0
    ) -> Any:
        """Run the tool, again where its spec says so and it may be.

        Args:
            work: The call.
            arguments: What it runs with.
            fence: None where it has no effect.
            number: Fence of the claim.
        """
        spec = work.spec

        async def once() -> Any:
            if fence is not None:
                fence.renew()
            return await timed(
                work.invocation.invoke(arguments, fence),
                spec.timeout,
                cancellable=work.invocation.cancellable,
                late=lambda task: self._late(work, number, fence, task),
                light=fence is None,
            )

        def worth(error: BaseException) -> bool:
            if isinstance(error, ToolTimeout) and not work.invocation.cancellable:
                return False  # its thread still runs, and would get company
            return (
                isinstance(error, Exception)
                and not isinstance(error, ModelVisibleError | ToolUsageError)
                and not work.invocation.is_pause(error)
            )

        return await tried(once, spec.retries, worth=worth, sleep=self.sleep)

    def _late(self, work: Work, number: int, fence: Fence | None, task: asyncio.Task[Any]) -> None:
        """Record the result of a tool that outlived its time limit."""
        if fence is None or task.cancelled() or task.exception() is not None:
            return
        result = task.result()
        failed = work.invocation.failed(result)
        try:
            outcome = {"result": work.invocation.record(result)}
        except ToolUsageError as error:
            failed, outcome = True, error_outcome(error)
        status = CallStatus.FAILED if failed else CallStatus.SUCCEEDED
        settling = asyncio.ensure_future(self.settle(work, number, status, outcome, late=True))
        _keep.add(settling)
        settling.add_done_callback(_keep.discard)

    async def settle(
        self, work: Work, fence: int, status: CallStatus, outcome: Any, **data: Any
    ) -> None:
        """Record how a claimed call ended, however long the store is away.

        Args:
            work: The call.
            fence: Of its claim.
            status: How it ended.
            outcome: What is given back later, or None.
            data: More for its event.
        """
        settle = partial(
            self.journal.settle, work.ctx, work.subject, fence, status, outcome, **data
        )
        await recorded(settle, failed=_settled_later, sleep=self.sleep)


def _settled_later() -> None:
    _log.warning("an outcome could not be recorded; trying again")


def _taken_over(work: Work, row: CallRow) -> Work:
    """Return the work under the row that was claimed: another task's, when that one is lost."""
    if row.key == work.subject.key:
        return work
    return replace(
        work,
        subject=replace(work.subject, key=row.key),
        ctx=replace(work.ctx, idempotency_key=row.idempotency_key),
    )


_keep: set[asyncio.Future[None]] = set()
"""Late settlements under way; a task nobody holds may be collected."""
