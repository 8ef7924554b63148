"""A real `langgraph dev` in a folder of its own, and what a test sees of it from outside.

The server keeps its threads in ``.langgraph_api`` where it runs, so it runs in the folder and the
checkout stays clean. It is stopped by the process group started here, never by name.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
OWNED = ("ADAPTER_", "AGENT_", "LANGCHAIN_", "LANGGRAPH_", "LANGSMITH_", "OPENAI_")
QUIET = {
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGSMITH_TRACING": "false",
    "PYTHONUNBUFFERED": "1",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Server:
    """One server, started as scripts/dev.py does: no browser, no --allow-blocking, a free port."""

    def __init__(
        self, folder: Path, *, graph: str | None = None, auth: str | None = None, **env: str
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "server.log"
        self.env = env
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        config = json.loads((ROOT / "langgraph.json").read_text("utf-8"))
        graphs = {"agent": graph}
        if graph is None:
            graphs = {name: f"{ROOT / place}" for name, place in config["graphs"].items()}
        # No env file: the checkout's .env may hold a person's own settings.
        config |= {"graphs": graphs, "dependencies": ["."], "env": {}}
        if auth is not None:
            config["auth"] = {"path": auth}
        (folder / "langgraph.json").write_text(json.dumps(config), "utf-8")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8", errors="replace") if self.log.exists() else ""

    def launch(self) -> None:
        """Start it and do not wait."""
        self.port = free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OWNED)}
        paths = [str(ROOT / "src"), *filter(None, [kept.get("PYTHONPATH")])]
        env = {
            **kept,
            **QUIET,
            "HOME": str(self.folder),
            "PYTHONPATH": os.pathsep.join(paths),
            "ADAPTER_DATA_DIR": str(self.data),
            **self.env,
        }
        command = [
            *(sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"),
            *("--host", HOST, "--port", str(self.port)),
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start(self) -> Server:
        """Start it and wait until it answers."""
        self.launch()
        assert self.process is not None
        deadline = time.monotonic() + 60
        with httpx.Client(base_url=self.url, trust_env=False, timeout=2) as http:
            while time.monotonic() < deadline:
                if self.process.poll() is not None:
                    raise AssertionError(f"the server ended at once:\n{self.text[-3000:]}")
                try:
                    if http.get("/ok").is_success:
                        return self
                except httpx.HTTPError:
                    pass
                time.sleep(0.1)
        self.stop()
        raise AssertionError(f"the server did not answer:\n{self.text[-3000:]}")

    def wait_for_end(self, seconds: float = 60) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the whole process group that was started here."""
        if self.process is None:
            return
        for number in (how, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                continue
            break
        # Children of a killed server outlive it otherwise.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process = None

    # ------------------------------------------------------------------- effects, from outside

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        database = sqlite3.connect(f"file:{self.data / 'acme.db'}?mode=ro", uri=True, timeout=10)
        try:
            return database.execute(query, values).fetchall()
        finally:
            database.close()

    def refunds(self, order: str) -> list[int]:
        """Amounts refunded for one order: the effects."""
        found = self.rows("select amount_cents from refunds where order_id = ? order by id", order)
        return [row[0] for row in found]

    def orders(self) -> list[str]:
        """Orders that can be refunded."""
        found = self.rows("select order_id from orders where paid_cents >= 500 order by order_id")
        return [row[0] for row in found]
