"""The demo of the README, as a newcomer runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(180)
def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(_ROOT / "examples" / "demo.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "FAILED" not in ran.stdout
