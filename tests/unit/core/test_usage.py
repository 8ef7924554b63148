"""What a provider says about tokens is read strictly, and unknown is never free."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.core.usage import Usage


def metadata(sent: Any, answered: Any, **more: Any) -> dict[str, Any]:
    return {"input_tokens": sent, "output_tokens": answered, **more}


def test_input_output_and_cached_input_are_read() -> None:
    found = metadata(100, 20, total_tokens=120, input_token_details={"cache_read": 80})
    assert Usage.read([found]) == Usage(input=100, cached=80, output=20)


def test_several_messages_add_up() -> None:
    usage = Usage.read([metadata(1, 2), None, metadata(10, 20)])
    assert usage == Usage(input=11, output=22)
    assert usage.tokens == 33


@pytest.mark.parametrize(
    "found",
    [
        [],
        [None],
        ["120"],
        [{}],
        [metadata(0, 0)],
        [metadata(-5, 3)],
        [metadata(10**12 + 1, 3)],
        [metadata(True, 3)],
        [metadata("5", "3")],
        [metadata(None, None)],
    ],
)
def test_what_is_no_usage_is_unknown(found: list[Any]) -> None:
    assert Usage.read(found) is None


@pytest.mark.parametrize(
    ("sent", "answered", "usage"),
    [
        (None, None, Usage(output=50)),
        (20, None, Usage(input=20, output=30)),
        (None, 20, Usage(output=50)),
        (60, None, Usage(input=60)),
    ],
)
def test_only_a_total_counts_as_the_dearer_kind(sent: Any, answered: Any, usage: Usage) -> None:
    assert Usage.read([metadata(sent, answered, total_tokens=50)]) == usage


@pytest.mark.parametrize("details", [None, "x", {}, {"cache_read": -1}, {"cache_read": None}])
def test_a_cache_that_says_nothing_saves_nothing(details: Any) -> None:
    assert Usage.read([metadata(10, 1, input_token_details=details)]) == Usage(input=10, output=1)


def test_no_more_can_be_cached_than_was_sent() -> None:
    found = metadata(10, 1, input_token_details={"cache_read": 99})
    assert Usage.read([found]) == Usage(input=10, cached=10, output=1)
