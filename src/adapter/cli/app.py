"""The command tree, and how an error becomes a sentence and an exit code.

Exit codes: 0 done, 1 refused or a failed verification, 2 usage or configuration.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from adapter.cli.approvals import approvals
from adapter.cli.audit import audit
from adapter.cli.calls import calls
from adapter.cli.keys import keys
from adapter.cli.selftest import selftest_command
from adapter.core.errors import (
    AdapterError,
    ConfigurationError,
    StoreUnavailable,
    ToolUsageError,
)

__all__ = ["app"]

_REFUSED = 1
_USAGE = 2


class Commands(TyperGroup):
    """A command group that ends an adapter error as one line on standard error."""

    @override
    def invoke(self, ctx: Any) -> Any:
        """Run the command; no traceback for errors that carry their own cure."""
        try:
            return super().invoke(ctx)
        except AdapterError as error:
            typer.echo(f"adapter: {error.message}", err=True)
            usage = isinstance(error, ConfigurationError | ToolUsageError | StoreUnavailable)
            raise typer.Exit(_USAGE if usage else _REFUSED) from None


app = typer.Typer(
    name="adapter",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    # A traceback with local variables could show a key.
    pretty_exceptions_enable=False,
    help="Review an agent's gated tool calls, and check their audit trail.",
    epilog=(
        "Settings are read from the environment and .env: ADAPTER_URL, ADAPTER_KEY_FILE, "
        "ADAPTER_REVIEWER and ADAPTER_TOKEN for approvals, ADAPTER_DATABASE_URI for audit and "
        "calls. "
        "Exit status: 0 done, 1 refused or verification failed, 2 usage or configuration."
    ),
)
app.add_typer(approvals, name="approvals")
app.add_typer(audit, name="audit")
app.add_typer(calls, name="calls")
app.add_typer(keys, name="keys")
app.command(name="selftest")(selftest_command)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"adapter {version('agent-adapter')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Review an agent's gated tool calls, and check their audit trail."""
    del version
