"""How requests and events look on a terminal.

What a model or a client wrote is shown as plain text: no markup, and control characters and
direction marks spelled out, so that a request cannot disguise itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adapter.core.signing import from_iso, to_iso

if TYPE_CHECKING:
    from rich.console import RenderableType

    from adapter.cli.requests import Request

__all__ = ["as_json", "duration", "event_line", "request_panel", "short_id", "visible"]

_MINUTE = 60
_HOUR = 3_600
_DAY = 86_400
_WHOLE = 12
_END = 8
_STORE = "the store; once it is decided, continue the thread without input"


def visible(text: object) -> str:
    """Return text with every character that does not print spelled out, newlines kept."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in str(text)
    )


def as_json(value: object, *, indent: int | None = None) -> str:
    """Return a JSON value as visible text."""
    return visible(json.dumps(value, ensure_ascii=False, indent=indent))


def duration(milliseconds: int) -> str:
    """Return a length of time in the unit that fits it."""
    seconds = milliseconds // 1000
    for unit, size in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def request_panel(
    asked: Request, now: int, *, runs: Mapping[str, Any] | None = None
) -> RenderableType:
    """Return a panel with everything a reviewer decides on.

    Args:
        asked: The request.
        now: Milliseconds since the epoch.
        runs: Edited arguments that would run instead of the ones asked for.
    """
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    approval = asked.approval
    request = approval.request
    need, by = asked.votes
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    rows = [
        ("tool", request.get("tool")),
        ("arguments", as_json(request.get("arguments"), indent=2)),
        *([("runs instead", as_json(runs, indent=2))] if runs is not None else []),
        ("rule", request.get("rule")),
        ("reason", request.get("reason")),
        ("allowed", ", ".join(_texts(request.get("allowed")))),
        ("roles", ", ".join(_texts(request.get("roles")))),
        *([("people", f"{len(by)} of {need}: {', '.join(by) or 'nobody'}")] if need > 1 else []),
        ("expires", _expiry(request.get("expires_at"), now)),
        ("thread", approval.thread_id),
        ("call", request.get("call_id")),
        *([("waits in", _STORE)] if asked.row is not None else []),
    ]
    if approval.refused is not None:
        rows.append(("last answer", f"refused: {approval.refused.get('message')}"))
    for name, value in rows:
        if value not in (None, ""):
            grid.add_row(name, Text(visible(value)))
    title = Text(f"approval {visible(approval.id)}" + (" (expired)" if approval.expired else ""))
    return Panel(grid, title=title, title_align="left")


def short_id(text: str) -> str:
    """Return an id, or its end after an ellipsis: ids made within a minute may begin alike."""
    return text if len(text) <= _WHOLE else f"…{text[-_END:]}"


def event_line(thread_id: str, seq: int, body: Mapping[str, Any]) -> str:
    """Return one audit event as one line."""
    at = body.get("at")
    when = to_iso(at) if isinstance(at, int) else "-"
    data = body.get("data")
    facts = as_json(data) if data else ""
    words = [when, short_id(thread_id), f"{seq:>4}", f"{body.get('kind', '-')!s:<12}"]
    words += [str(body.get("tool") or "-"), str(body.get("call_id") or "-"), facts]
    return visible("  ".join(words).rstrip()).replace("\n", "\\n")


def _texts(value: object) -> list[str]:
    """Return the items of what should be a list; it is not verified yet."""
    return [str(item) for item in value] if isinstance(value, list) else []


def _expiry(moment: object, now: int) -> str:
    if isinstance(moment, str):
        try:
            moment = from_iso(moment)
        except ValueError:
            return str(moment)
    if not isinstance(moment, int):
        return "never"
    left = moment - now
    said = f"in {duration(left)}" if left > 0 else f"{duration(-left)} ago"
    return f"{to_iso(moment)} ({said})"
