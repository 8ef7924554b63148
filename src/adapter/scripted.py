"""What a test scripts: a clock, a reviewer behind a port, and a tool's behaviour.

Part of the test kit; import the names from ``adapter.testing``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from typing_extensions import override

from adapter.core.approvals import (
    Answer,
    ApprovalDecision,
    Question,
    Refusal,
    sign_decision,
)
from adapter.core.canonical import canonical_bytes
from adapter.core.deferred import OutsideGraph
from adapter.core.errors import InvalidAnswer, ToolUsageError
from adapter.core.invoke import Fence
from adapter.core.keys import KeyRing
from adapter.core.masking import ResultMask
from adapter.core.signing import answer_digest, sealed_value
from adapter.core.store import CallRow
from adapter.core.types import JsonObject, JsonValue

__all__ = ["FrozenClock", "Paused", "ScriptedInvocation", "ScriptedPort"]


class FrozenClock:
    """A clock that stands still until it is told to go on.

    Args:
        now: Milliseconds since the epoch.
    """

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return self.now

    def advance(self, seconds: float) -> int:
        """Move the clock and return its new time, milliseconds."""
        self.now += round(seconds * 1000)
        return self.now


class Paused(Exception):
    """The scripted port has no answer: the host would pause here.

    Attributes:
        value: The sealed interrupt value, for ``resume_value``.
    """

    def __init__(self, value: JsonObject) -> None:
        super().__init__("paused for an approval")
        self.value = value


class ScriptedPort(OutsideGraph):
    """An approval port that answers from a script and, like a host, keeps the answers it took.

    A script's items are taken in order: an ``ApprovalDecision`` is signed for the question at
    hand; a callable gets the question and returns an item; anything else is judged as the hostile
    value it may be. A run takes a call's saved answers first, then its script; then it pauses.

    Attributes:
        keys: Keys that sign and verify; replace the ring to rotate or revoke one.
        questions: Every question asked, in order.
        refusals: Every answer that did not count, and whether it was new.
        revisited: Keys of the settled rows whose saved answer was taken.
    """

    deferred = False
    in_graph = False

    def __init__(self, keys: KeyRing, *, clock: Callable[[], int], reviewer: str = "rita") -> None:
        self.keys = keys
        self.questions: list[Question] = []
        self.refusals: list[tuple[Refusal, bool]] = []
        self.revisited: list[str] = []
        self._clock = clock
        self._reviewer = reviewer
        self._script: deque[Any] = deque()
        self._saved: defaultdict[str, list[Any]] = defaultdict(list)
        self._taken: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()

    def resume(self, *items: Any) -> None:
        """Begin a run that brings these answers; nothing means a run without input."""
        self._script = deque(items)
        self._taken.pop(asyncio.current_task(), None)

    def resume_value(self, paused: Paused | Question, decision: ApprovalDecision) -> JsonObject:
        """Sign a decision about a question or the pause it made."""
        value = paused.value if isinstance(paused, Paused) else self._sealed(paused)
        return sign_decision(
            self.keys, value, decision, decided_at=self._clock(), reviewer=self._reviewer
        )

    async def decide(
        self, question: Question, refused: Callable[[Refusal], Awaitable[bool]]
    ) -> Answer:
        """Return the next answer that counts.

        Raises:
            Paused: There is none.
            InvalidAnswer: The next one does not count; the question stays open.
        """
        self.questions.append(question)
        saved = self._saved[question.row.key]
        taken = self._taken.setdefault(asyncio.current_task(), Counter())
        while taken[question.row.key] < len(saved):
            item = saved[taken[question.row.key]]
            taken[question.row.key] += 1
            answer = question.check.check(item, saved=True)
            if not answer.void:
                return replace(answer, interrupt_id=question.row.interrupt_id)
        if not self._script:
            raise Paused(self._sealed(question))
        item = self._script.popleft()
        while callable(item):
            item = item(question)
        if isinstance(item, ApprovalDecision):
            item = self.resume_value(question, item)
        try:
            answer = question.check.check(item, saved=False)
        except InvalidAnswer as error:
            seen = answer_digest(item)
            refusal = Refusal(code=error.code, message=error.message, digest=seen, delivery="keyed")
            self.refusals.append((refusal, await refused(refusal)))
            raise
        saved.append(item)
        taken[question.row.key] += 1
        return replace(answer, interrupt_id=question.row.interrupt_id)

    @override
    def position(self) -> tuple[int, str | None]:
        """Return how many calls were answered, and the next question's id."""
        return len(self._saved), f"question-{len(self._saved)}"

    @override
    def answers_now(self, row: CallRow) -> bool:
        """Tell whether this run still has an answer of its own."""
        return row.request is not None and bool(self._script)

    @override
    def revisit(self, row: CallRow) -> None:
        """Take the answer meant for a question whose call is over."""
        self.revisited.append(row.key)
        if self.answers_now(row):
            self._script.popleft()

    async def refresh(self) -> None:
        """Do nothing: a test replaces ``keys``."""

    def _sealed(self, question: Question) -> JsonObject:
        return sealed_value(self.keys, question.binding, question.request)


@dataclass(slots=True, kw_only=True)
class ScriptedInvocation:
    """One call's way to a tool whose behaviour is written down.

    Attributes:
        on_run: Told of every time the tool's body starts: the count lives outside.
        body: The tool: returns its result or an awaitable of it (hang there), or raises.
        cancellable: Whether cancelling stops it; False stands for a thread.
        is_error: Whether the result reports an error.
        kept: Whether even a read is recorded, because its task runs again for other calls.
    """

    on_run: Callable[[JsonObject], None]
    body: Callable[[JsonObject], Any] = lambda arguments: {"ran": arguments}
    cancellable: bool = True
    is_error: bool = False
    kept: bool = False

    async def invoke(self, arguments: JsonObject, fence: Fence | None) -> Any:
        """Run the tool through its fence."""
        if fence is not None:
            fence.consume(arguments)
        try:
            self.on_run(arguments)
            result = self.body(arguments)
            return await result if inspect.isawaitable(result) else result
        except BaseException as error:
            if fence is not None:
                fence.saw(error)
            raise

    def is_pause(self, error: BaseException) -> bool:
        """Tell whether the tool itself paused the run."""
        return isinstance(error, Paused)

    async def recall(self, outcome: JsonValue) -> None:
        """Take up nothing."""

    def told(self, pause: BaseException) -> JsonValue:  # noqa: ARG002 - the protocol's
        """Return nothing."""
        return None

    def failed(self, result: Any) -> bool:  # noqa: ARG002 - the protocol's
        """Tell whether the result reports an error."""
        return self.is_error

    def record(self, result: Any) -> JsonValue:
        """Return the result if it is a JSON value, else raise ToolUsageError."""
        try:
            canonical_bytes(result)
        except ValueError as error:
            msg = "The tool's result is no JSON value."
            raise ToolUsageError(msg) from error
        return result

    def replay(self, recorded: JsonValue) -> Any:
        """Return a recorded result as it is."""
        return recorded

    def share(self, recorded: JsonValue) -> Any | None:
        """Return a recorded result as it is."""
        return recorded

    def masked(self, result: Any, mask: ResultMask) -> Any:
        """Return the result masked."""
        return mask.value(result)

    def responded(self, text: str) -> Any:
        """Return the reviewer's words as the result."""
        return text
