"""Whatever the flow: the local runner and the compiled graph show the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import cycle, islice

import pytest
from hypothesis import HealthCheck, given, settings
from langgraph.checkpoint.memory import InMemorySaver
from tests.flow.parity import NO, YES, Case, Seen
from tests.flow.plans import NAMES, NodePlan, Plan, plans
from tests.flow.runners import Compiled, Local
from tests.flow.world import World

from adapter import FlowLoopExceeded

QUESTIONS = 60
STEPS = 30


def case_of(plan: Plan) -> Case:
    """A case without expectations: as many decisions as it may take."""
    answers = islice(cycle(plan.yes), QUESTIONS)
    return Case(
        id="random",
        build=plan.flow,
        given={"words": list(plan.words)},
        decisions=tuple(YES if yes else NO for yes in answers),
        options={"max_steps": STEPS},
        error=(FlowLoopExceeded, ""),
        unasked=True,
        durable=True,
    )


def both(plan: Plan) -> tuple[Seen, Seen]:
    case = case_of(plan)
    local = asyncio.run(Local(anew=True).run(case))
    return local, asyncio.run(Compiled(saver=InMemorySaver(), anew=True).run(case))


def agree(plan: Plan) -> None:
    local, compiled = both(plan)
    if local.status == "raised":
        # A graph cancels the siblings of a node that fails; here they end: docs/flows.md.
        assert not Counter(compiled.ran) - Counter(local.ran)
        compiled = replace(compiled, ran=local.ran)
    assert local == compiled


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(plans())
def test_both_runners_show_the_same(plan: Plan) -> None:
    agree(plan)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(plans())
def test_both_runners_show_the_same_of_many_plans(plan: Plan) -> None:
    agree(plan)


@settings(max_examples=100)
@given(plans())
def test_every_plan_makes_a_well_formed_flow(plan: Plan) -> None:
    plan.flow(World()).validate(World().registry())


def test_a_plan_of_every_work_is_done() -> None:
    """So that agreement is not agreement on nothing."""
    works = ("log", "many", "map", "gated call", "join")
    names = NAMES[: len(works)]
    nodes = {
        name: NodePlan(work=work, gated=name == "b", edges=tuple(names[index + 1 : index + 2]))
        for index, (name, work) in enumerate(zip(names, works, strict=True))
    }
    local, compiled = both(Plan(nodes=nodes, starts=("a",), words=("x",)))
    assert local == compiled
    assert local.status == "done"
    assert local.steps == len(works)
    assert len(local.pauses) == 2
