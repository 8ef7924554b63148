"""Write the two locks from pyproject.toml, or check without a network that they are fresh.

`python scripts/lock.py` resolves again; `--upgrade` also moves versions; `--check` compares the
digest of pyproject's dependency tables with the one written at the head of each lock.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS: dict[str, tuple[str, ...]] = {
    "requirements.lock": ("--extra", "cli"),
    "requirements-dev.lock": ("--extra", "cli", "--group", "dev", "-c", "requirements.lock"),
}
HEAD = "# Written by scripts/lock.py (make lock). Inputs: sha256:"


def inputs_digest(root: Path, arguments: tuple[str, ...]) -> str:
    """Return the digest of everything in pyproject.toml that a lock is resolved from."""
    data = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    project = data["project"]
    inputs = {
        "arguments": arguments,
        "requires-python": project["requires-python"],
        "dependencies": project["dependencies"],
        "optional-dependencies": project.get("optional-dependencies", {}),
        "dependency-groups": data.get("dependency-groups", {}),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def stale(root: Path) -> list[str]:
    """Name each lock that is missing or was resolved from other inputs than today's."""
    problems = []
    for name, arguments in LOCKS.items():
        path = root / name
        first = path.read_text(encoding="utf-8").split("\n", 1)[0] if path.exists() else ""
        if first != HEAD + inputs_digest(root, arguments):
            problems.append(name)
    return problems


def write(root: Path, name: str, arguments: tuple[str, ...], *, upgrade: bool) -> None:
    """Resolve one lock for every platform and Python from 3.11 on, with hashes."""
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", *arguments),
        *("--universal", "--python-version", "3.11", "--generate-hashes", "--no-config"),
        *("--no-header", "--no-emit-index-url", "--no-emit-find-links", "--no-annotate"),
        *("--output-file", name, "--quiet"),
        *(("--upgrade",) if upgrade else ()),
    ]
    subprocess.run(command, cwd=root, check=True)
    path = root / name
    body = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = f"{HEAD}{inputs_digest(root, arguments)}\n{body}"
    path.write_text(text, encoding="utf-8", newline="\n")


def main() -> int:
    """Run the command line; 1 when a lock is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether they are fresh")
    parser.add_argument("--upgrade", action="store_true", help="take the newest allowed versions")
    options = parser.parse_args()
    if options.check:
        problems = stale(ROOT)
        for name in problems:
            print(f"{name} does not match pyproject.toml. Cure: make lock", file=sys.stderr)
        return 1 if problems else 0
    for name, arguments in LOCKS.items():
        print(f"resolving {name}", flush=True)
        write(ROOT, name, arguments, upgrade=options.upgrade)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
