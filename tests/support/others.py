"""LangChain's own middleware, each as it stands beside ours in a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import (
    AgentMiddleware,
    AutoModeMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolEmulator,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelChoice,
    ModelFallbackMiddleware,
    ModelRefusalMiddleware,
    ModelRetryMiddleware,
    ModelRouterMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
)
from langchain_core._api import suppress_langchain_beta_warning
from langchain_core.decisions import BaseDecisionModel, ClassifierResponse
from langchain_core.runnables import RunnableLambda
from tests.support.script import Script
from typing_extensions import override

__all__ = ["AROUND_MODELS", "AROUND_TOOLS", "LEFT_OUT", "OTHERS", "Other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """One middleware.

    Attributes:
        make: A new one, for a model that says what the agent's says.
        stops: Calls it keeps from running.
    """

    make: Callable[[Script], AgentMiddleware[Any, Any, Any]]
    stops: frozenset[str] = frozenset()


class Chooser(Script):
    """A model that selects every tool it is offered."""

    @override
    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        return RunnableLambda(lambda _: {"tools": ["send_money", "note", "odd"]})


class Harmless(BaseDecisionModel):
    """Says no to every question of risk, and the first choice."""

    model: str = "harmless"

    @property
    @override
    def _provider(self) -> str:
        return "tests"

    @override
    def _classify(self, state: Any, questions: dict[str, Any]) -> ClassifierResponse:
        answers: dict[str, Any] = {}
        for name, question in questions.items():
            if question.type == "noul":
                answers[name] = {"type": "noul", "noul": 0.0}
            else:
                label = next(iter(question.criteria))
                answers[name] = {
                    "type": "choice",
                    "choice": label,
                    "probabilities": {label: 1.0},
                    "confidence": 1.0,
                }
        return ClassifierResponse.model_validate({"model": self.model, "answers": answers})


def _review(mode: Any) -> Any:
    gated: dict[str, Any] = {
        "send_money": True,
        "odd": {"allowed_decisions": ["approve", "reject"]},
    }
    return lambda _: HumanInTheLoopMiddleware(interrupt_on=gated, interrupt_mode=mode)


def _failed(error: Exception, request: Any) -> str:
    return f"{type(error).__name__} in {request.tool_call['name']}"


def _beta(make: Callable[[Script], Any]) -> Callable[[Script], Any]:
    def quietly(model: Script) -> Any:
        with suppress_langchain_beta_warning():
            return make(model)

    return quietly


def _quick(kind: Any, **more: Any) -> Any:
    return lambda _: kind(max_retries=2, initial_delay=0.0, jitter=False, **more)


ALL = frozenset({"n1", "c1", "c2", "o1"})

AROUND_TOOLS: dict[str, Other] = {
    "tool-retry": Other(make=_quick(ToolRetryMiddleware)),
    "tool-retry-error": Other(make=_quick(ToolRetryMiddleware, on_failure="error")),
    "tool-error": Other(make=lambda _: ToolErrorMiddleware(_failed)),
    "review-batched": Other(make=_review("batched")),
    "review-per-call": Other(make=_review("per_call")),
    "tool-limit-continue": Other(
        make=lambda _: ToolCallLimitMiddleware(thread_limit=3), stops=frozenset({"o1"})
    ),
    "tool-limit-end": Other(
        make=lambda _: ToolCallLimitMiddleware(thread_limit=3, exit_behavior="end"), stops=ALL
    ),
    "auto-mode": Other(
        make=_beta(lambda _: AutoModeMiddleware(tools=["send_money", "odd"], classifier=Harmless()))
    ),
    "emulator": Other(make=lambda _: LLMToolEmulator(tools=["look"], model=Script.of())),
}
"""What wraps tool calls, or acts on them between the model and the tools."""

AROUND_MODELS: dict[str, Other] = {
    "model-limit": Other(make=lambda _: ModelCallLimitMiddleware(run_limit=9)),
    "model-limit-hit": Other(make=lambda _: ModelCallLimitMiddleware(thread_limit=1)),
    "model-retry": Other(make=_quick(ModelRetryMiddleware)),
    "model-fallback": Other(make=lambda _: ModelFallbackMiddleware(Script.of())),
    "model-refusal": Other(make=lambda _: ModelRefusalMiddleware()),
    "model-router": Other(
        make=_beta(
            lambda model: ModelRouterMiddleware(
                choices={"own": ModelChoice(model=model, criteria="always")},
                instructions="Choose.",
                classifier=Harmless(),
            )
        )
    ),
    "context-editing": Other(
        make=lambda _: ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=0)])
    ),
    "summary": Other(
        make=lambda _: SummarizationMiddleware(
            Script.of(), trigger=("messages", 3), keep=("messages", 2)
        )
    ),
    "pii": Other(
        make=lambda _: PIIMiddleware(
            "email", apply_to_input=True, apply_to_output=True, apply_to_tool_results=True
        )
    ),
    "tool-selector": Other(make=lambda _: LLMToolSelectorMiddleware(model=Chooser.of())),
}
"""What acts on model calls and on the history."""

OTHERS = AROUND_TOOLS | AROUND_MODELS

LEFT_OUT = {
    "TodoListMiddleware": "brings a tool of its own: tried apart",
    "ShellToolMiddleware": "brings a tool of its own, which runs a shell",
    "FilesystemFileSearchMiddleware": "brings tools of its own, which read the disk",
    "ProviderToolSearchMiddleware": "works with one provider's server only",
}
"""Those that are not in the tables, and why."""
