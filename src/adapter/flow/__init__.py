"""Flows: nodes over a state, declared once; run here, or compiled. Imports no LangGraph."""

from __future__ import annotations

from adapter.core.errors import FlowCompileError, FlowError, FlowLoopExceeded
from adapter.core.merge import Merge
from adapter.core.spec import Retry
from adapter.flow.context import FlowContext
from adapter.flow.definition import Flow
from adapter.flow.kinds import END, Call, Join, Map, Route
from adapter.flow.results import FlowProgress, FlowResult, Pending

__all__ = [
    "END",
    "Call",
    "Flow",
    "FlowCompileError",
    "FlowContext",
    "FlowError",
    "FlowLoopExceeded",
    "FlowProgress",
    "FlowResult",
    "Join",
    "Map",
    "Merge",
    "Pending",
    "Retry",
    "Route",
]
