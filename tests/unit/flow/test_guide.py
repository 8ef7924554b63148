"""The guide's programs run as they are printed, and what they say of themselves holds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from tests.support.flows import CONFIG

from adapter import FlowError

GUIDE = Path(__file__).resolve().parents[3] / "docs/flows.md"


def programs() -> dict[str, str]:
    """Each program of the guide by the file name that its first line says."""
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```python\n")
    return dict(blocks)


def test_the_programs_of_the_guide_run(tmp_path: Path) -> None:
    found = programs()
    assert list(found) == ["shop.py", "graph.py", "calls.py", "later.py"]
    for name, program in found.items():
        (tmp_path / name).write_text(program, encoding="utf-8")
    for name in found:
        command = [sys.executable, "-W", "error", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (name, done.returncode, done.stderr) == (name, 0, "")


SHOWN = """
import builtins, json, sys
from langgraph_api.serde import json_dumpb
import adapter
found = {}
for name in sys.argv[1:]:
    kind = getattr(builtins, name, None) or getattr(adapter, name)
    found[name] = json.loads(json_dumpb(kind("the text")))["message"]
print(json.dumps(found))
"""


def test_the_server_shows_the_texts_of_the_exceptions_that_the_guide_names() -> None:
    (row,) = re.findall(r"^\| a run's error .*$", GUIDE.read_text("utf-8"), re.MULTILINE)
    whole, only = row.split("Of all others", 1)
    shown = [name for name in re.findall(r"`(\w+Error)`", whole) if name != "ValidationError"]
    hidden = [*re.findall(r"`(\w+Error)`", only), "OSError", "AssertionError", "ConfigurationError"]
    assert {"ValueError", "RuntimeError"} <= {*shown}
    assert {"FlowError", "ToolError"} <= {*hidden}
    # In a process of its own: the server's package sets up logging for the whole process.
    command = [sys.executable, "-c", SHOWN, *shown, *hidden]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in shown if "the text" not in said[name]] == []
    assert {said[name] for name in hidden} == {"An internal error occurred"}


class Nothing(TypedDict):
    text: str


@pytest.mark.parametrize("kind", [ValueError, FlowError, OSError])
def test_the_threads_state_shows_the_text_of_every_exception(kind: type[Exception]) -> None:
    def fail(state: Nothing) -> None:
        raise kind("the text")

    graph = StateGraph(Nothing)
    graph.add_node("fail", fail)
    graph.add_edge(START, "fail")
    app = graph.compile(checkpointer=InMemorySaver())
    with pytest.raises(kind):
        app.invoke({"text": ""}, CONFIG)
    (task,) = app.get_state(CONFIG).tasks
    assert str(task.error) == f"{kind.__name__}('the text')"
