"""`adapter approvals`: list requests, decide one, and say what the answer led to.

Talks to the server over HTTP through the reviewer's client; only ``expire`` opens the store.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adapter.core.approvals import ApprovalDecision
from adapter.core.canonical import strict_loads
from adapter.core.errors import ToolUsageError

if TYPE_CHECKING:
    from adapter.client import PendingApproval, SyncApprovalClient
    from adapter.core.store import CallRow

__all__ = ["approvals"]

approvals = typer.Typer(
    no_args_is_help=True,
    help="List the requests that wait for a decision on the server at ADAPTER_URL, and decide.",
)

Id = Annotated[str, typer.Argument(help="The request's id, or a beginning of it that is unique.")]
Thread = Annotated[
    str | None, typer.Option("--thread", help="Look in this thread only.", metavar="ID")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask back.")]


@approvals.command("list")
def list_(
    thread: Thread = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List the requests that wait for a decision."""
    with _desk() as desk:
        found = desk.pending(thread)
    if as_json:
        _print_json(found)
        return
    from rich.console import Console

    from adapter.cli.show import request_panel

    console = Console()
    for approval in found:
        console.print(request_panel(approval, _now()))
    count = "no request waits" if not found else f"{len(found)} waiting"
    typer.echo(f"{count} for a decision" if not found else count)


@approvals.command()
def approve(
    id_: Id,
    thread: Thread = None,
    args: Annotated[
        str | None,
        typer.Option("--args", help="Run with these arguments instead: the whole JSON object."),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for the audit.")] = None,
    yes: Yes = False,
) -> None:
    """Let a call run, as asked or with edited arguments."""
    edited = _arguments(args)
    decision = ApprovalDecision(
        kind="approve" if edited is None else "edit", edited_args=edited, reason=reason
    )
    _decide(id_, thread, decision, yes=yes)


@approvals.command()
def reject(
    id_: Id,
    reason: Annotated[str, typer.Option("--reason", help="Why; the model reads it.")],
    thread: Thread = None,
    yes: Yes = False,
) -> None:
    """Refuse a call; the model reads the reason."""
    _decide(id_, thread, ApprovalDecision(kind="reject", reason=reason), yes=yes)


@approvals.command()
def respond(
    id_: Id,
    text: Annotated[str, typer.Option("--text", help="What the model reads as the result.")],
    thread: Thread = None,
    yes: Yes = False,
) -> None:
    """Answer in the tool's place; the tool does not run."""
    _decide(id_, thread, ApprovalDecision(kind="respond", response=text), yes=yes)


@approvals.command()
def expire(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array of keys.")] = False,
) -> None:
    """Close the requests nobody answered in time, in the store at ADAPTER_DATABASE_URI.

    Each thread gets the expiry at its next run; without this command, too.
    """
    import asyncio
    import json

    closed = asyncio.run(_expire())
    if as_json:
        typer.echo(json.dumps([row.key for row in closed]))
        return
    from adapter.cli.show import visible

    for row in closed:
        typer.echo(visible(f"expired: {row.tool} {row.tool_call_id} in thread {row.thread_id}"))
    typer.echo(f"{len(closed)} expired")


async def _expire() -> Sequence[CallRow]:
    from adapter.cli.calls import open_operator

    async with open_operator() as (operator, _):
        return await operator.expire()


def _decide(prefix: str, thread: str | None, decision: ApprovalDecision, *, yes: bool) -> None:
    from rich.console import Console

    from adapter.cli.show import request_panel

    with _desk() as desk:
        approval = _choose(desk.pending(thread), prefix)
        # Before anybody is asked to believe what is shown: the seal is checked by signing.
        desk.sign(approval, decision)
        if decision.edited_args is not None:
            _check_edit(approval, decision.edited_args)
        Console().print(request_panel(approval, _now(), runs=decision.edited_args))
        if not yes:
            typer.confirm(f"Sign this decision: {decision.kind}?", abort=True)
        value = desk.sign(approval, decision)
        result = desk.resume(approval.thread_id, {approval.id: value})
        code = _report(desk, approval, decision, result)
    raise typer.Exit(code)


def _check_edit(approval: PendingApproval, edited: dict[str, Any]) -> None:
    """Say what is wrong with edited arguments: the server's refusal never does."""
    from adapter.client.editing import faults_of

    if faults := faults_of(approval.request, edited):
        raise ToolUsageError(
            f"--args does not fit {approval.request.get('tool')}: {'; '.join(faults)}. Nothing was "
            "signed; give every argument, as the request shows them."
        )


def _report(
    desk: SyncApprovalClient, approval: PendingApproval, decision: ApprovalDecision, result: Any
) -> int:
    """Say what the answer led to; return the exit code."""
    from adapter.cli.show import visible

    effect = desk.effect(approval, result)
    said = visible(effect.message)
    # A rejected call ends with an error result too; an expired one is another matter.
    rejected = decision.kind == "reject" and not said.startswith("ApprovalExpired")
    if effect.kind == "refused":
        typer.echo(f"adapter: the answer was refused, the request is still open: {said}", err=True)
        return 1
    if effect.kind == "pending":
        typer.echo("The answer was taken; the request still waits for more.")
        return 0
    if effect.kind == "error" and not rejected:
        typer.echo(f"adapter: the call ended with an error: {said}", err=True)
        return 1
    if effect.kind == "unknown":
        typer.echo(
            "adapter: the request is closed, but the thread shows no result of the call"
            + (f": {said}" if said else ".")
            + " See `adapter audit tail`.",
            err=True,
        )
        return 1
    word = {"reject": "Rejected", "respond": "Answered in the tool's place"}.get(
        decision.kind or "", "The call ran"
    )
    typer.echo(f"{word}: {said}")
    return 0


def _choose(found: list[PendingApproval], prefix: str) -> PendingApproval:
    matching = [approval for approval in found if approval.id.startswith(prefix)]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise ToolUsageError(
            f"No pending request has an id that begins with {prefix!r}: see `adapter approvals "
            "list`. It may have been answered already."
        )
    threads = ", ".join(sorted({approval.thread_id for approval in matching}))
    raise ToolUsageError(
        f"{len(matching)} pending requests have an id that begins with {prefix!r}: give more of "
        f"it, or --thread (a copied thread has the same ids). Threads: {threads}."
    )


def _arguments(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = strict_loads(text)
    except ValueError as error:
        raise ToolUsageError(
            f"--args is no JSON ({error}): put one JSON object with every argument of the call in "
            "single quotes."
        ) from error
    if not isinstance(value, dict):
        raise ToolUsageError("--args must be one JSON object with every argument of the call.")
    return value


def _print_json(found: list[PendingApproval]) -> None:
    import json

    rows = [
        {
            "id": approval.id,
            "thread_id": approval.thread_id,
            "assistant_id": approval.assistant_id,
            "expired": approval.expired,
            "value": approval.value,
        }
        for approval in found
    ]
    typer.echo(json.dumps(rows, indent=2))


def _desk() -> SyncApprovalClient:
    from adapter.client import SyncApprovalClient

    return SyncApprovalClient(clock=_now)


def _now() -> int:
    return time.time_ns() // 1_000_000
