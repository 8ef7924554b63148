"""What a run's caller sets in its context can lower a limit, and never raise one."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from tests.unit.core.kit import WRITE, YES, tool

from adapter.core.budgets import Budgets
from adapter.core.errors import BudgetExceeded, ConfigurationError
from adapter.core.policy import Policy, decide
from adapter.core.rules import ApprovalRule, Condition, NamedCondition
from adapter.core.types import CallContext
from adapter.testing import Paused, make_call, make_context, wired

BUDGETS = Budgets(
    tool_calls_per_turn=3,
    tool_calls_per_thread=9,
    tokens_per_turn=100,
    cost_per_turn="1.00",
    prices={"m": {"input": "1", "output": "1"}},
    context_limits={
        "tool_calls_per_turn": "max_calls",
        "tool_calls_per_thread": "max_all",
        "tokens_per_turn": "max_tokens",
        "cost_per_turn": "max_cost",
    },
)
LARGE = ApprovalRule(
    name="large", when=Condition(argument="amount", op="gt", value=100, context="max")
)


def ctx(run: str = "run-1", **context: Any) -> CallContext:
    return replace(make_context(run_id=run), context=context)


@pytest.mark.parametrize(
    ("context", "size"),
    [({}, 3), ({"max_calls": 2}, 2), ({"max_calls": 99}, 3), ({"max_calls": None}, 3)],
)
def test_a_limit_is_lowered_and_not_raised(context: Any, size: int) -> None:
    assert BUDGETS.limit("tool_calls", "turn", ctx(**context)) == size
    assert BUDGETS.limit("tool_calls", "turn") == 3


@pytest.mark.parametrize(
    ("said", "size"), [("0.50", 500_000), (Decimal("0.25"), 250_000), (2, 1_000_000)]
)
def test_dollars_are_lowered_too(said: Any, size: int) -> None:
    assert BUDGETS.limit("cost", "turn", ctx(max_cost=said)) == size


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("max_calls", 0),
        ("max_calls", -1),
        ("max_calls", True),
        ("max_calls", "2"),
        ("max_calls", 1.5),
        ("max_cost", 0.5),
        ("max_cost", "much"),
        ("max_cost", 0),
    ],
)
def test_what_is_no_limit_is_refused_and_never_another_limit(key: str, said: Any) -> None:
    what = "cost" if key == "max_cost" else "tool_calls"
    with pytest.raises(ConfigurationError, match=rf"context\['{key}'\]"):
        BUDGETS.limit(what, "turn", ctx(**{key: said}))


def test_every_charge_sees_the_lowered_limit() -> None:
    low = ctx(max_calls=1, max_all=2, max_tokens=10)
    limits = {
        charge.scope.split(":")[0]: charge.limit for charge in BUDGETS.tool_call(low, WRITE[0])
    }
    assert limits == {"turn": 1, "thread": 2}
    (tokens, *_) = BUDGETS.reserve(low, "m", 5)
    assert tokens.limit == 10 + 5 - 1
    assert sorted(size for _, size in BUDGETS.named(low).values())[:3] == [1, 2, 10]


@pytest.mark.parametrize(
    "limits",
    [{"tool_calls": "x"}, {"tokens_per_user": "x"}, {"tool_calls_per_turn": ""}, {"x_per_y": "x"}],
)
def test_only_limits_that_are_set_can_be_lowered(limits: Any) -> None:
    with pytest.raises(ConfigurationError, match="context_limits"):
        Budgets(context_limits=limits)


@pytest.mark.anyio
async def test_a_second_call_under_a_lowered_limit_is_refused() -> None:
    budgets = Budgets(context_limits={"tool_calls_per_turn": "max_calls"})
    async with wired(WRITE, budgets=budgets) as kit:
        await kit.run(make_call("write", id="a", to="b"), ctx(max_calls=1))
        with pytest.raises(BudgetExceeded):
            await kit.run(make_call("write", id="b", to="b"), ctx(max_calls=1))
        await kit.run(make_call("write", id="c", to="b"), ctx())
        assert len(kit.runs) == 2


@pytest.mark.parametrize(
    ("amount", "context", "kind"),
    [
        (60, {}, "allow"),
        (60, {"max": 50}, "ask"),
        (60, {"max": 60.5}, "allow"),
        (150, {"max": 1000}, "ask"),
        (60, {"max": "1000"}, "ask"),
        (60, {"max": True}, "ask"),
        (60, {"max": float("nan")}, "ask"),
        (60, None, "ask"),
    ],
)
def test_a_condition_is_lowered_and_never_raised(amount: int, context: Any, kind: str) -> None:
    spec, _ = tool("write")
    made = decide(spec, {"amount": amount}, Policy(escalate={"write": LARGE}), context)
    assert made.kind == kind
    assert made.lowered is (kind == "allow")


@pytest.mark.parametrize("fields", [{"op": "eq"}, {"value": "x"}, {"context": ""}])
def test_only_a_numeric_upper_limit_can_be_lowered(fields: Any) -> None:
    given: dict[str, Any] = {"argument": "a", "op": "gt", "value": 1, "context": "max"} | fields
    with pytest.raises(ConfigurationError, match="can only lower"):
        Condition(**given)


def test_the_key_is_part_of_the_rule() -> None:
    plain = Condition(argument="a", op="gt", value=1)
    assert "context" not in plain.describe()
    assert Condition(argument="a", op="gt", value=1, context="max").describe()["context"] == "max"
    named = NamedCondition(name="n", version="1", test=lambda arguments: bool(arguments))
    assert named.holds({"a": 1}, {"max": 1})


@pytest.mark.anyio
async def test_a_run_without_the_context_does_not_take_the_question_back() -> None:
    async with wired(WRITE, policy=Policy(escalate={"write": LARGE})) as kit:
        call = make_call("write", to="bob", amount=60)
        with pytest.raises(Paused):
            await kit.run(call, ctx(max=50))
        with pytest.raises(Paused):
            await kit.run(call, ctx("run-2"))
        assert kit.runs == []
        await kit.run(call, ctx("run-3"), YES)
        assert len(kit.runs) == 1
        await kit.run(make_call("write", id="free", to="bob", amount=60), ctx("run-4"))
        assert len(kit.runs) == 2
