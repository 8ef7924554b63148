"""`adapter audit prune`: planning what goes, thread by thread, and removing it under an anchor."""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from adapter.cli.auditfile import written_at
from adapter.cli.opening import audit_keys, server_store
from adapter.cli.trail import PAGE, Trail, all_threads, verify_thread
from adapter.core.audit import Auditor, Subject
from adapter.core.audit_heads import signed_anchor
from adapter.core.chain import anchor_message
from adapter.core.errors import ConfigurationError
from adapter.core.ids import new_id
from adapter.core.store import Anchor, Event, StoredEvent
from adapter.core.types import CallContext, Place

if TYPE_CHECKING:
    from adapter.core.keys import KeyRing
    from adapter.settings import AdapterSettings
    from adapter.stores import SqlStore

__all__ = ["run"]

DAY = 86_400_000
_RUN = "operator"
_OWN = frozenset({"pruned", "outcomes_removed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pruner:
    """One pruning.

    Attributes:
        before: Milliseconds since the epoch.
        now: Milliseconds since the epoch.
    """

    store: SqlStore
    keys: KeyRing
    before: int
    now: int
    by: str

    async def thread(self, thread_id: str, *, dry_run: bool) -> int | None:
        """Prune one thread; return how many links went, None when it was left alone as faulty."""
        cut = await self._cut(thread_id)
        if cut is None:
            return 0
        verdict = await verify_thread(self.store, thread_id, keys=self.keys)
        if verdict.faults:
            return None
        before = 0 if verdict.anchor is None else verdict.anchor.seq
        if dry_run:
            return cut.seq - before
        anchor = Anchor(
            thread_id=thread_id,
            seq=cut.seq,
            hash=cut.hash,
            removed=cut.seq - before,
            at=self.now,
            by=self.by,
        )
        signed = signed_anchor(anchor, self.keys.sign("audit", anchor_message(anchor)))
        facts = {"seq": anchor.seq, "hash": anchor.hash, "removed": anchor.removed}
        event = self._event("pruned", thread_id, f"{cut.seq}", before=self.before, **facts)
        return await self.store.prune(signed, event)

    async def outcomes(self, thread_id: str | None, *, dry_run: bool) -> int:
        """Remove recorded outcomes; return how many."""
        total = 0
        for name, count in await self.store.old_outcomes(self.before):
            if thread_id not in (None, name):
                continue
            if dry_run:
                total += count
                continue
            event = self._event("outcomes_removed", name, new_id(), before=self.before)
            total += await self.store.clear_outcomes(name, self.before, event)
        return total

    async def _cut(self, thread_id: str) -> StoredEvent | None:
        """Return the last link that may go: old, and before any turn that is not finished."""
        kept = await self.store.first_kept(thread_id)
        cut: StoredEvent | None = None
        worth = False
        async for event in _links(self.store, thread_id):
            at = written_at(event)
            if at is None or at >= self.before or (kept is not None and event.seq >= kept):
                break
            cut = event
            worth = worth or event.kind not in _OWN
        return cut if worth else None

    def _event(self, kind: str, thread_id: str, part: str, **data: Any) -> Event:
        ctx = CallContext(place=Place(thread_id=thread_id), run_id=_RUN, run_token=_RUN)
        subject = Subject(tool="", call_id="", key="retention")
        auditor = Auditor(clock=lambda: self.now)
        return auditor.event(kind, ctx, subject, part=part, by=self.by, **data)


async def _links(trail: Trail, thread_id: str) -> AsyncIterator[StoredEvent]:
    after = 0
    while page := await trail.events(thread_id, after=after, limit=PAGE):
        for event in page:
            yield event
        after = page[-1].seq


async def run(before: int | None, keep: float | None, thread: str | None, *, dry_run: bool) -> bool:
    """Prune and report.

    Args:
        before: Milliseconds since the epoch; what is older goes.
        keep: Days to keep, instead.
        thread: This thread only.
        dry_run: Change nothing.

    Returns:
        Whether no thread was left alone as faulty.

    Raises:
        ConfigurationError: No time given, or no key to sign the anchors with.
    """
    from adapter.settings import AdapterSettings

    settings = AdapterSettings.load()
    now = _now()
    moment = _moment(settings, before, keep, now)
    keys = await asyncio.to_thread(audit_keys, settings)
    if keys is None:
        raise ConfigurationError(
            "Pruning signs where each chain begins from now on, and there is no key file at "
            f"{settings.key_file} (ADAPTER_KEY_FILE): set it to the server's."
        )
    links = threads = 0
    faulty = []
    async with server_store(settings) as store:
        pruner = _Pruner(store=store, keys=keys, before=moment, now=now, by=_who())
        for name in [thread] if thread else await all_threads(store, {}):
            gone = await pruner.thread(name, dry_run=dry_run)
            if gone is None:
                faulty.append(name)
            elif gone:
                links, threads = links + gone, threads + 1
        outcomes = await pruner.outcomes(thread, dry_run=dry_run)
    verb = "would remove" if dry_run else "removed"
    typer.echo(f"{verb} {links} events of {threads} threads, and {outcomes} recorded outcomes")
    for name in faulty:
        typer.echo(f"left alone, because it does not verify: {name} (see `adapter audit verify`)")
    return not faulty


def _moment(settings: AdapterSettings, before: int | None, keep: float | None, now: int) -> int:
    if before is not None:
        return before
    days = settings.retention if keep is None else keep
    if days is None:
        raise ConfigurationError(
            "Say what to keep: --keep DAYS, --before DATE, or ADAPTER_RETENTION in days."
        )
    return now - round(days * DAY)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
