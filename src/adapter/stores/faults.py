"""From what a database driver raises to an error that names the setting and the cure.

The driver's own text is never passed on: it may hold a host, a user or a value.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from adapter.core.errors import AdapterError, StoreUnavailable

__all__ = ["SETTING", "unavailable"]

SETTING = "ADAPTER_DATABASE_URI"

_LOCKED = (
    "is locked by another process",
    "end the process that holds it open in a transaction, or move to PostgreSQL",
)
_READ_ONLY = (
    "is read-only",
    "give this process write permission on the file and on its folder (SQLite writes beside it)",
)
_NO_FILE = (
    "cannot be opened",
    "create the folder of the file, or correct the path, and let this process write there",
)
_CORRUPT = (
    "is not a usable SQLite database",
    "restore the file from a backup, or name another one; nothing was changed",
)
_FULL = ("cannot be written: the disk is full or failing", "free space or check the disk")
_REFUSED = (
    "cannot be reached",
    "check that PostgreSQL runs there and accepts connections of this user and database",
)
_RIGHTS = (
    "refuses this user",
    "grant it CREATE on the database, or ownership of the schema agent_adapter",
)
_BUSY = (
    "did not grant a lock in time",
    "look for a stopped process that holds a transaction open; the call may be tried again",
)
_VALUE = (
    "refuses a value of this call",
    "texts must be valid Unicode without NUL characters; nothing was written",
)
_OTHER = ("failed", "see the store's own log; nothing of this call was confirmed")

_BY_TEXT = (
    (re.compile(r"locked|busy", re.IGNORECASE), _LOCKED),
    (re.compile(r"readonly|read-only", re.IGNORECASE), _READ_ONLY),
    (re.compile(r"unable to open", re.IGNORECASE), _NO_FILE),
    (re.compile(r"not a database|malformed|corrupt", re.IGNORECASE), _CORRUPT),
    (re.compile(r"full|disk i/o", re.IGNORECASE), _FULL),
)
_BY_STATE = (
    ("08", _REFUSED),
    ("28", _REFUSED),
    ("3D", _REFUSED),
    ("57", _REFUSED),
    ("42501", _RIGHTS),
    ("55P03", _BUSY),
    ("40", _BUSY),
    ("22", _VALUE),
)

_BY_NAME = {"OperationalError": _REFUSED, "InterfaceError": _REFUSED, "DataError": _VALUE}


def unavailable(error: Exception, *, place: str, driver_errors: tuple[type[Exception], ...]) -> Any:
    """Return the error to raise for one that an operation met.

    Args:
        error: What was raised.
        place: Where the store is, without a password.
        driver_errors: Base classes of the driver's errors.

    Returns:
        StoreUnavailable for errors of the database and its driver; any other error as it is.
    """
    if isinstance(error, AdapterError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return _named(place, _VALUE, error)
    if isinstance(error, DBAPIError) and error.orig is not None:
        cause: BaseException = error.orig
    elif isinstance(error, (SQLAlchemyError, OSError, *driver_errors)):
        cause = error
    else:
        return error
    return _named(place, _reason(cause), error)


def _reason(cause: BaseException) -> tuple[str, str]:
    if type(cause).__module__.startswith("sqlite3"):
        text = str(cause)
        return next((reason for form, reason in _BY_TEXT if form.search(text)), _OTHER)
    state = getattr(cause, "sqlstate", None)
    if state is None:  # psycopg knows no state where the server did not speak
        return _BY_NAME.get(type(cause).__name__, _OTHER)
    return next((reason for start, reason in _BY_STATE if state.startswith(start)), _OTHER)


def _named(place: str, reason: tuple[str, str], error: Exception) -> StoreUnavailable:
    what, cure = reason
    made = StoreUnavailable(f"The store {place} ({SETTING}) {what}; {cure}.")
    made.__cause__ = error
    return made
