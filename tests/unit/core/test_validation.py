"""Nothing is coerced, nothing invented is accepted, and a batch goes on whole or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from tests.unit.core.kit import ALL, Payment

from adapter.core.errors import ToolArgsInvalid, UnknownTool
from adapter.core.spec import Registry
from adapter.core.types import ToolCall
from adapter.core.validation import Batch, PydanticSchema, admit
from adapter.testing import make_call

REGISTRY = Registry([spec for spec, _ in ALL], {spec.name: schema for spec, schema in ALL})


class Inner(BaseModel):
    n: int


class Outer(BaseModel):
    inner: Inner
    made: str = Field(default_factory=lambda: "fresh")


class Bag(BaseModel):
    model_config = ConfigDict(extra="allow")

    n: int


class Nothing(BaseModel):
    pass


class Bounded(BaseModel):
    n: int = Field(0, le=2**60)
    kinds: list[str] = []


def test_valid_arguments_come_back_with_static_defaults() -> None:
    assert PydanticSchema(Payment).validate({"to": "bob"}) == {
        "to": "bob",
        "amount": 1,
        "card": None,
    }


def test_a_default_made_anew_each_time_is_left_out() -> None:
    assert PydanticSchema(Outer).validate({"inner": {"n": 1}}) == {"inner": {"n": 1}}


def test_a_given_value_of_such_an_argument_stays() -> None:
    assert PydanticSchema(Outer).validate({"inner": {"n": 1}, "made": "x"})["made"] == "x"


@pytest.mark.parametrize(
    "arguments",
    [{"to": 5}, {"to": "bob", "amount": "1"}, {"to": "bob", "amount": True}, {"to": None}, {}],
)
def test_arguments_of_another_type_are_not_coerced(arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolArgsInvalid, match="Accepted arguments: to, amount, card"):
        PydanticSchema(Payment).validate(arguments)


@pytest.mark.parametrize(
    ("model", "arguments", "where"),
    [
        (Payment, {"to": "bob", "thread_id": "x"}, "thread_id: unknown argument"),
        (Outer, {"inner": {"n": 1, "ghost": 1}}, r"inner\.ghost: unknown argument"),
        (Nothing, {"x": 1}, r"x: unknown argument\. Accepted arguments: none"),
    ],
)
def test_a_ghost_argument_is_refused_by_name(
    model: type[BaseModel], arguments: dict[str, Any], where: str
) -> None:
    with pytest.raises(ToolArgsInvalid, match=where):
        PydanticSchema(model).validate(arguments)


def test_a_tool_that_declares_further_arguments_takes_them() -> None:
    assert PydanticSchema(Bag).validate({"n": 1, "more": "x"}) == {"n": 1, "more": "x"}


def test_a_message_never_repeats_a_value() -> None:
    with pytest.raises(ToolArgsInvalid) as caught:
        PydanticSchema(Payment).validate({"to": "bob", "amount": "hunter2"})
    assert "hunter2" not in caught.value.message


def test_a_fault_of_the_whole_is_named() -> None:
    arguments: Any = [1]
    with pytest.raises(ToolArgsInvalid, match="arguments: "):
        PydanticSchema(Payment).validate(arguments)


def test_at_most_ten_faults_are_listed() -> None:
    with pytest.raises(ToolArgsInvalid) as caught:
        PydanticSchema(Nothing).validate({f"a{n}": n for n in range(20)})
    assert caught.value.message.count("unknown argument") == 10


def test_a_bound_beyond_safe_integers_is_shown_as_a_float() -> None:
    schema = PydanticSchema(Bounded).json_schema
    assert schema["properties"]["n"]["maximum"] == float(2**60)
    assert isinstance(schema["properties"]["n"]["maximum"], float)


def test_the_shown_schema_may_differ() -> None:
    shown = {"properties": {"to": {"enum": ["bob"]}}}
    assert PydanticSchema(Payment, shown).json_schema == shown


def test_a_good_batch_is_admitted_with_canonical_arguments() -> None:
    admission = admit(Batch(calls=(make_call(to="bob"), make_call("look", id="c2"))), REGISTRY)
    assert admission.admitted
    assert admission.arguments == {
        "call-1": {"to": "bob", "amount": 1, "card": None},
        "c2": {"text": ""},
    }


@pytest.mark.parametrize(
    ("bad", "made", "words"),
    [
        (make_call("SEND", id="bad"), UnknownTool, "no tool named 'SEND'"),
        (make_call("x" * 80, id="bad"), UnknownTool, r"x{61}\.\.\.'"),
        (make_call("send", id="bad"), ToolArgsInvalid, "to: Field required"),
        (make_call("send", id="bad", to="b", ghost=1), ToolArgsInvalid, "unknown argument"),
        (ToolCall(name="send", arguments=[], id="bad"), ToolArgsInvalid, "one JSON object"),  # type: ignore[arg-type]
    ],
)
def test_one_bad_call_sinks_the_batch(bad: ToolCall, made: type[Exception], words: str) -> None:
    admission = admit(Batch(calls=(make_call(to="bob"), bad)), REGISTRY)
    assert not admission.admitted
    assert admission.arguments == {}
    assert admission.culprits == {"bad"}
    assert "Not executed" in admission.faults["call-1"].message
    with pytest.raises(made, match=words):
        raise admission.faults["bad"]


def test_a_call_whose_arguments_were_no_object_sinks_the_batch() -> None:
    batch = Batch(calls=(make_call(to="bob"),), unparsable=(("c2", "send"),))
    admission = admit(batch, REGISTRY)
    assert admission.faults.keys() == {"call-1", "c2"}
    assert "were not a JSON object" in admission.faults["c2"].message


def test_two_calls_of_one_id_get_one_error() -> None:
    admission = admit(Batch(calls=(make_call(to="a"), make_call(to="b"))), REGISTRY)
    assert list(admission.faults) == ["call-1"]
    assert "same id" in admission.faults["call-1"].message


def test_an_empty_registry_says_so() -> None:
    with pytest.raises(UnknownTool, match="Tools are: none"):
        raise admit(Batch(calls=(make_call(),)), Registry([], {})).faults["call-1"]
