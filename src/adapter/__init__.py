"""The governed tool-call layer: public names of the core. Imports no LangGraph."""

from __future__ import annotations

from adapter.core.approvals import ApprovalDecision, ApprovalPort
from adapter.core.budgets import Budgets
from adapter.core.cache import ResultCache
from adapter.core.deferred import DeferredApproval
from adapter.core.errors import (
    AdapterError,
    ApprovalAlreadyDecided,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    BudgetExceeded,
    CallInDoubt,
    CallInProgress,
    ConfigurationError,
    FlowCompileError,
    FlowError,
    FlowLoopExceeded,
    InvalidAnswer,
    ModelVisibleError,
    PolicyDenied,
    RateLimited,
    StoreUnavailable,
    ToolArgsInvalid,
    ToolError,
    ToolFailed,
    ToolTimeout,
    ToolUsageError,
    UnknownTool,
)
from adapter.core.executor import Executor
from adapter.core.functions import FunctionTool
from adapter.core.keys import Key, KeyRing
from adapter.core.merge import Merge, MergeRule
from adapter.core.policy import Escalation, Policy
from adapter.core.rates import Rate
from adapter.core.spec import (
    ApprovalRule,
    Condition,
    Limits,
    NamedCondition,
    Registry,
    Retry,
    ToolSpec,
)
from adapter.core.types import CallContext, Effects, ToolCall, current_context
from adapter.policyfile import load_policy, policy_schema

__all__ = [
    "AdapterError",
    "ApprovalAlreadyDecided",
    "ApprovalDecision",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalPending",
    "ApprovalPort",
    "ApprovalRule",
    "BudgetExceeded",
    "Budgets",
    "CallContext",
    "CallInDoubt",
    "CallInProgress",
    "Condition",
    "ConfigurationError",
    "DeferredApproval",
    "Effects",
    "Escalation",
    "Executor",
    "FlowCompileError",
    "FlowError",
    "FlowLoopExceeded",
    "FunctionTool",
    "InvalidAnswer",
    "Key",
    "KeyRing",
    "Limits",
    "Merge",
    "MergeRule",
    "ModelVisibleError",
    "NamedCondition",
    "Policy",
    "PolicyDenied",
    "Rate",
    "RateLimited",
    "Registry",
    "ResultCache",
    "Retry",
    "StoreUnavailable",
    "ToolArgsInvalid",
    "ToolCall",
    "ToolError",
    "ToolFailed",
    "ToolSpec",
    "ToolTimeout",
    "ToolUsageError",
    "UnknownTool",
    "current_context",
    "load_policy",
    "policy_schema",
]
