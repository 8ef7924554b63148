"""Test kit: an executor over an in-memory store, with a clock, a reviewer and tools you script.

For tests of graphs and tools built on the adapter. Nothing here reads a clock, sleeps or guesses:
time moves when a test says so, answers are signed with real keys and judged by the real checks.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from typing_extensions import override

from adapter.core.approvals import Answer, ApprovalDecision, Question, Refusal, sign_decision
from adapter.core.canonical import canonical_bytes
from adapter.core.errors import InvalidAnswer, ToolUsageError
from adapter.core.executor import Executor
from adapter.core.invoke import Fence
from adapter.core.keys import KeyRing
from adapter.core.masking import ResultMask
from adapter.core.signing import answer_digest, sealed_value
from adapter.core.spec import ArgumentSchema, Registry, ToolSpec
from adapter.core.store import CallRow, Store
from adapter.core.types import CallContext, JsonObject, JsonValue, Place, ToolCall
from adapter.stores.memory import MemoryStore

__all__ = [
    "FrozenClock",
    "Paused",
    "ScriptedInvocation",
    "ScriptedPort",
    "Wired",
    "make_call",
    "make_context",
    "wired",
]


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


class ScriptedPort:
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

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a context that orders nothing: runs overlap as a test lets them."""
        return nullcontext()

    def has_answer(self) -> bool:
        """Tell that nothing waits: a scripted answer comes when it is asked for."""
        return False

    def position(self) -> tuple[int, str | None]:
        """Return how many calls were answered, and the next question's id."""
        return len(self._saved), f"question-{len(self._saved)}"

    def answers_now(self, row: CallRow) -> bool:
        """Tell whether this run still has an answer of its own."""
        return row.request is not None and bool(self._script)

    def revisit(self, row: CallRow) -> None:
        """Take the answer meant for a question whose call is over."""
        self.revisited.append(row.key)
        if self.answers_now(row):
            self._script.popleft()

    async def refresh(self) -> None:
        """Do nothing: a test replaces ``keys``."""

    def enter(self) -> object:
        """Note nothing."""
        return None

    def leave(self, token: object) -> None:
        """Note nothing."""

    def discard_used(self, row: CallRow) -> None:
        """Discard nothing: every scripted answer is addressed."""

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
    """

    on_run: Callable[[JsonObject], None]
    body: Callable[[JsonObject], Any] = lambda arguments: {"ran": arguments}
    cancellable: bool = True
    is_error: bool = False

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


def make_call(
    name: str = "send", *, id: str = "call-1", message_id: str = "message-1", **arguments: Any
) -> ToolCall:
    """Return a tool call as a model would write it; keywords are its arguments."""
    return ToolCall(name=name, arguments=arguments, id=id, message_id=message_id)


def make_context(
    thread_id: str = "thread-1",
    *,
    run_id: str = "run-1",
    task_id: str = "task-1",
    turn_id: str = "turn-1",
    durable: bool = True,
    user: str | None = None,
) -> CallContext:
    """Return where a call stands; the run's token is its id."""
    place = Place(thread_id=thread_id, task_id=task_id, turn_id=turn_id, durable=durable)
    return CallContext(place=place, run_id=run_id, run_token=run_id, user=user)


@dataclass(slots=True, kw_only=True)
class Wired(AbstractAsyncContextManager["Wired"]):
    """An executor and everything around it; ``async with`` closes its store.

    Attributes:
        runs: Arguments of every time a tool's body started, over restarts too.
    """

    executor: Executor
    registry: Registry
    store: Store
    port: ScriptedPort
    clock: FrozenClock
    options: dict[str, Any]
    runs: list[tuple[str, JsonObject]] = field(default_factory=list)

    async def run(
        self,
        call: ToolCall,
        ctx: CallContext | None = None,
        *answers: Any,
        **tool: Any,
    ) -> Any:
        """Run a call.

        Args:
            call: As the model wrote it.
            ctx: Where; the usual place when None.
            answers: What this run brings, as in ``ScriptedPort.resume``.
            tool: Behaviour of the tool, as in ``ScriptedInvocation``.
        """
        self.port.resume(*answers)
        return await self.executor.run(call, ctx or make_context(), self.invocation(call, **tool))

    def invocation(self, call: ToolCall, **tool: Any) -> ScriptedInvocation:
        """Return an invocation whose runs are counted in ``runs``."""
        return ScriptedInvocation(
            on_run=lambda arguments: self.runs.append((call.id, arguments)), **tool
        )

    def restarted(self, **options: Any) -> Wired:
        """Return a new executor over the same store, port and clock, as another process has."""
        merged = self.options | options
        executor = Executor(self.registry, store=self.store, approval=self.port, **merged)
        return replace(self, executor=executor, options=merged)

    @override
    async def __aexit__(self, *exc: object) -> None:
        """Close the store."""
        await self.store.aclose()


def wired(
    *tools: tuple[ToolSpec, ArgumentSchema],
    keys: KeyRing | None = None,
    clock: FrozenClock | None = None,
    store: Store | None = None,
    **options: Any,
) -> Wired:
    """Wire an executor over a store in memory with a scripted port and a frozen clock.

    Args:
        tools: Specs with their schemas, e.g. ``(spec, PydanticSchema(Model))``.
        keys: Keys of the port; random ones when None.
        clock: The clock of executor and store.
        store: Another store, e.g. one that fails.
        options: Further arguments of ``Executor``.
    """
    clock = clock or FrozenClock()
    store = store or _TestStore(clock=clock)
    port = ScriptedPort(keys or KeyRing.random(), clock=clock)
    registry = Registry([spec for spec, _ in tools], {spec.name: schema for spec, schema in tools})
    numbers = count(1)
    usual: dict[str, Any] = {
        "clock": clock,
        "ids": lambda: f"{next(numbers):032x}",
        "sleep": _no_wait,
    } | options
    executor = Executor(registry, store=store, approval=port, **usual)
    return Wired(
        executor=executor, registry=registry, store=store, port=port, clock=clock, options=usual
    )


class _TestStore(MemoryStore):
    """A ledger that lasts as long as the test, which is all that it has to."""

    durable = True


async def _no_wait(_seconds: float) -> None:
    await asyncio.sleep(0)
