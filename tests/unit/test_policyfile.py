"""Policies from files: what they may say, and where a mistake is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.core.kit import tool

from adapter.core.errors import ConfigurationError
from adapter.core.policy import Policy, decide
from adapter.core.rules import ApprovalRule, Condition
from adapter.core.spec import Registry
from adapter.core.types import Effects
from adapter.policyfile import load_policy, policy_schema

TOML = """\
ghost = "strip"
allow = ["*"]

[deny]
"drop_*" = "drops tables"

[[escalate]]
tools = ["send_money", "pay_*"]
name = "large"
reason = "a large sum"
allowed = ["approve", "reject"]
quorum = 2
ttl = 60
roles = ["treasurer"]
when = { argument = "amount", op = "gt", value = 100 }

[[escalate]]
tools = "delete_*"
reason = "deletes"

[rates]
"search_*" = "10/minute"

[results]
get_customer = ["email"]

[effects]
"get_*" = ["read_only"]
"""

YAML = """\
ghost: strip
allow: ["*"]
deny:
  "drop_*": drops tables
escalate:
  - tools: [send_money, "pay_*"]
    name: large
    reason: a large sum
    allowed: [approve, reject]
    quorum: 2
    ttl: 60
    roles: [treasurer]
    when: {argument: amount, op: gt, value: 100}
  - tools: "delete_*"
    reason: deletes
rates:
  "search_*": 10/minute
results:
  get_customer: [email]
effects:
  "get_*": [read_only]
