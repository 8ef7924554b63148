"""Both kinds of requests: those that wait in a thread's state, and those that wait in the store.

The first are answered over the server, which resumes the thread. The second (DeferredApproval) are
decided in the store; their thread goes on with a run without input.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from adapter.core.errors import ConfigurationError, StoreUnavailable, ToolUsageError

if TYPE_CHECKING:
    from adapter.client import PendingApproval, SyncApprovalClient
    from adapter.core.store import CallRow
    from adapter.settings import AdapterSettings

__all__ = ["Request", "choose", "gather", "record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that waits for a decision.

    Attributes:
        approval: What is shown and signed.
        row: Where it waits in the store; None where the thread's state holds it.
    """

    approval: PendingApproval
    row: CallRow | None = None

    @property
    def votes(self) -> tuple[int, list[str]]:
        """How many people it needs, and who has decided so far."""
        if self.row is not None:
            from adapter.core.recording import votes_in

            return self.row.quorum_need, votes_in(self.row)
        quorum = self.approval.request.get("quorum")
        said = quorum if isinstance(quorum, dict) else {}
        need, by = said.get("need"), said.get("by")
        return (
            need if isinstance(need, int) else 1,
            [str(name) for name in by] if isinstance(by, list) else [],
        )


def gather(
    open_desk: Callable[[], SyncApprovalClient], thread: str | None, now: int, *, stored: bool
) -> list[Request]:
    """Return the requests of both kinds, those of threads first.

    Args:
        open_desk: Makes the client of the server.
        thread: Only of this thread.
        now: Milliseconds since the epoch.
        stored: Look into the store only.

    Raises:
        AdapterError: Neither the server nor the store has anything to say, or the one asked for.
    """
    kept, missing = _stored(thread, now, required=stored)
    if stored:
        return kept
    try:
        with open_desk() as desk:
            found = desk.pending(thread)
    except (ConfigurationError, ToolUsageError) as error:
        if not kept:
            raise
        typer.echo(f"adapter: only the store is looked into: {error.message}", err=True)
        return kept
    if missing:
        typer.echo(f"adapter: the store is not looked into: {missing}", err=True)
    # A graph may also show a request that is decided in the store.
    shown = {request.approval.id for request in kept}
    own = [one for one in found if one.request.get("approval_id") not in shown]
    return [*(Request(approval=one) for one in own), *kept]


def choose(found: Sequence[Request], prefix: str) -> Request:
    """Return the one request whose id begins like this.

    Raises:
        ToolUsageError: None, or several; or one that is decided in a store that is not here.
    """
    matching = [one for one in found if one.approval.id.startswith(prefix)]
    if not matching:
        raise ToolUsageError(
            f"No pending request has an id that begins with {prefix!r}: see `adapter approvals "
            "list`. It may have been answered already."
        )
    if len(matching) > 1:
        threads = ", ".join(sorted({one.approval.thread_id for one in matching}))
        raise ToolUsageError(
            f"{len(matching)} pending requests have an id that begins with {prefix!r}: give more "
            f"of it, or --thread (a copied thread has the same ids). Threads: {threads}."
        )
    (chosen,) = matching
    if chosen.row is None and chosen.approval.request.get("approval_id") is not None:
        raise ToolUsageError(
            "This request is decided in the server's store, and an answer to its thread decides "
            "nothing: run this where the server runs, or set ADAPTER_DATABASE_URI to its store."
        )
    return chosen


def record(row: CallRow, signed: dict[str, Any], now: int) -> CallRow:
    """Put a signed answer beside its request in the store; returns the row after it.

    Raises:
        AdapterError: It would be refused, or came too late.
    """
    from adapter.settings import AdapterSettings

    return asyncio.run(_record(AdapterSettings.load(), row, signed, now))


async def _record(
    settings: AdapterSettings, row: CallRow, signed: dict[str, Any], now: int
) -> CallRow:
    from adapter.cli.opening import audit_keys, server_store
    from adapter.core.recording import record_answer

    judge = await asyncio.to_thread(audit_keys, settings)
    async with server_store(settings) as store:
        return await record_answer(store, row, signed, now=now, judge=judge)


def _stored(thread: str | None, now: int, *, required: bool) -> tuple[list[Request], str]:
    """Return what waits in the store, and why it could not be looked into."""
    from adapter.cli.opening import is_absent
    from adapter.settings import AdapterSettings

    try:
        settings = AdapterSettings.load()
        if not required and is_absent(settings.database_uri):
            return [], ""
        return asyncio.run(_waiting(settings, thread, now)), ""
    except (ConfigurationError, StoreUnavailable) as error:
        if required:
            raise
        return [], error.message


async def _waiting(settings: AdapterSettings, thread: str | None, now: int) -> list[Request]:
    from adapter.cli.opening import server_store
    from adapter.client import PendingApproval
    from adapter.core.recording import LISTED, sealed_request, waiting_in

    async with server_store(settings) as store:
        rows = waiting_in(await store.requested(thread, LISTED))
    return [
        Request(
            approval=PendingApproval(
                thread_id=row.thread_id,
                assistant_id="",
                id=row.approval_id or row.key,
                value=sealed_request(row),
                expired=row.expires_at is not None and row.expires_at <= now,
            ),
            row=row,
        )
        for row in rows
    ]
