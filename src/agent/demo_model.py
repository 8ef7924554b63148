"""DemoModel: a chat model with no model behind it, so that everything runs without a provider.

It is honest about that, does the same for the same words, and calls a tool once: calls, then
results, then one reply. It reads no setting and reaches no network.
"""

import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field
from typing_extensions import override

from agent.demo_rules import HELP, BadCall, Finding, Proposal, explicit_calls, propose, report

__all__ = ["DemoModel"]


def _new_call_id() -> str:
    return f"call_{uuid.uuid4().hex}"


class DemoModel(BaseChatModel):
    """Routes ordinary support questions by keyword, and `/call TOOL {json}` lines verbatim.

    Its usage metadata counts words, the only thing it has to count.

    Attributes:
        new_id: Gives every tool call an id of its own.
    """

    new_id: Callable[[], str] = Field(default=_new_call_id, exclude=True, repr=False)

    @property
    @override
    def _llm_type(self) -> str:
        return "acme-demo"

    @property
    @override
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": "demo"}

    @override
    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Remember which tools are offered; keywords lead to no other tool.

        Args:
            tools: In any form LangChain converts.
            tool_choice: Taken and not followed: keywords decide.
            **kwargs: Kept with the binding.

        Returns:
            The bound model.
        """
        names = [convert_to_openai_tool(tool)["function"]["name"] for tool in tools]
        return self.bind(offered=names, tool_choice=tool_choice, **kwargs)

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, kwargs))])

    @override
    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(self._answer(messages, kwargs)):
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in _chunks(self._answer(messages, kwargs)):
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _answer(self, messages: Sequence[BaseMessage], bound: dict[str, Any]) -> AIMessage:
        """The whole answer; the same history gives the same one, ids apart."""
        proposed = _decide(messages, bound.get("offered") or ())
        text = proposed if isinstance(proposed, str) else ""
        calls: list[ToolCall] = []
        invalid: list[InvalidToolCall] = []
        for item in () if isinstance(proposed, str) else proposed:
            if isinstance(item, Proposal):
                calls.append(
                    ToolCall(name=item.tool, args=item.args, id=self.new_id(), type="tool_call")
                )
            else:
                invalid.append(_invalid(item, self.new_id()))
        said = [text, *(json.dumps(call["args"]) for call in calls)]
        return AIMessage(
            content=text,
            tool_calls=calls,
            invalid_tool_calls=invalid,
            usage_metadata=_usage(messages, said),
            response_metadata={"model_name": "demo", "model_provider": "acme-demo"},
        )


def _decide(
    messages: Sequence[BaseMessage], offered: Sequence[str]
) -> str | Sequence[Proposal | BadCall]:
    last = max((at for at, m in enumerate(messages) if isinstance(m, HumanMessage)), default=None)
    if last is None:
        return HELP
    since = messages[last + 1 :]
    made = [m for m in since if isinstance(m, AIMessage)]
    if any(m.tool_calls or m.invalid_tool_calls for m in made):
        return report(_findings(made, since))
    if made:
        return "There is nothing more to do."
    text = _text(messages[last])
    return explicit_calls(text) or propose(text, offered)


def _findings(made: Sequence[AIMessage], since: Sequence[BaseMessage]) -> list[Finding]:
    """Every call of this turn with what came back for it."""
    results = {m.tool_call_id: m for m in since if isinstance(m, ToolMessage)}
    found = []
    for message in made:
        for call in (*message.tool_calls, *message.invalid_tool_calls):
            result = results.get(call["id"] or "")
            found.append(
                Finding(
                    tool=call["name"] or "unnamed tool",
                    content=None if result is None else _text(result),
                    failed=result is not None and result.status == "error",
                )
            )
    return found


def _text(message: BaseMessage) -> str:
    """A message's text, whichever form its content has."""
    content = message.content
    if isinstance(content, str):
        return content
    parts = (
        part if isinstance(part, str) else part.get("text") or part.get("refusal") or ""
        for part in content
    )
    return "\n".join(str(part) for part in parts if part)


def _invalid(bad: BadCall, call_id: str) -> InvalidToolCall:
    return InvalidToolCall(
        name=bad.tool, args=bad.text, id=call_id, error=bad.error, type="invalid_tool_call"
    )


def _usage(messages: Sequence[BaseMessage], said: Sequence[str]) -> UsageMetadata:
    read = sum(len(_text(message).split()) for message in messages)
    written = sum(len(text.split()) for text in said)
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _chunks(answer: AIMessage) -> list[ChatGenerationChunk]:
    """The answer in pieces that add up to it; usage comes with the last."""
    if answer.invalid_tool_calls:
        # One piece: adding pieces up, LangChain repairs broken JSON into a call nobody wrote.
        return [ChatGenerationChunk(message=_last(answer, answer.invalid_tool_calls))]
    pieces = [
        AIMessageChunk(content=word, id=answer.id)
        for word in re.findall(r"\s*\S+\s*", str(answer.content))
    ]
    for index, call in enumerate(answer.tool_calls):
        args = json.dumps(call["args"])
        middle = len(args) // 2
        head = tool_call_chunk(name=call["name"], args=args[:middle], id=call["id"], index=index)
        rest = tool_call_chunk(name=None, args=args[middle:], id=None, index=index)
        pieces += [AIMessageChunk(content="", tool_call_chunks=[part]) for part in (head, rest)]
    return [ChatGenerationChunk(message=piece) for piece in (*pieces, _last(answer))]


def _last(answer: AIMessage, invalid: Sequence[InvalidToolCall] = ()) -> AIMessageChunk:
    return AIMessageChunk(
        content=answer.content if invalid else "",
        tool_calls=answer.tool_calls if invalid else [],
        invalid_tool_calls=list(invalid),
        usage_metadata=answer.usage_metadata,
        response_metadata=answer.response_metadata,
        chunk_position="last",
    )
