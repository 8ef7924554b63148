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
    "fields", [{"max_attempts": 0}, {"initial_interval": -1}, {"backoff_factor": 0.5}]
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
    with pytest.raises(ConfigurationError, match="same name"):
        Registry([spec("a"), spec("a")], {"a": SCHEMA})


def test_a_tool_without_a_spec_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no ToolSpec: b"):
        Registry([spec("a")], {"a": SCHEMA, "b": SCHEMA})


@pytest.mark.parametrize(("schemas", "shown"), [({}, "none"), ({"a": SCHEMA}, "a")])
def test_a_spec_without_a_tool_is_refused(schemas: dict[str, Any], shown: str) -> None:
    with pytest.raises(ConfigurationError, match=f"name no tool: .*Tools are: {shown}"):
        Registry([spec(name) for name in [*schemas, "z"]], schemas)


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
