"""The call's durable life: identify, ask, claim, settle, replay, doubt.

Turns stages into store transactions with their audit events. It decides nothing about people or
policies; it makes sure that whatever was decided is used once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.core.audit import Auditor, Subject
from adapter.core.canonical import canonical_bytes, digest
from adapter.core.keys import Key
from adapter.core.outcomes import error_outcome, raise_recorded, unusable
from adapter.core.sealing import Sealer
from adapter.core.spec import ToolSpec
from adapter.core.store import (
    CallRow,
    Charge,
    Claim,
    Claimed,
    Close,
    Event,
    NewCall,
    Resolve,
    Settle,
    Store,
)
from adapter.core.types import CallContext, CallStatus, JsonObject, JsonValue, ToolCall

__all__ = [
    "Identity",
    "Journal",
    "arguments_digest",
    "error_outcome",
    "identify",
    "raise_recorded",
    "unusable",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Names of one call, computed once from the model's arguments and never changed by an edit.

    Attributes:
        key: The call key.
        arguments_digest: Digest of the model's arguments.
        idempotency_key: Handed to the tool; names its one effect.
    """

    key: str
    arguments_digest: str
    idempotency_key: str


def identify(
    call: ToolCall,
    ctx: CallContext,
    secret: Key | None = None,
    *,
    once: JsonObject | None = None,
) -> Identity:
    """Return the names of a call.

    Args:
        call: As the model wrote it.
        ctx: Where it stands.
        secret: Key for the digest where arguments are masked, so that nobody can guess a masked
            value from it.
        once: Canonical arguments of a tool that runs once in a run: all calls with them have one
            key there. A run is the user's turn, however often it is resumed; where there are no
            turns, the thread.
    """
    arguments = arguments_digest(call.arguments, secret)
    place = ctx.place
    if once is None:
        facts = [place.thread_id, place.checkpoint_ns, place.task_id, call.id, call.name, arguments]
        key = digest("call-key/v1", facts)
    else:
        same = arguments_digest(once, secret)
        key = digest("once-key/v1", [place.thread_id, place.turn_id, call.name, same])
    return Identity(
        key=key,
        arguments_digest=arguments,
        idempotency_key=digest("idempotency/v1", key),
    )


