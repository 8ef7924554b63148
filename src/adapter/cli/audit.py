"""`adapter audit`: show, verify, export and prune the audit trail.

Works on the store at ADAPTER_DATABASE_URI directly. Only `prune` writes to it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adapter.core.errors import ConfigurationError

if TYPE_CHECKING:
    from adapter.core.store import StoredEvent

__all__ = ["audit"]

audit = typer.Typer(
    no_args_is_help=True,
    help="Show, verify, export and prune the audit trail in ADAPTER_DATABASE_URI.",
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
    """Show the newest audit events, oldest first.

    Of a long thread id the end is shown, after an ellipsis; `--json` has it whole.
    """
    with suppress(KeyboardInterrupt):
        asyncio.run(_tail(thread, count, follow=follow, as_json=as_json))


@audit.command()
def verify(
    thread: Thread = None,
    jsonl: Annotated[
        Path | None,
        typer.Option("--jsonl", help="Also this audit file or export; else ADAPTER_AUDIT_FILE."),
    ] = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="The file alone; needs no database.")
    ] = False,
    state: Annotated[
        bool | None,
        typer.Option(
            "--state/--no-state",
            help="Compare with the heads in the threads' state on the server at ADAPTER_URL; "
            "by default where that is set.",
        ),
    ] = None,
) -> None:
    """Check every link of each thread's chain, and the chain against every head there is.

    Finds edited, reordered, dropped, doubled and cut-off events, and heads that are missing, not
    signed, or signed with another key. Exit status 1 on any fault.
    """
    from adapter.cli.verifying import check

    if not asyncio.run(check(thread, jsonl, store=not no_store, state=state)):
        raise typer.Exit(1)


@audit.command()
def export(
    thread: Thread = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Leave out what is older: 2026-11-01[T12:00Z].")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A new file; else standard output.")
    ] = None,
) -> None:
    """Write the chains as JSON lines that `verify --jsonl FILE --no-store` can check anywhere."""
    moment = None if since is None else _moment(since, "--since")
    count = asyncio.run(_export(thread, moment, out))
    typer.echo(f"{_plural(count, 'event')} exported", err=True)


@audit.command()
def prune(
    before: Annotated[
        str | None, typer.Option("--before", help="What is older than this: 2026-11-01.")
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option("--keep", min=0, help="Days to keep; else ADAPTER_RETENTION."),
    ] = None,
    thread: Thread = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Remove old events and recorded outcomes; what is left can still be verified.

    A chain that is faulty is left alone, as are turns with calls that are open or in doubt.
    """
    from adapter.cli.pruning import run

    if before is not None and keep is not None:
        raise ConfigurationError("Give --before or --keep, not both.")
    moment = None if before is None else _moment(before, "--before")
    if not asyncio.run(run(moment, keep, thread, dry_run=dry_run)):
        raise typer.Exit(1)


async def _tail(thread: str | None, count: int, *, follow: bool, as_json: bool) -> None:
    from adapter.cli.opening import server_store
    from adapter.cli.trail import last_events, new_events
    from adapter.settings import AdapterSettings

    async with server_store(AdapterSettings.load()) as trail:
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


async def _export(thread: str | None, since: int | None, out: Path | None) -> int:
    from adapter.cli.auditfile import export_thread, written
    from adapter.cli.opening import server_store
    from adapter.cli.trail import all_threads
    from adapter.settings import AdapterSettings

    async with server_store(AdapterSettings.load()) as trail:
        threads = [thread] if thread else await all_threads(trail, {})
        with written(out, sys.stdout.buffer) as file:
            return sum([await export_thread(trail, name, since, file) for name in threads])


def _moment(text: str, option: str) -> int:
    """Return a date and time as milliseconds since the epoch; without an offset it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{option} takes a date such as 2026-11-01 or 2026-11-01T12:00Z."
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return round(found.timestamp() * 1000)


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


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
