"""The questions that a tool asks itself, where it shares its task with other calls.

LangGraph gives a task's answers out by their order. A call that is not run again, because its
result is recorded, would leave its answers to the next one that asks. So each call gets numbers
of its own for its questions, hence ids of its own, and its answers are kept in its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from langgraph.errors import GraphInterrupt
from typing_extensions import override

from adapter.core.canonical import canonical_bytes
from adapter.core.errors import ToolUsageError
from adapter.core.types import JsonValue
from adapter.langgraph.host import (
    NAMESPACE,
    apart,
    bare_answer,
    configurable,
    first_number,
    own_pad,
    pause_id,
    resume_map,
    running_task,
)
from adapter.langgraph.signedanswer import SCHEMA
from adapter.langgraph.supersteps import shown_pauses

__all__ = ["OwnPauses"]


class OwnPauses:
    """One call's own questions."""

    def __init__(self, place: str) -> None:
        """Take what names the call, the same on every run of its task."""
        self._place = place
        self._first = first_number(place)
        self._told: list[Any] = []
        self._answers = _Answers(self._first, ())
        self._bare = self._kept = False

    async def recall(self, outcome: JsonValue) -> None:
        """Take up what the tool was told before it paused.

        Args:
            outcome: As ``told`` returned it then.
        """
        self._kept = running_task() is not None
        if not isinstance(outcome, dict) or "told" not in outcome or not self._kept:
            return
        self._told = list(outcome["told"])
        conf = configurable()
        if not resume_map(conf) and bare_answer(conf) is not None:
            # An unaddressed answer is for the question that was shown, whichever call asked it.
            shown = {pause.id for pause in await shown_pauses(conf)}
            self._bare = not shown.isdisjoint(outcome["asked"])

    def told(self, pause: BaseException) -> JsonValue:
        """Return what the tool has been told so far, and what it asks now.

        Raises:
            ToolUsageError: An answer is no JSON, so it could not be given to the tool again.
        """
        asked = pause.args[0] if isinstance(pause, GraphInterrupt) and pause.args else ()
        told = self._answers.taken
        try:
            canonical_bytes(told)
        except (TypeError, ValueError, UnicodeEncodeError) as error:
            msg = (
                "A tool that asks beside other calls got an answer that is no JSON, and would "
                "have to be asked again: resume with JSON."
            )
            raise ToolUsageError(msg) from error
        return {"told": told, "asked": [one.id for one in asked]}

    def config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config of the call's task with a place of its own for what it starts and asks.

        Args:
            config: Of the running task.
        """
        placed = apart(config, self._place)
        if not self._kept:  # no row: what it asks is asked in the task's order
            return placed
        conf = placed.get("configurable") or {}
        values = [*self._told]
        new = pause_id(str(conf.get(NAMESPACE, "")), self._first + len(values))
        given = resume_map(conf)
        if new in given and not _is_approval(given[new]):
            values.append(given[new])
        self._answers = _Answers(self._first, values)
        numbers = _Numbers(self._first)
        own = own_pad(conf, numbers=numbers, answers=self._answers, bare=self._bare)
        return {**placed, "configurable": own} if own else placed


class _Numbers:
    """Counts a call's questions as LangGraph counts a task's."""

    def __init__(self, first: int) -> None:
        self._counter = count(first).__next__

    def __call__(self) -> int:
        return self._counter()


class _Answers(Sequence[Any]):
    """A call's answers under its own numbers, and how many of them the tool has taken."""

    def __init__(self, first: int, values: Sequence[Any]) -> None:
        self._first = first
        self._values = list(values)
        self._taken = 0

    @property
    def taken(self) -> list[Any]:
        """Those the tool got."""
        return self._values[: self._taken]

    def append(self, value: Any) -> None:
        """Take an unaddressed answer."""
        self._values.append(value)
        self._taken = len(self._values)

    @override
    def __len__(self) -> int:
        return self._first + len(self._values)

    @override
    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    @override
    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):  # what LangGraph would save, once it has judged an answer
            self._taken = max(self._taken, number.stop - self._first)
            return self.taken
        return self._values[number - self._first]


def _is_approval(value: Any) -> bool:
    """Tell whether an answer is an approval, which no tool gets to see."""
    return isinstance(value, Mapping) and SCHEMA["properties"].keys() <= value.keys()
