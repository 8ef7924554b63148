"""The frozen values that every stage passes on."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from adapter.core.types import CallContext, CallStatus, Effects, current_context, running_call
from adapter.testing import make_call, make_context


@pytest.mark.parametrize("status", ["succeeded", "failed", "denied", "responded", "expired"])
def test_a_row_with_an_outcome_is_settled(status: str) -> None:
    assert CallStatus(status).settled


@pytest.mark.parametrize(
    "status", ["requested", "approved", "claimed", "suspended", "in_doubt", "void"]
)
def test_a_row_without_an_outcome_is_not_settled(status: str) -> None:
    assert not CallStatus(status).settled


@pytest.mark.parametrize("effects", [Effects(read_only=True), Effects(idempotent=True)])
def test_harmless_effects_are_repeatable(effects: Effects) -> None:
    assert effects.repeatable


def test_an_effect_is_not_repeatable_unless_declared() -> None:
    assert not Effects().repeatable


def test_a_context_knows_its_thread() -> None:
    assert make_context("t-9").thread_id == "t-9"


def test_a_call_cannot_be_altered() -> None:
    with pytest.raises(FrozenInstanceError):
        make_call().name = "other"  # type: ignore[misc]


def test_there_is_no_context_outside_a_call() -> None:
    assert current_context() is None


def test_the_context_of_the_running_call_is_found() -> None:
    ctx = make_context()
    token = running_call.set(ctx)
    try:
        assert current_context() is ctx
    finally:
        running_call.reset(token)


def test_the_context_of_a_call_keeps_its_surroundings_and_is_frozen() -> None:
    ctx = replace(make_context(user="bob"), metadata={"m": "1"}, context={"c": 2})
    made = ctx.of_call("c1", "key")
    assert type(made) is CallContext
    assert made == replace(ctx, call_id="c1", idempotency_key="key")
    with pytest.raises(FrozenInstanceError):
        made.call_id = "c2"  # type: ignore[misc]
