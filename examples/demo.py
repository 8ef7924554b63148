"""A gated refund on a real server: asked for, refused, forged, approved with an edit, replayed.

    make demo        or        .venv/bin/python examples/demo.py

Starts `langgraph dev` on a free loopback port with all its data in a temporary folder, acts as a
customer and as a reviewer over HTTP, and checks every step on the thread's state and on the rows
of the database. Stops what it started and removes what it wrote. Exit status 0 only if every step
went as it should.
"""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from langgraph_sdk import get_sync_client
from rich.console import Console
from rich.text import Text

from adapter.cli.requests import Request
from adapter.cli.show import as_json, request_panel, visible
from adapter.client import PendingApproval, SyncApprovalClient
from adapter.core.approvals import ApprovalDecision
from adapter.keyfile import load_keys

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
START_TIMEOUT = 45.0
STOP_TIMEOUT = 8.0
ASKED_CENTS = 400
PAID_BACK_CENTS = 250
QUIET = {
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGSMITH_TRACING": "false",
    "PYTHONUNBUFFERED": "1",
}
console = Console(highlight=False)


class DemoError(Exception):
    """A step did not go as it should."""


def check(ok: bool, what: str) -> None:
    if not ok:
        raise DemoError(f"expected: {what}")
    console.print(Text(f"  ok  {what}", style="green"))


def step(number: int, title: str) -> None:
    console.print()
    console.print(Text(f"{number}. {title}", style="bold"))


def say(text: str, style: str = "") -> None:
    console.print(Text(visible(text), style=style))


# ------------------------------------------------------------------------------------ the server


