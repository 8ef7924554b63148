"""Asking back before something is signed or recorded."""

from __future__ import annotations

import sys

import typer

from adapter.core.errors import ToolUsageError

__all__ = ["confirm"]


def confirm(question: str) -> None:
    """Go on if the answer is yes.

    Raises:
        Abort: The answer is no, or a person at a terminal interrupts.
        ToolUsageError: Nobody answers: standard input is closed, or at its end.
    """
    closed = sys.stdin is None or sys.stdin.closed  # as `<&-` leaves it
    try:
        sure = not closed and typer.confirm(question)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        closed, sure = True, False
    if closed:
        raise ToolUsageError(
            "Nothing was done: this asks back, and nobody answered on standard input. Give --yes "
            "to go on without being asked."
        )
    if not sure:
        raise typer.Abort
