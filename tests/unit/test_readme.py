"""The answers the README shows can be given: its commands parse, its calls fit both clients."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from adapter.cli.approvals import approvals
from adapter.client import ApprovalClient, SyncApprovalClient

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
COMMAND = r"\.venv/bin/adapter approvals [^`\n]+"
COMMANDS = sorted(set(re.findall(rf"^({COMMAND})$|`({COMMAND})`", README, re.MULTILINE)))
CALLS = sorted({*re.findall(r"(?:^ +|`)(desk\.[^`\n]+\))", README, re.MULTILINE)})


def parsed(command: str) -> dict[str, Any]:
    name, *given = shlex.split(command)[2:]
    group: Any = typer.main.get_command(approvals)
    options: dict[str, Any] = group.commands[name].make_context(name, given).params
    return options


def bound(client: type, call: str) -> tuple[str, dict[str, Any]]:
    node: Any = ast.parse(call, mode="eval").body
    method = getattr(client, node.func.attr)
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    return node.func.attr, inspect.signature(method).bind(client, *node.args, **named).arguments


@pytest.mark.parametrize("command", ["".join(found) for found in COMMANDS])
def test_a_command_of_the_readme_parses(command: str) -> None:
    parsed(command)


def test_the_readme_shows_every_answer_as_a_command_and_in_code() -> None:
    commands = [parsed("".join(found)) for found in COMMANDS]
    assert {"args", "reason", "text"} <= {
        name for options in commands for name, value in options.items() if value
    }
    for client in (ApprovalClient, SyncApprovalClient):
        calls = [bound(client, call) for call in CALLS]
        assert {name for name, _ in calls} == {"approve", "reject", "respond"}
        assert any("edited_args" in given for _, given in calls)


@pytest.mark.parametrize("client", [ApprovalClient, SyncApprovalClient])
def test_a_call_of_another_form_would_be_seen(client: type) -> None:
    with pytest.raises(TypeError):
        bound(client, "desk.reject(waiting)")
    with pytest.raises(TypeError):
        bound(client, "desk.approve(waiting, args={})")


@pytest.mark.parametrize("command", ["reject ID", "respond ID --reason no", "approve ID --arg {}"])
def test_a_command_of_another_form_would_be_seen(command: str) -> None:
    with pytest.raises(Exception, match=r"Missing|No such option"):
        parsed(f".venv/bin/adapter approvals {command}")
