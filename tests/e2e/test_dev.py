"""``make dev``'s script: what cannot start ends with its error, and what can is a server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.server import HOST, OWNED, QUIET, ROOT, free_port

pytestmark = pytest.mark.slow


class Dev:
    """A checkout of its own, so that no person's .env and no server's files are in the way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "dev.log"
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/dev.py", folder / "scripts")
        for name in ("langgraph.json", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OWNED)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "scripts/dev.py", *arguments],
                cwd=self.folder,
                env={**kept, **QUIET, "HOME": str(self.folder), "PYTHONPATH": "src", **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.process

    def ended(self, *arguments: str, **env: str) -> tuple[int, str]:
        """Run it; a server that started, or waits for an edit, is a failure by its time limit."""
        process = self.start(*arguments, **env)
        return process.wait(60), self.log.read_text("utf-8")

    def stop(self) -> None:
        if self.process is None:
            return
        for how in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, how)
            except ProcessLookupError:
                break
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                continue


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    made = Dev(tmp_path)
    yield made
    made.stop()


def test_it_starts_a_server_that_reloads(dev: Dev) -> None:
    port = free_port()
    process = dev.start("--port", str(port))
    deadline = time.monotonic() + 60
    with httpx.Client(base_url=f"http://{HOST}:{port}", trust_env=False, timeout=2) as http:
        while True:
            assert process.poll() is None
            assert time.monotonic() < deadline
            try:
                if http.get("/ok").is_success:
                    break
            except httpx.HTTPError:
                time.sleep(0.1)
    announced = f"API    http://{HOST}:{port}   (answers in about ten seconds)"
    assert announced in dev.log.read_text("utf-8").splitlines()


def test_a_graph_that_cannot_be_loaded_ends_it_and_leaves_no_reloader(dev: Dev) -> None:
    with (dev.folder / "src/agent/graph.py").open("a", encoding="utf-8") as file:
        file.write("\ngraph = 1 / 0\n")
    status, text = dev.ended()
    assert status == 1
    assert "ZeroDivisionError" in text
    assert text.rstrip().endswith("The server was not started.")
    assert "http://" not in text  # none was announced


def test_the_environment_file_counts_as_it_does_for_the_server(dev: Dev) -> None:
    (dev.folder / ".env").write_text("AGENT_MODEL=nosuchprovider:model\n", "utf-8")
    status, text = dev.ended(AGENT_MODEL="demo")
    assert status == 1
    assert "names no provider that is known" in text
    assert "Traceback" not in text
