"""Budgets name counters and limits; the words for a spent one are for the model."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from tests.unit.core.kit import WRITE, tool

from adapter.core.budgets import Budgets, exceeded
from adapter.core.errors import BudgetExceeded, ConfigurationError, RateLimited
from adapter.core.rates import Rate
from adapter.core.spec import Limits
from adapter.core.usage import Usage
from adapter.testing import make_context

CTX = make_context()
TURNLESS = replace(CTX, place=replace(CTX.place, turnless=True))
BOB = make_context(user="bob")
PRICES = {"m": {"input": "2", "cached_input": "0.5", "output": "8"}}


def scopes(charges: Any) -> list[tuple[str, int | None]]:
    return [(one.scope, one.limit) for one in charges]


@pytest.mark.parametrize(
    "fields",
    [
        {"model_calls_per_turn": 0},
        {"tool_calls_per_turn": 0},
        {"model_calls_per_turn": None},
        {"model_calls_per_user": -1},
        {"tokens_per_thread": 0},
        {"tokens_per_turn": 1.5},
        {"tokens_per_turn": True},
        {"reserve_tokens": 0},
        {"tokens_per_thread": 2**53},
        {"tool_calls_per_user": 2**63},
        {"reserve_tokens": 10**30},
    ],
)
def test_a_budget_nothing_fits_in_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        Budgets(**fields)


@pytest.mark.parametrize("dollars", [0.5, True, "-1", "much", "nan", "inf", [1], "0.5.1"])
def test_dollars_that_are_no_exact_amount_are_refused(dollars: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"cost_per_turn must be dollars"):
        Budgets(cost_per_turn=dollars)


def test_a_budget_of_no_dollars_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="more than 0"):
        Budgets(cost_per_user="0")


@pytest.mark.parametrize("dollars", ["0.50", Decimal("0.5")])
def test_dollars_become_whole_micro_dollars(dollars: Any) -> None:
    assert Budgets(cost_per_turn=dollars).limit("cost", "turn") == 500_000


def test_whole_dollars_may_be_a_number() -> None:
    assert Budgets(cost_per_turn=2).limit("cost", "turn") == 2_000_000


def test_an_unknown_way_to_exceed_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'refuse', 'end' or 'ask'"):
        Budgets(on_exceeded="stop")  # type: ignore[arg-type]


def test_a_rate_that_says_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is no rate"):
        Budgets(tool_rate="ten a minute")


def test_a_model_call_is_charged_to_its_turn() -> None:
    (charge,) = Budgets(model_calls_per_turn=3).model_call(CTX)
    assert (charge.scope, charge.limit) == ("turn:thread-1:turn-1:model_calls", 3)


def test_a_model_call_is_charged_to_thread_user_and_rate() -> None:
    budgets = Budgets(model_calls_per_thread=5, model_calls_per_user=7, model_rate="2/second")
    charges = budgets.model_call(BOB, "mark")
    assert scopes(charges) == [
        ("turn:thread-1:turn-1:model_calls", 10),
        ("thread:thread-1:model_calls", 5),
        ("user:bob:model_calls", 7),
        ("rate:user:bob:model_calls", 2),
    ]
    assert (charges[3].window, charges[3].mark) == (1, "mark")


def test_a_tool_call_is_charged_to_its_thread_and_turn() -> None:
    charges = Budgets(tool_calls_per_turn=4).tool_call(CTX, WRITE[0])
    assert scopes(charges) == [
        ("thread:thread-1:tool_calls", None),
        ("turn:thread-1:turn-1:tool_calls", 4),
    ]


def test_the_count_of_a_thread_is_charged_once_where_it_has_a_budget() -> None:
    budgets = Budgets(tool_calls_per_thread=9, tool_calls_per_user=8, tool_rate="10/minute")
    assert scopes(budgets.tool_call(BOB, WRITE[0], "k")) == [
        ("thread:thread-1:tool_calls", 9),
        ("turn:thread-1:turn-1:tool_calls", 20),
        ("user:bob:tool_calls", 8),
        ("rate:user:bob:tool_calls", 10),
    ]


def test_a_tool_has_its_own_limits() -> None:
    limits = Limits(per_turn=1, per_thread=2, per_user=3, rate="5/30s")
    limited, _ = tool("write", limits=limits)
    charges = Budgets().tool_call(BOB, limited, "key")[2:]
    assert scopes(charges) == [
        ("turn:thread-1:turn-1:tool:write", 1),
        ("thread:thread-1:tool:write", 2),
        ("user:bob:tool:write", 3),
        ("rate:tool:write", 5),
    ]
    assert (charges[3].window, charges[3].mark) == (30, "key")


@pytest.mark.parametrize("fields", [{"per_turn": -1}, {"per_user": 1.5}, {"per_thread": True}])
def test_limits_of_a_tool_that_are_no_numbers_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="whole number"):
        Limits(**fields)


def test_a_tool_limited_to_nothing_never_runs() -> None:
    assert Limits(per_turn=0).per_turn == 0


def test_without_authentication_a_user_is_the_thread() -> None:
    (_, user) = Budgets(model_calls_per_user=1).model_call(CTX)
    assert user.scope == "user-of:thread-1:model_calls"


def test_no_name_of_a_user_names_the_counter_of_another() -> None:
    budgets = Budgets(model_calls_per_user=1, tool_calls_per_user=1)
    names = ["bob", "bob:tool", "bob%3Atool", "thread:thread-1", "%", ":"]
    made = {budgets.model_call(make_context(user=name))[1].scope for name in names}
    assert len(made) == len(names)
    assert all(scope.count(":") == 2 for scope in made)


def test_nothing_is_held_back_without_a_budget_of_tokens_or_cost() -> None:
    assert not Budgets().metered
    assert Budgets().reserve(CTX, "m", 100) == ()


def test_a_model_call_fits_while_anything_is_left() -> None:
    budgets = Budgets(tokens_per_turn=1000, tokens_per_user=50)
    assert budgets.metered
    charges = budgets.reserve(BOB, "any", 400)
    assert [(one.scope, one.amount, one.limit) for one in charges] == [
        ("turn:thread-1:turn-1:tokens", 400, 1399),
        ("user:bob:tokens", 400, 449),
    ]


def test_cost_is_held_back_at_the_price_of_the_answer() -> None:
    budgets = Budgets(cost_per_thread="0.01", prices=PRICES)
    (charge,) = budgets.reserve(CTX, "m", 100)
    assert (charge.scope, charge.amount, charge.limit) == ("thread:thread-1:cost", 800, 10_799)


def test_a_free_model_holds_something_back_all_the_same() -> None:
    free = {"m": {"input": 0, "output": 0}}
    (charge,) = Budgets(cost_per_thread="0.000001", prices=free).reserve(CTX, "m", 100)
    assert (charge.amount, charge.limit) == (1, 1)


def test_what_was_used_is_charged_without_a_limit() -> None:
    budgets = Budgets(tokens_per_turn=10, cost_per_user="1", prices=PRICES)
    charges = budgets.used(BOB, "m", Usage(input=100, cached=40, output=10))
    assert [(one.scope, one.amount, one.limit) for one in charges] == [
        ("turn:thread-1:turn-1:tokens", 110, None),
        ("user:bob:cost", 120 + 20 + 80, None),
    ]


@pytest.mark.parametrize("prices", [None, PRICES])
def test_a_budget_of_cost_without_a_price_refuses_the_model(prices: Any) -> None:
    budgets = Budgets(cost_per_turn="1", prices=prices)
    with pytest.raises(ConfigurationError, match=r"gpt-9.*ADAPTER_PRICES"):
        budgets.reserve(CTX, "gpt-9", 10)
    with pytest.raises(ConfigurationError, match=r"no name.*ADAPTER_PRICES"):
        budgets.reserve(CTX, "", 10)
    assert not budgets.knows("gpt-9")


def test_a_model_with_a_price_is_known() -> None:
    assert Budgets(prices=PRICES).knows("m")


def test_every_budget_that_holds_has_a_name_and_a_size() -> None:
    budgets = Budgets(cost_per_turn="0.5", tokens_per_user=9)
    assert budgets.named(BOB) == {
        "turn:thread-1:turn-1:model_calls": ("model_calls_per_turn", 10),
        "turn:thread-1:turn-1:tool_calls": ("tool_calls_per_turn", 20),
        "user:bob:tokens": ("tokens_per_user", 9),
        "turn:thread-1:turn-1:cost": ("cost_per_turn", 500_000),
    }


@pytest.mark.parametrize("asks", [True, False])
def test_only_budgets_that_ask_can_be_raised(asks: bool) -> None:
    budgets = Budgets(on_exceeded="ask" if asks else "end", tokens_per_turn=5)
    charges = (*budgets.model_call(CTX), *budgets.reserve(CTX, "m", 1))
    assert budgets.asks is asks
    assert {one.raisable for one in charges} == {asks}


def test_rates_are_read_when_the_budgets_are_made() -> None:
    assert Budgets(tool_rate="3/hour").tool_rate == Rate(limit=3, seconds=3600)


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("turn:t:u:model_calls", "the model calls of this turn are"),
        ("turn:t:u:tool:write", "the calls of write allowed here are"),
        ("turn:t:u:tool_calls", "the tool calls of this turn are"),
        ("thread:t:tokens", "the tokens of this thread are"),
        ("user:bob:tool_calls", "the tool calls of this user are"),
        ("user-of:t:cost", "the budget of cost of this user is"),
    ],
)
def test_a_spent_counter_is_named(scope: str, words: str) -> None:
    error = exceeded(scope)
    assert isinstance(error, BudgetExceeded)
    assert words in error.message
    assert "bob" not in error.message


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("rate:tool:write", "too many calls of write"),
        ("rate:user:bob:model_calls", "too many model calls"),
    ],
)
def test_a_spent_rate_is_another_error(scope: str, words: str) -> None:
    error = exceeded(scope)
    assert isinstance(error, RateLimited)
    assert words in error.message


def test_a_persons_noes_to_a_call_are_counted_in_its_turn() -> None:
    (one,) = Budgets().refusals(CTX, "pay:d1")
    assert (one.scope, one.limit) == ("turn:thread-1:turn-1:refusals:pay:d1", 5)
    (other,) = Budgets(refusals_per_turn=2).refusals(CTX, "pay:d2")
    assert (other.scope, other.limit) == ("turn:thread-1:turn-1:refusals:pay:d2", 2)


@pytest.mark.parametrize(
    ("ctx", "limit"), [(CTX, None), (make_context(turn_id=""), 5), (TURNLESS, 5)]
)
def test_noes_are_not_counted_without_a_limit_or_a_turn(ctx: Any, limit: int | None) -> None:
    assert Budgets(refusals_per_turn=limit).refusals(ctx, "pay:d1") == ()


def test_a_call_refused_too_often_is_told_not_to_be_repeated() -> None:
    error = exceeded("turn:thread-1:turn-1:refusals:pay:d1")
    assert isinstance(error, BudgetExceeded)
    assert "too often" in error.message
    assert "Do not repeat it" in error.message


def test_a_call_in_no_turn_has_no_budget_of_a_turn() -> None:
    budgets = Budgets(tool_calls_per_turn=3, tool_calls_per_thread=9)
    spec = replace(WRITE[0], limits=Limits(per_turn=1, per_user=2))
    found = scopes(budgets.tool_call(TURNLESS, spec))
    assert [limit for _, limit in found] == [9, 2]
    assert "turn" not in str(budgets.named(TURNLESS))
    assert [limit for _, limit in scopes(budgets.tool_call(CTX, spec))] == [9, 3, 1, 2]


def test_what_is_charged_for_one_turn_user_or_tool_is_not_charged_for_another() -> None:
    budgets = Budgets(tool_calls_per_turn=3, tool_calls_per_user=9)
    places = [
        make_context(),
        make_context(turn_id="turn-2"),
        make_context(thread_id="thread-2"),
        make_context(user="bob"),
    ]
    specs = [tool("a")[0], tool("b", limits=Limits(per_turn=2))[0]]
    asked = [(ctx, spec) for ctx in places for spec in specs]
    first = [budgets.tool_call(ctx, spec) for ctx, spec in asked]
    assert len({tuple(scopes(charges)) for charges in first}) == len(asked)
    assert [budgets.tool_call(ctx, spec) for ctx, spec in asked] == first
    assert first == [
        Budgets(tool_calls_per_turn=3, tool_calls_per_user=9).tool_call(ctx, spec)
        for ctx, spec in asked
    ]


def test_another_declaration_under_the_same_name_has_its_own_limits() -> None:
    budgets = Budgets()
    for size in (1, 2):
        charges = budgets.tool_call(CTX, tool("a", limits=Limits(per_turn=size))[0])
        assert scopes(charges)[-1] == ("turn:thread-1:turn-1:tool:a", size)


def test_the_largest_budget_fits_a_counter_with_what_is_in_flight() -> None:
    most = 2**53 - 1
    budgets = Budgets(
        tokens_per_turn=most,
        tool_calls_per_user=most,
        cost_per_turn="9007199254",
        prices={"m": {"input": "9007199254", "output": 1}},
    )
    held = budgets.reserve(CTX, "m", 10**30)
    used = budgets.used(CTX, "m", Usage(input=10**12, output=10**12))
    counts = budgets.tool_call(CTX, tool("send", limits=Limits(per_user=2**70))[0])
    for charge in (*held, *used, *counts):
        assert charge.amount <= most
        assert (charge.limit or 0) <= 2 * most
    assert most in [charge.amount for charge in used]


@pytest.mark.parametrize("dollars", ["1e30", "9007199255", Decimal(10) ** 40])
def test_more_dollars_than_a_counter_holds_are_refused(dollars: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"cost_per_user.*at most 9007199254"):
        Budgets(cost_per_user=dollars)
    with pytest.raises(ConfigurationError, match=r"m: input.*at most 9007199254"):
        Budgets(prices={"m": {"input": dollars, "output": 1}})
