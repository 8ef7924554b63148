"""Version test: what host and supersteps read of LangGraph is as this version has it."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Interrupt, interrupt
from typing_extensions import TypedDict

from adapter.langgraph.host import (
    TaskAnswers,
    configurable,
    is_sent,
    pause_id,
    resume_map,
    task_answers,
    task_scratchpad,
)
from adapter.langgraph.supersteps import (
    last_pause,
    pauses_at,
    start_input,
    superstep,
    write_channels,
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


def test_a_bare_answer_of_an_earlier_run_is_none_in_a_run_that_answers_by_id() -> None:
    probe = Probe()
    probe.run({})
    second = probe.run(Command(resume="a"))
    assert second is not None
    probe.run(Command(resume={second.id: "b"}))
    assert deliveries(probe.seen[-1])[:3] == ["saved", "keyed", None]


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


class Crowd(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def crowded(look: Any) -> Any:
    """``a`` and ``b`` run together, ``b`` pauses; ``later`` is deferred."""
    graph: Any = StateGraph(Crowd)

    def a(_: Crowd) -> Crowd:
        look("a")
        return {"log": ["a"]}

    def b(_: Crowd) -> Crowd:
        look("b")
        return {"log": [interrupt({"question": "b?"})]}

    graph.add_node("a", a).add_node("b", b).add_node("later", lambda _: {}, defer=True)
    graph.add_edge(START, "a").add_edge(START, "b").add_edge(["a", "b"], "later")
    return graph.compile(checkpointer=InMemorySaver())


def test_which_nodes_run_in_a_superstep_is_known_to_each_of_them() -> None:
    seen: dict[str, Any] = {}

    def look(name: str) -> None:
        found = superstep(configurable(), ("a", "b", "later"))
        seen.setdefault(name, []).append(found)

    app = crowded(look)
    app.invoke({"log": []}, CONFIG)
    (a,), (b,) = seen["a"], seen["b"]
    assert (a.active, b.active, a.namespace) == (("a", "b"), ("a", "b"), "")
    assert a.run is b.run
    assert a.checkpoint_id == b.checkpoint_id
    assert app.get_state(CONFIG).config["configurable"]["checkpoint_id"] == a.checkpoint_id
    app.invoke(Command(resume="yes"), CONFIG)
    again = seen["b"][1]
    assert again.checkpoint_id == b.checkpoint_id
    assert again.run is not b.run


def test_a_tasks_last_pause_is_found_in_the_checkpointer() -> None:
    found: list[Any] = []

    def look(_name: str) -> None:
        conf = configurable()
        at = pauses_at(conf)
        assert at is not None
        found.append(last_pause(conf, at[0].get_tuple(at[1])))

    app = crowded(look)
    app.invoke({"log": []}, CONFIG)
    (asked,) = [pause for task in app.get_state(CONFIG).tasks for pause in task.interrupts]
    found.clear()
    app.invoke(None, CONFIG)
    assert found == [(asked,)]
    assert last_pause({}, None) == ()


def test_a_task_that_a_send_started_is_told_apart() -> None:
    from langgraph.config import get_config
    from langgraph.types import Send

    sent: list[bool] = []
    graph: Any = StateGraph(Crowd)

    def look(_: Crowd) -> Crowd:
        sent.append(is_sent(get_config()))
        return {}

    graph.add_node("a", look)
    graph.add_conditional_edges(START, lambda _: ["a", Send("a", {})], ["a"])
    graph.compile().invoke({"log": []})
    assert sorted(sent) == [False, True]


def test_a_branch_at_the_start_sees_the_input_and_writes_channels() -> None:
    graph: Any = StateGraph(Crowd)

    def begin(_: Any, config: RunnableConfig) -> list[str]:
        conf = config["configurable"]
        given = start_input(conf)
        write_channels(conf, [("log", [f"given {given['log']}"])])
        return ["a"]

    graph.add_node("a", lambda _: {"log": ["a"]})
    graph.add_conditional_edges(START, begin, ["a"])
    out = graph.compile().invoke({"log": ["x"]})
    assert "given ['x']" in out["log"]
