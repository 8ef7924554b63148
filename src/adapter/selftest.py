"""The self-test of a graph: loading it as a server would, and asserting in a test that it held.

What is tried is `adapter.langgraph.probing`'s business; this room only finds the graph.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adapter.core.errors import ConfigurationError

if TYPE_CHECKING:
    from adapter.langgraph.probing import Report

__all__ = ["assert_governed", "load_graph", "selftest"]


async def selftest(graph: Any) -> Report:
    """Try the known ways around the gate on a compiled graph; no tool and no model runs.

    Raises:
        ConfigurationError: It is no compiled graph.
    """
    from adapter.langgraph.probing import probe_graph

    if not hasattr(graph, "aget_subgraphs"):
        msg = f"{type(graph).__name__} is no compiled graph: give what graph.compile() returns."
        raise ConfigurationError(msg)
    return await probe_graph(graph)


def assert_governed(graph: Any) -> Report:
    """Fail a test if any tool of a graph can be reached around the gate.

    Works in async tests too: it does not need their loop.

    Args:
        graph: A compiled graph.

    Raises:
        AssertionError: Names every hole; or there was nothing to try.
    """
    with ThreadPoolExecutor(1) as pool:
        report = pool.submit(asyncio.run, selftest(graph)).result()
    found = [f"{one.node} {one.tool} by {one.attempt}: {one.text}" for one in report.holes]
    if found:
        raise AssertionError("\n".join(found))
    if not report.tried:
        raise AssertionError("\n".join(one.text for one in report.findings))
    return report


def load_graph(name: str, *, folder: Path | None = None) -> Any:
    """Return the graph a name means.

    Args:
        name: An id in ``langgraph.json``, ``path/to/file.py:variable`` or ``module:variable``; a
            function without arguments is called, and may be async.
        folder: Where ``langgraph.json`` and relative paths are; the current one by default.

    Raises:
        ConfigurationError: There is no such graph.
    """
    root = folder or Path.cwd()
    target = name
    if ":" not in name:
        graphs = _exported(root)
        if name not in graphs:
            known = ", ".join(sorted(graphs)) or "none"
            msg = f"langgraph.json exports no graph {name!r}; it exports: {known}."
            raise ConfigurationError(msg)
        said = graphs[name]
        target = said["path"] if isinstance(said, dict) else said
    place, _, variable = target.rpartition(":")
    found = getattr(_module(root, place), variable, None)
    if found is None:
        msg = f"{place} has no variable {variable!r}."
        raise ConfigurationError(msg)
    if inspect.isfunction(found):
        found = found()
    return asyncio.run(_awaited(found)) if inspect.isawaitable(found) else found


def _exported(root: Path) -> dict[str, Any]:
    try:
        found = json.loads((root / "langgraph.json").read_text("utf-8"))
        graphs: dict[str, Any] = found["graphs"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"There is no readable langgraph.json in {root}: {type(error).__name__}."
        raise ConfigurationError(msg) from error
    return graphs


def _module(root: Path, place: str) -> Any:
    try:
        if not place.endswith(".py"):
            return import_module(place)
        path = (root / place).resolve()
        spec = spec_from_file_location(f"selftest_{path.stem}", path)
        module = module_from_spec(spec)  # type: ignore[arg-type] # never None for a .py file
        sys.modules[module.__name__] = module
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except (ImportError, OSError) as error:
        msg = f"The graph's module {place} cannot be loaded: {error}."
        raise ConfigurationError(msg) from error
    return module


async def _awaited(found: Any) -> Any:
    return await found
