"""`adapter selftest GRAPH`: try the known ways around the gate, and say what was found."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Annotated, Any

import typer

from adapter.cli.show import visible

__all__ = ["selftest_command"]

_SHOWN = {"hole": "HOLE", "warning": "warning", "note": "note", "ok": "ok"}


def selftest_command(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH", help="An id in langgraph.json, file.py:variable or module:variable."
        ),
    ],
    every: Annotated[bool, typer.Option("--all", help="Also show what held.")] = False,
) -> None:
    """Try the known ways around the gate on a graph; no tool and no model runs.

    The stores that the graph opens are in memory for this: your own is neither read nor written.

    Exit status: 0 the gate held, 1 there is a hole, or nothing that could be tried.
    """
    # By name: what the command line imports stays free of LangGraph until a graph is tested.
    room: Any = import_module("adapter.selftest")
    trial: Any = import_module("adapter.stores.sql").TRIAL
    token = trial.set(True)
    try:
        report = asyncio.run(room.selftest(room.load_graph(graph)))
    finally:
        trial.reset(token)
    for one in report.findings:
        if every or one.severity != "ok":
            where = " ".join(part for part in (one.node, one.tool) if part)
            line = f"{_SHOWN[one.severity]}: {one.attempt}: {where}: {one.text}"
            typer.echo(visible(line))
    held = sum(one.severity == "ok" for one in report.findings)
    typer.echo(f"{len(report.holes)} holes; {held} attempts held. Tried over a store in memory.")
    if report.holes or not report.tried:
        raise typer.Exit(1)
