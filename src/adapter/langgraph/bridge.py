"""One way for synchronous front ends to drive the asynchronous core.

A background event loop, shared by the process, runs the core's coroutines; the calling thread
waits. So no loop is written twice, and it works whether or not the caller runs in a loop itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

__all__ = ["Arrivals", "in_thread", "is_bridged", "run_sync"]

A = TypeVar("A")
T = TypeVar("T")


class _Background:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                loop = asyncio.new_event_loop()
                threading.Thread(
                    target=loop.run_forever, name="adapter-sync-bridge", daemon=True
                ).start()
                self._loop = loop
            return self._loop

    def runs_here(self) -> bool:
        return self._loop is not None and asyncio.get_running_loop() is self._loop


_background = _Background()


def is_bridged() -> bool:
    """Tell whether a coroutine runs for a synchronous caller, whose host is to be used likewise."""
    return _background.runs_here()


_LATE = 0.5
"""Seconds that an earlier call may let a later one wait; one that others answered never comes."""

_REMEMBERED = 64


class Arrivals:
    """Lets the threads of one task begin in the order of its calls, however they are scheduled.

    Which call asks first says which question an answer is for; a race must not change it.
    """

    def __init__(self) -> None:
        """Begin with no task."""
        self._come = threading.Condition()
        self._tasks: OrderedDict[int, tuple[object, list[int]]] = OrderedDict()

    @contextmanager
    def turn(self, task: object, before: int) -> Iterator[None]:
        """Wait until the calls before this one began, and say that it began too.

        Args:
            task: What the calls share while they run.
            before: How many calls come before this one; their threads are started before its own.
        """
        with self._come:
            known = self._tasks.get(id(task))
            if known is None or known[0] is not task:
                known = self._tasks[id(task)] = (task, [])
                while len(self._tasks) > _REMEMBERED:
                    self._tasks.popitem(last=False)
            begun = known[1]
            self._come.wait_for(lambda: len(begun) >= before, _LATE)
            try:
                yield
            finally:
                begun.append(before)
                self._come.notify_all()


def in_thread(work: Callable[[A], T]) -> Callable[[A], Coroutine[Any, Any, T]]:
    """Return blocking work of the host as a coroutine function that keeps off our loop."""

    async def run(given: A) -> T:
        return await asyncio.to_thread(work, given)

    return run


def run_sync(work: Coroutine[Any, Any, T], turn: AbstractContextManager[None] | None = None) -> T:
    """Run a coroutine of the core to its end and return its result.

    Args:
        work: The coroutine; it sees a copy of the caller's context.
        turn: Entered while the coroutine is handed over, and left before it runs.

    Returns:
        Its result, or raises what it raises.
    """
    loop = _background.loop()
    done: Future[T] = Future()
    context = contextvars.copy_context()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        task = loop.create_task(work, context=context)
        tasks.append(task)
        task.add_done_callback(lambda ended: _hand_over(ended, done))

    with turn or nullcontext():
        loop.call_soon_threadsafe(start)
    try:
        return done.result()
    except BaseException:
        # Ctrl-C in the waiting thread: the work is told, and settles what it has claimed.
        if not done.done():
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
        raise


def _hand_over(ended: asyncio.Task[T], done: Future[T]) -> None:
    if ended.cancelled():
        done.cancel()
        done.set_running_or_notify_cancel()
    elif (error := ended.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(ended.result())