def arguments_digest(arguments: JsonObject, secret: Key | None) -> str:
    """Return the digest of arguments, keyed where some of them are masked."""
    if secret is None:
        return digest("arguments/v1", arguments)
    return secret.mac(canonical_bytes(arguments))


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Store transactions of one executor.

    Attributes:
        owner: Name of this worker in its claims.
        lease: Seconds a claim is valid unless renewed.
        ids: Source of unique text.
        sealer: Seals outcomes at rest; None keeps them plain (no keys, no secrets to keep).
    """

    store: Store
    audit: Auditor
    owner: str
    lease: float
    ids: Callable[[], str]
    sealer: Sealer | None = None

    def sealed(self, subject: Subject, ctx: CallContext, outcome: JsonValue) -> JsonValue:
        """Return the form an outcome is stored in."""
        if self.sealer is None:
            return outcome
        return self.sealer.seal(outcome, subject.key, ctx.thread_id)

    def outcome(self, row: CallRow) -> JsonValue:
        """Return a row's recorded outcome.

        Raises:
            StoreUnavailable: It does not open under these keys, or belongs to another row.
        """
        if self.sealer is None:
            return row.outcome
        return self.sealer.open(row.outcome, row.key, row.thread_id)

    def subject(self, call: ToolCall, identity: Identity, spec: ToolSpec | None) -> Subject:
        """Return what the events of a call are about."""
        return Subject(
            tool=call.name,
            call_id=call.id,
            key=identity.key,
            arguments_digest=identity.arguments_digest,
            spec=spec,
        )

    def new_call(
        self, call: ToolCall, ctx: CallContext, identity: Identity, **fields: Any
    ) -> NewCall:
        """Return the row of a call that has none."""
        return NewCall(
            key=identity.key,
            thread_id=ctx.thread_id,
            checkpoint_ns=ctx.place.checkpoint_ns,
            task_id=ctx.place.task_id,
            turn_id=ctx.place.turn_id,
            message_id=call.message_id,
            tool_call_id=call.id,
            tool=call.name,
            arguments_digest=identity.arguments_digest,
            idempotency_key=identity.idempotency_key,
            run_id=ctx.run_token,
            requester=ctx.user,
            **fields,
        )

    async def claim(
        self,
        ctx: CallContext,
        subject: Subject,
        *,
        arguments: JsonObject,
        charges: Sequence[Charge],
        repeatable: bool,
        events: Sequence[Event] = (),
        **fields: Any,
    ) -> Claimed:
        """Claim a call, reserve its budget and write its intent, in one transaction."""
        started = self.audit.event("started", ctx, subject, part=self.ids(), arguments=arguments)
        return await self.store.claim(
            Claim(
                key=subject.key,
                run_id=ctx.run_token,
                owner=self.owner,
                lease=self.lease,
                repeatable=repeatable,
                executed_digest=digest("executed/v1", arguments),
                charges=tuple(charges),
                events=(*events, started),
                **fields,
            )
        )

    async def settle(
        self,
        ctx: CallContext,
        subject: Subject,
        fence: int,
        status: CallStatus,
        outcome: JsonValue,
        **data: Any,
    ) -> bool:
        """Record how a claimed call ended; a stale fence records nothing."""
        event = self.audit.event(str(status), ctx, subject, part=f"{fence}:{self.ids()}", **data)
        return await self.store.settle(
            Settle(
                key=subject.key,
                fence=fence,
                status=status,
                outcome=self.sealed(subject, ctx, outcome),
                events=(event,),
            )
        )

    async def close(
        self,
        ctx: CallContext,
        subject: Subject,
        status: CallStatus,
        outcome: JsonValue,
        *,
        events: Sequence[Event] = (),
        **fields: Any,
    ) -> tuple[bool, CallRow | None]:
        """End a question that leads to no run."""
        return await self.store.close_question(
            Close(
                key=subject.key,
                status=status,
                run_id=ctx.run_token,
                outcome=self.sealed(subject, ctx, outcome),
                events=tuple(events),
                **fields,
            )
        )

    def ran_out(self, ctx: CallContext, subject: Subject, row: CallRow) -> Event:
        """Return the event of a claim whose lease ran out: one, whoever comes upon it."""
        return self.audit.event(
            "in_doubt",
            ctx,
            subject,
            part=str(row.fence),
            once=True,
            reason="the lease ran out",
            owner=row.owner,
        )

    async def overtake(self, ctx: CallContext, row: CallRow) -> None:
        """End a question that the conversation went past: nobody can answer it any more."""
        subject = Subject(
            tool=row.tool,
            call_id=row.tool_call_id,
            key=row.key,
            arguments_digest=row.arguments_digest,
        )
        event = self.audit.event(
            "void", ctx, subject, once=True, reason="overtaken by a later message"
        )
        await self.close(ctx, subject, CallStatus.VOID, None, events=[event])

    async def doubt(
        self, ctx: CallContext, subject: Subject, row: CallRow
    ) -> tuple[bool, CallRow | None]:
        """Note that a claim's lease ran out; returns whether that was news, and the row."""
        return await self.store.resolve(
            Resolve(
                key=row.key,
                fence=row.fence,
                status=CallStatus.IN_DOUBT,
                events=(self.ran_out(ctx, subject, row),),
            )
        )

    async def record(self, kind: str, ctx: CallContext, subject: Subject, **data: Any) -> bool:
        """Append one event; returns whether it was new."""
        return await self.store.append([self.audit.event(kind, ctx, subject, **data)]) > 0
