"""Where audit events go besides the store. Nothing here knows LangGraph or a database."""

from __future__ import annotations

from adapter.sinks.fanout import SinkFanout
from adapter.sinks.jsonl import JsonlSink
from adapter.sinks.otel import OtelSink

__all__ = ["JsonlSink", "OtelSink", "SinkFanout"]
