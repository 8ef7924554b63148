"""Policies over many tools: escalations, rates, masks, effects, and what is refused when made."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.unit.core.kit import ALL, SEND, WRITE, tool

from adapter.core.errors import ConfigurationError, PolicyDenied
from adapter.core.policy import Policy, decide
from adapter.core.rates import Rate
from adapter.core.rules import ApprovalRule, Condition, combined
from adapter.core.spec import Registry
from adapter.core.types import Effects

LARGE = ApprovalRule(name="large", when=Condition(argument="amount", op="gt", value=100))
REGISTRY = Registry([spec for spec, _ in ALL], {spec.name: schema for spec, schema in ALL})


def ask(policy: Policy, spec: Any = None, **arguments: Any) -> ApprovalRule | None:
    return decide(spec or WRITE[0], arguments, policy).rule


def test_a_reason_alone_always_asks() -> None:
    rule = ask(Policy(escalate={"wri*": "it writes"}))
    assert rule is not None
    assert (rule.reason, rule.name) == ("it writes", "escalate wri*")


def test_a_pattern_that_does_not_match_asks_nobody() -> None:
    assert ask(Policy(escalate={"rite": "x", "WRITE": "x", "write?": "x"})) is None


@pytest.mark.parametrize(("amount", "asks"), [(101, True), (100, False)])
def test_a_condition_decides_by_the_arguments(amount: int, asks: bool) -> None:
    assert (ask(Policy(escalate={"*": LARGE}), amount=amount) is not None) is asks


def test_a_condition_on_an_absent_argument_asks() -> None:
    assert ask(Policy(escalate={"*": LARGE})) is not None


def test_a_denied_tool_is_denied_before_anybody_is_asked() -> None:
    with pytest.raises(PolicyDenied):
        ask(Policy(escalate={"*": "x"}, deny={"write": "no"}))


def test_the_strictest_of_several_rules_holds() -> None:
    one = ApprovalRule(name="one", reason="a.", quorum=2, ttl=60, allowed=("approve", "reject"))
    two = ApprovalRule(name="two", reason="b.", roles=("boss",), ttl=30)
    made = ask(Policy(escalate={"write": [one, two]}))
    assert made == ApprovalRule(
        name="one + two",
        reason="a. b.",
        quorum=2,
        ttl=30,
        allowed=("approve", "reject"),
        roles=("boss",),
    )


def test_a_policys_rule_adds_to_the_tools_own() -> None:
    made = ask(Policy(escalate={"send": ApprovalRule(name="two", quorum=2)}), SEND[0])
    assert made is not None
    assert (made.name, made.quorum) == ("money + two", 2)


def test_roles_that_overlap_are_narrowed() -> None:
    made = combined(
        [ApprovalRule(name="a", roles=("x", "y")), ApprovalRule(name="b", roles=("y", "z"))]
    )
    assert made is not None
    assert made.roles == ("y",)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"roles": ("x",)}, {"roles": ("y",)}),
        ({"allowed": ("approve",)}, {"allowed": ("reject",)}),
    ],
)
def test_rules_that_exclude_each_other_deny(first: Any, second: Any) -> None:
    rules = [ApprovalRule(name="a", **first), ApprovalRule(name="b", **second)]
    assert combined(rules) is None
    with pytest.raises(PolicyDenied, match="exclude each other"):
        ask(Policy(escalate={"write": rules}))


@pytest.mark.parametrize(
    ("edited", "reviewed", "admits"),
    [
        ({}, {}, True),
        ({"quorum": 2}, {}, False),
        ({"allowed": ("approve",)}, {}, False),
        ({"roles": ("a",)}, {}, False),
        ({"roles": ("a", "b")}, {"roles": ("a",)}, True),
        ({"roles": ("a",)}, {"roles": ("a", "b")}, False),
    ],
)
def test_an_edit_needs_reviewers_as_strict_as_its_own_rule(
    edited: Any, reviewed: Any, admits: bool
) -> None:
    rule = ApprovalRule(name="edited", **edited)
    assert rule.admits(ApprovalRule(name="reviewed", **reviewed)) is admits


def test_one_window_counts_every_tool_of_a_pattern() -> None:
    policy = Policy(rates={"se*": "10/minute", "send": Rate(limit=2, seconds=5)})
    assert [(c.scope, c.limit, c.window, c.mark) for c in policy.charges("send", "key")] == [
        ("rate:policy:tool:se*", 10, 60, "key"),
        ("rate:policy:tool:send", 2, 5, "key"),
    ]
    assert policy.charges("write", "key") == ()


def test_masks_of_all_matching_patterns_add_up() -> None:
    mask = Policy(results={"l*": ["a"], "look": ["b"], "send": ["c"]}).mask("look")
    assert mask is not None
    assert mask.fields == {"a", "b"}
    assert Policy().mask("look") is None


def test_an_undeclared_tool_counts_as_destructive() -> None:
    policy = Policy(effects={"get_*": Effects(read_only=True)})
    assert policy.spec("get_x").effects == Effects(read_only=True)
    assert policy.spec("set_x").effects == Effects(destructive=True)


def test_only_rules_for_a_tool_change_its_digest() -> None:
    policy = Policy(
        escalate={"send": "x"}, rates={"put": "1/second"}, results={"look": ["a"]}, ghost=None
    )
    ruled = policy.over(REGISTRY)
    changed = {name for name in REGISTRY.names if ruled.digests(name) != REGISTRY.digests(name)}
    assert changed == {"send", "put", "look"}
    assert all(ruled.digests(name)[1] == REGISTRY.digests(name)[1] for name in REGISTRY.names)
    assert Policy(escalate={"send": "y"}).over(REGISTRY).digests("send") != ruled.digests("send")


@pytest.mark.parametrize("where", ["deny", "escalate", "rates", "results", "effects", "allow"])
@pytest.mark.parametrize("key", ["Send", "se-nd", "sned", "wholly_other"])
def test_an_exact_name_that_is_no_tool_is_refused(where: str, key: str) -> None:
    values = {"rates": "1/second", "results": ["a"], "effects": Effects()}
    said: Any = (key,) if where == "allow" else {key: values.get(where, "x")}
    policy = Policy(**{where: said})
    with pytest.raises(ConfigurationError, match=rf"Policy\.{where} names '{key}'"):
        policy.check(REGISTRY, closed=True)
    if key in ("sned", "wholly_other"):
        policy.check(REGISTRY, closed=False)
    else:
        with pytest.raises(ConfigurationError, match="Did you mean 'send'"):
            policy.check(REGISTRY, closed=False)


def test_names_and_patterns_that_are_tools_are_taken() -> None:
    policy = Policy(deny={"drop_*": "x"}, escalate={"send": LARGE, "*": "x"}, allow=("s[a-z]*",))
    policy.check(REGISTRY, closed=True)


def test_a_condition_on_an_argument_the_tool_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'amount'; the tool has: text"):
        Policy(escalate={"look": LARGE}).check(REGISTRY, closed=True)


def test_a_condition_on_a_tool_without_arguments_names_none() -> None:
    from pydantic import BaseModel

    class Nothing(BaseModel):
        pass

    spec, schema = tool("idle", model=Nothing)
    with pytest.raises(ConfigurationError, match="the tool has: none"):
        Policy(escalate={"idle": LARGE}).check(Registry([spec], {"idle": schema}), closed=True)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"escalate": {"a": []}}, r"escalate\['a'\]"),
        ({"escalate": {"a": ["x"]}}, r"escalate\['a'\]"),
        ({"escalate": ["a"]}, r"Policy\.escalate maps tool names.*{'refund': 'pays money'}; got"),
        ({"escalate": None}, r"Policy\.escalate maps tool names"),
        ({"escalate": {"a": True}}, r"Policy\.escalate\['a'\] is True: .*a reason, an Approval"),
        ({"escalate": {"a": {"reason": "x"}}}, r"Policy\.escalate\['a'\]"),
        ({"deny": ["a"]}, r"Policy\.deny maps tool names .*{'drop_\*': 'drops tables'}; got"),
        ({"deny": "a"}, r"Policy\.deny maps tool names"),
        ({"deny": {"a": True}}, r"Policy\.deny\['a'\] is True: deny maps .*the reason"),
        ({"escalate": {"": "x"}}, "a tool's name or a pattern"),
        ({"deny": {1: "x"}}, "a tool's name or a pattern"),
        ({"allow": "send"}, r"Policy\.allow is a tuple .*'refund'\); got 'send'"),
        ({"allow": {"send": False}}, r"Policy\.allow is a tuple"),
        ({"allow": True}, r"Policy\.allow is a tuple"),
        ({"allow": [1]}, "a tool's name or a pattern"),
        ({"rates": {"a": "often"}}, r"Policy\.rates\['a'\]: 'often' is no rate"),
        ({"rates": {"a": 10}}, r"Policy\.rates\['a'\] is 10: .*'10/minute'"),
        ({"rates": {"a": None}}, r"Policy\.rates\['a'\] is None"),
        ({"rates": "10/minute"}, r"Policy\.rates maps tool names .*{'search_\*': '10/minute'}"),
        ({"results": ["email"]}, r"Policy\.results maps tool names .*\['email'\]}; got"),
        ({"results": {"a": True}}, r"Policy\.results\['a'\] is True"),
        ({"results": {"a": "name"}}, "list of names"),
        ({"results": {"a": [""]}}, "list of names"),
        ({"effects": {"a": "read_only"}}, r"Policy\.effects\['a'\] is 'read_only': .*Effects\(re"),
        ({"effects": Effects()}, r"Policy\.effects maps tool names"),
        ({"ghost": "drop"}, "'refuse' or 'strip'"),
        ({"approver": "me"}, "must be callable"),
    ],
)
def test_what_would_weaken_a_rule_is_refused(fields: Any, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        Policy(**fields)


def test_every_field_may_have_the_shape_that_its_error_shows() -> None:
    made = Policy(
        deny={"drop_*": "drops tables"},
        allow=("get_*", "refund"),
        escalate={"refund": "pays money"},
        rates={"search_*": "10/minute"},
        results={"get_user": ["email"]},
        effects={"get_*": Effects(read_only=True)},
    )
    assert made.denied("drop_all") is not None
    assert made.denied("refund") is None
    assert [rule.reason for rule in made.rules("refund")] == ["pays money"]
    assert made.rates == {"search_*": Rate(limit=10, seconds=60)}
    assert made.mask("get_user") is not None
    assert made.spec("get_user").effects == Effects(read_only=True)
    listed: Any = ["get_*"]
    assert Policy(allow=listed).allow == ("get_*",)


def test_cache_ttl_is_for_read_only_tools() -> None:
    assert tool("x", effects=Effects(read_only=True), cache_ttl=1.0)[0].cache_ttl == 1.0
    for effects, ttl in ((Effects(), 1.0), (Effects(read_only=True), 0.0)):
        with pytest.raises(ConfigurationError, match="cache_ttl"):
            tool("x", effects=effects, cache_ttl=ttl)


@pytest.mark.parametrize(
    ("key", "over"),
    [("send", ""), ("s?nd", " over the tool 'send'"), ("*", " over the tool 'send'")],
)
def test_a_condition_that_cannot_be_meant_is_refused_before_it_opens_a_gate(
    key: str, over: str
) -> None:
    def check(value: Any, *, closed: bool) -> None:
        when = Condition(argument="amount", op="eq", value=value)
        rule = ApprovalRule(name="two", when=when)
        Policy(escalate={key: rule}).check(REGISTRY, closed=closed)

    for closed in (True, False):
        with pytest.raises(ConfigurationError) as caught:
            check("2", closed=closed)
        assert caught.value.message == (
            f"Policy.escalate[{key!r}]{over}, rule 'two': the argument 'amount' is a whole number; "
            "its condition (eq) has the value '2', a text. Give a whole number, without quotes."
        )
        check(2, closed=closed)


def test_a_pattern_over_different_arguments_fits_where_one_of_them_does() -> None:
    class Note(BaseModel):
        amount: str

    both = [tool("put_note", model=Note), tool("put_money")]
    registry = Registry([spec for spec, _ in both], {spec.name: schema for spec, schema in both})

    def policy(value: Any) -> Policy:
        when = Condition(argument="amount", op="eq", value=value)
        return Policy(escalate={"put_*": ApprovalRule(name="r", when=when)})

    policy("2").check(registry, closed=True)
    policy(2).check(registry, closed=True)
    with pytest.raises(ConfigurationError, match="over the tool 'put_note', rule 'r'"):
        policy(None).check(registry, closed=True)


def test_a_pattern_whose_tools_lack_the_argument_asks_as_before() -> None:
    rule = ApprovalRule(name="r", when=Condition(argument="amount", op="eq", value="2"))
    Policy(escalate={"look*": rule, "nothing*": rule}).check(REGISTRY, closed=True)
    assert rule.when is not None
    assert rule.when.holds({"text": "x"})
