"""Conditions and approval rules are data, and a mistake in one never removes a gate."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from adapter.core.errors import ConfigurationError
from adapter.core.rules import ApprovalRule, Condition, NamedCondition, misfit


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


class Colour(Enum):
    RED = "red"


class Inner(BaseModel):
    deep: int = 0


class Arguments(BaseModel):
    cents: int
    share: float
    text: str
    flag: bool
    maybe: int | None
    either: int | str
    level: Level
    unit: Literal["cm", "in"]
    only: Literal["x"]
    parts: list[int]
    inner: Inner
    money: Decimal
    day: date
    anything: Any


SCHEMA = Arguments.model_json_schema()


@pytest.mark.parametrize(
    ("op", "value", "holds", "fails"),
    [
        ("eq", 5, 5, 6),
        ("ne", 5, 6, 5),
        ("gt", 5, 6, 5),
        ("ge", 5, 5, 4),
        ("lt", 5, 4, 5),
        ("le", 5, 5, 6),
        ("in", [1, 2], 1, 3),
        ("not_in", [1, 2], 3, 1),
    ],
)
def test_an_operator_holds_or_fails(op: Any, value: Any, holds: Any, fails: Any) -> None:
    condition = Condition(argument="n", op=op, value=value)
    assert condition.holds({"n": holds})
    assert not condition.holds({"n": fails})


@pytest.mark.parametrize("arguments", [{}, {"n": None}, {"n": "5"}])
def test_an_argument_absent_or_not_comparable_asks(arguments: dict[str, Any]) -> None:
    assert Condition(argument="n", op="gt", value=5).holds(arguments)


@pytest.mark.parametrize("fields", [{"op": "like"}, {"argument": ""}])
def test_an_unknown_operator_or_no_argument_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="A Condition needs"):
        Condition(**{"argument": "n", "op": "eq", "value": 1, **fields})


def test_a_condition_is_described_as_json() -> None:
    assert Condition(argument="n", op="in", value=(1, 2)).describe() == {
        "argument": "n",
        "op": "in",
        "value": [1, 2],
    }


def test_a_named_condition_asks_its_callable() -> None:
    condition = NamedCondition(name="big", version="1", test=lambda given: given["n"] > 1)
    assert condition.holds({"n": 2})
    assert not condition.holds({"n": 1})


def test_a_named_condition_is_described_by_name_and_version() -> None:
    made = NamedCondition(name="big", version="2", test=bool)
    assert made.describe() == {"name": "big", "version": "2"}


@pytest.mark.parametrize("fields", [{"name": ""}, {"version": ""}])
def test_a_nameless_condition_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="a name and a version"):
        NamedCondition(**{"name": "a", "version": "1", "test": bool, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"allowed": ()},
        {"allowed": ("aprove",)},
        {"allowed": ("approve", "approve")},
        {"name": ""},
        {"quorum": 0},
        {"ttl": 0},
        {"ttl": -1},
        {"when": lambda _: False},
    ],
)
def test_a_rule_that_would_weaken_the_gate_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="ApprovalRule"):
        ApprovalRule(**({"name": "r"} | fields))


@pytest.mark.parametrize("when", [None, Condition(argument="n", op="gt", value=1)])
def test_a_rule_is_described_with_its_condition(when: Condition | None) -> None:
    rule = ApprovalRule(name="r", when=when, allowed=("reject", "approve"), ttl=5.0)
    described = rule.describe()
    assert described["when"] == (None if when is None else when.describe())
    assert described["allowed"] == ["approve", "reject"]


def test_what_cannot_be_compared_counts_as_holding_under_a_lowered_limit_too() -> None:
    condition = Condition(argument="n", op="gt", value=5, context="max")
    assert condition.holds({"n": "text"}, {"max": 1})
    assert condition.holds({}, {"max": 1})


def test_a_named_condition_that_fails_counts_as_holding() -> None:
    def fails(_: object) -> bool:
        raise ValueError

    assert NamedCondition(name="n", version="1", test=fails).holds({})


def test_a_tuple_of_values_is_described_as_a_list() -> None:
    assert Condition(argument="n", op="in", value=("b", "a")).describe()["value"] == ["b", "a"]


@pytest.mark.parametrize("op", ["in", "not_in"])
@pytest.mark.parametrize("value", ["DE", 5, {"DE": 1}, None])
def test_one_value_where_several_are_meant_is_refused(op: Any, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Condition on 'n': .*in needs a list of values"):
        Condition(argument="n", op=op, value=value)
    assert Condition(argument="n", op=op, value=[value])


FITTING: list[tuple[str, Any, Any]] = [
    ("cents", "eq", 2),
    ("cents", "eq", 2.0),
    ("cents", "gt", 2.5),
    ("cents", "in", [2, 3]),
    ("cents", "in", frozenset({2})),
    ("cents", "not_in", (2,)),
    ("cents", "in", []),
    ("share", "eq", 2),
    ("share", "le", 0.5),
    ("text", "eq", "2"),
    ("text", "ge", "b"),
    ("flag", "eq", True),
    ("maybe", "eq", None),
    ("maybe", "gt", 5),
    ("maybe", "in", [None, 5]),
    ("either", "in", ["2", 2]),
    ("level", "eq", "low"),
    ("level", "ne", Level.HIGH),
    ("level", "gt", "later"),
    ("unit", "in", ["cm", "in"]),
    ("only", "eq", "x"),
    ("parts", "eq", [1]),
    ("inner", "eq", {"deep": 1}),
    ("money", "gt", 100),
    ("money", "eq", "1.00"),
    ("day", "gt", "2026-01-01"),
    ("anything", "eq", date(2026, 1, 1)),
]
UNFIT: list[tuple[str, Any, Any, str]] = [
    (
        "cents",
        "eq",
        "2",
        "is a whole number; its condition (eq) has the value '2', a text. Give a ",
    ),
    ("cents", "eq", "2", "Give a whole number, without quotes."),
    ("cents", "ne", 2.5, "a whole number"),
    ("cents", "gt", "2", "a whole number, without quotes"),
    ("cents", "gt", float("inf"), "has the value inf, no JSON. Give a whole number."),
    ("cents", "eq", True, "has the value True, true or false. Give a whole number."),
    ("cents", "le", False, "a whole number"),
    ("cents", "eq", None, "has the value None, null"),
    ("cents", "in", ["2", "3"], "has the value '2', a text. Give a whole number, without quotes."),
    ("cents", "not_in", [2, "3"], "has the value '3'"),
    ("cents", "in", [Decimal(2)], "no JSON. Give a whole number."),
    ("share", "eq", "0.5", "Give a number, without quotes."),
    ("share", "eq", float("nan"), "no JSON"),
    ("text", "eq", 2, "Give a text, in quotes."),
    ("flag", "eq", 1, "is true or false"),
    ("maybe", "eq", "5", "is a whole number or null"),
    ("maybe", "gt", None, "is a whole number; its condition (gt) has the value None, null."),
    ("either", "eq", None, "is a whole number or a text"),
    ("level", "eq", "hihg", "is 'low' or 'high'; its condition (eq) has the value 'hihg'"),
    ("level", "lt", 3, "in quotes"),
    ("unit", "in", ["cm", "mm"], "has the value 'mm', a text. Give 'cm' or 'in'."),
    ("only", "eq", "y", "is 'x'"),
    ("only", "eq", Colour.RED, "no JSON"),
    ("parts", "eq", (1,), "has the value (1,), no JSON. Give a list."),
    ("inner", "gt", {}, "is an object"),
    ("day", "gt", date(2026, 1, 1), "no JSON. Give a text, in quotes."),
]


@pytest.mark.parametrize(("argument", "op", "value"), FITTING)
def test_a_value_that_the_argument_can_have_fits(argument: str, op: Any, value: Any) -> None:
    assert misfit(Condition(argument=argument, op=op, value=value), SCHEMA) is None


@pytest.mark.parametrize(("argument", "op", "value", "said"), UNFIT)
def test_a_value_that_the_argument_cannot_have_is_told(
    argument: str, op: Any, value: Any, said: str
) -> None:
    told = misfit(Condition(argument=argument, op=op, value=value), SCHEMA)
    assert told is not None
    assert told.startswith(f"the argument {argument!r} is ")
    assert said in told


@pytest.mark.parametrize(
    ("part", "fits", "unfit"),
    [
        (True, "2", None),
        ({}, "2", None),
        ({"type": "money"}, "2", None),
        ({"$ref": "#/$defs/a~1b"}, 2, "2"),
        ({"$ref": "#/$defs/a~1b", "type": "string"}, 2, "2"),
        ({"$ref": "#/$defs/none", "type": "string"}, "2", 2),
        ({"$ref": "#/$defs/no/such/place"}, "2", None),
        ({"$ref": "#named"}, "2", None),
        ({"$ref": "#/$defs/loop"}, "2", 2),
        ({"$ref": "#/$defs/round"}, "2", None),
        ({"anyOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/a~1b"}]}, 2, "2"),
        ({"anyOf": [{"required": []}], "type": "integer"}, 2, "2"),
        ({"oneOf": [{"type": "integer"}, {"const": "all"}]}, "all", "al"),
        ({"type": ["integer", "null"]}, None, "2"),
        ({"enum": [1, "a", None]}, 1, True),
    ],
)
def test_a_schema_is_read_as_far_as_it_says_something(part: Any, fits: Any, unfit: Any) -> None:
    schema = {
        "properties": {"n": part},
        "$defs": {
            "a/b": {"type": "integer"},
            "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "string"}]},
            "round": {"$ref": "#/$defs/round"},
        },
    }
    assert misfit(Condition(argument="n", op="eq", value=fits), schema) is None
    if unfit is not None:
        assert misfit(Condition(argument="n", op="eq", value=unfit), schema) is not None
