"""`adapter calls`: which calls nobody saw the end of, and saying what became of one.

Works on the store at ADAPTER_DATABASE_URI, where the server runs. What a person says is audited,
and for gated tools signed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adapter.core.errors import ToolUsageError

if TYPE_CHECKING:
    from adapter.core.keys import KeyRing
    from adapter.core.operating import Operator, Resolution
    from adapter.core.store import CallRow
    from adapter.settings import AdapterSettings

__all__ = ["calls", "open_operator"]

calls = typer.Typer(
    no_args_is_help=True,
    help="Show calls whose outcome is unknown in ADAPTER_DATABASE_URI, and resolve one.",
)

_LIMIT = 1_000
_SHOWN = 16


@calls.callback()
def _group() -> None:
    """Calls whose outcome is unknown."""


@calls.command("list")
def list_(
    in_doubt: Annotated[
        bool,
        typer.Option("--in-doubt", help="Only calls in doubt; else open questions too."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List calls in doubt, and those that wait for a decision, with what is known of them."""
    found = asyncio.run(_list(in_doubt=in_doubt))
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for call in found:
        _print(call)
    doubts = sum(call["status"] == "in_doubt" for call in found)
    typer.echo(f"{doubts} in doubt" + ("" if in_doubt else f", {len(found) - doubts} waiting"))


@calls.command()
def resolve(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="The call's key, or a beginning that is unique.")
    ],
    succeeded: Annotated[
        str | None,
        typer.Option(
            "--succeeded", metavar="RESULT", help="It had its effect; the thread gets this result."
        ),
    ] = None,
    failed: Annotated[
        str | None,
        typer.Option("--failed", metavar="WHY", help="It had no effect; the model reads why."),
    ] = None,
    retry: Annotated[
        bool,
        typer.Option("--retry", help="It had no effect; the thread's next run runs it again."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask back.")] = False,
) -> None:
    """Say what became of a call in doubt, after looking at its effect yourself.

    Then continue its thread with a run without input.
    """
    if [succeeded is not None, failed is not None, retry].count(True) != 1:
        raise ToolUsageError("Give exactly one of --succeeded RESULT, --failed WHY and --retry.")
    if failed is not None and not failed.strip():
        raise ToolUsageError("--failed needs a reason: the model reads it.")
    asyncio.run(_resolve(key, succeeded, failed, yes=yes))


async def _list(*, in_doubt: bool) -> list[dict[str, Any]]:
    async with open_operator() as (operator, _):
        found = [await _known(operator, row) for row in await operator.doubtful(_LIMIT)]
        if not in_doubt:
            waiting = await operator.journal.store.requested(limit=_LIMIT)
            found += [await _known(operator, row) for row in waiting]
        return found


async def _resolve(prefix: str, succeeded: str | None, failed: str | None, *, yes: bool) -> None:
    from adapter.cli.asking import confirm
    from adapter.core.operating import sign_statement

    async with open_operator() as (operator, settings):
        row = await operator.find(prefix)
        own, by = await asyncio.to_thread(_signer, settings, operator.keys)
        resolution = _resolution(row, succeeded, failed, by)
        statement = signature = None
        if row.request is not None:
            statement = operator.statement(row, resolution)
            signature = sign_statement(own, statement)
        _print(await _known(operator, row))
        if not yes:
            confirm(_question(resolution))
        done = await operator.resolve(row, resolution, statement, signature)
    typer.echo(
        f"{done.tool} {done.tool_call_id} is {done.status} now, as {by} says. Continue thread "
        f"{done.thread_id} with a run without input."
    )


def _resolution(row: CallRow, succeeded: str | None, failed: str | None, by: str) -> Resolution:
    from adapter.core.operating import Resolution as Made

    if failed is not None:
        return Made.failed(failed, by=by)
    if succeeded is None:
        return Made(verdict="retry", by=by)
    # By name: only this path of the command line needs LangChain.
    from importlib import import_module

    record = import_module("adapter.langgraph.results").stated_record
    outcome = record(succeeded, row.tool_call_id, row.tool)
    return Made(verdict="succeeded", by=by, outcome=outcome)


def _question(resolution: Resolution) -> str:
    said = {
        "succeeded": "Record that this call had its effect",
        "failed": "Record that this call had no effect",
        "retry": "Let this call run again (a second effect, if it had one)",
    }[resolution.verdict]
    return f"{said}, as {resolution.by}?"


def _signer(settings: AdapterSettings, server: KeyRing) -> tuple[KeyRing, str]:
    """Return who says it, and the ring that signs in their name."""
    if settings.reviewer_key is None:
        return server, settings.reviewer
    from adapter.reviewerfile import load_reviewer

    secret = settings.reviewer_passphrase
    own = load_reviewer(
        settings.reviewer_key, None if secret is None else secret.get_secret_value()
    )
    return own.keys, own.name


async def _known(operator: Operator, row: CallRow) -> dict[str, Any]:
    from adapter.core.signing import to_iso

    return {
        "key": row.key,
        # a claim listed here has run out, noted or not
        "status": "in_doubt" if row.status == "claimed" else str(row.status),
        "tool": row.tool,
        "thread_id": row.thread_id,
        "call_id": row.tool_call_id,
        "arguments": await operator.arguments(row),
        "gated": row.request is not None,
        "requester": row.requester,
        "since": to_iso(row.lease_until or row.updated_at),
        "owner": row.owner,
        "fence": row.fence,
        "idempotency_key": row.idempotency_key,
        "run_id": row.run_id,
    }


def _print(call: dict[str, Any]) -> None:
    from adapter.cli.show import as_json, visible

    doubtful = call["status"] == "in_doubt"
    typer.echo(f"{call['key'][:_SHOWN]}  {visible(call['tool'])}  {call['status']}")
    lines: Sequence[tuple[str, object]] = [
        ("arguments", "unknown" if call["arguments"] is None else as_json(call["arguments"])),
        ("thread", call["thread_id"]),
        ("call", call["call_id"]),
        ("requester", call["requester"]),
        ("since", call["since"]),
        *([("owner", f"{call['owner']}, claim {call['fence']}")] if doubtful else []),
        ("idempotency key", call["idempotency_key"]),
    ]
    for name, value in lines:
        if value not in (None, ""):
            typer.echo(f"  {name:<16}{visible(value)}")


@asynccontextmanager
async def open_operator() -> AsyncIterator[tuple[Operator, AdapterSettings]]:
    """Open the server's store and keys for an operator's command.

    Without a key file nothing can be signed or sealed, and so nothing written: it only shows.

    Raises:
        ConfigurationError: No database there, or a key file that cannot be used.
    """
    from adapter.cli.opening import audit_keys, server_store
    from adapter.core.audit import Auditor
    from adapter.core.ids import new_id
    from adapter.core.journal import Journal
    from adapter.core.keys import KeyRing
    from adapter.core.operating import Operator as Made
    from adapter.core.sealing import Sealer
    from adapter.settings import AdapterSettings

    settings = AdapterSettings.load()
    keys = await asyncio.to_thread(audit_keys, settings) or KeyRing(())
    async with server_store(settings) as store:
        journal = Journal(
            store=store,
            audit=Auditor(clock=_now),
            owner="operator",
            lease=settings.lease,
            ids=new_id,
            sealer=Sealer(keys=lambda: keys),
        )
        yield Made(journal=journal, keys=keys), settings


def _now() -> int:
    return time.time_ns() // 1_000_000
