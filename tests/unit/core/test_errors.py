"""Every error has a stable code and a safe message."""

from __future__ import annotations

import pytest

from adapter.core import errors
from adapter.core.errors import AdapterError, ModelVisibleError

ALL = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("made", ALL)
def test_an_error_keeps_its_message_and_its_name(made: type[AdapterError]) -> None:
    error = made("what to do")
    assert (error.message, str(error), error.kind) == ("what to do", "what to do", made.__name__)


def test_no_two_errors_share_a_code() -> None:
    codes = [made.code for made in ALL]
    assert len(set(codes)) == len(codes)


def test_only_these_errors_are_for_the_model() -> None:
    visible = {made.__name__ for made in ALL if issubclass(made, ModelVisibleError)}
    assert visible == {
        "ModelVisibleError",
        "ToolArgsInvalid",
        "UnknownTool",
        "ToolError",
        "PolicyDenied",
        "ApprovalDenied",
        "ApprovalExpired",
        "BudgetExceeded",
        "RateLimited",
    }


def test_an_unknown_outcome_counts_as_already_decided() -> None:
    assert issubclass(errors.CallInDoubt, errors.ApprovalAlreadyDecided)
