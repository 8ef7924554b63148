"""Asking back: yes, no, nobody there."""

from __future__ import annotations

import io
import sys

import pytest
import typer
from typing_extensions import override

from adapter.cli.asking import confirm
from adapter.core.errors import ToolUsageError


class Terminal(io.StringIO):
    """Standard input that a person sits at."""

    @override
    def isatty(self) -> bool:
        return True


def given(monkeypatch: pytest.MonkeyPatch, stdin: io.StringIO | None) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_yes_goes_on(monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO]) -> None:
    given(monkeypatch, kind("y\n"))
    confirm("Sure?")


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_a_no_aborts(monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], answer: str) -> None:
    given(monkeypatch, kind(answer))
    with pytest.raises(typer.Abort):
        confirm("Sure?")


def closed() -> io.StringIO:
    stream = io.StringIO("y\n")
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stdin", [io.StringIO(), None, closed()], ids=["at its end", "none", "closed"]
)
def test_where_nobody_can_answer_it_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, stdin: io.StringIO | None
) -> None:
    given(monkeypatch, stdin)
    with pytest.raises(ToolUsageError, match=r"Nothing was done: .*Give --yes to go on"):
        confirm("Sure?")


def test_a_person_who_ends_the_input_aborts(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, Terminal())
    with pytest.raises(typer.Abort):
        confirm("Sure?")
