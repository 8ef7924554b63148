"""Programs started in several processes that wait for each other, and then run at once.

A program prints ``ready``, reads a line, does its work and prints numbers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.support.zygote import ROOT


def said(code: str, argument: object, *, processes: int = 2) -> list[str]:
    """Run a program in several processes that start at once; return the lines they printed."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(argument)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        for _ in range(processes)
    ]
    return [line for one in started for line in one.communicate(timeout=60)[0].splitlines()]


def raced(program: str, *arguments: Sequence[str]) -> list[list[int]]:
    """Run a program once for each list of arguments; return the numbers each one printed."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for given in arguments
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [[int(n) for n in process.communicate(timeout=100)[0].split()] for process in processes]
