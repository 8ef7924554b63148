"""A12: fields that look alike, or run into each other, are told apart; a call cannot borrow."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.kit import SEND, YES, tool

from adapter.core.canonical import strict_loads
from adapter.core.errors import InvalidAnswer, ToolArgsInvalid
from adapter.core.journal import identify
from adapter.core.signing import Binding
from adapter.core.types import ToolCall
from adapter.testing import Paused, make_call, make_context, wired

pytestmark = pytest.mark.anyio

BASE = Binding(
    audience="a",
    thread_id="t",
    checkpoint_ns="n",
    task_id="k",
    tool_call_id="c",
    tool="send",
    kind="tool",
    arguments_digest="d",
    schema_digest="s",
    policy_digest="p",
    allowed=("approve",),
    quorum=1,
    issued_at=1,
    expires_at=2,
    approval_id=None,
)
PARTS = [
    "send",
    "send\n",
    "send|c",
    'send","tool_call_id":"c',
    "\u0455end",
    "send\u200b",
    "",
    "send c",
]


def test_a12_no_delimiter_moves_text_from_one_field_to_another() -> None:
    pairs = itertools.product(PARTS, repeat=2)
    seen = {replace(BASE, tool=tool, tool_call_id=call).hex() for tool, call in pairs}
    assert len(seen) == len(PARTS) ** 2
    assert replace(BASE, approval_id="").hex() != BASE.hex()
    assert replace(BASE, allowed=("approve", "edit")).hex() != (
        replace(BASE, allowed=("approve,edit",)).hex()
    )


def test_a12_values_that_python_takes_for_equal_are_other_calls() -> None:
    ctx = make_context()
    values: list[Any] = [
        1,
        True,
        "1",
        [1],
        {"1": 1},
        1.5,
        "1.5",
        None,
        False,
        0,
        "",
        "0",
        "\u00e9",
        "e\u0301",
    ]
    keys = {
        identify(ToolCall(name="send", arguments={"x": value}, id="c"), ctx).key for value in values
    }
    assert len(keys) == len(values)
    # in JSON one number has one form
    assert len({identify(make_call("send", x=one), ctx).key for one in (1, 1.0)}) == 1


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), True, 1.5, "1", 2**70])
async def test_a12_arguments_that_are_no_exact_value_ask_nobody(amount: Any) -> None:
    async with wired(SEND) as kit:
        with pytest.raises(ToolArgsInvalid):
            await kit.run(make_call("send", to="bob", amount=amount), None, YES)
        assert kit.port.questions == []
        with pytest.raises(Paused):
            await kit.run(make_call("send", to="bob", amount=2**53 - 1))


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}'])
def test_a12_text_with_two_meanings_is_not_read(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says, it is not read
        strict_loads(text)
    assert json.loads('{"a": 1}') == strict_loads('{"a": 1}')


@pytest.mark.parametrize("name", ["b\u043eb", "BOB", "bob ", "bob\u200b", "\uff42\uff4f\uff42"])
async def test_a12_a_look_alike_is_not_the_person(name: str) -> None:
    """Roles are of the exact name; what merely looks like it has none."""
    from adapter.core.decisions import ApprovalDecision
    from adapter.core.rules import ApprovalRule

    spec = tool("send", approval=ApprovalRule(name="f", reason="r", roles=("finance",)))
    async with wired(spec) as kit:
        kit.port.keys = kit.port.keys.changed((), {"bob": ["finance"]})
        call = make_call("send", to="x")
        with pytest.raises(InvalidAnswer):
            await kit.run(call, None, ApprovalDecision(approved=True, reviewer=name))
        assert kit.runs == []
        await kit.run(call, None, ApprovalDecision(approved=True, reviewer="bob"))
        assert len(kit.runs) == 1
