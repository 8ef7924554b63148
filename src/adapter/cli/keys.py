"""`adapter keys`: make a key file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adapter.core.errors import ConfigurationError

__all__ = ["keys"]

keys = typer.Typer(no_args_is_help=True, help="Make the key file that server and reviewers share.")


@keys.callback()
def _group() -> None:
    """Make the key file that server and reviewers share."""


@keys.command("new")
def new(
    path: Annotated[
        Path | None, typer.Argument(help="The new file; ADAPTER_KEY_FILE when left out.")
    ] = None,
) -> None:
    """Make a key file (mode 0600) with a fresh key for each purpose; never overwrite one."""
    from adapter.keyfile import write_keys
    from adapter.settings import AdapterSettings

    target = path if path is not None else AdapterSettings.load().key_file
    if not write_keys(target):
        raise ConfigurationError(
            f"{target} exists and is not overwritten: its keys may have signed requests that are "
            "still open. Give another path."
        )
    typer.echo(f"Made {target}. Whoever can read it can sign approvals.")
    typer.echo(f"Set ADAPTER_KEY_FILE={target.resolve()} for the server and its reviewers.")
