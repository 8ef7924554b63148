"""The demo model as a chat model: calls once, streams what it says, counts honestly."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool

from agent.demo_model import DemoModel
from agent.demo_rules import HELP


def model() -> DemoModel:
    numbers = itertools.count(1)
    return DemoModel(new_id=lambda: f"id{next(numbers)}")


def ask(*messages: BaseMessage) -> AIMessage:
    return model().invoke(list(messages))


def total(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


CALL = HumanMessage('/call calculate {"expression": "6*7"}\n/call nothing_here {"a": 1}')
BAD = HumanMessage('/call calculate {"expression": "6*7"}\n/call calculate {"expression": ')


@tool
def calculate(expression: str) -> str:
    """Calculate."""
    return f"{expression} is 42"


# ------------------------------------------------------------------------------- calls


def test_each_call_line_becomes_that_call_with_an_id_of_its_own() -> None:
    answer = ask(CALL)
    assert answer.tool_calls == [
        {"name": "calculate", "args": {"expression": "6*7"}, "id": "id1", "type": "tool_call"},
        {"name": "nothing_here", "args": {"a": 1}, "id": "id2", "type": "tool_call"},
    ]
    assert (answer.content, answer.invalid_tool_calls) == ("", [])


def test_ids_are_unique_by_default() -> None:
    lines = HumanMessage("/call calculate {}\n" * 50)
    ids = {call["id"] for _ in range(2) for call in DemoModel().invoke([lines]).tool_calls}
    assert len(ids) == 100


def test_bad_json_becomes_an_invalid_call() -> None:
    answer = ask(BAD)
    assert [call["id"] for call in answer.tool_calls] == ["id1"]
    (bad,) = answer.invalid_tool_calls
    assert (bad["name"], bad["args"], bad["id"]) == ("calculate", '{"expression":', "id2")
    assert bad["error"]


def test_only_the_last_human_message_counts() -> None:
    answer = ask(CALL, HumanMessage("hello"))
    assert (answer.tool_calls, answer.content) == ([], HELP)


def test_content_blocks_are_read() -> None:
    text = {"type": "text", "text": '/call calculate {"expression": "1+1"}'}
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    answer = ask(HumanMessage([picture, text, "and more"]))
    assert answer.tool_calls[0]["args"] == {"expression": "1+1"}


def test_an_empty_history_gets_help() -> None:
    assert ask(SystemMessage("You help.")).content == HELP


def test_a_bound_model_routes_to_offered_tools_only() -> None:
    bound = model().bind_tools([calculate], tool_choice="auto", parallel_tool_calls=True)
    assert bound.invoke("What is 6*7?").tool_calls[0]["name"] == "calculate"
    assert bound.invoke("weather in Oslo").content == HELP
    assert bound.invoke("/call get_weather {}").tool_calls[0]["name"] == "get_weather"
    assert model().invoke("What is 6*7?").content == HELP


# ------------------------------------------------------------------------------- results


def answered(*results: ToolMessage) -> AIMessage:
    return ask(CALL, ask(CALL), *results)


def test_results_are_told_and_no_call_is_repeated() -> None:
    answer = answered(
        ToolMessage('{"result": 42}', tool_call_id="id1"),
        ToolMessage("no such tool", tool_call_id="id2", status="error"),
    )
    assert answer.tool_calls == []
    assert answer.content == "calculate: result 42\nnothing_here did not work: no such tool"


def test_a_result_in_blocks_is_told() -> None:
    blocks: list[str | dict[Any, Any]] = [{"type": "text", "text": "forty-two"}, {"type": "x"}]
    answer = answered(
        ToolMessage(blocks, tool_call_id="id1"), ToolMessage("two", tool_call_id="id2")
    )
    assert answer.content == "calculate: forty-two\nnothing_here: two"


def test_a_refusal_is_told_and_not_retried() -> None:
    refused = json.dumps({"error": {"kind": "ApprovalDenied", "message": "not late"}})
    answer = answered(
        ToolMessage(refused, tool_call_id="id1", status="error"),
        ToolMessage("two", tool_call_id="id2"),
    )
    assert answer.tool_calls == []
    assert "calculate was refused and is not tried again: not late" in answer.text


def test_calls_without_results_are_not_repeated() -> None:
    answer = answered()
    assert answer.tool_calls == []
    assert answer.text.count("no result came back") == 2


def test_invalid_calls_answered_with_errors_are_not_repeated() -> None:
    first = ask(BAD)
    errors = [ToolMessage("bad", tool_call_id=i, status="error") for i in ("id1", "id2")]
    answer = ask(BAD, first, *errors)
    assert (answer.tool_calls, answer.invalid_tool_calls) == ([], [])
    assert answer.text.count("did not work: bad") == 2


def test_a_new_question_is_answered_after_an_overtaken_call() -> None:
    left = ToolMessage("not executed", tool_call_id="id1", status="error")
    answer = ask(CALL, ask(CALL), left, HumanMessage('/call calculate {"expression": "2"}'))
    assert answer.tool_calls[0]["args"] == {"expression": "2"}


def test_results_of_an_earlier_turn_do_not_answer_a_new_question() -> None:
    late = ToolMessage("not executed", tool_call_id="id1", status="error")
    answer = ask(CALL, ask(CALL), HumanMessage("hello"), late)
    assert answer.content == HELP


def test_an_answered_turn_says_there_is_no_more() -> None:
    assert ask(HumanMessage("hello"), AIMessage("Hi.")).content == "There is nothing more to do."


# ------------------------------------------------------------------------------- streaming


@pytest.mark.parametrize("message", [HumanMessage("hello"), CALL, BAD])
def test_the_pieces_add_up_to_the_answer(message: HumanMessage) -> None:
    whole, answer = total(list(model().stream([message]))), ask(message)
    assert whole.content == answer.content
    assert whole.tool_calls == answer.tool_calls
    assert whole.invalid_tool_calls == answer.invalid_tool_calls
    assert whole.usage_metadata == answer.usage_metadata
    assert whole.response_metadata == answer.response_metadata


@pytest.mark.anyio
@pytest.mark.parametrize("message", [HumanMessage("hello"), CALL, BAD])
async def test_the_asynchronous_pieces_are_the_same(message: HumanMessage) -> None:
    whole = total([chunk async for chunk in model().astream([message])])
    answer = await model().ainvoke([message])
    assert whole.content == answer.content
    assert whole.tool_calls == answer.tool_calls
    assert whole.invalid_tool_calls == answer.invalid_tool_calls


def test_text_and_calls_come_in_several_pieces() -> None:
    assert len(list(model().stream("hello"))) > 10
    chunks = list(model().stream([CALL]))
    assert [chunk.tool_call_chunks[0]["index"] for chunk in chunks[:-1]] == [0, 0, 1, 1]


def test_streamed_tokens_reach_callbacks() -> None:
    agent = create_agent(model(), tools=[calculate])
    events: Any = agent.stream({"messages": [HumanMessage("hello")]}, stream_mode="messages")
    tokens = [chunk.text for chunk, _ in events]
    assert "".join(tokens) == HELP
    assert len(tokens) > 10


@pytest.mark.anyio
async def test_asynchronously_streamed_tokens_reach_callbacks() -> None:
    agent = create_agent(model(), tools=[calculate])
    events: Any = agent.astream({"messages": [HumanMessage("hello")]}, stream_mode="messages")
    assert "".join([chunk.text async for chunk, _ in events]) == HELP


# ------------------------------------------------------------------------------- honesty


def test_usage_counts_words() -> None:
    usage = ask(SystemMessage("You help people."), HumanMessage("hello there")).usage_metadata
    assert usage is not None
    assert (usage["input_tokens"], usage["output_tokens"]) == (5, len(HELP.split()))
    assert usage["total_tokens"] == 5 + len(HELP.split())


def test_it_says_what_it_is() -> None:
    answer = ask(HumanMessage("who are you?"))
    assert "not a language model" in answer.text
    assert answer.response_metadata["model_name"] == "demo"
    assert model()._llm_type == "acme-demo"
    assert model()._identifying_params == {"model_name": "demo"}


def test_an_agent_runs_calls_and_then_says_so() -> None:
    agent = create_agent(model(), tools=[calculate])
    line = '/call calculate {"expression": "6*7"}'
    messages = agent.invoke({"messages": [HumanMessage(f"{line}\n{line}")]})["messages"]
    assert [m.type for m in messages] == ["human", "ai", "tool", "tool", "ai"]
    assert messages[-1].content == "calculate: 6*7 is 42\ncalculate: 6*7 is 42"
