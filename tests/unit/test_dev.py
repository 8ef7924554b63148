"""What scripts/dev.py looks at before it becomes the server."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/dev.py"

GOOD = "graph = object()\n"
OWN_CHECKPOINTER = (
    "from types import SimpleNamespace\ngraph = SimpleNamespace(checkpointer=object())\n"
)
REFUSED = """
from adapter.core.errors import ConfigurationError

def fail():
    raise ConfigurationError("ADAPTER_X is not valid: mend it.")

graph = fail()
"""


def script(root: Path) -> SimpleNamespace:
    """The script's functions, for another checkout."""
    made = runpy.run_path(str(SCRIPT))
    made["check"].__globals__["ROOT"] = root
    return SimpleNamespace(**made)


def checkout(folder: Path, code: str = GOOD, **config: Any) -> Path:
    (folder / "graph.py").write_text(code, "utf-8")
    named = {"graphs": {"agent": "./graph.py:graph"}, **config}
    (folder / "langgraph.json").write_text(json.dumps(named), "utf-8")
    return folder


def test_a_sound_checkout_may_start(tmp_path: Path) -> None:
    rich: dict[str, Any] = {
        "graphs": {"agent": {"path": "./graph.py:graph"}},
        "auth": {"path": "./graph.py:graph"},
    }
    script(checkout(tmp_path)).check()
    script(checkout(tmp_path, **rich)).check()


@pytest.mark.parametrize(
    ("code", "config", "said"),
    [
        (REFUSED, {}, "ADAPTER_X is not valid: mend it."),
        (OWN_CHECKPOINTER, {}, "checkpointer of its own. The server brings one"),
        ("other = 1\n", {}, "no 'graph' in that file"),
        (GOOD, {"auth": {"path": "./graph.py:auth"}}, "no 'auth' in that file"),
        (GOOD, {"http": {"app": "./graph.py:app"}}, "no 'app' in that file"),
    ],
    ids=["setting", "checkpointer", "graph", "auth", "app"],
)
def test_what_would_stop_the_server_is_said_in_a_line(
    tmp_path: Path, code: str, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        script(checkout(tmp_path, code, **config)).check()
    assert said in str(caught.value)


def test_an_error_of_the_graphs_own_code_is_shown_whole(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        script(checkout(tmp_path, "graph = 1 / 0\n")).check()


def test_a_data_folder_is_made(tmp_path: Path) -> None:
    assert script(tmp_path).made_folder(tmp_path / "a/b") == (tmp_path / "a/b").resolve()
    assert (tmp_path / "a/b").is_dir()
    script(tmp_path).made_folder(tmp_path / "a/b")  # and taken as it is


@pytest.mark.parametrize(
    ("path", "said"),
    [("file", "file is a file, and the data needs a folder"), ("file/sub", "sub cannot be made (")],
)
def test_a_data_folder_that_is_a_file_is_said_in_a_line(
    tmp_path: Path, path: str, said: str
) -> None:
    (tmp_path / "file").write_text("kept", "utf-8")
    with pytest.raises(SystemExit) as caught:
        script(tmp_path).made_folder(tmp_path / path)
    assert said in str(caught.value)
    assert "make dev DATA=DIR" in str(caught.value)
    assert (tmp_path / "file").read_text("utf-8") == "kept"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"ADAPTER_DATABSE_URI": "sqlite:///x.db"}, "did you mean ADAPTER_DATABASE_URI"),
        ({"AGENT_MODEL": "openai:x", "OPENAI_API_KEY": "sk-..."}, "OPENAI_API_KEY is still a"),
    ],
    ids=["unknown", "key"],
)
def test_settings_are_looked_at_first(tmp_path: Path, env: dict[str, str], said: str) -> None:
    assert said in script(tmp_path).settings_problem(env)
    assert script(tmp_path).settings_problem({}) is None
