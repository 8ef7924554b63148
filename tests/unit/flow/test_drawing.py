"""Drawings of a flow."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.unit.flow.kit import Order, logs, order

from adapter.flow import END, Flow, FlowError, Join, Route
from adapter.flow.drawing import dot


def drawn() -> Flow:
    return (
        Flow("f", state=Order)
        .node('a "quoted" & more', logs("a"))
        .node("j", Join())
        .node("b", logs("b"))
        .edge('a "quoted" & more', "j", "nowhere")
        .edge("j", Route(logs("x"), to=("b", END, "lost"), caps={"b": 2}, otherwise="j"))
        .start('a "quoted" & more', "gone")
        .end("b")
    )


def test_mermaid_shows_kinds_gates_and_edges() -> None:
    assert order().mermaid().splitlines() == [
        "flowchart LR",
        "  start([Start])",
        "  finish([End])",
        '  n0["rate (Map rate)"]',
        '  n1{{"place (gate)"}}',
        "  start --> n0",
        "  n0 --> n1",
        "  n1 --> finish",
    ]


def test_mermaid_shows_joins_routes_and_caps_and_leaves_out_what_is_unknown() -> None:
    assert drawn().mermaid().splitlines()[3:] == [
        '  n0["a #quot;quoted#quot; #amp; more"]',
        '  n1[["j"]]',
        '  n2["b"]',
        "  start --> n0",
        "  n0 --> n1",
        '  n1 -. "at most 2" .-> n2',
        "  n1 -.-> finish",
        '  n1 -. "otherwise" .-> n1',
        "  n2 --> finish",
    ]


def test_dot_shows_the_same() -> None:
    text = dot(drawn())
    assert text.startswith("digraph {\n")
    assert '  n0 [shape=box, label="a \\"quoted\\" & more"];' in text
    assert '  n1 -> n2 [style=dashed, label="at most 2"];' in text
    assert '  n1 [shape=hexagon, label="place (gate)"];' in dot(order())


def graphviz(folder: Path, body: str) -> None:
    """A program called dot."""
    program = folder / "dot"
    program.write_text(f"#!{sys.executable}\n{body}\n", encoding="utf-8")
    program.chmod(0o755)


def test_svg_is_drawn_by_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphviz(
        tmp_path,
        "import sys\nassert sys.argv[1:] == ['-Tsvg']\n"
        "print('<svg>' + sys.stdin.read().splitlines()[0] + '</svg>')",
    )
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    assert order().svg() == "<svg>digraph {</svg>\n"


def test_svg_without_graphviz_says_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FlowError, match=r"install Graphviz .*flow\.mermaid\(\)"):
        order().svg()


def test_graphviz_that_fails_is_a_flow_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphviz(tmp_path, "raise SystemExit(3)")
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    with pytest.raises(FlowError, match="dot failed"):
        order().svg()
