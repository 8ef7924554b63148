"""Every case."""

from __future__ import annotations

from tests.flow.cases import calls, functions, gates, routes

CASES = [*functions.CASES, *calls.CASES, *routes.CASES, *gates.CASES]
