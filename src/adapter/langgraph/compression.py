"""A shorter list for the model; the state keeps the whole history.

Works on units that belong together: an AI message and the results of its calls. Never writes
state, and never parts a call from its result.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain.agents.middleware import SummarizationMiddleware
from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.utils import count_tokens_approximately
from typing_extensions import override

from adapter.core.errors import ConfigurationError
from adapter.langgraph import history

__all__ = ["Compression", "Compressor", "langgraph_compressor"]

WAITING = "There is no result yet: this call waits for a person's decision."
_REMEMBERED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """How a history is shortened for the model.

    Kept always, even beyond a limit: leading system messages, the newest human message, the
    newest unit, and calls that wait for a decision.

    Attributes:
        max_messages: Most messages sent, system messages included.
        max_tokens: Most tokens sent, by ``count_tokens``.
        summarize_with: Model that summarises what is old, by LangChain's SummarizationMiddleware;
            the limits below are its.
        trigger: When it summarises, e.g. ``("tokens", 4000)``.
        keep: What it keeps unsummarised, e.g. ``("messages", 20)``.
        count_tokens: Counts the tokens of messages.
    """

    max_messages: int | None = None
    max_tokens: int | None = None
    summarize_with: BaseChatModel | None = None
    trigger: Any = ("tokens", 4000)
    keep: Any = ("messages", 20)
    count_tokens: Callable[[Sequence[BaseMessage]], int] = count_tokens_approximately

    def __post_init__(self) -> None:
        """Refuse a policy that shortens nothing, or to nothing."""
        limits = (self.max_messages, self.max_tokens)
        if all(limit is None for limit in limits) and self.summarize_with is None:
            msg = "Compression needs max_messages, max_tokens or summarize_with."
            raise ConfigurationError(msg)
        if any(limit is not None and limit < 1 for limit in limits):
            msg = "Compression.max_messages and max_tokens must be at least 1."
            raise ConfigurationError(msg)


class Compressor(AgentMiddleware[Any, Any, Any]):
    """Shortens lists for the model: a function for a node of one's own, or a middleware.

    In ``create_agent`` put it after AdapterMiddleware, which then repairs the whole history and
    not the short one. A history that still has to be repaired is passed on as it is.
    """

    def __init__(self, policy: Compression) -> None:
        """Take the policy."""
        super().__init__()
        self._policy = policy
        self._summaries = None if policy.summarize_with is None else _Summaries(policy)

    def __call__(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the list for the model; calls without a result get a placeholder in it."""
        filled, kept = _filled(messages)
        if self._summaries is not None:
            filled = self._summaries.of(filled, kept)
        return self._fitted(filled, kept)

    async def acompress(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the list for the model, where a summary may be awaited."""
        filled, kept = _filled(messages)
        if self._summaries is not None:
            filled = await self._summaries.aof(filled, kept)
        return self._fitted(filled, kept)

    @override
    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> Any:
        """Call the model with a shorter list."""
        if not history.in_order(request.messages):
            return handler(request)
        return handler(request.override(messages=cast("Any", self(request.messages))))

    @override
    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> Any:
        """Call the model with a shorter list."""
        if not history.in_order(request.messages):
            return await handler(request)
        short = await self.acompress(request.messages)
        return await handler(request.override(messages=cast("Any", short)))

    def _fitted(self, messages: list[BaseMessage], kept: set[int]) -> list[BaseMessage]:
        policy = self._policy
        if policy.max_messages is not None:
            messages = _fitted(messages, kept, policy.max_messages, len)
        if policy.max_tokens is not None:
            messages = _fitted(messages, kept, policy.max_tokens, policy.count_tokens)
        return messages


def langgraph_compressor(policy: Compression) -> Compressor:
    """Return a compressor: the model gets a shorter list, the state keeps the full history.

    Args:
        policy: By messages, by tokens, by a summary, or several of them.
    """
    return Compressor(policy)


def _filled(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], set[int]]:
    """Return a paired history, and the identities of messages whose calls still wait."""
    if history.in_order(messages):
        return list(messages), set()
    waiting = {
        gap.index: [
            ToolMessage(WAITING, tool_call_id=call_id, name=name) for call_id, name in gap.calls
        ]
        for gap in history.unanswered(messages)
    }
    return history.repaired(messages, waiting), {id(messages[index]) for index in waiting}


def _units(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    units: list[list[BaseMessage]] = []
    for message in messages:
        if isinstance(message, ToolMessage) and units:
            units[-1].append(message)
        else:
            units.append([message])
    return units


def _fitted(
    messages: list[BaseMessage],
    kept: set[int],
    limit: int,
    size: Callable[[Sequence[BaseMessage]], int],
) -> list[BaseMessage]:
    """Return the newest units that fit, and those that are kept always."""
    if size(messages) <= limit:
        return messages
    units = _units(messages)
    head = _head(units)
    body = units[head:]
    must = {number for number, unit in enumerate(body) if id(unit[0]) in kept}
    must |= {len(body) - 1} if body else set()
    must |= set(_newest_human(body))
    chosen = set(must)
    fixed = [message for unit in units[:head] for message in unit]
    for number in range(len(body) - 1, -1, -1):
        trial = chosen | {number}
        if size([*fixed, *_joined(body, trial)]) > limit:
            break
        chosen = trial
    # Providers want a person to speak first.
    first = next((n for n in sorted(chosen) if isinstance(body[n][0], HumanMessage)), 0)
    chosen = {number for number in chosen if number >= first or number in must}
    return [*fixed, *_joined(body, chosen)]


def _head(units: Sequence[Sequence[BaseMessage]]) -> int:
    """Return how many units at the beginning are system messages."""
    for number, unit in enumerate(units):
        if not isinstance(unit[0], SystemMessage):
            return number
    return len(units)


def _newest_human(units: Sequence[Sequence[BaseMessage]]) -> list[int]:
    found = [n for n, unit in enumerate(units) if isinstance(unit[0], HumanMessage)]
    return found[-1:]


def _joined(units: Sequence[Sequence[BaseMessage]], chosen: set[int]) -> list[BaseMessage]:
    return [message for number in sorted(chosen) for message in units[number]]


class _Summaries:
    """Summaries of beginnings of histories, so that each is made once and built upon."""

    def __init__(self, policy: Compression) -> None:
        self._machine: SummarizationMiddleware[Any, Any] = SummarizationMiddleware(
            cast("Any", policy.summarize_with),
            trigger=policy.trigger,
            keep=policy.keep,
            token_counter=cast("Any", policy.count_tokens),
        )
        self._known: OrderedDict[tuple[str, ...], list[BaseMessage]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, messages: list[BaseMessage], kept: set[int]) -> list[BaseMessage]:
        """Return the history with what is old summarised, where it is time to."""
        head, rest, done, short = self._begun(messages)
        update = self._machine.before_model(cast("Any", {"messages": short}), cast("Any", None))
        return [*head, *self._ended(rest, done, short, update, kept)]

    async def aof(self, messages: list[BaseMessage], kept: set[int]) -> list[BaseMessage]:
        """Return the same, awaiting the summary."""
        head, rest, done, short = self._begun(messages)
        update = await self._machine.abefore_model(
            cast("Any", {"messages": short}), cast("Any", None)
        )
        return [*head, *self._ended(rest, done, short, update, kept)]

    def _begun(
        self, messages: list[BaseMessage]
    ) -> tuple[list[BaseMessage], list[BaseMessage], int, list[BaseMessage]]:
        """Return system messages, the rest, how much is summarised, and the rest so shortened."""
        units = _units(messages)
        count = sum(len(unit) for unit in units[: _head(units)])
        head, rest = messages[:count], messages[count:]
        ids = tuple(message.id or "" for message in rest)
        with self._lock:
            for length in range(len(ids), 0, -1):
                summary = self._known.get(ids[:length])
                if summary is not None and all(ids[:length]):
                    self._known.move_to_end(ids[:length])
                    return head, rest, length, [*summary, *rest[length:]]
        return head, rest, 0, list(rest)

    def _ended(
        self,
        rest: list[BaseMessage],
        done: int,
        short: list[BaseMessage],
        update: dict[str, Any] | None,
        kept: set[int],
    ) -> list[BaseMessage]:
        made = short
        if update is not None:
            made = [one for one in update["messages"] if not isinstance(one, RemoveMessage)]
            own = {id(message) for message in rest}
            left = sum(id(message) in own for message in made)
            done = len(rest) - left
            summary = made[: len(made) - left]
            key = tuple(message.id or "" for message in rest[:done])
            if all(key):
                with self._lock:
                    self._known[key] = summary
                    while len(self._known) > _REMEMBERED:
                        self._known.popitem(last=False)
        if not done:
            return made
        units = _units(rest)
        must = {number for number, unit in enumerate(units) if id(unit[0]) in kept}
        must |= set(_newest_human(units))
        present = {id(message) for message in made}
        lost = {number for number in must if id(units[number][0]) not in present}
        summary_length = len(made) - (len(rest) - done)
        return [*made[:summary_length], *_joined(units, lost), *made[summary_length:]]
