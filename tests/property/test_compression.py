"""Whatever a history is cut to, every list sent to a model is paired, and waiting calls stay."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.utils import count_tokens_approximately
from tests.support.room import paired
from tests.support.script import Script, call

from adapter.langgraph.compression import WAITING, Compression, langgraph_compressor


@st.composite
def histories(draw: Any) -> list[BaseMessage]:
    """Turns with batches of calls, some results missing, moved or orphaned."""
    made: list[BaseMessage] = [SystemMessage("be good", id="s")] if draw(st.booleans()) else []
    number = 0
    for _ in range(draw(st.integers(1, 5))):
        made.append(HumanMessage("h" * draw(st.integers(0, 20)), id=f"h{len(made)}"))
        for _ in range(draw(st.integers(0, 3))):
            calls = draw(st.integers(0, 3))
            ids = [f"c{number + n}" for n in range(calls)]
            number += calls
            made.append(AIMessage("a", id=f"a{len(made)}", tool_calls=[call("t", i) for i in ids]))
            results: list[BaseMessage] = [
                ToolMessage("r", tool_call_id=i, id=f"r-{i}")
                for i in ids
                if draw(st.integers(0, 9)) > 0
            ]
            if results and draw(st.integers(0, 9)) == 0:
                results.insert(0, HumanMessage("between", id=f"b{len(made)}"))
            made.extend(results)
        if draw(st.integers(0, 9)) == 0:
            made.append(ToolMessage("orphan", tool_call_id="none", id=f"o{len(made)}"))
    return made


def waiting(messages: list[BaseMessage]) -> set[str]:
    answered: set[str] = set()
    found: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            found |= {str(c["id"]) for c in message.tool_calls if c["id"] not in answered}
            answered = set()
    return found


def checked(given: list[BaseMessage], sent: list[BaseMessage]) -> None:
    paired(sent)
    sent_calls = {c["id"] for m in sent if isinstance(m, AIMessage) for c in m.tool_calls}
    assert waiting(given) <= sent_calls
    humans = [m for m in given if isinstance(m, HumanMessage)]
    assert not humans or humans[-1] in sent
    assert [m for m in sent if isinstance(m, SystemMessage)] == [
        m for m in given if isinstance(m, SystemMessage)
    ]


@settings(max_examples=60, deadline=None)
@given(histories())
def test_lists_of_every_length_are_paired(messages: list[BaseMessage]) -> None:
    before = list(messages)
    for limit in range(1, len(messages) + 2):
        sent = langgraph_compressor(Compression(max_messages=limit))(messages)
        checked(messages, sent)
        if not waiting(messages) and limit > 6:
            assert len(sent) <= max(limit, 6)
    assert messages == before


@settings(max_examples=40, deadline=None)
@given(histories(), st.integers(1, 200))
def test_lists_of_every_token_count_are_paired(messages: list[BaseMessage], limit: int) -> None:
    checked(messages, langgraph_compressor(Compression(max_tokens=limit))(messages))
    assert count_tokens_approximately(messages) >= 0


@settings(max_examples=30, deadline=None)
@given(histories(), st.integers(1, 6), st.integers(1, 6))
def test_summarised_lists_are_paired(messages: list[BaseMessage], trigger: int, keep: int) -> None:
    compressor = langgraph_compressor(
        Compression(
            summarize_with=Script.of(*[AIMessage("summary")] * 50),
            trigger=("messages", trigger + keep),
            keep=("messages", keep),
        )
    )
    for length in range(1, len(messages) + 1):
        part = messages[:length]
        checked(part, compressor(part))


def test_a_waiting_call_says_that_it_waits() -> None:
    messages = [HumanMessage("x"), AIMessage("", tool_calls=[call("t", "c1")])]
    sent = langgraph_compressor(Compression(max_messages=1))(messages)
    assert sent[-1].content == WAITING
