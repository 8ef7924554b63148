"""The `adapter` command line. Importing it loads neither typer nor rich."""

from adapter.cli.entry import main

__all__ = ["main"]
