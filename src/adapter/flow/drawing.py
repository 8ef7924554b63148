"""Drawing a flow: Mermaid text, and SVG by Graphviz where it is installed. No network."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from adapter.core.errors import FlowError
from adapter.flow.kinds import END, Call, Map, Node
from adapter.flow.shape import Shape

__all__ = ["dot", "mermaid", "svg"]

_SECONDS = 30


def mermaid(flow: Shape) -> str:
    """Return a flow as a Mermaid flowchart."""
    ids = _ids(flow)
    lines = ["flowchart LR", "  start([Start])", "  finish([End])"]
    for name, node in flow.nodes.items():
        left, right = ("{{", "}}") if node.gated else ("[[", "]]") if node.is_join else ("[", "]")
        lines.append(f'  {ids[name]}{left}"{_escaped(_label(node))}"{right}')
    for source, to, label, chosen in _arrows(flow):
        arrow = f'-. "{_escaped(label)}" .->' if label else "-.->" if chosen else "-->"
        lines.append(f"  {ids[source]} {arrow} {ids[to]}")
    return "\n".join(lines) + "\n"


def dot(flow: Shape) -> str:
    """Return a flow in Graphviz' language."""
    ids = _ids(flow)
    lines = ["digraph {", "  rankdir=LR;", '  start [shape=circle, label="Start"];']
    lines.append('  finish [shape=doublecircle, label="End"];')
    for name, node in flow.nodes.items():
        shape = "hexagon" if node.gated else "trapezium" if node.is_join else "box"
        lines.append(f"  {ids[name]} [shape={shape}, label={_quoted(_label(node))}];")
    for source, to, label, chosen in _arrows(flow):
        style = "dashed" if chosen else "solid"
        lines.append(f"  {ids[source]} -> {ids[to]} [style={style}, label={_quoted(label)}];")
    return "\n".join([*lines, "}"]) + "\n"


def svg(flow: Shape) -> str:
    """Return a flow as SVG.

    Raises:
        FlowError: Graphviz is not installed, or failed.
    """
    program = shutil.which("dot")
    if program is None:
        msg = (
            "Drawing SVG needs Graphviz' program `dot` on the PATH: install Graphviz (apt-get "
            "install graphviz, brew install graphviz), or draw flow.mermaid() elsewhere."
        )
        raise FlowError(msg)
    try:
        done = subprocess.run(  # noqa: S603 - found on the PATH, and what it reads is ours
            [program, "-Tsvg"],
            input=dot(flow),
            capture_output=True,
            encoding="utf-8",
            timeout=_SECONDS,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        msg = f"Graphviz' dot failed ({type(error).__name__}); flow.mermaid() needs no program."
        raise FlowError(msg) from error
    return done.stdout


def _ids(flow: Shape) -> dict[str, str]:
    ids = {name: f"n{n}" for n, name in enumerate(flow.nodes)}
    return {**ids, "": "start", END: "finish"}


def _label(node: Node) -> str:
    kind = type(node.work).__name__
    work = f"{kind} {node.work.tool}" if isinstance(node.work, Call | Map) else ""
    gate = "gate" if node.gated else ""
    more = ", ".join(part for part in (work, gate) if part)
    return f"{node.name} ({more})" if more else node.name


def _arrows(flow: Shape) -> Iterator[tuple[str, str, str, bool]]:
    """Return source, target, label and whether a route chooses it; '' is the start."""
    known = {*flow.nodes, END}
    for name in flow.starts:
        if name in known:
            yield "", name, "", False
    for name in flow.nodes:
        for to in flow.static(name):
            if to in known:
                yield name, to, "", False
        for route in flow.routes(name):
            for to in route.targets:
                if to in known:
                    cap = route.cap(to)
                    last = "otherwise" if to not in route.to else ""
                    yield name, to, last if cap is None else f"at most {cap}", True
        if name in flow.ends:
            yield name, END, "", False


def _escaped(text: str) -> str:
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("\n", " ")


def _quoted(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{plain}"'
