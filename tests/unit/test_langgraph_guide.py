"""docs/langgraph.md: its programs run, names are where it says, both forms of a policy agree."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.fakes import NOW, FakeServer, FakeThread, asked, interrupt, ring, task

import adapter
from adapter import Policy, load_policy
from adapter.client import ApprovalClient
from adapter.core.signing import check_answer

GUIDE = (Path(__file__).resolve().parents[2] / "docs/langgraph.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def block(language: str, beginning: str) -> str:
    (found,) = [text for text in blocks(language) if text.startswith(beginning)]
    return found


def test_the_programs_of_the_guide_run(tmp_path: Path) -> None:
    found = {text.split("\n", 1)[0][2:]: text for text in blocks("python") if text[0] == "#"}
    assert list(found) == ["pay.py", "sign.py"]
    for name, program in found.items():
        (tmp_path / name).write_text(program, encoding="utf-8")
    for name in found:
        command = [sys.executable, "-W", "error", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (name, done.returncode, done.stderr) == (name, 0, "")


@pytest.mark.anyio
async def test_the_desk_of_the_guide_approves_what_waits_on_a_server() -> None:
    keys = ring()
    value = asked(keys)
    server = FakeServer({"thread-1": FakeThread(tasks=[task(interrupt("abc", value))])})
    desk = functools.partial(ApprovalClient, client=server.async_client(), clock=lambda: NOW)
    program = block("python", "async with ApprovalClient(")
    names: dict[str, Any] = {"ApprovalClient": desk, "keys": keys}
    code = "async def main():\n" + "".join(f"    {line}\n" for line in program.splitlines())
    exec(code, names)
    await names["main"]()
    ((thread, body),) = server.runs
    decision = check_answer(keys, value["binding"], body["command"]["resume"]["abc"])
    assert thread == "thread-1"
    assert decision is not None
    assert (decision["kind"], decision["reviewer"], decision["reason"]) == (
        "approve",
        "ann",
        "checked",
    )


def test_every_name_is_where_the_guide_says() -> None:
    table = GUIDE.split("| from | names |", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| `([a-z.]+)` \| (.*) \|$", table, re.MULTILINE)
    assert [module for module, _ in rows] == [
        "adapter.langgraph",
        "adapter",
        "adapter.stores",
        "adapter.keyfile",
        "adapter.client",
    ]
    for module, said in rows:
        for name in re.findall(r"`(\w+)`", said):
            assert hasattr(import_module(module), name), (module, name)


def test_every_name_of_the_main_table_is_of_the_room() -> None:
    table = GUIDE.split("| name | what it is |", 1)[1].split("\n\n", 1)[0]
    cells = re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE)
    names = re.findall(r"`(?:await )?(\w+)[(`]", " ".join(cells))
    assert "LangGraphApproval" in names
    room = import_module("adapter.langgraph")
    assert [name for name in names if not hasattr(room, name)] == []


def test_both_forms_of_the_guides_policy_say_the_same(tmp_path: Path) -> None:
    tree = ast.parse(block("python", "policy = Policy("))
    (made,) = [node for node in tree.body if ast.unparse(node).startswith("policy =")]
    names: dict[str, Any] = dict(vars(adapter))
    exec(ast.unparse(made), names)
    policy: Policy = names["policy"]
    file = tmp_path / "policy.toml"
    file.write_text(block("toml", "[deny]"), "utf-8")
    read = load_policy(file)
    for field in ("deny", "allow", "rates", "results", "effects", "ghost"):
        assert getattr(read, field) == getattr(policy, field), field
    for tool in ("delete_file", "refund"):
        said = [replace(rule, name="same") for rule in read.rules(tool)]
        assert said == [replace(rule, name="same") for rule in policy.rules(tool)]
        assert said
