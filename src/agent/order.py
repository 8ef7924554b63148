"""The flow langgraph.json exports. Nobody imports this module: the server loads it by path."""

from __future__ import annotations

from agent.wiring import build_order, served_parts

__all__ = ["order"]

order = build_order(served_parts())
