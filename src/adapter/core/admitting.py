"""The first stages of a call: resolve, validate, identify. Calls that end there are audited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from adapter.core.approvals import ApprovalPort
from adapter.core.audit import Subject
from adapter.core.errors import ModelVisibleError, UnknownTool
from adapter.core.invoke import Invocation
from adapter.core.journal import Journal, identify
from adapter.core.spec import Registry
from adapter.core.types import CallContext, JsonObject, ToolCall
from adapter.core.validation import Admission, Batch, admit
from adapter.core.work import Work

__all__ = ["Admitter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitter:
    """Makes a call the executor's work, or refuses it.

    Attributes:
        port: How people are asked, if anybody is; its keys digest masked arguments.
        strip: Whether undeclared arguments are stripped.
        unnamed: Tools the policy refuses outright: no message names them.
    """

    registry: Registry
    journal: Journal
    port: ApprovalPort | None
    strip: bool
    unnamed: frozenset[str] = frozenset()

    def admit(self, batch: Batch) -> Admission:
        """Check a whole batch: with any structural fault, no call of it runs."""
        return admit(batch, self.registry, strip=self.strip, unnamed=self.unnamed)

    async def work(
        self,
        call: ToolCall,
        ctx: CallContext,
        invocation: Invocation | None,
        arguments: JsonObject | None,
    ) -> Work:
        """Return a call with its declaration, canonical arguments and identity.

        Args:
            call: As the model, or the program, wrote it.
            ctx: Where it stands.
            invocation: The way to the tool.
            arguments: Canonical arguments, when admission computed them already.

        Raises:
            UnknownTool: There is no such tool, or no way to it.
            ToolArgsInvalid: Names each fault.
        """
        spec = self.registry.get(call.name)
        secret = None
        if spec is not None and spec.masks and self.port is not None:
            secret = self.port.keys.oldest("digest")
        try:
            if spec is None or arguments is None:
                admission = self.admit(Batch(calls=(call,)))
                if call.id in admission.faults:
                    raise admission.faults[call.id]
                arguments = admission.arguments[call.id]
        except ModelVisibleError as error:
            await self.refuse({call.id: error}, {call.id: call.name}, ctx)
            raise
        if spec is None or invocation is None:
            raise UnknownTool(call.name)
        identity = identify(call, ctx, secret, once=arguments if spec.once_per_run else None)
        ctx = ctx.of_call(call.id, identity.idempotency_key)
        return Work(
            spec=spec,
            call=call,
            ctx=ctx,
            identity=identity,
            subject=self.journal.subject(call, identity, spec),
            arguments=arguments,
            invocation=invocation,
        )

    async def refuse(
        self, calls: Mapping[str, ModelVisibleError], names: Mapping[str, str], ctx: CallContext
    ) -> None:
        """Audit the refusal of calls that did not get as far as their own stages.

        Args:
            calls: Error per call id.
            names: Tool name per call id.
            ctx: Where.
        """
        events = [
            self.journal.audit.event(
                "refused",
                ctx,
                Subject(tool=names.get(call_id, ""), call_id=call_id, key=call_id),
                part=ctx.metadata.get("message_id", ""),
                once=True,
                error=error.kind,
                reason=error.message,
            )
            for call_id, error in calls.items()
        ]
        await self.journal.store.append(events)
