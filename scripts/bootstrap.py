"""Make `.venv` and install the locked set into it; quick when nothing changed.

Needs only the standard library of Python 3.11. Everything installed is pinned with hashes: pip
fetches uv as the lock names it, uv makes the environment equal to the lock, and the project itself
is built from what is then installed. Nothing is written outside the checkout.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements-dev.lock"
STAMP = VENV / ".installed"
CACHE = VENV / ".uv-cache"  # on the same disk, so files are linked, not copied; removed at the end
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")


def fingerprint() -> str:
    """Name the state an installation was made for: lock, project table, place."""
    digest = hashlib.sha256()
    for path in (LOCK, ROOT / "pyproject.toml"):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    digest.update(str(ROOT).encode())
    return digest.hexdigest()


def usable() -> bool:
    """Say whether `.venv` was made here, and its Python runs, is new enough and has pip."""
    config = VENV / "pyvenv.cfg"
    text = config.read_text(encoding="utf-8") if config.exists() else ""
    made = re.search(r"^command = .* -m venv (.*)$", text, re.MULTILINE)
    if made is not None and Path(made[1]) != VENV:
        return False  # copied or moved: its scripts start the old one
    probe = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        done = subprocess.run([str(PYTHON), "-c", probe], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def current() -> bool:
    """Say whether the installation is the one wanted and still runs."""
    return STAMP.exists() and STAMP.read_text(encoding="utf-8") == fingerprint() and usable()


def locked(name: str) -> str:
    """Return one package's entry, pin and hashes, out of the lock."""
    rest = r"[^\\\n]*(?:\\\n[^\\\n]*)*"
    text = LOCK.read_text(encoding="utf-8")
    entry = re.search(rf"^{re.escape(name)}=={rest}", text, re.MULTILINE)
    if entry is None:
        raise SystemExit(f"{LOCK.name} does not pin {name}. Cure: make lock")
    return entry.group(0) + "\n"


def environment() -> dict[str, str]:
    """Return the environment for both installers: one certificate store, one index, quiet."""
    env = dict(os.environ)
    certificates = env.get("SSL_CERT_FILE") or env.get("PIP_CERT")
    if certificates:
        env.setdefault("SSL_CERT_FILE", certificates)
        env.setdefault("PIP_CERT", certificates)
    env.setdefault("UV_CACHE_DIR", str(CACHE))
    if env.get("PIP_INDEX_URL"):
        env.setdefault("UV_DEFAULT_INDEX", env["PIP_INDEX_URL"])
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    for inherited in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_USER"):
        env.pop(inherited, None)
    return env


def run(*command: str | Path) -> None:
    """Run one step; its own output explains a failure."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, env=environment(), check=False)
    if done.returncode != 0:
        step = " ".join(str(part) for part in command[1:5])
        raise SystemExit(f"\nInstallation stopped at: {step} (exit {done.returncode})")


def sync(*command: str | Path) -> None:
    """Run uv's long step; pass on what it downloads and builds, not the list of all packages."""
    with subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        for line in process.stderr or ():
            if not re.match(r" [-+~] ", line):
                print(f"  {line.rstrip()}", flush=True)
    if process.returncode != 0:
        raise SystemExit(f"\nInstallation stopped at: uv pip sync (exit {process.returncode})")


def has_uv() -> bool:
    """Say whether the venv holds exactly the uv that the lock names."""
    wanted = re.match(r"uv==(\S+)", locked("uv"))
    done = subprocess.run(
        [str(PYTHON), "-m", "uv", "--version"], capture_output=True, text=True, check=False
    )
    return wanted is not None and done.stdout.split()[1:2] == [wanted[1]]


def fetch_uv() -> None:
    """Install uv with pip, by the pin and hashes of the lock."""
    print("fetching the pinned installer (uv)", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        only = Path(scratch) / "uv.txt"
        only.write_text(locked("uv"), encoding="utf-8")
        run(
            *(PYTHON, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-deps"),
            *("--require-hashes", "--only-binary", ":all:", "-r", only),
        )


def main() -> int:
    """Bring `.venv` to the locked state."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this is the check, for those without make
        raise SystemExit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}.")
    if current():
        return 0
    STAMP.unlink(missing_ok=True)
    if not usable():
        print(f"creating .venv with Python {sys.version.split()[0]}", flush=True)
        if VENV.exists():
            shutil.rmtree(VENV)
        run(sys.executable, "-m", "venv", VENV)
    if not has_uv():
        fetch_uv()
    uv = (PYTHON, "-m", "uv", "--no-config", "pip")
    count = len(re.findall(r"^[a-z].*==", LOCK.read_text(encoding="utf-8"), re.MULTILINE))
    print(f"installing {count} locked packages (a minute or so the first time)", flush=True)
    sync(*uv, "sync", "--python", PYTHON, "--require-hashes", LOCK)
    print("installing the project itself", flush=True)
    run(
        *(*uv, "install", "--python", PYTHON, "--quiet"),
        *("--no-deps", "--no-build-isolation", "--editable", "."),
    )
    shutil.rmtree(CACHE, ignore_errors=True)
    STAMP.write_text(fingerprint(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
