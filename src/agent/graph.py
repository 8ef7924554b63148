"""The agent langgraph.json exports. Nobody imports this module: the server loads it by path."""

from __future__ import annotations

from agent.wiring import build_agent, served_parts

__all__ = ["graph"]

graph = build_agent(served_parts().settings, parts=served_parts())
