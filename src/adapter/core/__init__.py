"""The pure core: what a governed tool call is, without LangGraph, environment or wall clock."""
