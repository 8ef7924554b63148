"""Budgets from the environment."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import pytest

from adapter import Budgets, ConfigurationError
from adapter.core.rates import Rate
from adapter.settings import AdapterSettings
from agent.settings import AgentSettings
from agent.wiring import build_parts


def load(**values: str) -> AdapterSettings:
    return AdapterSettings.load({f"ADAPTER_{k.upper()}": v for k, v in values.items()}, None)


def test_without_settings_the_budgets_are_the_librarys() -> None:
    assert Budgets(**load().budgets) == Budgets()


def test_every_budget_has_a_setting() -> None:
    said = {field.name for field in fields(Budgets) if field.init}
    names = said - {"prices", "context_limits"}
    assert load().budgets.keys() == names


def test_settings_become_budgets() -> None:
    settings = load(
        model_calls_per_user="7",
        tokens_per_thread="5000",
        cost_per_turn="0.25",
        tool_rate="10/minute",
        model_rate="5/30s",
        reserve_tokens="99",
        on_exceeded="ask",
    )
    assert Budgets(**settings.budgets) == Budgets(
        model_calls_per_user=7,
        tokens_per_thread=5000,
        cost_per_turn=Decimal("0.25"),
        tool_rate=Rate(limit=10, seconds=60),
        model_rate=Rate(limit=5, seconds=30),
        reserve_tokens=99,
        on_exceeded="ask",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tool_rate", "ten"),
        ("model_rate", "0/minute"),
        ("tokens_per_turn", "0"),
        ("model_calls_per_user", "-1"),
        ("tool_calls_per_thread", "many"),
        ("cost_per_turn", "0"),
        ("cost_per_user", "-0.5"),
        ("cost_per_thread", "nan"),
        ("reserve_tokens", "0"),
        ("on_exceeded", "stop"),
        ("tokens_per_turn", "9007199254740992"),
        ("tool_calls_per_user", "1" + "0" * 30),
        ("cost_per_turn", "1e30"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"ADAPTER_{name.upper()} is not valid"):
        load(**{name: value})


@pytest.mark.parametrize("span", ["TURN", "THREAD", "USER"])
def test_a_limit_in_dollars_without_prices_stops_the_start(tmp_path: Path, span: str) -> None:
    env = {"ADAPTER_DATA_DIR": str(tmp_path), f"ADAPTER_COST_PER_{span}": "1"}
    with pytest.raises(
        ConfigurationError, match=rf"\(ADAPTER_COST_PER_{span}\), and ADAPTER_PRICES is"
    ):
        build_parts(AgentSettings.load(env, None))
    assert list(tmp_path.iterdir()) == []  # before anything is opened


def test_the_template_takes_budgets_and_prices_from_the_settings(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[m]\ninput = 1\noutput = 2\n")
    settings = AgentSettings.load(
        {
            "ADAPTER_DATA_DIR": str(tmp_path),
            "ADAPTER_PRICES": str(prices),
            "ADAPTER_COST_PER_USER": "1.5",
            "ADAPTER_TOOL_RATE": "3/second",
        },
        None,
    )
    budgets = build_parts(settings).executor.budgets
    assert budgets.limit("cost", "user") == 1_500_000
    assert budgets.knows("m")
    assert budgets.tool_rate == Rate(limit=3, seconds=1)
