"""Operations that only look, how one runs on a borrowed connection, and the two smallest writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapter.core.store import CallRow, Event
from adapter.stores import questions
from adapter.stores.database import Database
from adapter.stores.rows import call_row
from adapter.stores.transaction import Operation, Transaction
from adapter.stores.writer import Writer

__all__ = ["append", "audience", "get", "of_message", "requested", "run"]


def run(database: Database, writer: Writer, operation: Operation[Any]) -> Any:
    """Run an operation that only looks, in the calling thread.

    A pooled connection may have died since it was last used, so a failure is tried once more on
    a new one; nothing was written, so nothing is done twice.

    Raises:
        StoreUnavailable: The database cannot be read.
    """
    try:
        try:
            return _once(database, operation)
        except Exception as error:
            if not database.retries_begin or not database.lost(error):
                raise
            database.release()
            return _once(database, operation)
    except Exception as error:
        raise database.fault(error) from error
    finally:
        if writer.closed:
            database.release()


def _once(database: Database, operation: Operation[Any]) -> Any:
    connection = database.connect()
    try:
        cursor = connection.cursor()
        found = operation(Transaction(cursor, database.sql), 0)
        cursor.close()
    except Exception as error:
        if database.lost(error):
            connection.invalidate()
        raise
    else:
        return found
    finally:
        connection.close()


def audience(tx: Transaction, now: int, *, proposed: str) -> str:  # noqa: ARG001 - an operation
    """Return the stored audience id, storing the proposed one when there is none."""
    tx.run(tx.sql.meta_put, {"key": "audience", "value": proposed})
    row = tx.one(tx.sql.meta_get, {"at_key": "audience"})
    return proposed if row is None else str(row[0])


def append(tx: Transaction, now: int, *, events: Sequence[Event]) -> int:  # noqa: ARG001
    """Link events; return how many were new."""
    return tx.chains.append(events)


def get(tx: Transaction, now: int, *, key: str) -> CallRow | None:  # noqa: ARG001
    """Return one row of the journal."""
    return questions.get(tx, key)


def of_message(
    tx: Transaction,
    now: int,  # noqa: ARG001
    *,
    thread_id: str,
    message_id: str,
) -> Sequence[CallRow]:
    """Return the rows of one AI message's calls, oldest first."""
    asked = {"at_thread": thread_id, "at_message": message_id}
    return tuple(call_row(row) for row in tx.all(tx.sql.calls_of_message, asked))


def requested(
    tx: Transaction,
    now: int,  # noqa: ARG001
    *,
    thread_id: str | None,
    limit: int,
) -> Sequence[CallRow]:
    """Return rows that wait for an answer, oldest first."""
    if thread_id is None:
        rows = tx.all(tx.sql.calls_requested, {"at_limit": limit})
    else:
        asked = {"at_thread": thread_id, "at_limit": limit}
        rows = tx.all(tx.sql.calls_requested_of_thread, asked)
    return tuple(call_row(row) for row in rows)