"""


def written(folder: Path, text: str, name: str = "policy.toml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(("name", "text"), [("p.toml", TOML), ("p.yaml", YAML), ("p.yml", YAML)])
def test_both_forms_say_the_same_policy(tmp_path: Path, name: str, text: str) -> None:
    large = ApprovalRule(
        name="large",
        reason="a large sum",
        allowed=("approve", "reject"),
        quorum=2,
        ttl=60,
        roles=("treasurer",),
        when=Condition(argument="amount", op="gt", value=100),
    )
    assert load_policy(written(tmp_path, text, name)) == Policy(
        ghost="strip",
        allow=("*",),
        deny={"drop_*": "drops tables"},
        escalate={
            "send_money": [large],
            "pay_*": [large],
            "delete_*": [ApprovalRule(name="escalate 2", reason="deletes")],
        },
        rates={"search_*": "10/minute"},
        results={"get_customer": ["email"]},
        effects={"get_*": Effects(read_only=True)},
    )


def test_an_empty_file_is_a_policy_without_rules(tmp_path: Path) -> None:
    assert load_policy(written(tmp_path, "")) == Policy()


def test_an_approver_comes_from_the_program(tmp_path: Path) -> None:
    def approver(_: Any) -> bool:
        return True

    made = load_policy(str(written(tmp_path, TOML)), approver=approver)
    assert made.approver is approver
    assert made.escalates
    spec = made.spec("delete_x")
    assert decide(spec, {}, made).kind == "ask"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('ghost = "strip', "1:15: "),
        ('allow = ["*"]\n[deny\n', "2:6: "),
        ('[deny]\na = "x"\na = "y"\n', "3:8: "),
        ("[deny]\na = ", "2:5: "),
    ],
)
def test_a_mistake_in_toml_names_line_and_column(tmp_path: Path, text: str, place: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as error:
        load_policy(path)
    assert error.value.message.startswith(f"{path}:{place}")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("deny: {a: b", "1:12: "),
        ("deny:\n  a: b\n c: d\n", "3:2: "),
        ("deny:\n  a: b\n  a: c\n", "3:3: deny.a is there already, in line 2"),
        ("a: &a [*a]\n", "1:1: the policy is nested too deeply"),
        ("deny: !!python/name:os.system x", "1:7: "),
        ("\x00", "1:1: "),
    ],
)
def test_a_mistake_in_yaml_names_line_and_column(tmp_path: Path, text: str, place: str) -> None:
    path = written(tmp_path, text, "policy.yaml")
    with pytest.raises(ConfigurationError) as error:
        load_policy(path)
    assert error.value.message.startswith(f"{path}:{place}")


RULE = '[[escalate]]\ntools = "a"\nreason = "x"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ghots = 1", "1: ghots is no key of a policy here; did you mean 'ghost'?"),
        ("xyz = 1", "1: xyz is no key of a policy here: deny, allow, escalate"),
        ('ghost = "drop"', "1: ghost must be one of refuse, strip; got 'drop'"),
        ("allow = []", "1: allow must not be empty"),
        ("\nallow = [1]", "2: allow[0] must be a text, not 1"),
        ("[deny]\na = true", "2: deny.a must be a text, not True"),
        ('[deny]\n\n"drop_*" = 1', '3: deny."drop_*" must be a text, not 1'),
        ('[deny]\n"" = "x"', '2: deny."" must not be empty'),
        ("deny = 1", "1: deny must be a table, not 1"),
        ("deny.a = 1", "1: deny.a must be a text"),
        ('[rates]\na = "often"', "2: rates.a 'often' is no rate"),
        ('[effects]\na = ["read_only", "read_only"]', "2: effects.a[1] names 'read_only' twice"),
        ('[effects]\na = ["read_only", "destructive"]', "2: effects.a ToolSpec 'a' cannot be"),
        ('[effects]\na = ["readonly"]', "2: effects.a[0] must be one of read_only"),
        ('[results]\na = "email"', "2: results.a must be a list, not 'email'"),
        ('[[escalate]]\ntools = "a"', "1: escalate[0] lacks 'reason'"),
        (RULE + "\n" + RULE + "quorum = 0", "8: escalate[1].quorum must be at least 1"),
        (RULE + "quorum = 1.5", "4: escalate[0].quorum must be a whole number, not 1.5"),
        (RULE + "ttl = 0", "4: escalate[0].ttl must be more than 0, and finite"),
        (RULE + "ttl = inf", "4: escalate[0].ttl must be more than 0, and finite"),
        (RULE + "allowed = []", "4: escalate[0].allowed must not be empty"),
        (RULE + 'allowed = ["maybe"]', "4: escalate[0].allowed[0] must be one of approve"),
        (RULE + 'tool = "b"', "4: escalate[0].tool is no key of a policy here; did you mean"),
        (RULE + "[escalate.when]\nargument = 'a'\nop = 'gte'\nvalue = 1", "6: escalate[0].when.op"),
        (RULE + "when = {argument = 'a', op = 'gt'}", "4: escalate[0].when lacks 'value'"),
        ("[[escalate]]\ntools = []\nreason = 'x'", "2: escalate[0].tools must not be empty"),
        ("[[escalate]]\ntools = 1\nreason = 'x'", "2: escalate[0].tools must be a text, not 1"),
        ("ghost = '" + "x" * 90 + "'", "1: ghost must be one of refuse, strip; got 'xxx"),
    ],
)
def test_a_fault_names_its_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as error:
        load_policy(path)
    assert error.value.message.startswith(f"{path}:{said}")
    assert len(error.value.message) < 300 + len(str(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[escalate]\nrefund = 'x'", "1: escalate must be a list, not {'refund': 'x'}; in TOML: "),
        ("escalate = ['refund']", "1: escalate[0] must be a table, not 'refund'; in TOML: "),
        ("deny = ['a']", "1: deny must be a table, not ['a']; in TOML: "),
        ("[deny]\na = true", "2: deny.a must be a text, not True; in TOML: "),
        ("allow = 'a'", "1: allow must be a list, not 'a'; in TOML: "),
        ("rates = '10/minute'", "1: rates must be a table, not '10/minute'; in TOML: "),
        ("[rates]\na = 10", "2: rates.a must be a text, not 10; in TOML: "),
        ("results = ['a']", "1: results must be a table, not ['a']; in TOML: "),
        (
            "[effects.a]\nread_only = true",
            "1: effects.a must be a list, not {'read_only': True}; in TOML: ",
        ),
    ],
)
def test_another_shape_is_answered_with_one_that_can_be_read(
    tmp_path: Path, text: str, said: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as error:
        load_policy(path)
    assert error.value.message.startswith(f"{path}:{said}")
    shape = error.value.message.split("; in TOML: ", 1)[1].removesuffix(", or [[escalate]]")
    key = shape.split(" ", 1)[0]
    assert getattr(load_policy(written(tmp_path, shape, "shown.toml")), key)


def test_a_fault_inside_a_rule_shows_no_shape(tmp_path: Path) -> None:
    path = written(tmp_path, RULE + "quorum = 1.5")
    with pytest.raises(ConfigurationError) as error:
        load_policy(path)
    assert error.value.message == f"{path}:4: escalate[0].quorum must be a whole number, not 1.5"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("deny:\n  a: no\n", "2: deny.a must be a text, not False"),
        ("deny:\n  1: x\n", "1: deny has 1 where a key that is text belongs"),
        ("allow:\n  - a\n  - 2\n", "3: allow[1] must be a text, not 2"),
        ("- a\n", "1: the document must be a table"),
        (
            "escalate:\n  - tools: a\n    reason: x\n    when:\n      op: gt\n",
            "4: escalate[0].when",
        ),
        ("", "1: the document must be a table, not None"),
    ],
)
def test_a_fault_in_yaml_names_its_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text, "policy.yaml")
    with pytest.raises(ConfigurationError) as error:
        load_policy(path)
    assert error.value.message.startswith(f"{path}:{said}")


def test_files_that_cannot_be_a_policy_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml cannot be read: FileNotFoundError"):
        load_policy(tmp_path / "none.toml")
    with pytest.raises(ConfigurationError, match=r"must be a \.toml"):
        load_policy(written(tmp_path, "{}", "policy.json"))


def test_yaml_without_its_package_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigurationError, match=r'pip install "agent-adapter\[yaml\]"'):
        load_policy(written(tmp_path, YAML, "p.yaml"))


def test_the_schema_accepts_what_the_reader_accepts() -> None:
    import tomllib

    import yaml
    from jsonschema import Draft202012Validator

    schema = policy_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert list(validator.iter_errors(tomllib.loads(TOML))) == []
    assert list(validator.iter_errors(yaml.safe_load(YAML))) == []
    assert not validator.is_valid({"escalate": [{"tools": "a"}]})
    json.dumps(schema)


@pytest.mark.parametrize("name", ["p.toml", "p.yaml"])
@pytest.mark.parametrize(("value", "fits"), [('"2"', False), ("2026-01-01", False), ("2", True)])
def test_a_condition_of_another_type_than_its_argument_is_refused(
    tmp_path: Path, name: str, value: str, fits: bool
) -> None:
    if name == "p.toml":
        text = RULE + f"when = {{ argument = 'amount', op = 'eq', value = {value} }}"
    else:
        when = f"{{argument: amount, op: eq, value: {value}}}"
        text = f"escalate: [{{tools: a, reason: x, when: {when}}}]"
    policy = load_policy(written(tmp_path, text, name))
    made, schema = tool("a")
    registry = Registry([made], {"a": schema})
    if fits:
        policy.check(registry, closed=True)
        return
    with pytest.raises(ConfigurationError, match=r"escalate\['a'\], rule 'escalate 1': the argume"):
        policy.check(registry, closed=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[[escalate]]\ntools = "a"\nreason = """\nquorum = 3\n  x\n"""\nquorum = 0\n',
            r":7: escalate\[0\]\.quorum",
        ),
        (
            "escalate = [\n"
            '  { tools = "a", reason = "x", quorum = 1 },  # [\n'
            '  { tools = "b", reason = "x", quorum = 0 },\n]\n',
            r":3: escalate\[1\]\.quorum",
        ),
        ("allow = [\n  'it''s',\n  5,\n]\n".replace("''", ""), r":3: allow\[1\]"),
        (
            '[[escalate]]\nreason = "x"\ntools = [\n  "a",\n  7,\n]\n',
            r":5: escalate\[0\]\.tools\[1\]",
        ),
        (
            "[rates]\nx = \"1/minute\"\n\"y.z\" = '''\n\"\" no '''\n[deny]\na = 1\n",
            r":6: deny\.a",
        ),
        (
            '[[escalate]]\ntools="a"\nreason="x"\n[[escalate]]\ntools="b"\nwhen.op = 1\n',
            r":6: escalate\[1\]\.when\.op",
        ),
    ],
)
def test_a_line_is_found_in_whatever_form_toml_has(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=said):
        load_policy(file)
