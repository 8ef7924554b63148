"""Sync ToolNodes start a thread for each call: which thread is quick must change no question."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from tests.support.graphs import CONFIG, Own
from tests.support.room import Rooms, open_questions, paired, pay
from tests.support.script import ai

from adapter import ApprovalDecision, ApprovalRule
from adapter.core.policy import Policy


class Race:
    """Holds threads back at the door of our wrapper, as a busy machine does."""

    def __init__(self, own: Own) -> None:
        self._wrapped: Any = own.node._wrap_tool_call
        self._gone: dict[str, threading.Event] = {}
        self._came: dict[str, threading.Event] = {}
        self.after_end: dict[str, str] = {}
        self.after_start: dict[str, str] = {}
        own.node._wrap_tool_call = self.wrap

    def again(self) -> None:
        """Begin another run of the node."""
        self._gone = {name: threading.Event() for name in ("c1", "c2", "c3")}
        self._came = {name: threading.Event() for name in ("c1", "c2", "c3")}

    def wrap(self, request: ToolCallRequest, execute: Any) -> Any:
        name = request.tool_call["id"] or ""
        if name in self.after_end:
            assert self._gone[self.after_end[name]].wait(30)
        if name in self.after_start:
            assert self._came[self.after_start[name]].wait(30)
        self._came[name].set()
        try:
            return self._wrapped(request, execute)
        finally:
            self._gone[name].set()


def racing(rooms: Rooms) -> tuple[Own, Race]:
    own = Own(rooms, Policy(escalate={"send_money": PAYMENT}), ai(*CALLS))
    return own, Race(own)


PAYMENT = ApprovalRule(name="payment", reason="money leaves")
CALLS = (pay("c1", 1), pay("c2", 2), pay("c3", 3))


def question(own: Own) -> Any:
    (asked,) = open_questions(own.graph.get_state(CONFIG))
    return asked


def yes(own: Own) -> Command[Any]:
    asked = question(own)
    return Command(
        resume={asked.id: own.approval.resume_value(asked, ApprovalDecision(kind="approve"))}
    )


def test_the_question_is_shown_whichever_thread_asks_first(rooms: Rooms) -> None:
    own, race = racing(rooms)
    race.again()
    own.graph.invoke({"messages": "pay"}, CONFIG)
    race.again()
    race.after_end = {"c2": "c3"}  # c3 asks, and c2, whose pause the node leaves with, does not
    own.graph.invoke(yes(own), CONFIG)
    assert own.ledger.paid == [1]
    assert question(own).value["request"]["call_id"] == "c3"
    race.after_end = {}
    for _ in range(4):  # an answer that comes before its call's thread is asked for again
        if own.graph.get_state(CONFIG).next:
            race.again()
            own.graph.invoke(yes(own), CONFIG)
    assert sorted(own.ledger.paid) == [1, 2, 3]
    paired(own.graph.get_state(CONFIG).values["messages"])


@pytest.mark.parametrize("late", ["c1", "c2"])
def test_a_late_thread_keeps_its_place_in_the_message(rooms: Rooms, late: str) -> None:
    own, race = racing(rooms)
    race.after_start = {late: "c3"}
    race.again()
    own.graph.invoke({"messages": "pay"}, CONFIG)
    for expected in ("c1", "c2", "c3"):
        assert question(own).value["request"]["call_id"] == expected
        race.again()
        own.graph.invoke(yes(own), CONFIG)
    assert own.ledger.paid == [1, 2, 3]
