"""LangGraphApproval: LangGraph's interrupt() as an approval port.

A resume value is hostile until AnswerCheck accepted it inside ``response_schema``, before
LangGraph saves it. This room knows how LangGraph pauses; it knows nothing of tools or policies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from time import time_ns
from typing import Any, Literal, NoReturn

from langgraph.errors import GraphInterrupt, is_invalid_resume
from langgraph.types import Interrupt, interrupt
from pydantic import ValidationError

from adapter.core.approvals import (
    Answer,
    ApprovalDecision,
    BoundRow,
    Question,
    Refusal,
    sign_decision,
)
from adapter.core.errors import ConfigurationError, InvalidAnswer, ToolUsageError
from adapter.core.keys import KeyRing, KeySource, source_of
from adapter.core.signing import answer_digest, sealed_value
from adapter.core.store import CallRow
from adapter.core.types import JsonObject
from adapter.langgraph.host import (
    TaskAnswers,
    bare_answer,
    configurable,
    drop_bare_answer,
    pause_id,
    resume_map,
    running_task,
    task_answers,
)
from adapter.langgraph.signedanswer import EXPECTED, SCHEMA, Expected, SignedAnswer
from adapter.langgraph.supersteps import shown_pauses
from adapter.langgraph.taskturns import OUTSIDE, TaskTurns

__all__ = ["LangGraphApproval", "OnInvalid", "SignedAnswer"]

OnInvalid = Literal["raise", "ask"]

MAX_VOID_ANSWERS = 50
"""Saved answers of one task that may turn out void before the question gives up."""


class LangGraphApproval:
    """An approval port that pauses the graph and reads signed resume values.

    With ``key=None`` the keys are random and the run resumes in this process only.
    """

    in_graph = True
    deferred = False

    def __init__(
        self,
        key: bytes | KeyRing | KeySource | None = None,
        *,
        on_invalid: OnInvalid = "raise",
        reviewer: str = "local",
        clock: Callable[[], int] = lambda: time_ns() // 1_000_000,
    ) -> None:
        """Take the keys.

        Args:
            key: A key ring or a source of one (a key file that may be rotated:
                ``KeyFileSource(path)`` of `adapter.keyfile`), a shared secret of 16 or more
                bytes, or None.
            on_invalid: What a bad answer does: ``raise`` LangGraph's invalid resume, or ``ask``
                the same question again under the same id.
            reviewer: Name put into answers signed here that name nobody.
            clock: Milliseconds since the epoch.

        Raises:
            ConfigurationError: The secret is short or a placeholder, or names a file.
        """
        if on_invalid not in ("raise", "ask"):
            msg = f"on_invalid (ADAPTER_ON_INVALID) is 'raise' or 'ask', not {on_invalid!r}."
            raise ConfigurationError(msg)
        self._source = source_of(key)
        self._ask_again = on_invalid == "ask"
        self._reviewer = reviewer
        self._clock = clock
        self._turns = TaskTurns()

    @property
    def keys(self) -> KeyRing:
        """The keys as last loaded; no I/O."""
        return self._source.current()

    async def refresh(self) -> None:
        """Learn of rotated and revoked keys, where they come from a source that changes."""
        await self._source.refresh()

    def resume_value(self, interrupt: Any, decision: ApprovalDecision) -> JsonObject:
        """Sign an answer to a pending interrupt.

        Args:
            interrupt: The interrupt, as an object or as langgraph_sdk's dict.
            decision: What was decided.

        Returns:
            The value for ``Command(resume={interrupt.id: value})``.

        Raises:
            InvalidAnswer: The interrupt carries no valid seal of these keys.
        """
        value = interrupt.get("value") if isinstance(interrupt, dict) else interrupt.value
        return sign_decision(
            self.keys, value, decision, decided_at=self._clock(), reviewer=self._reviewer
        )

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Let the gated calls of one task go one at a time; after a pause, none.

        Raises:
            ToolUsageError: Before anything is asked: no front end of the adapter runs this task.
        """
        return self._turns.turn()

    def pause(self) -> NoReturn:
        """Pause without a question: another call's question, open beside this one, is its too.

        Raises:
            GraphInterrupt: Always.
        """
        self._turns.pause()

    def resuming(self) -> bool:
        """Tell whether this run brings answers by id, to whichever question."""
        return bool(resume_map(configurable()))

    def enter(self) -> object:
        """Note that a call that asks nobody runs in this task; returns what ``leave`` takes."""
        return self._turns.enter()

    def leave(self, token: object) -> None:
        """Note that such a call is over."""
        self._turns.leave(token)

    async def quiet(self, token: object) -> None:
        """Wait until no other such call of the task runs."""
        await self._turns.quiet(token)

    def has_answer(self) -> bool:
        """Tell whether the next question of this task has an answer waiting."""
        return running_task() is not None and task_answers(configurable()).delivery is not None

    def contended(self) -> bool:
        """Tell whether an answer waits here and other calls of this task wait for their turn."""
        return self._turns.contended() and self._waiting() is not None

    def is_for_another(self, row: BoundRow | None) -> bool:
        """Tell whether the answer that waits for the next question is not for this row's."""
        waits = self._waiting()
        return waits is not None and (row is None or not _is_for(row, waits[0]))

    def _waiting(self) -> tuple[Any] | None:
        answers = task_answers(configurable())
        return (answers.values[answers.asked],) if answers.asked < answers.keyed else None

    def position(self) -> tuple[int, str | None]:
        """Return how many questions this task asked, and the id of its next pause."""
        answers = task_answers(configurable())
        return answers.asked, pause_id(answers.namespace, answers.asked)

    def answers_now(self, row: CallRow) -> bool:
        """Tell whether this run answers the row's question by its id.

        A later question may have the id of one whose answer LangGraph lost: of a BoundRow, the
        answer itself tells which of them it is for.
        """
        given = resume_map(configurable())
        if row.interrupt_id is None or row.interrupt_id not in given:
            return False
        return not isinstance(row, BoundRow) or _is_for(row, given[row.interrupt_id])

    def discard_used(self, row: CallRow) -> None:
        """Drop an unaddressed answer that LangGraph delivers again although the row used it."""
        conf = configurable()
        waiting = bare_answer(conf)
        if waiting is not None and answer_digest(waiting) in row.answers:
            drop_bare_answer(conf)

    def discard_stale(self) -> None:
        """Drop an unaddressed answer where nobody was asked yet: it is of an earlier question."""
        drop_bare_answer(configurable())

    def revisit(self, row: CallRow) -> None:
        """Take the saved answers of a question whose call is over already, and no later call's."""
        if row.request is None or row.interrupt_id is None:
            return
        answers = task_answers(configurable())
        if isinstance(row, BoundRow):
            own = [_is_for(row, value) for value in answers.values[answers.asked :]]
        else:
            own = [
                pause_id(answers.namespace, number) == row.interrupt_id
                for number in range(answers.asked, answers.saved)
            ]
        while any(own):  # in front of its last one are its votes, and what turned out void
            own.pop(0)
            interrupt(None)

    async def decide(
        self, question: Question, refused: Callable[[Refusal], Awaitable[bool]]
    ) -> Answer:
        """Pause until a signed answer is there, and return it.

        Args:
            question: What is asked.
            refused: Told of every answer that does not count.

        Raises:
            GraphInterrupt: There is no answer yet, or a bad one in mode ``ask``.
            ValidationError: A bad answer in mode ``raise``; nothing was saved.
            ToolUsageError: Nothing can pause here: no checkpointer.
        """
        for _ in range(MAX_VOID_ANSWERS):
            conf = configurable()
            answers = _pausable(conf)
            if resume_map(conf):
                # LangGraph keeps a refused bare answer: without this, the question after the one
                # that is answered by id would get it, and the answer by id would be lost.
                drop_bare_answer(conf)
            here = pause_id(answers.namespace, answers.asked)
            if answers.delivery == "bare" and await _is_for_a_tool(conf, answers):
                pause = Interrupt(self._sealed(question), id=here, response_schema=SCHEMA)
                raise GraphInterrupt((pause,))
            answer = await self._once(question, answers, here, refused)
            if not answer.void:
                return replace(answer, interrupt_id=here)
            await refused(_refusal(answer.digest, "saved"))
        msg = "This task has too many saved answers that do not count; fork the thread."
        raise ToolUsageError(msg)

    async def _once(
        self,
        question: Question,
        answers: TaskAnswers,
        here: str,
        refused: Callable[[Refusal], Awaitable[bool]],
    ) -> Answer:
        delivery = answers.delivery
        if delivery is None:
            _pause(self._sealed(question))
        # An answer that certainly comes makes the value unnecessary; a bare one may be gone.
        value = None if delivery in ("keyed", "saved") else self._sealed(question)
        expected = Expected(check=question.check, saved=delivery == "saved")
        token = EXPECTED.set(expected)
        try:
            return interrupt(value, response_schema=SignedAnswer)  # type: ignore[return-value]
        except ValidationError as error:
            if not is_invalid_resume(error):
                raise
            refusal = _refusal(expected.refused or "", "keyed" if delivery == "keyed" else "bare")
            new = await refused(refusal)
            # A bare answer that was refused before is only LangGraph's keeping of it.
            if not self._ask_again and (new or delivery != "bare"):
                raise
            shown = self._sealed(question)
            if new or delivery == "keyed":
                shown["refused"] = {"code": refusal.code, "message": refusal.message}
            again = Interrupt(shown, id=here, response_schema=SCHEMA)
            raise GraphInterrupt((again,)) from None
        finally:
            EXPECTED.reset(token)

    def _sealed(self, question: Question) -> JsonObject:
        return sealed_value(self.keys, question.binding, question.request)


