"""Where the `adapter` command begins: load the command line, or say what is missing."""

from __future__ import annotations

import sys

__all__ = ["main"]

_USAGE = 2


def main() -> None:
    """Run the `adapter` command on this process's arguments; ends the process."""
    try:
        import rich  # noqa: F401 - only to know that it is there
        import typer  # noqa: F401

        from adapter.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        print(
            f"adapter: the command line needs {error.name}, which is not installed: run "
            "`pip install 'agent-adapter[cli]'`.",
            file=sys.stderr,
        )
        raise SystemExit(_USAGE) from None
    app()
