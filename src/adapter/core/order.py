"""The only place that knows the order of the stages a tool call goes through.

resolve, validate, identify, settled?, decide, ask, verify, claim, invoke, settle. Everything
before the claim may run many times; everything after it runs once per call key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adapter.core import programs
from adapter.core.answers import Answer
from adapter.core.approvals import ApprovalPort
from adapter.core.claiming import Asked
from adapter.core.confirming import Again, Confirmer
from adapter.core.errors import (
    ApprovalDenied,
    ApprovalExpired,
    ConfigurationError,
    ModelVisibleError,
    PolicyDenied,
)
from adapter.core.journal import Journal
from adapter.core.ruling import MISSING
from adapter.core.spec import ApprovalRule
from adapter.core.stages import Stages
from adapter.core.store import CallRow
from adapter.core.work import Work

__all__ = ["Order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Takes calls through the stages of one executor."""

    stages: Stages
    journal: Journal

    async def run(self, work: Work, port: ApprovalPort | None) -> Any:
        """Take a call that was resolved, validated and identified through the other stages.

        Args:
            work: The call.
            port: How people are asked, if anybody is.

        Returns:
            The host's result: of this run, or the recorded one.
        """
        try:
            gate = await self.stages.ruling.decided(work)
        except PolicyDenied as error:
            row = await self.journal.store.get(work.identity.key)
            if row is not None and row.status.settled:
                return await self.stages.past.earlier(work, row)
            await self.stages.past.refused(work, error)
            raise
        if gate.rule is not None:
            if port is not None or work.spec.approval is not None:
                return await self._gated(work, gate.rule, port)
            async with self.stages.past.once.alone(work):
                await self.stages.ruling.approved(work, gate.rule)
                return await self._free(work, gated=True)
        if port is None:
            return await self._free(work)
        token = port.enter()
        pauses = False
        try:
            result = await self._free(work)
        except Exception as error:
            pauses = work.invocation.is_pause(error)
            raise
        finally:
            port.leave(token)
            if pauses:  # what runs beside it would be found in progress by the next run
                await port.quiet(token)
        if isinstance(result, Asked):
            # The policy was loosened while the question was open: it stays one, asked anew.
            return await self._gated(work, result.rule, port)
        return result

    async def _free(self, work: Work, *, gated: bool = False) -> Any:
        """Run a call that needs nobody's approval, or has it already."""
        if work.spec.effects.read_only and not programs.is_journaled(work):
            claimer = self.stages.claimer
            asked = await claimer.asked(work)
            if asked is not None:
                return Asked(row=asked)
            known = MISSING if gated else self.stages.ruling.cached(work)
            if known is not MISSING:
                return known
            read = claimer.read_beside if work.invocation.kept else claimer.read
            return await read(work, keep=not gated)
        return await self.stages.claimer.free(work)

    async def _gated(self, work: Work, rule: ApprovalRule, port: ApprovalPort | None) -> Any:
        confirmer = self.stages.confirmer
        if confirmer is None or port is None:
            msg = f"{work.spec.name} needs an approval and there is no approval port."
            raise ConfigurationError(msg)
        confirmer.check_place(work)
        async with port.turn():
            if not await confirmer.gives_way(work):
                return await self._asked(work, rule, confirmer)
        async with port.turn():
            return await self._asked(work, rule, confirmer)

    async def _asked(self, work: Work, rule: ApprovalRule, confirmer: Confirmer) -> Any:
        ruling = self.stages.ruling
        try:
            said = await confirmer.ask(work, rule, (*ruling.charges(work), *ruling.refusals(work)))
            if isinstance(said, CallRow):
                return await self.stages.past.earlier(work, said)
            if isinstance(said, Again):
                return await self.stages.claimer.approved(work, None, said.arguments)
        except ModelVisibleError as error:
            if not isinstance(error, ApprovalExpired):
                await self.stages.past.refused(work, error)
            raise
        return await self._answered(work, said)

    async def _answered(self, work: Work, answer: Answer) -> Any:
        if answer.approves and answer.arguments is not None:
            return await self.stages.claimer.approved(work, answer, answer.arguments)
        try:
            closed, result = await self.stages.decider.close(work, answer)
        except ApprovalDenied:
            await self.stages.ruling.denied(work)
            raise
        if closed:
            return result
        return await self.stages.past.earlier(work, await self.journal.store.get(work.identity.key))
