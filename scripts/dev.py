"""Start `langgraph dev` for this checkout: a known port, no browser, quiet, one data folder.

Become that server, so that a signal sent here stops it. The server itself keeps its threads in
`.langgraph_api/`; everything the adapter and the demo write goes under the data folder.

What langgraph.json exports is loaded once before, in a process of its own: the server's reloader
would not end on an error there, but wait for the next edit, with its message far up.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from adapter import ConfigurationError
from agent.settings import AgentSettings

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
QUIET = {
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGSMITH_TRACING": "false",
    "PYTHONUNBUFFERED": "1",
}


def choose_port(wanted: int) -> int:
    """Return the port asked for, or a free one for 0; stop when it is taken.

    `langgraph dev` would silently move to another port, and clients would talk to whoever has this.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            raise SystemExit(
                f"Port {wanted} cannot be used ({error.strerror}). "
                "Stop what listens there, or take any free port: make dev"
            ) from error
        return int(probe.getsockname()[1])


def warn_of_overrides(chosen: dict[str, str]) -> None:
    """Say which values `.env` will replace: `langgraph dev` lets that file win."""
    for name, value in dotenv_values(ROOT / ".env").items():
        if name in chosen and value != chosen[name]:
            print(f"note: .env sets {name}={value}, which wins over {chosen[name]}", flush=True)


def made_folder(path: Path) -> Path:
    """Return the data folder, made where it is not there; stop where it cannot be one."""
    data = (Path.cwd() / path.expanduser()).resolve()
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        fault = "is a file" if data.is_file() else f"cannot be made ({error.strerror})"
        raise SystemExit(
            f"{data} {fault}, and the data needs a folder: name another with make dev DATA=DIR "
            "(--data DIR)."
        ) from None
    return data


def settings_problem(env: dict[str, str]) -> str | None:
    """Return what is wrong with the settings, in one line instead of a server's traceback."""
    try:
        AgentSettings.load(env, ROOT / ".env")
    except ConfigurationError as error:
        return str(error)
    return None


def exported() -> list[str]:
    """Return everything the server will load, as ``./path/to/file.py:variable``."""
    config: dict[str, Any] = json.loads((ROOT / "langgraph.json").read_text("utf-8"))
    named = [*config.get("graphs", {}).values(), config.get("auth"), config.get("http")]
    places = [one.get("path") or one.get("app") if isinstance(one, dict) else one for one in named]
    return [place for place in places if place]


def check() -> None:
    """Load it as the server will, and stop with what is wrong."""
    for place in exported():
        file, _, name = place.rpartition(":")
        if not file.endswith(".py"):
            continue
        try:
            found = runpy.run_path(str(ROOT / file))
        except ConfigurationError as error:
            raise SystemExit(error.message) from None
        if name not in found:
            raise SystemExit(
                f"langgraph.json names {place}, and there is no {name!r} in that file."
            )
        if getattr(found[name], "checkpointer", None) not in (None, True, False):
            raise SystemExit(
                f"{place} is compiled with a checkpointer of its own. The server brings one: "
                "export the graph without it."
            )


def start_fails(env: dict[str, str]) -> bool:
    """Tell whether the server could not start; what is wrong is then said already."""
    own = {name: value for name, value in dotenv_values(ROOT / ".env").items() if value is not None}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--check"],
        env={**env, **own, "LANGSMITH_LANGGRAPH_API_VARIANT": "local_dev"},
        cwd=ROOT,
        check=False,
    )
    return done.returncode != 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 or nothing: a free one")
    parser.add_argument("--data", type=Path, default=Path(".adapter"), help="data folder")
    parser.add_argument("--no-reload", action="store_true", help="do not restart on changes")
    parser.add_argument("--check", action="store_true", help="only load what is exported")
    options = parser.parse_args()
    if options.check:
        check()
        return 0

    port = choose_port(options.port)
    data = made_folder(options.data)
    chosen = {"ADAPTER_DATA_DIR": str(data)}
    if "AGENT_TOOL_DELAY_MS" in os.environ:
        chosen["AGENT_TOOL_DELAY_MS"] = os.environ["AGENT_TOOL_DELAY_MS"]
    warn_of_overrides(chosen)

    problem = settings_problem({**os.environ, **chosen})
    if problem:
        raise SystemExit(problem)
    env = {**os.environ, **QUIET, **chosen}
    if start_fails(env):
        raise SystemExit("The server was not started.")
    print(f"API    http://{HOST}:{port}   (answers in about ten seconds)", flush=True)
    print(f"docs   http://{HOST}:{port}/docs", flush=True)
    print(f"data   {data}", flush=True)
    print("For the adapter command in another terminal:", flush=True)
    print(
        f"  export ADAPTER_URL=http://{HOST}:{port} ADAPTER_DATA_DIR={shlex.quote(str(data))}",
        flush=True,
    )
    command = [
        *(sys.executable, "-m", "langgraph_cli", "dev", "--no-browser"),
        *("--host", HOST, "--port", str(port)),
        *(("--no-reload",) if options.no_reload else ()),
    ]
    os.chdir(ROOT)
    if os.name == "nt":  # no exec there: stay as the parent
        return subprocess.run(command, env=env, check=False).returncode
    os.execve(command[0], command, env)
    raise AssertionError("unreachable: exec does not return")


if __name__ == "__main__":
    raise SystemExit(main())
