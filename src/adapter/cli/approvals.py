"""`adapter approvals`: list requests, decide one, and say what the answer led to.

Talks to the server over HTTP through the reviewer's client, and opens the store for the requests
that wait there and for ``expire``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adapter.core.approvals import ApprovalDecision
from adapter.core.canonical import strict_loads
from adapter.core.errors import InvalidAnswer, ToolUsageError

if TYPE_CHECKING:
    from adapter.cli.requests import Request
    from adapter.client import PendingApproval, SyncApprovalClient
    from adapter.core.store import CallRow

__all__ = ["approvals"]

approvals = typer.Typer(
    no_args_is_help=True,
    help=(
        "List the requests that wait for a decision on the server at ADAPTER_URL, or in the store "
        "at ADAPTER_DATABASE_URI, and decide."
    ),
)

Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="The request's id, or a beginning of it that is unique."),
]
Thread = Annotated[
    str | None, typer.Option("--thread", help="Look in this thread only.", metavar="ID")
]
Stored = Annotated[
    bool,
    typer.Option("--store", help="Only requests that are decided in the store; ask no server."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask back.")]


@approvals.command("list")
def list_(
    thread: Thread = None,
    stored: Stored = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List the requests that wait for a decision."""
    from adapter.cli.requests import gather

    found = gather(_desk, thread, _now(), stored=stored)
    if as_json:
        _print_json(found)
        return
    from rich.console import Console

    from adapter.cli.show import request_panel

    console = Console()
    for one in found:
        console.print(request_panel(one, _now()))
    kept = sum(one.row is not None for one in found)
    count = f"{len(found)} waiting" if found else "no request waits for a decision"
    typer.echo(count + (f", {kept} of them in the store" if kept else ""))


@approvals.command()
def approve(
    id_: Id,
    thread: Thread = None,
    args: Annotated[
        str | None,
        typer.Option(
            "--args",
            help="Run with these arguments instead: all of them, as JSON; of a gate some fields.",
        ),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for the audit.")] = None,
    stored: Stored = False,
    yes: Yes = False,
) -> None:
    """Let a call run, as asked or with edited arguments."""
    edited = _arguments(args)
    decision = ApprovalDecision(
        kind="approve" if edited is None else "edit", edited_args=edited, reason=reason
    )
    _decide(id_, thread, decision, stored=stored, yes=yes)


@approvals.command()
def reject(
    id_: Id,
    reason: Annotated[str, typer.Option("--reason", help="Why; the model reads it.")],
    thread: Thread = None,
    stored: Stored = False,
    yes: Yes = False,
) -> None:
    """Refuse a call; the model reads the reason."""
    _decide(id_, thread, ApprovalDecision(kind="reject", reason=reason), stored=stored, yes=yes)


@approvals.command()
def respond(
    id_: Id,
    text: Annotated[str, typer.Option("--text", help="What the model reads as the result.")],
    thread: Thread = None,
    stored: Stored = False,
    yes: Yes = False,
) -> None:
    """Answer in the tool's place; the tool does not run."""
    _decide(id_, thread, ApprovalDecision(kind="respond", response=text), stored=stored, yes=yes)


@approvals.command()
def expire(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array of keys.")] = False,
) -> None:
    """Close the requests nobody answered in time, in the store at ADAPTER_DATABASE_URI.

    Each thread gets the expiry at its next run; without this command, too. Calls whose worker is
    gone are noted as in doubt.
    """
    import asyncio
    import json

    closed, doubts = asyncio.run(_expire())
    if as_json:
        typer.echo(json.dumps([row.key for row in closed]))
        return
    from adapter.cli.show import visible

    for word, rows in (("expired", closed), ("in doubt", doubts)):
        for row in rows:
            typer.echo(visible(f"{word}: {row.tool} {row.tool_call_id} in thread {row.thread_id}"))
    noted = f", {len(doubts)} in doubt: see `adapter calls list --in-doubt`" if doubts else ""
    typer.echo(f"{len(closed)} expired{noted}")


async def _expire() -> tuple[Sequence[CallRow], Sequence[CallRow]]:
    from adapter.cli.calls import open_operator

    async with open_operator() as (operator, _):
        return await operator.expire(), await operator.doubt()


def _decide(
    prefix: str, thread: str | None, decision: ApprovalDecision, *, stored: bool, yes: bool
) -> None:
    from rich.console import Console

    from adapter.cli.asking import confirm
    from adapter.cli.requests import choose, gather, record
    from adapter.cli.show import request_panel

    request = choose(gather(_desk, thread, _now(), stored=stored), prefix)
    approval = request.approval
    with _desk() as desk:
        # Before anybody is asked to believe what is shown: signing checks the seal, and the edit.
        _check(desk, approval, decision)
        Console().print(request_panel(request, _now(), runs=decision.edited_args))
        if not yes:
            confirm(f"Sign this decision: {decision.kind}?")
        value = desk.sign(approval, decision)
        if request.row is not None:
            _recorded(record(request.row, value, _now()), value)
            return
        result = desk.resume(approval.thread_id, {approval.id: value})
        code = _report(desk, approval, decision, result)
    raise typer.Exit(code)


def _recorded(row: CallRow, value: dict[str, Any]) -> None:
    """Say what a recorded decision leads to; nothing has run."""
    from adapter.cli.show import visible
    from adapter.core.recording import is_decided, votes_in

    said = value["decision"]
    text = f"Recorded: {said['kind']} by {said['reviewer']}. "
    if is_decided(row):
        text += f"Nothing ran yet: continue thread {row.thread_id} with a run without input"
        text += " (a run of flow.run: with its checkpoint)."
    else:
        text += f"It has {len(votes_in(row))} of {row.quorum_need} and waits for more."
    typer.echo(visible(text))


def _check(desk: SyncApprovalClient, approval: PendingApproval, decision: ApprovalDecision) -> None:
    """Refuse what the server would refuse; an edit that does not fit is a wrong option."""
    from adapter.core.editing import faults_of

    try:
        desk.sign(approval, decision)
    except InvalidAnswer as error:
        edited = decision.edited_args
        if edited is None or not faults_of(approval.request, edited):
            raise
        raise ToolUsageError(error.message.replace("The edit", "--args", 1)) from error


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
    if effect.kind == "used":
        typer.echo(
            f"adapter: the approval is used up: the node failed: {said.rstrip('.')}. Start a new "
            "run, or fork the thread at an earlier checkpoint; it asks again.",
            err=True,
        )
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
    if decision.kind == "reject" and effect.kind == "done":
        typer.echo(
            "adapter: nothing was rejected: somebody else decided meanwhile, and the call has a "
            f"result: {said}",
            err=True,
        )
        return 1
    word = {"reject": "Rejected", "respond": "Answered in the tool's place"}.get(
        decision.kind or "",
        "The gate is open" if approval.request.get("kind") == "gate" else "The call ran",
    )
    typer.echo(f"{word}: {said}")
    return 0


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


def _print_json(found: list[Request]) -> None:
    import json

    rows = [
        {
            "id": one.approval.id,
            "thread_id": one.approval.thread_id,
            "assistant_id": one.approval.assistant_id or None,
            "expired": one.approval.expired,
            "where": "thread" if one.row is None else "store",
            "value": one.approval.value,
        }
        for one in found
    ]
    typer.echo(json.dumps(rows, indent=2))


def _desk() -> SyncApprovalClient:
    from adapter.client import SyncApprovalClient

    return SyncApprovalClient(clock=_now)


def _now() -> int:
    return time.time_ns() // 1_000_000
