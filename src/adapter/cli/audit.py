"""`adapter audit`: show the audit trail, and verify its chains.

Reads the store at ADAPTER_DATABASE_URI directly; never writes an event.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adapter.core.errors import ConfigurationError

if TYPE_CHECKING:
    from adapter.cli.trail import Trail, Verdict
    from adapter.core.store import StoredEvent

__all__ = ["audit"]

audit = typer.Typer(
    no_args_is_help=True, help="Show and verify the audit trail in ADAPTER_DATABASE_URI."
)

_nap = asyncio.sleep

POLL = 1.0
"""Seconds between two looks of ``tail --follow``."""

Thread = Annotated[
    str | None, typer.Option("--thread", help="This thread only; else all.", metavar="ID")
]


@audit.command()
def tail(
    thread: Thread = None,
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many events.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new events until interrupted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Show the newest audit events, oldest first."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_tail(thread, count, follow=follow, as_json=as_json))


@audit.command()
def verify(thread: Thread = None) -> None:
    """Check every link of each thread's hash chain, and the chain against its head.

    Finds edited, reordered, dropped, doubled and cut-off events. Heads are not signed: whoever can
    rewrite the whole chain and its head is not found out.
    """
    verdicts = asyncio.run(_verify(thread))
    bad = [verdict for verdict in verdicts if verdict.faults]
    if thread is not None and not verdicts[0].count and not bad:
        raise ConfigurationError(
            f"The store has no event of thread {thread}: check the id and ADAPTER_DATABASE_URI."
        )
    events = sum(verdict.count for verdict in verdicts)
    faults = sum(len(verdict.faults) for verdict in bad)
    size = f"{_plural(len(verdicts), 'thread')}, {_plural(events, 'event')}"
    if bad:
        typer.echo(f"FAILED: {size}, {_plural(faults, 'fault')} in {_plural(len(bad), 'thread')}")
        raise typer.Exit(1)
    typer.echo(f"verified: {size}, no fault")


async def _tail(thread: str | None, count: int, *, follow: bool, as_json: bool) -> None:
    from adapter.cli.trail import last_events, new_events

    async with _store() as trail:
        seen = {head.thread_id: head.seq for head in await trail.heads(thread)}
        found = await last_events(trail, thread, count)
        found.sort(key=lambda event: (_body(event).get("at") or 0, event.thread_id, event.seq))
        newest = found[-count:] if count else []
        _print(newest, as_json=as_json)
        for event in found:
            seen[event.thread_id] = max(seen.get(event.thread_id, 0), event.seq)
        while follow:
            await _nap(POLL)
            _print([event async for event in new_events(trail, thread, seen)], as_json=as_json)


async def _verify(thread: str | None) -> list[Verdict]:
    from adapter.cli.trail import verify_thread

    verdicts = []
    async with _store() as trail:
        threads = [thread] if thread else [head.thread_id for head in await trail.heads()]
        for thread_id in threads:
            verdict = await verify_thread(trail, thread_id)
            verdicts.append(verdict)
            _print_verdict(verdict)
    return verdicts


def _print_verdict(verdict: Verdict) -> None:
    from adapter.cli.show import visible

    name = visible(verdict.thread_id)
    if not verdict.faults:
        if verdict.head is not None:
            head = f"head {verdict.head.hash[:16]}…"
            typer.echo(f"{name}  ok: {_plural(verdict.count, 'event')}, {head}")
        return
    typer.echo(f"{name}  FAILED: {_plural(len(verdict.faults), 'fault')}")
    for fault in verdict.faults:
        typer.echo(f"  {fault.kind}: {fault.message}")


def _print(events: Iterable[StoredEvent], *, as_json: bool) -> None:
    from adapter.cli.show import event_line

    for event in events:
        body = _body(event)
        if as_json:
            row = {"thread_id": event.thread_id, "seq": event.seq, "hash": event.hash}
            typer.echo(json.dumps({**row, "event": body}))
        else:
            typer.echo(event_line(event.thread_id, event.seq, body))


def _body(event: StoredEvent) -> dict[str, Any]:
    """Return the event of a line; what cannot be read is shown as such, never as a crash."""
    try:
        body = json.loads(event.line)["body"]
    except (ValueError, KeyError, TypeError):
        body = None
    return body if isinstance(body, dict) else {"kind": "unreadable"}


@asynccontextmanager
async def _store() -> AsyncIterator[Trail]:
    from adapter.settings import AdapterSettings
    from adapter.stores import open_store

    settings = AdapterSettings.load()
    _refuse_absent(settings.database_uri)
    store = open_store(settings.database_uri, sqlite_sync=settings.sqlite_sync)
    try:
        yield store
    finally:
        await store.aclose()


def _refuse_absent(uri: str) -> None:
    """Refuse a SQLite file that does not exist: opening it would make an empty, innocent one."""
    scheme, separator, path = uri.partition(":///")
    path = path.partition("?")[0]
    if scheme.startswith("sqlite") and separator and path and not path.startswith("file:"):
        file = Path(path)
        if not file.exists():
            raise ConfigurationError(
                f"There is no database at {file} (ADAPTER_DATABASE_URI): run this where the server "
                "runs, or set ADAPTER_DATABASE_URI or ADAPTER_DATA_DIR to the server's."
            )


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
