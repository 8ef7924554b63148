"""`adapter audit verify`: chains against every head that can be found, and a report of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adapter.cli.opening import audit_keys, server_store
from adapter.cli.trail import Verdict, all_threads, verify_thread
from adapter.core.audit_faults import Fault, Witness
from adapter.core.errors import ConfigurationError

if TYPE_CHECKING:
    from adapter.core.keys import KeyRing
    from adapter.settings import AdapterSettings

__all__ = ["check"]

STATE = "the thread's state"


async def check(
    thread: str | None, jsonl: Path | None, *, store: bool = True, state: bool | None = None
) -> bool:
    """Verify and report.

    Args:
        thread: This thread only.
        jsonl: An audit file; None takes the settings' own, if they name one.
        store: Whether to read the store; False needs a file.
        state: Whether to ask the server for the threads' state; None where it is configured.

    Returns:
        Whether everything is whole.

    Raises:
        ConfigurationError: Nothing to verify, or something named that cannot be read.
    """
    from adapter.settings import AdapterSettings

    settings = AdapterSettings.load()
    path = jsonl or settings.audit_file
    if not store and path is None:
        raise ConfigurationError("--no-store verifies a file: name one with --jsonl FILE.")
    keys = await asyncio.to_thread(audit_keys, settings)
    signatures = (
        f"signatures were not checked: no key file at {settings.key_file} (ADAPTER_KEY_FILE)"
        if keys is None
        else "signatures by the audit keys"
    )
    sources = [signatures]
    filed = await _file(path, jsonl, keys, thread, sources)
    if not store and thread is not None and not filed:
        raise ConfigurationError(f"The file {path} has no event of thread {thread}.")
    if not store and not filed:
        raise ConfigurationError(
            f"The file {path} has no event, so there is nothing to verify: check its name."
        )
    stored: list[Verdict] = []
    if store:
        witnesses = _witnesses(filed, path)
        stored = await _store(settings, thread, keys, witnesses, state, sources, path)
    whole = _report(stored, filed, path)
    typer.echo("compared: " + "; ".join(sources))
    return whole


async def _file(
    path: Path | None,
    named: Path | None,
    keys: KeyRing | None,
    thread: str | None,
    sources: list[str],
) -> list[Verdict]:
    from adapter.cli.auditfile import verify_file

    if path is None:
        return []
    if named is None and not await asyncio.to_thread(path.exists):
        sources.append(f"the audit file {path} was not: there is none yet")
        return []
    sources.append(f"the audit file {path}")
    return await asyncio.to_thread(verify_file, path, keys, thread)


def _witnesses(filed: Sequence[Verdict], path: Path | None) -> dict[str, list[Witness]]:
    from adapter.cli.auditfile import heads_of

    return heads_of(filed, f"the audit file {path}")


async def _store(
    settings: AdapterSettings,
    thread: str | None,
    keys: KeyRing | None,
    witnesses: dict[str, list[Witness]],
    state: bool | None,
    sources: list[str],
    path: Path | None,
) -> list[Verdict]:
    verdicts = []
    async with server_store(settings) as trail:
        threads = [thread] if thread else await all_threads(trail, witnesses)
        wanted = "url" in settings.model_fields_set if state is None else state
        if wanted:
            sources.append(await _states(settings, threads, witnesses))
        for name in threads:
            found = witnesses.get(name, ())
            verdicts.append(await verify_thread(trail, name, keys=keys, witnesses=found))
    if thread is not None and not verdicts[0].count and not verdicts[0].faults:
        raise ConfigurationError(
            f"The store has no event of thread {thread}: check the id and ADAPTER_DATABASE_URI."
        )
    sources.append(f"{sum(verdict.head is not None for verdict in verdicts)} heads in the store")
    if path is not None:
        await asyncio.to_thread(_name_missing, verdicts, path)
    return verdicts


def _name_missing(verdicts: list[Verdict], path: Path) -> None:
    """Say which events the missing links were, where the audit file still has them."""
    from dataclasses import replace

    from adapter.cli.auditfile import names_of

    wanted = {
        (verdict.thread_id, fault.seq)
        for verdict in verdicts
        for fault in verdict.faults
        if fault.kind in ("dropped", "truncated")
    }
    if not wanted or not path.exists():
        return
    names = names_of(path, wanted)
    for at, verdict in enumerate(verdicts):
        named = tuple(
            replace(fault, event_id=names.get((verdict.thread_id, fault.seq), fault.event_id))
            for fault in verdict.faults
        )
        verdicts[at] = replace(verdict, faults=named)


async def _states(
    settings: AdapterSettings, threads: Sequence[str], witnesses: dict[str, list[Witness]]
) -> str:
    """Add the heads in the threads' state to the witnesses; return what to say about them."""
    try:
        from langgraph_sdk import get_client
    except ImportError:
        return "the threads' state was not: langgraph-sdk is not installed"
    token = settings.token
    headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token else None
    client: Any = get_client(url=settings.url, headers=headers)
    found = 0
    for name in threads:
        try:
            state = await client.threads.get_state(name)
        except Exception as error:  # noqa: BLE001 - a thread that is gone, a server that is down
            if getattr(getattr(error, "response", None), "status_code", None) in (404, 422):
                continue
            return f"the threads' state was not: the server at {settings.url} does not answer"
        witness = _in_state(state, name)
        if witness is not None:
            witnesses.setdefault(name, []).append(witness)
            found += 1
    return f"{found} heads in the threads' state at {settings.url}"


