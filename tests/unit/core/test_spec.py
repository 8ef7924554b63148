"""A tool's declaration is complete and closed, or refused when it is made."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.kit import Payment, tool

from adapter.core.errors import ConfigurationError
from adapter.core.rules import ApprovalRule, Condition, NamedCondition
from adapter.core.spec import Limits, Registry, Retry, ToolSpec
from adapter.core.types import Effects
from adapter.core.validation import PydanticSchema

SCHEMA = PydanticSchema(Payment)


def spec(name: str = "send", **fields: Any) -> ToolSpec:
    return ToolSpec(name=name, **({"effects": Effects(), "approval": None} | fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"max_attempts": 0},
        {"max_attempts": "3"},
        {"initial_interval": -1},
        {"backoff_factor": 0.5},
    ],
)
def test_a_retry_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="Retry needs"):
        Retry(**fields)


@pytest.mark.parametrize("name", ["per_turn", "per_thread", "per_user"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "2"])
def test_what_is_no_limit_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"Limits\.{name} must be a whole number"):
        Limits(**{name: value})


def test_a_limit_may_forbid_every_call() -> None:
    assert Limits(per_turn=0).per_turn == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"effects": {}},
        {"approval": "money"},
        {"timeout": 0},
        {"effects": Effects(read_only=True, destructive=True)},
        {"retries": Retry(max_attempts=2)},
    ],
)
def test_a_contradictory_spec_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="ToolSpec"):
        spec(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"retries": 3}, "retries is 3; give a Retry, such as Retry(max_attempts=3)."),
        ({"limits": 3}, "limits is 3; give Limits, such as Limits(per_turn=3)."),
        ({"masks": "card"}, "masks is 'card'; give names of arguments, such as (\"card\",)."),
        ({"timeout": "5"}, "timeout must be positive seconds, a number such as 30; got '5'."),
        ({"timeout": None}, "timeout must be positive seconds, a number such as 30; got None."),
        ({"timeout": float("nan")}, "timeout must be positive seconds"),
        (
            {"cache_ttl": "5", "effects": Effects(read_only=True)},
            "cache_ttl is for read_only tools, a positive number of seconds.",
        ),
    ],
)
def test_a_value_of_another_kind_is_refused_with_tool_field_and_cure(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        spec(**fields)
    assert caught.value.message.startswith(f"ToolSpec 'send': {said}")


def test_values_of_the_right_kinds_are_taken() -> None:
    made = spec(
        retries=Retry(max_attempts=3),
        limits=Limits(per_turn=3),
        masks=("card",),
        timeout=5,
        cache_ttl=5,
        effects=Effects(read_only=True),
    )
    assert (made.timeout, made.cache_ttl, made.retries.max_attempts) == (5, 5, 3)


def test_a_repeatable_tool_may_be_retried() -> None:
    made = spec(effects=Effects(idempotent=True), retries=Retry(max_attempts=2))
    assert made.retries.max_attempts == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"approval": ApprovalRule(name="other")},
        {"approval": None},
        {"masks": ("card",)},
        {"version": "2"},
        {"approval": ApprovalRule(name="money", roles=("boss",))},
        {"approval": ApprovalRule(name="money", allowed=("approve",))},
        {"approval": ApprovalRule(name="money", when=Condition(argument="to", op="eq", value=1))},
        {
            "approval": ApprovalRule(
                name="money", when=NamedCondition(name="n", version="1", test=bool)
            )
        },
    ],
)
def test_what_an_approval_relies_on_changes_the_policy_digest(fields: dict[str, Any]) -> None:
    before = spec(approval=ApprovalRule(name="money"))
    after = spec(**({"approval": ApprovalRule(name="money")} | fields))
    assert before.policy_digest != after.policy_digest


def test_the_policy_digest_ignores_what_no_approval_relies_on() -> None:
    assert spec().policy_digest == spec(timeout=5).policy_digest


def test_a_registry_knows_its_tools_by_exact_name() -> None:
    registry = Registry([spec("b"), spec("a")], {"a": SCHEMA, "b": SCHEMA})
    assert registry.names == ("a", "b")
    assert [one.name for one in registry] == ["b", "a"]
    assert registry.get("A") is None


def test_a_registry_keeps_both_digests_of_a_tool() -> None:
    registry = Registry([spec("a")], {"a": SCHEMA})
    policy, schema = registry.digests("a")
    assert policy == spec("a").policy_digest
    assert len(schema) == 64


def test_two_specs_of_one_name_are_refused() -> None:
    given = [spec("a"), spec("b"), spec("a"), spec("c"), spec("c")]
    with pytest.raises(ConfigurationError, match="same name, a, c: each tool has exactly one"):
        Registry(given, dict.fromkeys("abc", SCHEMA))


def test_a_tool_without_a_spec_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no ToolSpec: b"):
        Registry([spec("a")], {"a": SCHEMA, "b": SCHEMA})


@pytest.mark.parametrize(("schemas", "shown"), [({}, "none"), ({"a": SCHEMA}, "a")])
def test_a_spec_without_a_tool_is_refused(schemas: dict[str, Any], shown: str) -> None:
    with pytest.raises(ConfigurationError, match=f"name no tool: .*Tools are: {shown}"):
        Registry([spec(name) for name in [*schemas, "z"]], schemas)


@pytest.mark.parametrize("name", ["send_emial", "Send_Email"])
def test_a_misspelt_name_is_told_with_the_near_one(name: str) -> None:
    tools = {"send_email": SCHEMA, "look": SCHEMA}
    with pytest.raises(ConfigurationError) as caught:
        Registry([spec("look"), spec(name)], tools)
    said = f"These ToolSpecs name no tool: {name} (did you mean send_email?). Tools are: look, "
    assert caught.value.message.startswith(said)
    assert "These tools have no ToolSpec: send_email. Declare effects" in caught.value.message


def test_the_right_name_is_accepted() -> None:
    tools = {"send_email": SCHEMA, "look": SCHEMA}
    assert Registry([spec("look"), spec("send_email")], tools).names == ("look", "send_email")


@pytest.mark.parametrize(
    "fields",
    [
        {"masks": ("crad",)},
        {"approval": ApprovalRule(name="r", when=Condition(argument="crad", op="eq", value=1))},
    ],
)
def test_a_misspelt_argument_never_removes_a_gate(fields: dict[str, Any]) -> None:
    made, schema = tool("pay", **fields)
    with pytest.raises(ConfigurationError, match=r"crad.*It has: amount, card, to"):
        Registry([made], {"pay": schema})


def test_declared_arguments_are_accepted() -> None:
    when = Condition(argument="amount", op="gt", value=1)
    made, schema = tool("pay", masks=("card",), approval=ApprovalRule(name="r", when=when))
    assert Registry([made], {"pay": schema}).names == ("pay",)


@pytest.mark.parametrize(
    ("op", "value", "good"), [("eq", "2", 2), ("in", ["2", "3"], [2, 3]), ("gt", "2", 2)]
)
def test_a_condition_that_cannot_be_meant_never_removes_a_gate(
    op: Any, value: Any, good: Any
) -> None:
    def registry(value: Any) -> Registry:
        when = Condition(argument="amount", op=op, value=value)
        made, schema = tool("pay", approval=ApprovalRule(name="large", when=when))
        return Registry([made], {"pay": schema})

    with pytest.raises(ConfigurationError) as caught:
        registry(value)
    assert caught.value.message == (
        "ToolSpec 'pay', rule 'large': the argument 'amount' is a whole number; its condition "
        f"({op}) has the value '2', a text. Give a whole number, without quotes."
    )
    assert registry(good).names == ("pay",)
