"""Running one claimed call: the fence, the lease, the time limit, and what cancellation means.

Knows nothing of approvals or budgets. A cancelled run still waits for the tool and for the
journal, up to a grace, because a sibling's refusal makes the host cancel everything that runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from adapter.core.canonical import digest
from adapter.core.errors import ToolTimeout, ToolUsageError
from adapter.core.masking import ResultMask
from adapter.core.types import JsonObject, JsonValue

__all__ = ["Fence", "Invocation", "held", "timed"]

_log = logging.getLogger(__name__)
T = TypeVar("T")

_LATE = "The tool did not finish within {:g} s."
_OWN = "The tool cancelled itself."

STOPPING = 1.0
"""Seconds a tool that was stopped may take to end before it counts as still running."""


class Fence:
    """Lets the claimed call through once, with the claimed arguments only."""

    def __init__(self, arguments: JsonObject) -> None:
        """Remember what was claimed."""
        self._digest = digest("executed/v1", arguments)
        self._open = True
        self.consumed = False
        self.ambiguous = False
        self.error: BaseException | None = None
        self.result: Any = None
        self.returned = False

    def renew(self) -> None:
        """Let one more attempt through; only the executor's own retries may say so."""
        self._open = True
        self.ambiguous = self.returned = False
        self.error = self.result = None

    def consume(self, arguments: JsonObject) -> None:
        """Pass, or refuse.

        Raises:
            ToolUsageError: A second invocation under one claim, or other arguments than claimed.
        """
        if not self._open:
            msg = (
                "This call was started already under its claim; middleware inside the adapter "
                "must not run a governed tool twice."
            )
            raise ToolUsageError(msg)
        if digest("executed/v1", arguments) != self._digest:
            msg = "The arguments differ from those that were claimed; nothing ran."
            raise ToolUsageError(msg)
        self._open = False
        self.consumed = True

    def saw(self, error: BaseException) -> None:
        """Note how the tool itself failed, before middleware turns the error into something."""
        self.error = error
        # After these nobody knows whether the other side did its part.
        self.ambiguous = isinstance(error, TimeoutError | ConnectionError) or (
            "timeout" in type(error).__name__.lower()
        )

    def returns(self, result: Any) -> None:
        """Note the tool's own result, before middleware turns it into something."""
        self.result, self.returned = result, True


class Invocation(Protocol):
    """How a front end runs a tool and keeps its result. One object per call."""

    @property
    def cancellable(self) -> bool:
        """Whether cancelling the awaitable stops the tool (a thread cannot be stopped)."""
        ...

    @property
    def kept(self) -> bool:
        """Whether even a read is recorded: its task runs again with each answer to another call."""
        ...

    def invoke(self, arguments: JsonObject, fence: Fence | None) -> Awaitable[Any]:
        """Run the tool; with a fence, through a tool that consumes it."""
        ...

    def is_pause(self, error: BaseException) -> bool:
        """Whether an exception is the host's control flow and not a failure."""
        ...

    async def recall(self, outcome: JsonValue) -> None:
        """Take up what ``told`` returned when the tool paused; awaited of each call with a row."""
        ...

    def told(self, pause: BaseException) -> JsonValue:
        """Return what a tool that pauses needs to go on later, beside what its host keeps."""
        ...

    def failed(self, result: Any) -> bool:
        """Whether a returned result reports an error."""
        ...

    def record(self, result: Any) -> JsonValue:
        """Return the JSON form the journal keeps.

        Raises:
            ToolUsageError: The result cannot be kept.
        """
        ...

    def replay(self, recorded: JsonValue) -> Any:
        """Return the host's result from its recorded form."""
        ...

    def share(self, recorded: JsonValue) -> Any | None:
        """Return another call's recorded result as this call's own; None if it is no other's."""
        ...

    def masked(self, result: Any, mask: ResultMask) -> Any:
        """Return the host's result with a mask over what the model and the thread see of it."""
        ...

    def responded(self, text: str) -> Any:
        """Return the host's result for a reviewer who answered instead of the tool."""
        ...


async def timed(
    work: Awaitable[T],
    seconds: float,
    *,
    cancellable: bool,
    late: Callable[[asyncio.Task[T]], None],
    light: bool = False,
) -> T:
    """Await the tool for at most some seconds.

    Args:
        work: The running tool.
        seconds: Time limit of this attempt.
        cancellable: Whether it can be stopped; if not, it is left running.
        late: Called with the task when one that could not be stopped ends after all.
        light: Nothing is lost if the tool swallows its cancellation: it has no effect.

    Raises:
        ToolTimeout: It did not end in time. Its effect may have happened.
    """
    if cancellable and light:
        return await _timed_here(work, seconds)
    # A task of its own, because a coroutine may swallow its cancellation and go on.
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.add_done_callback(_quiet)
        if cancellable:
            task.cancel()
        raise
    if not done:
        if cancellable:
            task.cancel()
            await asyncio.wait({task}, timeout=min(seconds, STOPPING))
        task.add_done_callback(late)
        raise ToolTimeout(_LATE.format(seconds))
    if task.cancelled():
        # The tool cancelled itself (a library's time limit, a closed session): an error of this
        # call only, never the end of the run.
        raise _SelfCancelled(_OWN)
    return task.result()


async def _timed_here(work: Awaitable[T], seconds: float) -> T:
    """Await in the caller's own task, which costs a third of a task of its own."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ToolTimeout(_LATE.format(seconds)) from error
    except asyncio.CancelledError:
        running = asyncio.current_task()
        if running is None or running.cancelling():
            raise
        raise _SelfCancelled(_OWN) from None


class _SelfCancelled(RuntimeError):
    """A tool's own cancellation, turned into an ordinary failure."""


async def held(
    work: Coroutine[Any, Any, T],
    grace: float,
    abandon: Callable[[], Awaitable[object]],
    *,
    stop: bool,
) -> T:
    """Await work that must not be torn by cancellation.

    Args:
        work: Invoke and settle, as one piece.
        grace: Seconds to go on after the first cancellation.
        abandon: Awaited when the grace is over and the work is still running.
        stop: Cancel the work then; else it goes on and may still record a late result.

    Raises:
        CancelledError: The caller was cancelled; the work is done or was abandoned.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    end: float | None = None
    while not task.done():
        left = None if end is None else end - loop.time()
        if left is not None and left <= 0:
            await _abandoned(task, abandon, stop=stop)
            raise asyncio.CancelledError
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            end = end or loop.time() + grace
    if end is not None:
        if not task.cancelled() and task.exception() is not None:
            _log.info("a call ended with an error after its run was cancelled")
        raise asyncio.CancelledError
    return task.result()


async def _abandoned(
    task: asyncio.Task[Any], abandon: Callable[[], Awaitable[object]], *, stop: bool
) -> None:
    task.add_done_callback(_quiet)
    if stop:
        task.cancel()
    last = asyncio.ensure_future(abandon())
    while not last.done():
        try:
            await asyncio.wait({last})
        except asyncio.CancelledError:
            continue
    if not last.cancelled() and last.exception() is not None:
        _log.warning("a cancelled call could not be recorded as in doubt")


def _quiet(task: asyncio.Task[Any]) -> None:
    """Look at the exception, so that asyncio does not report it as never retrieved."""
    if not task.cancelled():
        task.exception()
