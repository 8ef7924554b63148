"""Tokens and cost of model calls: held back before, settled to what the provider says after.

Reads LangChain's models and messages; what anything costs and may cost is the core's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage

from adapter.core.audit import Subject
from adapter.core.executor import Executor
from adapter.core.store import Charge, Event
from adapter.core.types import CallContext
from adapter.core.usage import Usage

__all__ = ["Handler", "Meter", "model_name", "most_tokens"]

Handler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]

_NAMES = ("model_name", "model", "model_id", "deployment_name")
_MOST = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@dataclass(frozen=True, slots=True)
class Meter:
    """Holds back and settles the tokens and the cost of model calls."""

    executor: Executor

    def held(self, request: ModelRequest[Any], ctx: CallContext) -> tuple[Charge, ...]:
        """Return what to hold back for this model call.

        Raises:
            ConfigurationError: There is a budget of cost and no price for the model.
        """
        budgets = self.executor.budgets
        if not budgets.metered:
            return ()
        tokens = most_tokens(request, budgets.reserve_tokens)
        return budgets.reserve(ctx, model_name(request), tokens)

    async def call(
        self,
        request: ModelRequest[Any],
        handler: Handler,
        ctx: CallContext,
        held: tuple[Charge, ...],
    ) -> tuple[ModelResponse[Any], Mapping[str, int]]:
        """Call the model and settle what was held back.

        A call that failed costs nothing. One that was cancelled, or whose provider says nothing,
        costs what was held back: unknown is never free.

        Returns:
            The response, and the counters after it.
        """
        if not held:
            return _plain(await handler(request)), {}
        store = self.executor.store
        try:
            response = _plain(await handler(request))
        except Exception:
            await store.charge((), refunds=held)
            raise
        except BaseException:
            store.post([self._unknown(ctx, request, "cancelled")])
            raise
        scopes = [one.scope for one in held]
        usage = Usage.read(getattr(message, "usage_metadata", None) for message in response.result)
        if usage is None:
            event = self._unknown(ctx, request, "the provider gave no usage")
            return response, (await store.charge((), [event], show=scopes)).used
        budgets = self.executor.budgets
        model = next(filter(budgets.knows, _answered_by(response)), model_name(request))
        turn = await store.charge(budgets.used(ctx, model, usage), refunds=held, show=scopes)
        return response, turn.used

    def _unknown(self, ctx: CallContext, request: ModelRequest[Any], why: str) -> Event:
        key = f"model:{self.executor.journal.ids()}"
        return self.executor.audit.event(
            "usage_unknown",
            ctx,
            Subject(tool="", call_id="", key=key),
            model=model_name(request),
            reason=f"{why}; counted as what was held back",
        )


def model_name(request: ModelRequest[Any]) -> str:
    """Return the name of the model that will be called; empty if it has none."""
    for model in _layers(request.model):
        for field in _NAMES:
            name = getattr(model, field, None)
            if isinstance(name, str) and name:
                return name
    return ""


def most_tokens(request: ModelRequest[Any], default: int) -> int:
    """Return how many tokens the model may answer, as far as anything says so."""
    sources: list[Mapping[str, Any]] = [request.model_settings or {}]
    for model in _layers(request.model):
        kwargs = getattr(model, "kwargs", None)
        if isinstance(kwargs, Mapping):
            sources.append(kwargs)
        sources.append({field: getattr(model, field, None) for field in _MOST})
    for source in sources:
        for field in _MOST:
            most = source.get(field)
            if isinstance(most, int) and not isinstance(most, bool) and most > 0:
                return most
    return default


def _layers(model: Any) -> list[Any]:
    """Return a model and the model it is bound over, if it is a binding."""
    bound = getattr(model, "bound", None)
    return [model] if bound is None else [model, bound]


def _answered_by(response: ModelResponse[Any]) -> list[str]:
    """Return names the response gives its model: an inner middleware may have taken another."""
    named = [
        message.response_metadata.get(field)
        for message in response.result
        if isinstance(message, AIMessage)
        for field in ("model_name", "model")
    ]
    return [name for name in named if isinstance(name, str)]


def _plain(response: Any) -> ModelResponse[Any]:
    if isinstance(response, AIMessage):
        return ModelResponse(result=[response])
    if isinstance(response, ExtendedModelResponse):
        return response.model_response
    return response  # type: ignore[no-any-return]
