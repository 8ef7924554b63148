"""Version test of adapter.langgraph.host: what it reads of LangGraph is as this version has it."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Interrupt, interrupt
from typing_extensions import TypedDict

from adapter.langgraph.host import (
    TaskAnswers,
    configurable,
    pause_id,
    resume_map,
    task_answers,
    task_scratchpad,
)

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    answers: list[Any]


class Probe:
    """A node that asks three times and looks before each question, twice."""

    def __init__(self) -> None:
        self.seen: list[list[TaskAnswers]] = []
        self.ids: list[str] = []
        graph: Any = StateGraph(State)
        graph.add_node("ask", self.ask)
        graph.add_edge(START, "ask")
        self.graph = graph.compile(checkpointer=InMemorySaver())

    def ask(self, _state: State) -> State:
        run: list[TaskAnswers] = []
        self.seen.append(run)
        answers = []
        for number in range(3):
            looked = task_answers(configurable())
            assert task_answers(configurable()) == looked  # looking counts nothing
            run.append(looked)
            self.ids.append(pause_id(looked.namespace, looked.asked))
            answers.append(interrupt(f"question {number}"))
        run.append(task_answers(configurable()))
        return {"answers": answers}

    def run(self, given: Any) -> Interrupt | None:
        """Run; return the pause it ends in."""
        self.ids.clear()
        result = self.graph.invoke(given, CONFIG)
        found = result.get("__interrupt__", ())
        return found[0] if found else None


def test_a_pauses_id_is_known_before_it_is_raised() -> None:
    probe = Probe()
    ids = []
    given: Any = {}
    for position in range(3):
        paused = probe.run(given)
        assert paused is not None
        assert paused.value == f"question {position}"
        assert probe.ids[position] == paused.id
        ids.append(paused.id)
        given = Command(resume={paused.id: position})
    assert len(set(ids)) == 3
    assert probe.run(given) is None
    assert probe.graph.get_state(CONFIG).values == {"answers": [0, 1, 2]}


def deliveries(run: list[TaskAnswers]) -> list[str | None]:
    return [looked.delivery for looked in run]


def test_keyed_and_saved_answers_are_told_apart() -> None:
    probe = Probe()
    first = probe.run({})
    assert first is not None
    assert deliveries(probe.seen[-1]) == [None]
    second = probe.run(Command(resume={first.id: "a"}))
    assert second is not None
    assert deliveries(probe.seen[-1]) == ["keyed", None]
    probe.run(None)
    assert deliveries(probe.seen[-1]) == ["saved", None]
    probe.run(Command(resume={second.id: "b"}))
    assert deliveries(probe.seen[-1]) == ["saved", "keyed", None]
    assert [looked.asked for looked in probe.seen[-1]] == [0, 1, 2]


def test_bare_answers_are_told_apart() -> None:
    probe = Probe()
    probe.run({})
    probe.run(Command(resume="a"))
    assert deliveries(probe.seen[-1]) == ["bare", None]
    probe.run(Command(resume="b"))
    assert deliveries(probe.seen[-1]) == ["saved", "bare", None]
    probe.run(None)
    # LangGraph delivers the last unaddressed answer again: it reaches the next question.
    assert deliveries(probe.seen[-1]) == ["saved", "saved", "bare", None]


def test_an_old_id_is_seen_as_this_runs_answer() -> None:
    probe = Probe()
    first = probe.run({})
    assert first is not None
    probe.run(Command(resume={first.id: "a"}))
    probe.run(Command(resume={first.id: "again"}))
    assert deliveries(probe.seen[-1])[:2] == ["saved", "keyed"]


def test_an_answer_for_another_task_is_not_ours() -> None:
    probe = Probe()
    probe.run({})
    probe.run(Command(resume={"0" * 32: "x"}))
    assert deliveries(probe.seen[-1]) == [None]


def test_the_runs_answers_by_id_are_visible_to_the_node() -> None:
    maps: list[Any] = []

    def node(_: State) -> State:
        maps.append(dict(resume_map(configurable())))
        assert task_scratchpad(configurable()) is not None
        return {"answers": [interrupt("x")]}

    graph: Any = StateGraph(State)
    graph.add_node("ask", node)
    graph.add_edge(START, "ask")
    built = graph.compile(checkpointer=InMemorySaver())
    (paused,) = built.invoke({}, CONFIG)["__interrupt__"]
    built.invoke(Command(resume={paused.id: "a"}), CONFIG)
    assert maps == [{}, {paused.id: "a"}]


def test_outside_a_task_there_is_nothing_to_read() -> None:
    assert resume_map({}) == {}
    assert resume_map({"__pregel_resume_map": None}) == {}
    assert task_scratchpad({}) is None
    with pytest.raises(KeyError):
        task_answers({})


@pytest.mark.anyio
async def test_the_same_holds_for_async_nodes_and_send() -> None:
    from langgraph.types import Send

    seen: list[tuple[str, str | None]] = []

    async def ask(_: Any) -> State:
        looked = task_answers(configurable())
        seen.append((pause_id(looked.namespace, looked.asked), looked.delivery))
        return {"answers": [interrupt("x")]}

    graph: Any = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_conditional_edges(START, lambda _: [Send("ask", {}), Send("ask", {})], ["ask"])
    built = graph.compile(checkpointer=InMemorySaver())
    first, second = (await built.ainvoke({}, CONFIG))["__interrupt__"]
    assert {found for found, _ in seen} == {first.id, second.id}
    seen.clear()
    await built.ainvoke(Command(resume={second.id: "b"}), CONFIG)
    assert sorted(seen, key=str) == sorted([(second.id, "keyed"), (first.id, None)], key=str)
