"""Names of a call, recorded errors, and why a row cannot run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.kit import WRITE, row_of

from adapter.core.errors import (
    AdapterError,
    ApprovalAlreadyDecided,
    CallInDoubt,
    CallInProgress,
    PolicyDenied,
    ToolError,
    ToolFailed,
)
from adapter.core.journal import (
    arguments_digest,
    error_outcome,
    identify,
    raise_recorded,
    unusable,
)
from adapter.core.keys import KeyRing
from adapter.core.types import CallStatus, ToolCall
from adapter.testing import make_call, make_context, wired

KEY = KeyRing.from_secret(bytes(range(32))).newest("digest")


def test_a_call_has_the_same_names_in_every_run() -> None:
    again = make_context(run_id="run-2", turn_id="turn-9", user="ann")
    assert identify(make_call(to="b"), make_context()) == identify(make_call(to="b"), again)


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (make_call(to="c"), {}),
        (make_call("other", to="b"), {}),
        (make_call(id="call-2", to="b"), {}),
        (make_call(to="b"), {"thread_id": "t2"}),
        (make_call(to="b"), {"checkpoint_ns": "n"}),
        (make_call(to="b"), {"task_id": "k2"}),
    ],
)
def test_another_call_or_place_has_another_key(call: ToolCall, place: dict[str, Any]) -> None:
    ctx = make_context()
    there = replace(ctx, place=replace(ctx.place, **place))
    mine, other = identify(make_call(to="b"), ctx), identify(call, there)
    assert mine.key != other.key
    assert mine.idempotency_key != other.idempotency_key


def test_a_keyed_digest_cannot_be_guessed_from_the_arguments() -> None:
    assert arguments_digest({"card": 1}, KEY) != arguments_digest({"card": 1}, None)
    assert arguments_digest({"card": 1}, KEY) == arguments_digest({"card": 1}, KEY)


@pytest.mark.parametrize("made", [ToolError, PolicyDenied])
def test_a_recorded_error_is_raised_as_it_was(made: type[AdapterError]) -> None:
    with pytest.raises(made, match=r"^why$"):
        raise_recorded(error_outcome(made("why")))


@pytest.mark.parametrize("kind", ["KeyError", "StoreUnavailable", None])
def test_another_recorded_error_is_a_failure(kind: str | None) -> None:
    with pytest.raises(ToolFailed):
        raise_recorded({"error": {"kind": kind}})


@pytest.mark.parametrize("outcome", [None, {"result": 1}, {"error": "text"}, "x"])
def test_an_outcome_without_an_error_raises_nothing(outcome: Any) -> None:
    raise_recorded(outcome)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "lease", "made"),
    [
        ("claimed", 1, CallInProgress),
        ("claimed", 0, CallInDoubt),
        ("claimed", None, CallInDoubt),
        ("in_doubt", None, CallInDoubt),
        ("succeeded", None, ApprovalAlreadyDecided),
        ("void", None, ApprovalAlreadyDecided),
    ],
)
async def test_a_row_that_cannot_run_says_why(
    status: str, lease: int | None, made: type[AdapterError]
) -> None:
    async with wired(WRITE) as kit:
        await kit.run(make_call("write", to="b"))
        row = await row_of(kit)
    until = None if lease is None else 1000 + lease
    error = unusable(replace(row, status=CallStatus(status), lease_until=until), 1000)
    assert type(error) is made


@pytest.mark.anyio
async def test_a_pruned_outcome_is_said_to_be_gone() -> None:
    async with wired(WRITE) as kit:
        await kit.run(make_call("write", to="b"))
        row = replace(await row_of(kit), outcome=None)
    assert "retention has removed" in unusable(row, 0).message
