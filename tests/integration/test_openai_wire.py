"""OpenAI's wire through `build_model`: plain, streamed, tool calls, errors and rate limits.

The provider's SDK sends through httpx2, which respx does not know: `HTTPCore2Mocker` shows it the
transport below. Nothing leaves the process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpcore2
import httpx
import openai
import pytest
import respx
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tools import tool
from respx.mocks import HTTPCoreMocker

from agent.models import build_model
from agent.settings import AgentSettings

BASE_URL = "http://provider.test/v1"
KEY = "sk-dummy-not-a-key"
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


class HTTPCore2Mocker(HTTPCoreMocker):
    """respx's httpcore mocker, aimed at the successor of the same form."""

    name = "httpcore2"
    targets = [target.replace("httpcore.", "httpcore2.") for target in HTTPCoreMocker.targets]  # noqa: RUF012 - respx's own form


@pytest.fixture
def wire() -> Iterator[respx.MockRouter]:
    with respx.mock(base_url=BASE_URL, using="httpcore2") as router:
        router.post("/chat/completions", name="chat")
        yield router


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> BaseChatModel:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", BASE_URL)
    return build_model(AgentSettings.load({"AGENT_MODEL": "openai:gpt-4o-mini"}, None))


@tool
def calculate(expression: str) -> str:
    """Calculate."""
    return f"{expression} is 42"


