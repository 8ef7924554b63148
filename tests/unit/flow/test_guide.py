"""The guide's programs run as they are printed, and what they say of themselves holds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[3] / "docs/flows.md"


def programs() -> dict[str, str]:
    """Each program of the guide by the file name that its first line says."""
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```python\n")
    return dict(blocks)


def test_the_programs_of_the_guide_run(tmp_path: Path) -> None:
    found = programs()
    assert list(found) == ["shop.py", "graph.py", "calls.py", "later.py"]
    for name, program in found.items():
        (tmp_path / name).write_text(program, encoding="utf-8")
    for name in found:
        command = [sys.executable, "-W", "error", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (name, done.returncode, done.stderr) == (name, 0, "")