def environment(folder: Path) -> dict[str, str]:
    """Ours alone: no setting of the caller's, no home folder, no key of any provider."""
    ours = ("ADAPTER_", "AGENT_", "LANGGRAPH_", "LANGSMITH_", "LANGCHAIN_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    paths = [str(ROOT / "src"), *filter(None, [kept.get("PYTHONPATH")])]
    return {
        **kept,
        **QUIET,
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(paths),
        "ADAPTER_DATA_DIR": str(folder / "data"),
        "AGENT_MODEL": "demo",
    }


def write_config(folder: Path) -> None:
    """Write a langgraph.json for the checkout's graphs that can be served from another folder.

    The server keeps its threads in `.langgraph_api` where it runs, so it runs here.
    """
    config = json.loads((ROOT / "langgraph.json").read_text(encoding="utf-8"))
    graphs = {}
    for name, place in config["graphs"].items():
        file, _, attribute = place.rpartition(":")
        graphs[name] = f"{(ROOT / file).resolve()}:{attribute}"
    # No env: the checkout's .env may hold a person's own settings.
    config |= {"graphs": graphs, "dependencies": ["."], "env": {}}
    (folder / "langgraph.json").write_text(json.dumps(config), encoding="utf-8")


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Run `langgraph dev` in a folder; yields its address once it answers."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    write_config(folder)
    (folder / "data").mkdir(mode=0o700)
    command = [
        *(sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"),
        *("--host", HOST, "--port", str(port)),
    ]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            url = f"http://{HOST}:{port}"
            wait_until_ready(url, process)
            yield url
        finally:
            stop(process)


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    with httpx.Client(base_url=url, trust_env=False, timeout=2) as http:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise DemoError(f"the server ended at once with status {process.returncode}")
            try:
                if http.get("/ok").is_success:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
    raise DemoError(f"the server did not answer within {START_TIMEOUT:.0f} s")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and everything it started: politely, then not."""
    for how in ("SIGTERM", "SIGKILL"):
        try:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, getattr(signal, how))
            else:
                process.terminate()
        except ProcessLookupError:
            pass
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            continue
        if how == "SIGKILL" or not hasattr(os, "killpg"):
            return


# ------------------------------------------------------------------------------------- the story


class Story:
    """One customer, one reviewer, one server."""

    def __init__(self, url: str, data: Path) -> None:
        self.database = data / "acme.db"
        self.sdk = get_sync_client(url=url, api_key=None)
        keys = load_keys(data / "keys.json")
        self.desk = SyncApprovalClient(url, keys=keys, reviewer="demo", token="")

    def close(self) -> None:
        """Close both connections."""
        self.desk.close()
        self.sdk.close()

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Read the Acme database, which this program never writes."""
        db = sqlite3.connect(f"{self.database.as_uri()}?mode=ro", uri=True, timeout=10)
        try:
            return db.execute(query, values).fetchall()
        finally:
            db.close()

    def refunds(self, order: str) -> list[int]:
        """Return the amounts refunded for an order: the effects."""
        found = self.rows("SELECT amount_cents FROM refunds WHERE order_id = ? ORDER BY id", order)
        return [row[0] for row in found]

    def tell(self, thread: str, text: str) -> list[dict[str, Any]]:
        """Send a user message; returns the messages that followed it."""
        say(f"  customer: {text}".replace("\n", "\n            "), style="cyan")
        given: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
        before = len(self.messages(thread))
        self.sdk.runs.wait(thread, "agent", input=given)
        return self.messages(thread)[before + 1 :]

    def messages(self, thread: str) -> list[dict[str, Any]]:
        """Return the thread's messages from its state."""
        values = self.sdk.threads.get_state(thread)["values"]
        return values.get("messages", []) if isinstance(values, dict) else []

    def resume(self, thread: str, answers: Any, **named: Any) -> Any:
        """Resume as anybody could, without the reviewer's client."""
        return self.sdk.runs.wait(
            thread, "agent", command={"resume": answers}, raise_error=False, **named
        )

    def still_open(self, asked: PendingApproval) -> PendingApproval:
        """Return the request as it is now; it must be the same pause."""
        found = self.desk.pending(asked.thread_id)
        check([p.id for p in found] == [asked.id], "the same request is still open, nothing else")
        status = self.sdk.threads.get(asked.thread_id)["status"]
        check(status == "interrupted", "the thread still waits (status interrupted)")
        return found[0]


def a_question(story: Story) -> None:
    step(1, "A question, answered with a read of the database")
    thread = story.sdk.threads.create()["thread_id"]
    new = story.tell(thread, "What products do you have and how much do they cost?")
    answer = new[-1]
    say(f"  agent: {answer['content']}")
    check(answer["type"] == "ai" and bool(answer["content"]), "a final answer")
    check(story.desk.pending(thread) == [], "nobody was asked: reading needs no approval")


def two_reads(story: Story) -> None:
    step(2, "Two reads in one turn, run at once")
    thread = story.sdk.threads.create()["thread_id"]
    lines = [
        '/call calculate {"expression": "6*7"}',
        '/call search_database {"query": "widget"}',
    ]
    new = story.tell(thread, "\n".join(lines))
    calls = [call["name"] for call in new[0].get("tool_calls", [])]
    check(calls == ["calculate", "search_database"], "both calls in one message of the model")
    results = {m["name"]: m for m in new if m["type"] == "tool"}
    for name, result in results.items():
        say(f"  {name}: {str(result['content'])[:160]}")
    check(results.keys() == set(calls), "each call has its result")
    check("42" in str(results["calculate"]["content"]), "calculate says 42")
    check(all(m["status"] != "error" for m in results.values()), "both succeeded")


def a_refund_is_asked_for(story: Story) -> tuple[str, PendingApproval, str]:
    step(3, "A refund: the call is gated, so the thread pauses and asks")
    (order, paid), *_ = story.rows(
        "SELECT order_id, paid_cents FROM orders WHERE paid_cents >= ? ORDER BY order_id",
        ASKED_CENTS,
    )
    say(f"  order {order} was paid with {paid} cents")
    thread = story.sdk.threads.create()["thread_id"]
    wanted = {"order_id": order, "amount_cents": ASKED_CENTS, "reason": "arrived late"}
    story.tell(thread, f"/call issue_refund {json.dumps(wanted)}")
    pending = story.desk.pending(thread)
    check(len(pending) == 1, "one pending approval request")
    asked = pending[0]
    console.print(request_panel(Request(approval=asked), time.time_ns() // 1_000_000))
    check(asked.request["tool"] == "issue_refund", "it names the tool")
    check(asked.request["arguments"] == wanted, "it shows the arguments")
    check(story.refunds(order) == [], "no refund yet")
    checkpoint = story.sdk.threads.get_state(thread)["checkpoint"]["checkpoint_id"]
    return order, asked, str(checkpoint)


def unsigned(story: Story, order: str, asked: PendingApproval) -> None:
    step(4, "An unsigned yes")
    junk = {"approved": True}
    say(f"  resume with {as_json(junk)}", style="yellow")
    story.resume(asked.thread_id, {asked.id: junk})
    check(story.refunds(order) == [], "no refund")
    now = story.still_open(asked)
    check(now.refused is not None, "the request says that an answer was refused")
    say(f"  refused: {(now.refused or {}).get('message')}")


def forged(story: Story, order: str, asked: PendingApproval) -> None:
    step(5, "A signed answer whose amount was raised after signing")
    edit = {**asked.request["arguments"], "amount_cents": PAID_BACK_CENTS}
    forgery = copy.deepcopy(story.desk.sign(asked, ApprovalDecision(kind="edit", edited_args=edit)))
    forgery["decision"]["edited_args"]["amount_cents"] = ASKED_CENTS
    say(f"  resume with {as_json(forgery)}", style="yellow")
    story.resume(asked.thread_id, {asked.id: forgery})
    check(story.refunds(order) == [], "no refund")
    now = story.still_open(asked)
    check(now.refused is not None, "the request says that an answer was refused")
    say(f"  refused: {(now.refused or {}).get('message')}")


def approved(story: Story, order: str, asked: PendingApproval) -> dict[str, Any]:
    step(6, f"The reviewer approves, with {PAID_BACK_CENTS} cents instead of {ASKED_CENTS}")
    edit = {**asked.request["arguments"], "amount_cents": PAID_BACK_CENTS}
    decision = ApprovalDecision(kind="edit", edited_args=edit, reason="half the price is fair")
    answer = {asked.id: story.desk.sign(asked, decision)}
    result = story.desk.resume(asked.thread_id, answer)
    effect = story.desk.effect(asked, result)
    say(f"  issue_refund: {effect.message}")
    check(effect.kind == "done", "the call has its result")
    check(story.refunds(order) == [PAID_BACK_CENTS], f"one refund, of {PAID_BACK_CENTS} cents")
    check(story.desk.pending(asked.thread_id) == [], "nothing is pending")
    say(f"  agent: {story.messages(asked.thread_id)[-1]['content']}")
    return answer


def replayed(
    story: Story, order: str, asked: PendingApproval, checkpoint: str, answer: Any
) -> None:
    step(7, "The same answer again, from the checkpoint of the pause")
    result = story.resume(asked.thread_id, answer, checkpoint_id=checkpoint)
    error = result.get("__error__") if isinstance(result, dict) else None
    say(f"  the run ended with {as_json(error)}", style="yellow")
    check(bool(error), "the run was refused")
    check("AlreadyDecided" in str(error), "because the answer was used before")
    check(story.refunds(order) == [PAID_BACK_CENTS], "still one refund: it ran once")


def the_books(story: Story, order: str, thread: str, folder: Path) -> None:
    step(8, "What the database says")
    found = story.rows("SELECT id, order_id, amount_cents, reason FROM refunds")
    for row in found:
        say(f"  refunds: {row}")
    check(len(found) == 1 and found[0][1] == order, "one row in refunds, for this order")

    step(9, f"What the audit trail says: adapter audit tail --thread {thread}")
    _, tail = command(folder, "audit", "tail", "--thread", thread, "-n", "100", "--json")
    events = [json.loads(line) for line in tail.splitlines()]
    for line in command(folder, "audit", "tail", "--thread", thread, "-n", "100")[1].splitlines():
        say(f"  {line}")
    kinds = [event["event"]["kind"] for event in events]
    check("requested" in kinds, "the question is recorded")
    check(kinds.count("answer_refused") == 2, "both bad answers are recorded")
    check("decided" in kinds, "the decision is recorded")

    step(10, "Is the trail whole? adapter audit verify")
    status, verdict = command(folder, "audit", "verify")
    say(f"  {verdict.strip()}".replace("\n", "\n  "))
    check(status == 0, "every chain verifies")


def command(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the `adapter` command line on the demo's data."""
    done = subprocess.run(
        [sys.executable, "-c", "from adapter.cli import main; main()", *arguments],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if done.stderr:
        say(done.stderr, style="red")
    return done.returncode, done.stdout


def play(folder: Path) -> None:
    console.print(
        Text("Starting the server (langgraph dev) in a temporary folder ...", style="dim")
    )
    with server(folder) as url:
        console.print(
            Text(f"It answers at {url}; no key, no network, the demo model.", style="dim")
        )
        story = Story(url, folder / "data")
        try:
            a_question(story)
            two_reads(story)
            order, asked, checkpoint = a_refund_is_asked_for(story)
            unsigned(story, order, asked)
            forged(story, order, asked)
            answer = approved(story, order, asked)
            replayed(story, order, asked, checkpoint, answer)
            the_books(story, order, asked.thread_id, folder)
        finally:
            story.close()


def main() -> int:
    begin = time.monotonic()
    # A plain kill must still stop the server and remove the folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="adapter-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        try:
            play(folder)
        except KeyboardInterrupt:
            return 130
        except Exception as error:  # noqa: BLE001 - whatever it was: show the server's side of it
            console.print(Text(f"\nFAILED: {type(error).__name__}: {error}", style="bold red"))
            show_log(folder / "server.log")
            return 1
    console.print()
    took = time.monotonic() - begin
    console.print(Text(f"Every step went as it should ({took:.0f} s).", style="bold green"))
    return 0


def show_log(log: Path, lines: int = 40) -> None:
    if not log.exists():
        return
    console.print(Text("The end of the server's log:", style="dim"))
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(encoding="utf-8", errors="replace"))
    for line in text.splitlines()[-lines:]:
        console.print(Text(f"  {visible(line)}", style="dim"))


if __name__ == "__main__":
    raise SystemExit(main())
