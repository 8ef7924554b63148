"""The thread that feeds the sinks: nobody waits for it, and no sink's trouble is another's."""

from __future__ import annotations

import logging
import threading

import pytest

from adapter.core.sinks import Committed
from adapter.core.store import StoredEvent
from adapter.sinks import SinkFanout


def batch(*seqs: int) -> Committed:
    return Committed(
        events=[
            StoredEvent(thread_id="t", seq=seq, event_id=f"e{seq}", kind="k", line=b"", hash="")
            for seq in seqs
        ]
    )


class Sink:
    """Remembers; fails while it is told to; waits at a gate."""

    def __init__(self, name: str = "one", *, fails: bool = False) -> None:
        self.name = name
        self.fails = fails
        self.taken: list[int] = []
        self.closed = 0
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.busy = threading.Event()

    def write(self, committed: Committed) -> None:
        self.threads.add(threading.get_ident())
        self.busy.set()
        self.gate.wait(10)
        if self.fails:
            raise OSError(28, "No space left; password=hunter2")
        self.taken += [one.seq for one in committed.events]

    def close(self) -> None:
        self.closed += 1
        if self.fails:
            raise OSError("closing")


def test_every_sink_is_told_in_order_in_a_thread_of_their_own() -> None:
    one, two = Sink("one"), Sink("two")
    fanout = SinkFanout([one, two])
    for n in range(5):
        fanout.put(batch(n))
    fanout.close()
    assert one.taken == two.taken == [0, 1, 2, 3, 4]
    assert threading.get_ident() not in one.threads | two.threads
    assert (one.closed, two.closed) == (1, 1)
    assert fanout.missed == {"one": 0, "two": 0}


def test_a_sink_that_fails_is_counted_said_once_a_minute_and_no_others_trouble(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad, good = Sink("bad", fails=True), Sink("good")
    now = [0.0]
    fanout = SinkFanout([bad, good], clock=lambda: now[0])
    with caplog.at_level(logging.ERROR):
        for n in range(3):
            fanout.put(batch(n, n))
        fanout.close()
    assert good.taken == [0, 0, 1, 1, 2, 2]
    assert fanout.missed == {"bad": 6, "good": 0}
    assert len(caplog.records) == 1
    assert "audit sink bad failed" in caplog.text
    assert "hunter2" not in caplog.text
    assert "adapter audit export" in caplog.text


def test_after_a_minute_it_is_said_again(caplog: pytest.LogCaptureFixture) -> None:
    bad = Sink("bad", fails=True)
    now = [0.0]
    fanout = SinkFanout([bad], clock=lambda: now[0])
    fanout._write(bad, batch(1))
    now[0] = 59.0
    fanout._write(bad, batch(2))
    assert len(caplog.records) == 1
    now[0] = 61.0
    fanout._write(bad, batch(3))
    assert "3 events so far" in caplog.records[-1].message
    fanout.close()
    assert bad.closed == 1


def test_what_waits_is_bounded_and_what_is_missed_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = Sink()
    slow.gate.clear()
    fanout = SinkFanout([slow], most=3)
    fanout.put(batch(1, 2))
    assert slow.busy.wait(10)
    fanout.put(batch(3))
    fanout.put(batch(4))
    assert fanout.missed == {"one": 1}
    assert "slower than the store" in caplog.text
    slow.gate.set()
    fanout.close()
    assert slow.taken == [1, 2, 3]


def test_after_closing_nothing_is_taken_and_closing_again_is_nothing() -> None:
    sink = Sink()
    fanout = SinkFanout([sink])
    fanout.put(batch(1))
    fanout.close()
    fanout.close()
    fanout.put(batch(2))
    assert (sink.taken, sink.closed, fanout.missed) == ([1], 1, {"one": 1})


def test_one_that_never_wrote_closes_its_sinks_once() -> None:
    sink = Sink()
    fanout = SinkFanout([sink])
    fanout.close()
    fanout.close()
    assert sink.closed == 1
