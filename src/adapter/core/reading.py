"""Running a read-only call: counted and audited with each run, and without a row where it can.

Where other calls of its task are waited for, the task runs again with each answer to them. There
the result is recorded, so that the call runs once; what cannot be is counted whenever it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from adapter.core.canonical import canonical_bytes, strict_loads
from adapter.core.errors import AdapterError, ToolFailed
from adapter.core.journal import Journal
from adapter.core.leases import Lease
from adapter.core.outcomes import error_outcome
from adapter.core.running import Runner
from adapter.core.scope import task_scope
from adapter.core.store import CallRow, Charge, Claimed
from adapter.core.types import CallStatus, JsonValue, running_call
from adapter.core.work import Work

__all__ = ["Reader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Runs read-only tools."""

    journal: Journal
    runner: Runner

    async def read(self, work: Work, charges: tuple[Charge, ...]) -> tuple[str | None, Any]:
        """Run a call without a row.

        Returns:
            The scope that was spent, if one was, and the host's result.
        """
        audit, ctx, subject = self.journal.audit, work.ctx, work.subject
        started = audit.event(
            "started", ctx, subject, part=ctx.run_token, once=True, arguments=work.arguments
        )
        turn = await self.journal.store.charge(
            charges, [started], unless=f"{started.thread_id}\n{started.id}"
        )
        if turn.exceeded is not None:
            return turn.exceeded, None
        try:
            result = await self._result(work)
        except AdapterError as error:
            await self.journal.record(
                "failed", ctx, subject, part=self.journal.ids(), error=error.kind
            )
            raise
        kind = "failed" if work.invocation.failed(result) else "succeeded"
        self.journal.store.post([audit.event(kind, ctx, subject, part=self.journal.ids())])
        return None, result

    def kept(self, row: CallRow) -> bool:
        """Tell whether a row has a result to give back: an error is no reason not to look again."""
        outcome = self.journal.outcome(row) if row.status is CallStatus.SUCCEEDED else None
        return isinstance(outcome, dict) and "result" in outcome

    async def recorded(
        self, work: Work, claim: Callable[[], Awaitable[Claimed]]
    ) -> tuple[Claimed, Any]:
        """Run a call and record its result, if it can be given back the same.

        Args:
            work: The call.
            claim: Makes the claim.

        Returns:
            What became of the claim, and the host's result if it was claimed.
        """
        claimed = await claim()
        if claimed.state != "claimed" or claimed.row is None:
            return claimed, None
        await work.invocation.recall(self.journal.outcome(claimed.row))
        number = claimed.row.fence
        settle = partial(self.runner.settle, work, number)
        keeper = Lease(self.journal, work.subject.key, number)
        try:
            result = await self._result(work)
        except AdapterError as error:
            await settle(CallStatus.FAILED, error_outcome(error), error=error.kind)
            raise
        except Exception as pause:  # the tool itself asks; what else there is, is an AdapterError
            await settle(CallStatus.SUSPENDED, work.invocation.told(pause))
            raise
        except asyncio.CancelledError:
            stopped = error_outcome(ToolFailed(f"{work.spec.name} was stopped with its run."))
            await settle(CallStatus.FAILED, stopped, reason="cancelled while running")
            raise
        finally:
            keeper.stop()
        failed = work.invocation.failed(result)
        await settle(CallStatus.FAILED if failed else CallStatus.SUCCEEDED, _whole(work, result))
        return claimed, result

    async def _result(self, work: Work) -> Any:
        """Run the tool.

        Raises:
            AdapterError: It failed.
            Exception: The host's control flow.
        """
        with_context, in_scope = running_call.set(work.ctx), task_scope.set(None)
        try:
            return await self.runner.attempts(work, work.arguments, None)
        except Exception as error:
            if work.invocation.is_pause(error):
                raise
            raise self.runner.shown(work, error, unknown=False) from error
        finally:
            running_call.reset(with_context)
            task_scope.reset(in_scope)


def _whole(work: Work, result: Any) -> JsonValue:
    """Return the record of a result that comes back from it as it is, or None."""
    try:
        made = work.invocation.record(result)
        back = work.invocation.replay(strict_loads(canonical_bytes(made)))
        same = bool(back == result) and repr(back) == repr(result)  # 1.0 is 1 for Python
    except Exception:  # noqa: BLE001 - a tool's own object may refuse to be compared
        return None
    return {"result": made} if same else None