async def _is_for_a_tool(conf: Any, answers: TaskAnswers) -> bool:
    """Tell whether an unaddressed answer is for a question that a tool of the task asked itself."""
    own = {pause_id(answers.namespace, number) for number in range(answers.keyed + 1)}
    shown = {pause.id for pause in await shown_pauses(conf)}
    return bool(shown) and shown.isdisjoint(own)


def _is_for(row: BoundRow, value: Any) -> bool:
    """Tell whether a resume value is an answer to a row's question, good or bad."""
    if answer_digest(value) in row.answers:
        return True
    return isinstance(value, Mapping) and value.get("binding") == row.binding


def _pause(value: JsonObject) -> NoReturn:
    """Pause a task that has no answer: deriving a schema from a type for it would cost the most.

    Raises:
        GraphInterrupt: Always, as far as LangGraph keeps its word.
        ToolUsageError: It gave an answer it had not announced; nothing runs.
    """
    interrupt(value, response_schema=SCHEMA)
    msg = "LangGraph delivered an answer unexpectedly; it was not judged and nothing ran."
    raise ToolUsageError(msg)


def _pausable(conf: Any) -> TaskAnswers:
    try:
        return task_answers(conf)
    except KeyError as error:
        msg = OUTSIDE
        raise ToolUsageError(msg) from error


def _refusal(digest: str, delivery: Literal["keyed", "bare", "saved"]) -> Refusal:
    error = InvalidAnswer(
        "The last answer did not count: it was not a valid signed answer to this request."
    )
    return Refusal(code=error.code, message=error.message, digest=digest, delivery=delivery)
