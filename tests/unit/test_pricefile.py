"""Where prices come from: a file of the person's own, or the optional package."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapter.core.errors import ConfigurationError
from adapter.core.usage import Usage
from adapter.pricefile import load_prices

USAGE = Usage(input=1000, cached=400, output=100)


def test_no_setting_is_no_prices() -> None:
    assert load_prices(None) is None


def test_a_toml_file_is_read_exactly(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('["gpt-test"]\ninput = 0.1\ncached_input = 0.03\noutput = 1\n')
    prices = load_prices(str(path))
    assert prices is not None
    assert prices.cost("gpt-test", USAGE) == 60 + 12 + 100
    assert prices.cost("gpt-other", USAGE) is None


def test_a_json_file_is_read_exactly(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"a/b:1": {"input": 0.1, "output": "0.2"}}))
    prices = load_prices(str(path))
    assert prices is not None
    assert prices.cost("a/b:1", Usage(input=10, output=10)) == 3


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.toml", "input = ", "cannot be read"),
        ("p.json", "{", "cannot be read"),
        ("p.json", "[]", "must hold an object"),
        ("p.json", "{}", "empty"),
        ("p.json", '{"m": {"input": 1}}', "'m'"),
        ("p.json", '{"m": {"input": NaN, "output": 1}}', "m: input"),
    ],
)
def test_a_file_that_is_no_price_table_is_refused(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        load_prices(str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"ADAPTER_PRICES.*none\.toml"):
        load_prices(str(tmp_path / "none.toml"))


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'agent-adapter\[prices\]'"):
        load_prices("genai")


def test_the_packages_price_becomes_micro_dollars(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def calc_price(usage: Any, model_ref: str) -> Any:
        asked.append(vars(usage))
        if model_ref != "gpt-test":
            raise LookupError(model_ref)
        return SimpleNamespace(total_price=Decimal("0.0004501"))

    package = SimpleNamespace(Usage=SimpleNamespace, calc_price=calc_price)
    monkeypatch.setitem(sys.modules, "genai_prices", package)
    prices = load_prices("genai")
    assert prices is not None
    assert prices.cost("gpt-test", USAGE) == 451
    assert prices.cost("nobody's", USAGE) is None
    assert asked[0] == {"input_tokens": 1000, "cache_read_tokens": 400, "output_tokens": 100}
