"""Passing committed events on to every sink, in a thread of its own.

The store has the events already: a sink that fails costs nobody a call, is logged once a minute,
and what it missed is counted.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from adapter.core.redaction import mask_text
from adapter.core.sinks import AuditSink, Committed

__all__ = ["SinkFanout"]

_log = logging.getLogger(__name__)

MINUTE = 60.0
MOST = 50_000
"""Most events that wait; beyond, a sink slower than the store misses them."""
PATIENCE = 10.0
"""Seconds that closing waits for what is queued."""


class SinkFanout:
    """The outlet of a store: queues what was committed and writes it to each sink.

    Args:
        sinks: Where events go.
        most: Most events that wait.
        clock: Seconds, steady.

    Attributes:
        missed: Events that each sink failed to take, by its name.
    """

    def __init__(
        self,
        sinks: Sequence[AuditSink],
        *,
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.missed = {sink.name: 0 for sink in sinks}
        self._sinks = tuple(sinks)
        self._most = most
        self._clock = clock
        self._queue: SimpleQueue[Committed | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._said: dict[str, float] = {}

    def put(self, committed: Committed) -> None:
        """Queue what one transaction added; neither blocks nor raises."""
        size = len(committed.events)
        with self._lock:
            full = self._waiting + size > self._most
            if self._closed or full:
                for name in self.missed:
                    self.missed[name] += size
            else:
                self._waiting += size
                self._queue.put(committed)
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._work, name="adapter-audit-sinks", daemon=True
                    )
                    self._thread.start()
                    # A process that ends without closing its store still writes what is queued.
                    atexit.register(self.close)
        if full:
            self._say("all", "they are slower than the store, whose events wait for them")

    def close(self) -> None:
        """Write what is queued, close the sinks, and take no more; blocks up to ten seconds."""
        with self._lock:
            first, self._closed = not self._closed, True
            thread = self._thread
        if thread is None:
            if first:
                self._close_sinks()
            return
        if first:
            atexit.unregister(self.close)
            self._queue.put(None)
        thread.join(PATIENCE)

    def _work(self) -> None:
        while (committed := self._queue.get()) is not None:
            for sink in self._sinks:
                self._write(sink, committed)
            with self._lock:
                self._waiting -= len(committed.events)
        self._close_sinks()

    def _write(self, sink: AuditSink, committed: Committed) -> None:
        try:
            sink.write(committed)
        except Exception as error:  # noqa: BLE001 - a sink's trouble is nobody else's
            self.missed[sink.name] += len(committed.events)
            self._say(sink.name, f"{type(error).__name__}: {mask_text(str(error))}")

    def _close_sinks(self) -> None:
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001 - as above
                self._say(sink.name, f"{type(error).__name__} on closing")

    def _say(self, name: str, what: str) -> None:
        now = self._clock()
        if now - self._said.get(name, -MINUTE) < MINUTE:
            return
        self._said[name] = now
        missed = max(self.missed.values(), default=0) if name == "all" else self.missed[name]
        _log.error(
            "audit sink %s failed (%s); %d events so far are in the store only: "
            "`adapter audit export` writes them to a file",
            name,
            what,
            missed,
        )
