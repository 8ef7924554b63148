"""`registry_of`: what stands in the place of a tool or a spec is named, with the cure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from adapter import ConfigurationError, Effects, ToolSpec
from adapter.langgraph import registry_of
from agent.policies import SPECS

ROOT = Path(__file__).resolve().parents[2]


def note(text: str) -> str:
    """Note it."""
    return text


def other(text: str) -> str:
    """Do another thing."""
    return text


TOOL = StructuredTool.from_function(note)
SPEC = ToolSpec(name="note", effects=Effects(), approval=None)
OWN = ToolSpec(name="other", effects=Effects(), approval=None, function=other)


def refused(tools: Any, specs: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        registry_of(tools, specs)
    return caught.value.message


def test_any_iterables_of_tools_and_specs_are_taken() -> None:
    assert set(registry_of([TOOL], (SPEC, OWN)).names) == {"note", "other"}
    assert set(registry_of((one for one in [TOOL]), iter([SPEC])).names) == {"note"}


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ([SPEC, (OWN,)], "specs[1] is no ToolSpec but a tuple: each element is a ToolSpec(…) by"),
        ([SPEC, [OWN]], "specs[1] is no ToolSpec but a list: "),
        ([None], "specs[0] is no ToolSpec but a NoneType: "),
        ("note", "specs[0] is no ToolSpec but a str: "),
        (SPEC, "specs must be a list of every ToolSpec, not a ToolSpec: write registry_of(tools, "),
        (None, "specs must be a list of every ToolSpec, not a NoneType: "),
    ],
)
def test_what_is_no_spec_is_named(specs: Any, said: str) -> None:
    assert refused([TOOL], specs).startswith(said)


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (TOOL, "tools must be a list of every BaseTool, not a StructuredTool: "),
        (note, "tools must be a list of every BaseTool, not a function: "),
        ([note], "note is no LangChain tool yet: give StructuredTool.from_function(note), or put"),
        ([TOOL, SPEC], "tools[1] is no LangChain tool but a ToolSpec: tools come first, specs"),
        ([(TOOL,)], "tools[0] is no LangChain tool but a tuple: "),
    ],
)
def test_what_is_no_tool_is_named(tools: Any, said: str) -> None:
    assert refused(tools, [SPEC]).startswith(said)


def test_the_spec_of_the_readme_can_be_pasted_at_the_end_of_the_templates() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"^ {3}```python\n(.*?)^ {3}```$", readme, re.DOTALL | re.MULTILINE)
    template = (ROOT / "src/agent/policies.py").read_text("utf-8")
    before, after = template.split("\n)\n\nORDER_SPECS", 1)
    names: dict[str, Any] = {}
    exec(f"{before.rstrip(',')},\n{shown}\n)\n\nORDER_SPECS{after}", names)
    # Whatever tools were added before it.
    assert [spec.name for spec in names["SPECS"]] == [*(one.name for one in SPECS), "send_email"]
    assert names["SPECS"][-1].approval.name == "mail"
