"""Laws of validation, admission and masks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.property.core.test_canonical import JSON, typed
from tests.unit.core.kit import ALL

from adapter.core.audit import Auditor, Subject
from adapter.core.canonical import canonical_bytes
from adapter.core.errors import ToolArgsInvalid
from adapter.core.redaction import MASK, mask_arguments, without_masked
from adapter.core.spec import Registry, ToolSpec
from adapter.core.types import Effects, ToolCall
from adapter.core.validation import Batch, PydanticSchema, admit
from adapter.testing import make_context


class Typed(BaseModel):
    text: str = ""
    number: int = 0
    real: float = 0.0
    flag: bool = False
    texts: list[str] = []
    table: dict[str, int] = {}
    maybe: int | None = None


SCHEMA = PydanticSchema(Typed)
NAMES = list(Typed.model_fields)
REGISTRY = Registry([spec for spec, _ in ALL], {spec.name: schema for spec, schema in ALL})


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
def test_what_is_accepted_is_what_was_sent(arguments: dict[str, Any]) -> None:
    try:
        made = SCHEMA.validate(arguments)
    except ToolArgsInvalid:
        return
    for name, value in arguments.items():
        assert typed(made[name]) == typed(value)
        assert canonical_bytes(made[name]) == canonical_bytes(value)


@given(st.sampled_from(["number", "real"]), st.booleans() | st.from_regex(r"\A[0-9]{1,3}\Z"))
def test_nothing_becomes_a_number(name: str, value: Any) -> None:
    with pytest.raises(ToolArgsInvalid):
        SCHEMA.validate({name: value})


@given(st.text(max_size=10).filter(lambda name: name not in NAMES), JSON)
def test_a_ghost_argument_is_always_refused(name: str, value: Any) -> None:
    with pytest.raises(ToolArgsInvalid, match="unknown argument"):
        SCHEMA.validate({name: value})


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
def test_validation_is_stable(arguments: dict[str, Any]) -> None:
    try:
        made = SCHEMA.validate(arguments)
    except ToolArgsInvalid:
        return
    assert SCHEMA.validate(made) == made


CALLS = st.builds(
    ToolCall,
    name=st.sampled_from(["send", "look", "write", "nothing"]),
    arguments=st.fixed_dictionaries({}, optional={"to": st.sampled_from(["bob", 5]), "x": JSON}),
    id=st.sampled_from(["a", "b", "c", "d"]),
)
BATCHES = st.builds(
    Batch,
    calls=st.lists(CALLS, max_size=4).map(tuple),
    unparsable=st.lists(st.tuples(st.sampled_from(["a", "e"]), st.just("send")), max_size=1).map(
        tuple
    ),
)


@given(BATCHES)
def test_a_batch_is_admitted_whole_or_not_at_all(batch: Batch) -> None:
    admission = admit(batch, REGISTRY)
    ids = {call.id for call in batch.calls} | {call_id for call_id, _ in batch.unparsable}
    if admission.admitted:
        assert admission.arguments.keys() == ids
        assert admission.culprits == frozenset()
    else:
        assert admission.arguments == {}
        assert admission.faults.keys() == ids
        assert admission.culprits
        assert admission.culprits <= ids


@given(BATCHES)
def test_admission_is_what_each_call_alone_and_their_ids_say(batch: Batch) -> None:
    alone = [admit(Batch(calls=(call,)), REGISTRY).admitted for call in batch.calls]
    distinct = len({call.id for call in batch.calls}) == len(batch.calls)
    expected = all(alone) and distinct and not batch.unparsable
    assert admit(batch, REGISTRY).admitted is expected


SECRETS = st.text("0123456789abcdef", min_size=12, max_size=20).map("S".__add__)
ARGUMENTS = st.dictionaries(st.sampled_from(["to", "card", "cvv", "note"]), JSON)


@given(
    ARGUMENTS,
    SECRETS,
    st.recursive(SECRETS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
)
def test_a_declared_argument_never_leaks(
    arguments: dict[str, Any], secret: str, hidden: Any
) -> None:
    spec = ToolSpec(name="pay", effects=Effects(), approval=None, masks=("card", "cvv"))
    given_ = {**arguments, "card": secret, "cvv": hidden}
    shown = mask_arguments(given_, spec.masks)
    assert shown["card"] == shown["cvv"] == MASK
    subject = Subject(tool="pay", call_id="c", key="k", spec=spec)
    body = Auditor(clock=lambda: 0).event("started", make_context(), subject, arguments=given_).body
    assert secret.encode() not in body
    assert json.loads(body)["data"]["arguments"]["cvv"] == MASK
    assert without_masked(given_, spec.masks).keys() == given_.keys() - {"card", "cvv"}
