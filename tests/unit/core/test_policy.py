"""One pure decision per call: allow, ask, or deny."""

from __future__ import annotations

import pytest
from tests.unit.core.kit import SEND, WRITE, tool

from adapter.core.errors import ConfigurationError, PolicyDenied
from adapter.core.policy import Policy, decide
from adapter.core.rules import ApprovalRule, Condition

LARGE = tool(
    "send",
    approval=ApprovalRule(name="large", when=Condition(argument="amount", op="gt", value=100)),
)


def test_a_tool_without_a_rule_is_allowed() -> None:
    assert decide(WRITE[0], {}, None).kind == "allow"


def test_a_rule_without_a_condition_always_asks() -> None:
    assert decide(SEND[0], {}, None).rule == SEND[0].approval


@pytest.mark.parametrize(("amount", "kind"), [(101, "ask"), (100, "allow")])
def test_a_condition_asks_from_its_bound_on(amount: int, kind: str) -> None:
    assert decide(LARGE[0], {"amount": amount}, None).kind == kind


@pytest.mark.parametrize("pattern", ["send", "se*", "*"])
def test_a_denied_name_never_runs_and_the_model_reads_why(pattern: str) -> None:
    with pytest.raises(PolicyDenied, match="send: frozen"):
        decide(SEND[0], {}, Policy(deny={pattern: "frozen"}))


def test_a_denial_without_a_reason_says_denied() -> None:
    with pytest.raises(PolicyDenied, match="send: denied"):
        decide(SEND[0], {}, Policy(deny={"send": ""}))


@pytest.mark.parametrize("pattern", ["sen", "end", "SEND", "sendx"])
def test_a_pattern_matches_the_whole_name_only(pattern: str) -> None:
    assert decide(SEND[0], {}, Policy(deny={pattern: "x"})).kind == "ask"


def test_a_tool_outside_the_allowed_ones_is_denied() -> None:
    with pytest.raises(PolicyDenied, match="does not allow write"):
        decide(WRITE[0], {}, Policy(allow=("send*", "read*")))


def test_a_tool_among_the_allowed_ones_goes_on() -> None:
    assert decide(WRITE[0], {}, Policy(allow=("read*", "wri*"))).kind == "allow"


def test_a_list_that_allows_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Policy\.allow is empty"):
        Policy(allow=())
