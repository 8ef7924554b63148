"""The guide's programs run, and what they say of themselves holds."""

from __future__ import annotations

import ast
import re
from inspect import isawaitable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from tests.support.room import KEYS, free

from adapter import Effects
from adapter.stores import MemoryStore

pytestmark = pytest.mark.anyio

GUIDE = Path(__file__).resolve().parents[3] / "docs/flows.md"


def programs() -> list[CodeType]:
    text = GUIDE.read_text(encoding="utf-8")
    made = []
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        before = "\n" * text.count("\n", 0, found.start(1))  # so that a failure names its line
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        made.append(compile(before + found[1], str(GUIDE), "exec", flags=flags, dont_inherit=True))
    return made


async def test_the_programs_of_the_guide_run(tmp_path: Path) -> None:
    def shipping_rate(item: str) -> float:
        return float(len(item))

    def place_order(cents: int) -> str:
        return f"placed for {cents} cents"

    names: dict[str, Any] = {
        "__name__": "guide",
        "database": f"sqlite:///{tmp_path / 'adapter.db'}",
        "keys": KEYS,
        "tools": [
            StructuredTool.from_function(function, description="of the guide")
            for function in (shipping_rate, place_order)
        ],
        "specs": [free("shipping_rate", Effects(read_only=True)), free("place_order")],
    }
    found = programs()
    assert len(found) == 4
    try:
        for program in found:
            ended = eval(program, names)
            if isawaitable(ended):
                await ended
    finally:
        store: MemoryStore = names["store"]
        await store.aclose()
