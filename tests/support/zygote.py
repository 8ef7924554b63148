"""Real processes that start in milliseconds: forked from one that has imported everything.

The zygote itself runs no event loop, opens no database and has one thread, so that each child
begins as a fresh interpreter would, without paying for the imports.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    """How a child ended: the signal that killed it (0 for none) and what it returned."""

    signal: int
    result: Any


class Zygote:
    """Runs functions of one module in children, one after another."""

    def __init__(self, module: str) -> None:
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.support.zygote", module],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, function: str, *, kill_after: float | None = None, **named: Any) -> Ended:
        """Call a function of the module in a child of its own, and wait for the child's end.

        Args:
            function: Its name.
            kill_after: Seconds after which the child is killed, wherever it is.
            named: Its arguments; JSON, as its result.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([function, named, kill_after]) + "\n")
        self._process.stdin.flush()
        killed_by, result = json.loads(self._process.stdout.readline())
        assert not (isinstance(result, dict) and "traceback" in result), result["traceback"]
        return Ended(killed_by, result)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def _child(module: Any, function: str, named: dict[str, Any], out: int) -> None:
    try:
        result = getattr(module, function)(**named)
    except BaseException:  # noqa: BLE001 - reported to the test
        result = {"traceback": traceback.format_exc()}
    with os.fdopen(out, "w") as pipe:
        json.dump(result, pipe)
    sys.stderr.flush()
    os._exit(0)


def say(reply: Any) -> None:
    """Send one line to the process that started this one."""
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


def main(name: str) -> None:
    module = importlib.import_module(name)
    for line in sys.stdin:
        function, named, kill_after = json.loads(line)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _child(module, function, named, write)
        os.close(write)
        with os.fdopen(read) as pipe:
            if kill_after is not None and not select.select([pipe], [], [], kill_after)[0]:
                os.kill(pid, signal.SIGKILL)
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        say([-os.waitstatus_to_exitcode(status), json.loads(text or "null")])


if __name__ == "__main__":
    main(sys.argv[1])
