"""Several worker processes that resume the same paused thread at the same moment.

Forked from one that has imported everything. Each has its own event loop, its own connection to
the store and, unless told to share one, its own copy of the checkpoints: nothing but the adapter's
store keeps them apart.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.types import Command
from tests.support.room import open_questions
from tests.support.worker import Saver, Worker
from tests.support.zygote import ROOT, say

from adapter import AdapterError, ApprovalDecision


class Racers:
    """What a test holds of them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, *command: Any) -> Any:
        """Send one line and return the reply; all racers start on it at once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def racers(folder: Path, uri: str, workers: int, **options: Any) -> Iterator[Racers]:
    """Start the processes; they end when the block does."""
    named = json.dumps({"folder": str(folder), "uri": uri, "kind": "gated", **options})
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.support.racers", named, str(workers)],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Racers(process)
    finally:
        process.communicate(timeout=60)


async def pause(named: dict[str, Any], rounds: int) -> list[Any]:
    """Pause this many threads; return each one's name and signed answer."""
    worker = Worker(**named)
    made = []
    async with Saver.from_conn_string(worker.file) as saver:
        graph = worker.graph(saver)
        for n in range(rounds):
            config: Any = {"configurable": {"thread_id": f"thread-{n}"}}
            await graph.ainvoke({"messages": [HumanMessage("go")]}, config)
            (one,) = open_questions(await graph.aget_state(config))
            value = worker.approval.resume_value(one, ApprovalDecision(approved=True))
            made.append([f"thread-{n}", {one.id: value}])
    await worker.close()
    return made


async def race(named: dict[str, Any], number: int, shared: bool, lines: Any, out: Any) -> None:
    """One racer: resume what each line names, and say how it ended."""
    worker = Worker(**named)
    if not shared:
        own = f"{worker.file}.{number}"
        shutil.copy(worker.file, own)
        worker.file = own
    async with Saver.from_conn_string(worker.file) as saver:
        graph = worker.graph(saver)
        while line := await asyncio.to_thread(lines.readline):
            thread, answer, run_id = json.loads(line)
            config: Any = {"configurable": {"thread_id": thread}}
            if run_id is not None:
                config["configurable"]["run_id"] = run_id
            try:
                await graph.ainvoke(Command(resume=answer), config)
                reply = "done"
            except AdapterError as error:
                reply = error.code
            except Exception:  # noqa: BLE001 - reported to the test
                reply = traceback.format_exc()
            out.write(json.dumps(reply) + "\n")
            out.flush()
    await worker.close()


def main(named: dict[str, Any], workers: int) -> None:
    shared = named.pop("shared", False)
    first = json.loads(sys.stdin.readline())
    # in a child: this process stays without threads, so that it may be forked
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        made = asyncio.run(pause(named, *first))
        with os.fdopen(write, "w") as pipe:
            json.dump(made, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        made = json.load(pipe)
    os.waitpid(pid, 0)
    children: list[tuple[int, Any, Any]] = []
    for number in range(workers):
        down, up = os.pipe(), os.pipe()
        if (pid := os.fork()) == 0:
            for _, into, outof in children:
                into.close()
                outof.close()
            os.close(down[1])
            os.close(up[0])
            with os.fdopen(down[0]) as lines, os.fdopen(up[1], "w") as out:
                asyncio.run(race(named, number, shared, lines, out))
            os._exit(0)
        os.close(down[0])
        os.close(up[1])
        children.append((pid, os.fdopen(down[1], "w"), os.fdopen(up[0])))
    say(made)
    for line in sys.stdin:
        for _, into, _ in children:
            into.write(line)
            into.flush()
        say([json.loads(outof.readline()) for _, _, outof in children])
    for pid, into, outof in children:
        into.close()
        os.waitpid(pid, 0)
        outof.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
