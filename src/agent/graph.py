"""The graphs langgraph.json exports. Nobody imports this module: the server loads it by path."""

from __future__ import annotations

from agent.settings import AgentSettings
from agent.wiring import build_agent

__all__ = ["graph"]

graph = build_agent(AgentSettings.load())
