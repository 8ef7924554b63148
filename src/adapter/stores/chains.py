"""Appending to the threads' audit chains, many events and threads in one transaction.

A head is read once per transaction and written once at its end; nothing is remembered across
transactions, since other processes append to the same chains.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from adapter.core.chain import GENESIS, head_message, link, packed_signature
from adapter.core.sinks import Committed
from adapter.core.store import Event, ThreadHead
from adapter.stores.audit_statements import SLOTS
from adapter.stores.rows import stored_event

if TYPE_CHECKING:
    from adapter.stores.transaction import Transaction

__all__ = ["Chains", "HeadSigner"]

HeadSigner: TypeAlias = Callable[[bytes], Mapping[str, str]]
"""Returns ``{"kid", "alg", "mac"}`` over a message, by the newest audit key."""

_HEAD = ("thread_id", "seq", "hash", "kid", "signature", "count")
_Row: TypeAlias = tuple[Any, ...]


class _Chain:
    """One thread's chain as this transaction sees it.

    The head keeps the number that its own run got to; what the others got to is kept in a table of
    its own, which is written only when the chain goes from one run to another.
    """

    __slots__ = (
        "absent",
        "begun",
        "count",
        "hash",
        "ids",
        "left",
        "moved",
        "run_id",
        "runs",
        "seq",
        "thread_id",
    )

    def __init__(self, thread_id: str, head: Sequence[Any] | None) -> None:
        self.thread_id = thread_id
        self.ids: set[str] = set()
        self.absent: set[str] = set()
        self.moved = False
        self.left: set[str] = set()
        self.runs: dict[str, int] = {}
        if head is None:
            self.seq, self.hash, self.run_id, self.count = 0, GENESIS, "", 0
        else:
            self.seq, self.hash, self.run_id, run_seq, self.count = head
            self.runs[self.run_id] = run_seq
        self.begun = (self.seq, self.hash)


class Chains:
    """The chains that one transaction appends to.

    An event that is not ``once`` is expected to be new, and its id is not looked up: should it
    exist after all, the unique index refuses the transaction, and the writer repeats each of its
    operations alone with a ``careful`` one, which looks up every id and skips those that exist.
    """

    __slots__ = ("_careful", "_chains", "_heads", "_pending", "_sign", "_transaction", "_written")

    def __init__(
        self, transaction: Transaction, *, careful: bool, sign: HeadSigner | None = None
    ) -> None:
        self._transaction = transaction
        self._careful = careful
        self._sign = sign
        self._chains: dict[str, _Chain] = {}
        self._pending: list[_Row] = []
        self._written: list[_Row] = []
        self._heads: dict[str, dict[str, Any]] = {}

    def append(self, events: Sequence[Event], *, careful: bool = False) -> int:
        """Link events in order, skipping those whose id the thread has.

        Returns:
            How many were linked.
        """
        checked = careful or self._careful
        unsure = [event for event in events if checked or event.once]
        known = self._known(unsure) if unsure else ()
        fresh = 0
        for event in events:
            chain = self._chains.get(event.thread_id) or self._chain(event.thread_id)
            if event.id in chain.ids or (event.thread_id, event.id) in known:
                continue
            self._link(chain, event)
            fresh += 1
        return fresh

    def has(self, thread_id: str, event_id: str) -> bool:
        """Tell whether the thread has an event of this id."""
        chain = self._chain(thread_id)
        if event_id in chain.ids:
            return True
        return event_id not in chain.absent and event_id in self._stored(chain, [event_id])

    def look_for(self, wanted: Sequence[tuple[str, str]]) -> None:
        """Look several events up at once, for operations that will ask for them one by one."""
        if len(wanted) > 1:
            by_thread: dict[str, list[str]] = {}
            for thread_id, event_id in wanted:
                by_thread.setdefault(thread_id, []).append(event_id)
            for thread_id, ids in by_thread.items():
                chain = self._chain(thread_id)
                chain.ids.update(self._stored(chain, ids))

    def flush_links(self) -> None:
        """Write what was linked since the last flush, so that this transaction can read it."""
        if self._pending:
            self._transaction.rows(self._transaction.sql.event_insert, self._pending)
            self._written += self._pending
            self._pending = []

    def flush(self) -> None:
        """Write what was linked, and each head that moved, signed where there is a signer."""
        self.flush_links()
        runs = [
            (chain.thread_id, run_id, chain.runs[run_id])
            for chain in self._chains.values()
            if chain.left
            for run_id in sorted(chain.left - {chain.run_id})
        ]
        if runs:
            self._transaction.rows(self._transaction.sql.run_put, runs)
        heads = [self._signed(chain) for chain in self._chains.values() if chain.moved]
        if heads:
            self._transaction.many(self._transaction.sql.chain_put, heads)
            self._heads.update((head["thread_id"], head) for head in heads)

    def head(self, thread_id: str) -> ThreadHead | None:
        """Return a thread's head as this transaction leaves it so far; its signature comes last."""
        chain = self._chain(thread_id)
        if chain.seq == 0:
            return None
        return ThreadHead(thread_id=thread_id, seq=chain.seq, hash=chain.hash, count=chain.count)

    def heads(self, thread_id: str) -> tuple[tuple[int, str], tuple[int, str]]:
        """Return number and hash of a thread's newest link: at the begin, and so far."""
        chain = self._chain(thread_id)
        return chain.begun, (chain.seq, chain.hash)

    def threads(self) -> Sequence[str]:
        """Return the threads whose chains this transaction looked at."""
        return tuple(self._chains)

    def linked(self) -> Iterable[_Row]:
        """Return what this transaction linked, in the order of the table's columns."""
        return itertools.chain(self._written, self._pending)

    def committed(self) -> Committed | None:
        """Return what this transaction wrote, for the sinks; None for nothing."""
        if not self._written:
            return None
        return Committed(
            events=[
                stored_event((thread_id, seq, event_id, kind, line, hash_))
                for thread_id, seq, event_id, _, _, _, kind, line, hash_ in self._written
            ],
            heads=[
                ThreadHead(**{name: row[name] for name in _HEAD}) for row in self._heads.values()
            ],
        )

    def _signed(self, chain: _Chain) -> dict[str, Any]:
        kid = signature = None
        if self._sign is not None:
            message = head_message(chain.thread_id, chain.seq, chain.hash, chain.count)
            signed = self._sign(message)
            kid, signature = signed["kid"], packed_signature(signed)
        chain.moved = False
        chain.left.clear()
        return {
            "thread_id": chain.thread_id,
            "seq": chain.seq,
            "hash": chain.hash,
            "run_id": chain.run_id,
            "run_seq": chain.runs[chain.run_id],
            "count": chain.count,
            "kid": kid,
            "signature": signature,
        }

    def _chain(self, thread_id: str) -> _Chain:
        chain = self._chains.get(thread_id)
        if chain is None:
            sql = self._transaction.sql
            head = self._transaction.one(sql.chain_get, {"at_thread": thread_id})
            chain = self._chains[thread_id] = _Chain(thread_id, head)
        return chain

    def _link(self, chain: _Chain, event: Event) -> None:
        run_id, seq = event.run_id, chain.seq + 1
        found = chain.runs.get(run_id)
        run_seq = (self._run_seq(chain, run_id) if found is None else found) + 1
        line, hash_ = link(body=event.body, prev=chain.hash, seq=seq, run_seq=run_seq)
        # in the order of the table's columns
        self._pending.append(
            (
                event.thread_id,
                seq,
                event.id,
                run_id,
                run_seq,
                event.turn_id,
                event.kind,
                line,
                hash_,
            )
        )
        chain.ids.add(event.id)
        chain.runs[run_id] = run_seq
        if run_id != chain.run_id:
            if chain.seq:
                chain.left.add(chain.run_id)
            chain.run_id = run_id
        chain.seq, chain.hash, chain.moved = seq, hash_, True
        chain.count += 1

    def _run_seq(self, chain: _Chain, run_id: str) -> int:
        """Return the number that a run got to of which this transaction knows nothing yet."""
        if not chain.runs:  # the thread's first link
            return 0
        row = self._transaction.one(
            self._transaction.sql.run_seq, {"at_thread": chain.thread_id, "at_run": run_id}
        )
        return 0 if row is None else int(row[0])

    def _known(self, events: Sequence[Event]) -> set[tuple[str, str]]:
        wanted: dict[str, list[str]] = {}
        for event in events:
            chain = self._chains.get(event.thread_id) or self._chain(event.thread_id)
            if event.id not in chain.absent and event.id not in chain.ids:
                wanted.setdefault(event.thread_id, []).append(event.id)
        known: set[tuple[str, str]] = set()
        for thread_id, ids in wanted.items():
            found = self._stored(self._chains[thread_id], ids)
            known.update((thread_id, one) for one in found)
        return known

    def _stored(self, chain: _Chain, ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        if chain.seq == 0 or not ids:
            chain.absent.update(ids)
            return found
        most = SLOTS[-1]
        for start in range(0, len(ids), most):
            part = ids[start : start + most]
            slots = next(size for size in SLOTS if size >= len(part))
            asked = [chain.thread_id, *part, *[part[-1]] * (slots - len(part))]
            rows = self._transaction.found(self._transaction.sql.event_ids[slots], asked)
            found.update(row[0] for row in rows)
        chain.absent.update(one for one in ids if one not in found)
        return found