def _in_state(state: Any, thread_id: str) -> Witness | None:
    values = state.get("values")
    head = values.get("audit_head") if isinstance(values, dict) else None
    if not isinstance(head, dict) or head.get("thread_id", thread_id) != thread_id:
        return None
    seq, hash_ = head.get("seq"), head.get("hash")
    if type(seq) is not int or not isinstance(hash_, str):
        return None
    return Witness(seq=seq, hash=hash_, source=STATE)


def _report(stored: Sequence[Verdict], filed: Sequence[Verdict], path: Path | None) -> bool:
    for verdict in stored:
        _print_verdict(verdict)
    if filed:
        typer.echo(f"file {path}:")
        for verdict in filed:
            _print_verdict(verdict)
    verdicts = [*stored, *filed]
    bad = [verdict for verdict in verdicts if verdict.faults]
    counted = stored or filed
    events = sum(verdict.count for verdict in counted)
    size = f"{_plural(len(counted), 'thread')}, {_plural(events, 'event')}"
    if bad:
        faults = sum(len(verdict.faults) for verdict in bad)
        names = len({verdict.thread_id for verdict in bad})
        typer.echo(f"FAILED: {size}, {_plural(faults, 'fault')} in {_plural(names, 'thread')}")
    else:
        typer.echo(f"verified: {size}, no fault")
    return not bad


def _print_verdict(verdict: Verdict) -> None:
    from adapter.cli.show import visible

    name = visible(verdict.thread_id) or "-"
    if verdict.faults:
        typer.echo(f"{name}  FAILED: {_plural(len(verdict.faults), 'fault')}")
        for fault in verdict.faults:
            typer.echo(f"  {_line(fault)}")
    elif verdict.head is not None:
        head = verdict.head
        signed = "" if head.kid is None else f", signed by {visible(head.kid)}"
        anchor = verdict.anchor
        kind = "shortened" if anchor is not None and anchor.kid is None else "pruned"
        start = "" if anchor is None else f", {kind} up to link {anchor.seq}"
        count = _plural(verdict.count, "event")
        typer.echo(f"{name}  ok: {count}, head {head.hash[:16]}…{signed}{start}")


def _line(fault: Fault) -> str:
    from adapter.cli.show import visible

    name = f" (event {visible(fault.event_id)})" if fault.event_id else ""
    return f"{fault.kind}: {visible(fault.message)}{name}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