def completion(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "gpt-4o-mini",
        "choices": [
            {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        ],
        "usage": USAGE,
    }


def events(*deltas: dict[str, Any], finish: str = "stop") -> httpx.Response:
    """A server-sent event for each delta, then the finish, the usage and the end."""

    def event(choices: list[dict[str, Any]], **more: Any) -> str:
        frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0}
        return f"data: {json.dumps({**frame, 'model': 'gpt-4o-mini', 'choices': choices, **more})}"

    lines = [event([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    lines.append(event([{"index": 0, "delta": {}, "finish_reason": finish}]))
    lines += [event([], usage=USAGE), "data: [DONE]"]
    return httpx.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content="".join(f"{line}\n\n" for line in lines),
    )


def asked_call(args: str, call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "calculate", "arguments": args}}


def sum_of(chunks: Sequence[AIMessage]) -> AIMessageChunk:
    pieces = [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    assert len(pieces) == len(chunks) > 1
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    return whole


def sent(wire: respx.MockRouter, at: int = -1) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(wire["chat"].calls[at].request.content)
    return body


# ------------------------------------------------------------------------------- plain


def test_a_plain_answer(wire: respx.MockRouter, model: BaseChatModel) -> None:
    wire["chat"].respond(json=completion({"content": "Hello."}))
    answer = model.invoke("hi")
    assert answer.content == "Hello."
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["total_tokens"] == 12
    assert wire["chat"].calls.last.request.headers["authorization"] == f"Bearer {KEY}"
    assert sent(wire)["model"] == "gpt-4o-mini"


@pytest.mark.anyio
async def test_a_plain_answer_from_an_event_loop(
    wire: respx.MockRouter, model: BaseChatModel
) -> None:
    wire["chat"].respond(json=completion({"content": "Hello."}))
    assert (await model.ainvoke("hi")).content == "Hello."


# ------------------------------------------------------------------------------- streamed


def test_a_streamed_answer(wire: respx.MockRouter, model: BaseChatModel) -> None:
    wire["chat"].mock(
        return_value=events({"role": "assistant", "content": "Hel"}, {"content": "lo."})
    )
    chunks = list(model.stream("hi"))
    assert [chunk.content for chunk in chunks if chunk.content] == ["Hel", "lo."]
    assert sum_of(chunks).content == "Hello."
    assert sent(wire)["stream"] is True


@pytest.mark.anyio
async def test_a_streamed_call_from_an_event_loop(
    wire: respx.MockRouter, model: BaseChatModel
) -> None:
    head = {"index": 0, **asked_call("")}
    rest = [
        {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}
        for part in ('{"expre', 'ssion": "6*7"}')
    ]
    wire["chat"].mock(
        return_value=events({"role": "assistant", "tool_calls": [head]}, *rest, finish="tool_calls")
    )
    chunks = [chunk async for chunk in model.bind_tools([calculate]).astream("6*7?")]
    whole = sum_of(chunks)
    (call,) = whole.tool_calls
    assert (call["name"], call["args"], call["id"]) == (
        "calculate",
        {"expression": "6*7"},
        "call_1",
    )


# ------------------------------------------------------------------------------- tool calls


def test_parallel_calls_run_and_their_results_go_back(
    wire: respx.MockRouter, model: BaseChatModel
) -> None:
    calls = [asked_call('{"expression": "6*7"}'), asked_call('{"expression": "2*21"}', "call_2")]
    wire["chat"].side_effect = [
        httpx.Response(200, json=completion({"tool_calls": calls}, finish="tool_calls")),
        httpx.Response(200, json=completion({"content": "Both are 42."})),
    ]
    agent = create_agent(model, tools=[calculate])
    messages = agent.invoke({"messages": [HumanMessage("6*7 and 2*21?")]})["messages"]
    assert [m.type for m in messages] == ["human", "ai", "tool", "tool", "ai"]
    assert messages[-1].content == "Both are 42."
    assert sent(wire, 0)["tools"][0]["function"]["name"] == "calculate"
    results = [m for m in sent(wire)["messages"] if m["role"] == "tool"]
    assert [(m["tool_call_id"], m["content"]) for m in results] == [
        ("call_1", "6*7 is 42"),
        ("call_2", "2*21 is 42"),
    ]


def test_broken_arguments_are_an_invalid_call(wire: respx.MockRouter, model: BaseChatModel) -> None:
    wire["chat"].respond(json=completion({"tool_calls": [asked_call('{"expr')]}, "tool_calls"))
    answer = model.bind_tools([calculate]).invoke("6*7?")
    assert answer.tool_calls == []
    assert [(c["id"], c["args"]) for c in answer.invalid_tool_calls] == [("call_1", '{"expr')]


# ------------------------------------------------------------------------------- failures

PROVIDER_ERROR = {"error": {"message": "no such parameter", "type": "invalid_request_error"}}
AT_ONCE = {"retry-after-ms": "1"}


def test_a_bad_request_is_raised_at_once(wire: respx.MockRouter, model: BaseChatModel) -> None:
    wire["chat"].respond(400, json=PROVIDER_ERROR)
    with pytest.raises(openai.BadRequestError, match="no such parameter") as caught:
        model.invoke("hi")
    assert wire["chat"].call_count == 1
    assert KEY not in str(caught.value)


def test_a_wrong_key_is_raised_at_once(wire: respx.MockRouter, model: BaseChatModel) -> None:
    wire["chat"].respond(401, json={"error": {"message": "Incorrect API key provided"}})
    with pytest.raises(openai.AuthenticationError):
        model.invoke("hi")
    assert wire["chat"].call_count == 1


@pytest.mark.parametrize(
    ("status", "error"), [(500, openai.InternalServerError), (429, openai.RateLimitError)]
)
def test_a_passing_failure_is_tried_three_times_and_raised(
    wire: respx.MockRouter, model: BaseChatModel, status: int, error: type[Exception]
) -> None:
    wire["chat"].respond(status, headers=AT_ONCE, json={"error": {"message": "busy"}})
    with pytest.raises(error, match="busy"):
        model.invoke("hi")
    assert wire["chat"].call_count == 3


@pytest.mark.anyio
@pytest.mark.parametrize("status", [500, 429])
async def test_a_passing_failure_is_waited_out(
    wire: respx.MockRouter, model: BaseChatModel, status: int
) -> None:
    wire["chat"].side_effect = [
        httpx.Response(status, headers=AT_ONCE, json={"error": {"message": "busy"}}),
        httpx.Response(200, json=completion({"content": "Hello."})),
    ]
    assert (await model.ainvoke("hi")).content == "Hello."
    assert wire["chat"].call_count == 2


def test_a_provider_out_of_reach_is_raised(
    wire: respx.MockRouter, model: BaseChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire["chat"].side_effect = httpcore2.ConnectError("refused")
    monkeypatch.setattr(openai.OpenAI, "_sleep_for_retry", lambda *args, **kwargs: None)
    with pytest.raises(openai.APIConnectionError):
        model.invoke("hi")


def test_an_error_inside_a_stream_is_raised(wire: respx.MockRouter, model: BaseChatModel) -> None:
    broken = 'data: {"error": {"message": "overloaded", "code": "server_error"}}\n\n'
    wire["chat"].respond(200, headers={"content-type": "text/event-stream"}, content=broken)
    with pytest.raises(openai.APIError, match="overloaded"):
        list(model.stream("hi"))
