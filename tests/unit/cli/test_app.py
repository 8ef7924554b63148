"""The command tree itself: entry, help, version, keys, and how things are shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from adapter import cli
from adapter.cli import show
from adapter.cli.app import app
from adapter.core.keys import PURPOSES
from adapter.keyfile import load_keys


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("command", [[], ["approvals"], ["audit"], ["keys"]])
def test_help_tells_what_each_group_is_for(command: list[str]) -> None:
    done = run(*command, "--help")
    assert done.exit_code == 0
    assert "Usage" in done.stdout


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["approvals"], ["list", "approve", "reject", "respond"]),
        (["audit"], ["tail", "verify"]),
        (["keys"], ["new"]),
    ],
)
def test_a_group_lists_its_commands(command: list[str], words: list[str]) -> None:
    shown = run(*command, "--help").stdout
    assert all(word in shown for word in words)


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (["approvals", "approve"], "{ID}"),
        (["approvals", "reject"], "{ID}"),
        (["approvals", "respond"], "{ID}"),
        (["calls", "resolve"], "{KEY}"),
        (["keys", "new"], "[PATH]"),
        (["keys", "revoke"], "{KID}"),
        (["keys", "rotate"], "[PURPOSE]..."),
        (["keys", "roles"], "{NAME} {ROLES}"),
        (["keys", "pin"], "{KID} {PUBLIC}"),
        (["selftest"], "{GRAPH}"),
    ],
)
def test_arguments_are_shown_in_capitals(command: list[str], usage: str) -> None:
    (line,) = [row for row in run(*command, "--help").stdout.splitlines() if "Usage:" in row]
    assert line.split(" [OPTIONS] ", 1)[1].strip() == usage


def test_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"1.2.3 of {name}")
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, "adapter 1.2.3 of agent-adapter\n")


def test_an_unknown_command_is_a_usage_error() -> None:
    assert run("approve").exit_code == 2


def test_importing_the_entry_loads_no_heavy_library() -> None:
    code = (
        "import sys, adapter.cli; "
        "print(*{'typer', 'rich', 'httpx', 'langgraph_sdk', 'sqlalchemy'} & set(sys.modules))"
    )
    source = str(Path(cli.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": source},
    )
    assert done.stdout.strip() == ""


def test_main_runs_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["adapter", "--help"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_libraries_the_pip_command_is_named(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert f"needs {missing}" in (said := capsys.readouterr().err)
    assert "pip install 'agent-adapter[cli]'" in said


def test_a_missing_part_of_our_own_is_not_explained_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adapter.cli.app", None)
    with pytest.raises(ModuleNotFoundError):
        cli.main()


class TestKeys:
    def test_new_makes_a_file_and_says_how_to_use_it(self, tmp_path: Path) -> None:
        path = tmp_path / "sub" / "keys.json"
        done = run("keys", "new", str(path))
        assert done.exit_code == 0
        load_keys(path).require(*PURPOSES)
        assert f"ADAPTER_KEY_FILE={path}" in done.stdout
        for key in json.loads(path.read_text())["keys"]:
            assert key["secret"] not in done.output

    def test_new_without_a_path_uses_the_setting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("ADAPTER_KEY_FILE", str(tmp_path / "mine.json"))
        assert run("keys", "new").exit_code == 0
        assert (tmp_path / "mine.json").exists()

    def test_new_never_overwrites(self, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        path.write_text("precious")
        done = run("keys", "new", str(path))
        assert done.exit_code == 2
        assert "not overwritten" in done.stderr
        assert path.read_text() == "precious"


class TestShow:
    @pytest.mark.parametrize(
        ("milliseconds", "said"),
        [
            (0, "0 s"),
            (119_999, "119 s"),
            (120_000, "2 min"),
            (7_200_000, "2 h"),
            (3 * 86_400_000, "3 d"),
        ],
    )
    def test_durations_fit_their_unit(self, milliseconds: int, said: str) -> None:
        assert show.duration(milliseconds) == said

    @pytest.mark.parametrize(
        ("moment", "said"),
        [
            (None, "never"),
            ("soon", "soon"),
            ("2027-01-15T08:00:10Z", "2027-01-15T08:00:10.000Z (in 10 s)"),
            (1_799_999_990_000, "2027-01-15T07:59:50.000Z (10 s ago)"),
        ],
    )
    def test_expiry_is_told_both_ways(self, moment: Any, said: str) -> None:
        assert show._expiry(moment, 1_800_000_000_000) == said

    def test_an_event_is_always_one_line(self) -> None:
        body = {"kind": "x\ny", "tool": "a\x1b[2Jb", "data": {"note": "c\nd"}}
        line = show.event_line("thread-123", 7, body)
        assert "\n" not in line
        assert "\x1b" not in line
        assert line.startswith("-  thread-123     7  x\\ny")

    def test_of_long_ids_that_begin_alike_the_ends_are_shown(self) -> None:
        ids = [f"019adf3c-7e1b-7000-8000-0000000000{n}" for n in ("a1", "b2")]
        assert [show.short_id(one) for one in ids] == ["…000000a1", "…000000b2"]
        line = show.event_line(ids[0], 7, {"kind": "asked"})
        assert line == "-  …000000a1     7  asked         -  -"

    @pytest.mark.parametrize("text", ["", "t", "x" * 12])
    def test_a_short_id_is_shown_whole(self, text: str) -> None:
        assert show.short_id(text) == text
