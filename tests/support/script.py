"""A chat model that says what a test wrote down, and remembers what it was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from pydantic import PrivateAttr
from typing_extensions import override

Line = AIMessage | Callable[[list[BaseMessage]], AIMessage]


def call(name: str, call_id: str | None, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, args=arguments, id=call_id, type="tool_call")


def ai(
    *calls: ToolCall, text: str = "", bad: Sequence[InvalidToolCall] = (), **more: Any
) -> AIMessage:
    return AIMessage(text, tool_calls=list(calls), invalid_tool_calls=list(bad), **more)


def unreadable(name: str | None, call_id: str | None) -> InvalidToolCall:
    return InvalidToolCall(
        name=name, args="{not json", id=call_id, error=None, type="invalid_tool_call"
    )


class Script(BaseChatModel):
    """Says one line per call; after the last one, ``done``."""

    _lines: list[Line] = PrivateAttr(default_factory=list)
    _sent: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @classmethod
    def of(cls, *lines: Line) -> Script:
        made = cls()
        made._lines = list(lines)
        return made

    @property
    def sent(self) -> list[list[BaseMessage]]:
        """The messages of each call, in order."""
        return self._sent

    def then(self, *lines: Line) -> None:
        """Write further lines."""
        self._lines.extend(lines)

    @property
    @override
    def _llm_type(self) -> str:
        return "script"

    @override
    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self._sent.append(list(messages))
        line: Line = self._lines.pop(0) if self._lines else AIMessage("done")
        said = line(messages) if callable(line) else line.model_copy(deep=True)
        return ChatResult(generations=[ChatGeneration(message=said)])
