"""Rows that travel with a checkpoint, where the store itself does not outlive the process.

Each function is one operation inside the writer's transaction. What is written here was sealed
by this adapter; who may bring rows in is the caller's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adapter.core.errors import ToolUsageError
from adapter.core.types import JsonObject
from adapter.stores.schema import CALL_FIELDS
from adapter.stores.transaction import Transaction

__all__ = ["adopt", "export"]

_VOTE_FIELDS = (
    "call_key",
    "reviewer",
    "kid",
    "answer",
    "executed_digest",
    "decision",
    "created_at",
)


def export(
    tx: Transaction,
    now: int,  # noqa: ARG001 - an operation
    *,
    thread_id: str,
    namespaces: Sequence[str] | None,
) -> list[JsonObject]:
    """Return the rows of a thread's tasks as they are stored, with their votes."""
    asked = {"at_thread": thread_id}
    if namespaces is None:
        found = tx.all(tx.sql.calls_of_thread, asked)
    else:
        found = [
            row
            for namespace in dict.fromkeys(namespaces)
            for row in tx.all(tx.sql.calls_of_task, {**asked, "at_namespace": namespace})
        ]
    rows = [dict(zip(CALL_FIELDS, row, strict=True)) for row in found]
    return [{**row, "votes": _votes(tx, row["key"])} for row in rows]


def _votes(tx: Transaction, key: str) -> list[JsonObject]:
    found = tx.all(tx.sql.votes_kept, {"at_key": key})
    return [dict(zip(_VOTE_FIELDS, row, strict=True)) for row in found]


def adopt(
    tx: Transaction,
    now: int,  # noqa: ARG001 - an operation
    *,
    rows: Sequence[Mapping[str, Any]],
) -> int:
    """Take in rows that are unknown here, or got further elsewhere; return how many.

    A row that got further here stays: what a call has come to is never taken back.

    Raises:
        ToolUsageError: Another version of the adapter exported them.
    """
    taken = 0
    for row in rows:
        if row.keys() != {*CALL_FIELDS, "votes"}:
            msg = "These rows were exported by another version of the adapter; nothing was taken."
            raise ToolUsageError(msg)
        known = tx.one(tx.sql.call_get, {"at_key": row["key"]})
        if known is not None:
            here = dict(zip(CALL_FIELDS, known, strict=True))
            if _progress(row) <= _progress(here):
                continue
            tx.run(tx.sql.call_drop, {"at_key": row["key"]})
        tx.run(tx.sql.call_insert, {name: row[name] for name in CALL_FIELDS})
        for vote in row["votes"]:
            tx.run(tx.sql.vote_put, vote)
        taken += 1
    return taken


def _progress(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["fence"], row["updated_at"]
