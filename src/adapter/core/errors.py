"""The one error tree, and which of its errors the model may read.

This room knows nothing else of the house. Every error carries a stable ``code`` and a message
that is safe to show: never a secret, never an expected value.

* AdapterError
    * ModelVisibleError: becomes an error ToolMessage, the model can react
        * ToolArgsInvalid, UnknownTool, ToolError, PolicyDenied
        * ApprovalDenied, ApprovalExpired
        * BudgetExceeded, RateLimited
    * ToolTimeout, ToolFailed: a message or raised, as ``on_tool_failure`` says
    * ConfigurationError: at start-up
    * ToolUsageError: the program uses the adapter wrongly
    * InvalidAnswer: a resume value that does not count
    * ApprovalPending: a deferred port has no decision yet
    * ApprovalAlreadyDecided
        * CallInDoubt
    * CallInProgress
    * StoreUnavailable
    * FlowError
        * FlowCompileError, FlowLoopExceeded
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = [
    "AdapterError",
    "ApprovalAlreadyDecided",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalPending",
    "BudgetExceeded",
    "CallInDoubt",
    "CallInProgress",
    "ConfigurationError",
    "FlowCompileError",
    "FlowError",
    "FlowLoopExceeded",
    "InvalidAnswer",
    "ModelVisibleError",
    "PolicyDenied",
    "RateLimited",
    "StoreUnavailable",
    "ToolArgsInvalid",
    "ToolError",
    "ToolFailed",
    "ToolTimeout",
    "ToolUsageError",
    "UnknownTool",
]


class AdapterError(Exception):
    """Base of every error the adapter raises.

    Attributes:
        code: Stable machine-readable name of what went wrong.
        message: Safe text: what happened and how to cure it.
    """

    code: ClassVar[str] = "adapter_error"

    def __init__(self, message: str) -> None:
        """Keep the message."""
        super().__init__(message)
        self.message = message

    @property
    def kind(self) -> str:
        """The name shown to the model and in the audit."""
        return type(self).__name__


class ModelVisibleError(AdapterError):
    """An error the model sees as an error ToolMessage and may react to."""

    code = "model_visible"


class ToolArgsInvalid(ModelVisibleError):
    """The arguments do not satisfy the tool's schema, or the call has no valid form."""

    code = "invalid_arguments"


class UnknownTool(ModelVisibleError):
    """No tool of this name is offered."""

    code = "unknown_tool"


class ToolError(ModelVisibleError):
    """Raised by a tool on purpose; its message is meant for the model."""

    code = "tool_error"


class PolicyDenied(ModelVisibleError):
    """The policy refuses this call."""

    code = "policy_denied"


class ApprovalDenied(ModelVisibleError):
    """A reviewer rejected this call."""

    code = "denied"


class ApprovalExpired(ModelVisibleError):
    """Nobody answered the approval request in time."""

    code = "expired"


class BudgetExceeded(ModelVisibleError):
    """A budget has nothing left for this call."""

    code = "budget_exceeded"


class RateLimited(ModelVisibleError):
    """Too many calls within the window of a rate."""

    code = "rate_limited"


class ToolTimeout(AdapterError):
    """The tool did not finish in time; its effect may or may not have happened."""

    code = "timeout"


class ToolFailed(AdapterError):
    """The tool raised. The message names the class only, never the tool's own text."""

    code = "failed"


class ConfigurationError(AdapterError):
    """A setting is missing, unknown or contradictory; found at start-up where possible."""

    code = "configuration"


class ToolUsageError(AdapterError):
    """The program uses the adapter in a way that could not be made safe."""

    code = "usage"


class InvalidAnswer(AdapterError):
    """A resume value that is not a valid signed answer to this question."""

    code = "invalid_answer"


class ApprovalPending(AdapterError):
    """A deferred port holds the request and has no decision yet.

    Attributes:
        key: The call's key in the journal.
        value: The request under the server's seal, as a reviewer signs it.
    """

    code = "pending"

    def __init__(
        self, message: str, *, key: str = "", value: Mapping[str, Any] | None = None
    ) -> None:
        """Keep the message, and what is asked."""
        super().__init__(message)
        self.key = key
        self.value = value


class ApprovalAlreadyDecided(AdapterError):
    """The answer was used before; the call has its outcome and does not run again."""

    code = "already_decided"


class CallInDoubt(ApprovalAlreadyDecided):
    """The call was started and nobody knows whether its effect happened."""

    code = "in_doubt"


class CallInProgress(AdapterError):
    """Another worker holds a live claim on this call."""

    code = "in_progress"


class StoreUnavailable(AdapterError):
    """The store cannot be read or written; gated calls fail closed."""

    code = "store_unavailable"


class FlowError(AdapterError):
    """A flow cannot go on."""

    code = "flow"


class FlowCompileError(FlowError):
    """A flow is not well formed."""

    code = "flow_compile"


class FlowLoopExceeded(FlowError):
    """A flow ran past its loop cap or step limit."""

    code = "flow_loop"
