"""What is given for settings, before it is settings: a file, names nobody reads, faults in words.

The environment itself is read by settings modules only, and handed in.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from dotenv import dotenv_values
from pydantic import ValidationError

from adapter.core.errors import ConfigurationError

__all__ = ["explain", "read_file", "refuse_placeholders", "refuse_unknown", "servers_database"]

_OWNED_PREFIXES: Final = ("ADAPTER_", "AGENT_")
_PLACEHOLDER: Final = re.compile(
    r"change[-_ ]?(?:me|this)|replace[-_ ]?(?:me|this)|<[^>]*>|(?:^|/)path/to/|^your[-_ ]",
    re.IGNORECASE,
)
# Said instead of pydantic's own text, which names a rule but not its cure.
_CURES: Final[Mapping[str, str]] = {
    "ADAPTER_ON_INVALID": "set it to ask or raise",
    "ADAPTER_SQLITE_SYNC": "set it to NORMAL or FULL",
    "ADAPTER_ALLOW_ANONYMOUS": "set it to 1 or 0",
    "ADAPTER_AUDIT_OTEL": "set it to off, on or arguments",
    "ADAPTER_ON_EXCEEDED": "set it to refuse, end or ask",
    "ADAPTER_TOOL_RATE": "write 10/minute (second, minute, hour or day), or 5/30s",
    "ADAPTER_MODEL_RATE": "write 10/minute (second, minute, hour or day), or 5/30s",
}

# Said of a value that is no number, before what its bounds are matters.
_UNITS: Final[Mapping[str, str]] = {
    "ADAPTER_APPROVAL_TTL": "a number of seconds: 3600 is an hour",
    "ADAPTER_LEASE": "a number of seconds, such as 30",
    "ADAPTER_CANCEL_GRACE": "a number of seconds, such as 10",
    "ADAPTER_RETENTION": "a number of days, such as 90",
    "ADAPTER_COST_PER_TURN": "a number of dollars, such as 0.50",
    "ADAPTER_COST_PER_THREAD": "a number of dollars, such as 2",
    "ADAPTER_COST_PER_USER": "a number of dollars, such as 20",
    "AGENT_TOOL_DELAY_MS": "a whole number of milliseconds, such as 1500",
}


def servers_database(env: Mapping[str, str]) -> str | None:
    """Return the server's own PostgreSQL, where it has one; the development server has none."""
    for name in ("DATABASE_URI", "POSTGRES_URI"):
        if env.get(name, "").startswith(("postgres://", "postgresql://")):
            return env[name].replace("postgres://", "postgresql://", 1)
    return None


def read_file(path: Path | None) -> dict[str, str]:
    """Return the dotenv file's names and values; an absent file has none.

    Raises:
        ConfigurationError: It cannot be read.
    """
    if path is None or not path.exists():
        return {}
    try:
        return {name: value or "" for name, value in dotenv_values(path).items()}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the settings file {path} cannot be read ({type(error).__name__}): make it a "
            "readable UTF-8 file of NAME=value lines, or remove it."
        ) from None


def refuse_unknown(given: Mapping[str, Any], known: set[str]) -> None:
    """Refuse the first name under our prefixes that no settings class reads.

    Args:
        given: What is set, by name.
        known: Every name that is read.

    Raises:
        ConfigurationError: Names it and the nearest setting.
    """
    for name in sorted(given):
        if name.startswith(_OWNED_PREFIXES) and name not in known:
            ours = sorted(other for other in known if other.startswith(_OWNED_PREFIXES))
            nearest = difflib.get_close_matches(name, ours, n=1, cutoff=0.0)[0]
            raise ConfigurationError(
                f"{name} is not a setting: did you mean {nearest}? Rename it, or remove it from "
                "the environment and from .env."
            )


def refuse_placeholders(given: Mapping[str, str], names: Iterable[str]) -> None:
    """Refuse a value that was left as an example has it.

    Args:
        given: Values by name.
        names: Those that are checked.

    Raises:
        ConfigurationError: Names the setting.
    """
    for name in names:
        if _PLACEHOLDER.search(given.get(name, "")):
            raise ConfigurationError(
                f"{name} is still a placeholder: give it a real value, or remove the line to "
                "use the default."
            )


def explain(error: ValidationError, names: Mapping[str, str]) -> str:
    """Return one sentence per bad setting, without its value.

    Args:
        error: What validation found.
        names: The environment's name of each field.
    """
    lines = []
    for fault in error.errors(include_input=False, include_url=False, include_context=False):
        # A default that leans on a bad value is not a fault of its own.
        if fault["type"] == "default_factory_not_called":
            continue
        place = str(fault["loc"][0]) if fault["loc"] else "settings"
        name = names.get(place, place)
        cure = _CURES.get(name) or fault["msg"].removeprefix("Value error, ")
        if name in _UNITS and fault["type"].endswith("_parsing"):
            cure = f"give {_UNITS[name]}"
        lines.append(f"{name} is not valid: {cure}.")
    return " ".join(lines)
