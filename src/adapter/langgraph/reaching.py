"""What the code of a node or a tool holds: graphs, tool nodes, and tools that it may call itself.

Read from the functions' own names and captured values; nothing is run. It may find a thing that
is never used, so what it finds is tried, or said, and not judged here.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any, Literal

from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.pregel._utils import get_function_nonlocals

__all__ = ["Held", "held_by"]

_LIBRARIES = frozenset({"adapter", "langchain", "langchain_core", "langgraph", "pydantic"})
_CALLS = frozenset({"invoke", "ainvoke", "run", "arun", "_run", "_arun", "batch", "abatch"})
_BODIES = frozenset({"func", "coroutine"})
_ANSWERS = frozenset({"tool_calls", "ToolMessage"})
_DEPTH = 5
_PARTS = (
    *("func", "afunc", "steps"),  # of LangGraph's and LangChain's runnables
    *("_node", "work", "function", "arguments", "before", "after", "pause"),  # of our flows
)
_CODE = (FunctionType, MethodType, functools.partial)

Use = Literal["calls", "may call"]


@dataclass(slots=True)
class Held:
    """What was found.

    Attributes:
        tools: Tools by name, with what the code does with them.
    """

    graphs: list[Pregel[Any, Any, Any, Any]] = field(default_factory=list)
    nodes: list[ToolNode] = field(default_factory=list)
    tools: dict[str, Use] = field(default_factory=dict)


def held_by(code: Any) -> Held:
    """Return what the functions of a node's runnable, or of a tool, hold.

    Args:
        code: A runnable, a tool or a function; a list of several.
    """
    found, seen = Held(), set[int]()
    for function in _functions(code):
        _read(function, found, seen, 0)
    return found


def _functions(code: Any) -> Iterator[Callable[..., Any]]:
    """Yield the user's functions behind LangChain's and LangGraph's wrappings."""
    if isinstance(code, list | tuple):
        for one in code:
            yield from _functions(one)
    elif isinstance(code, functools.partial):
        yield from _functions([code.func, *code.args, *code.keywords.values()])
    elif isinstance(code, FunctionType | MethodType):
        yield code
    elif isinstance(code, BaseTool):
        own = [getattr(code, name, None) for name in (*_BODIES, "_run", "_arun")]
        yield from _functions(own)
    elif code is not None and not isinstance(code, ToolNode | Pregel):
        yield from _functions([getattr(code, name, None) for name in _PARTS])


def _read(function: Any, found: Held, seen: set[int], depth: int) -> None:
    whole = getattr(function, "__wrapped__", function)
    inner = getattr(whole, "__func__", whole)
    if id(inner) in seen or depth > _DEPTH or _is_librarys(inner):
        return
    seen.add(id(inner))
    names = _names(inner)
    values = [*get_function_nonlocals(function), *_given(inner)]
    if isinstance(whole, MethodType) and hasattr(whole.__self__, "__dict__"):
        values += vars(whole.__self__).values()
    for value in _flat(values):
        if not _kept(value, names, found) and isinstance(value, _CODE):
            for one in _functions(value):
                _read(one, found, seen, depth + 1)


def _kept(value: Any, names: set[str], found: Held) -> bool:
    """Note a graph, a tool node or a tool; returns whether it was one, or a method of one."""
    owner = value.__self__ if isinstance(value, MethodType) else value
    if isinstance(owner, ToolNode):
        _add(found.nodes, owner)
    elif isinstance(owner, Pregel):
        _add(found.graphs, owner)
    elif isinstance(owner, BaseTool):
        use = _use(value, names)
        if use is not None and found.tools.get(owner.name) != "calls":
            found.tools[owner.name] = use
    else:
        return False
    return True


def _use(value: Any, names: set[str]) -> Use | None:
    """Tell what code that uses these names does with a tool, or with a method of one."""
    if isinstance(value, MethodType):
        return "calls" if value.__name__ in _CALLS else None
    if not names & (_CALLS | _BODIES):
        return None
    # It reads tool calls or writes their results, and does not only show tools to a model.
    return "calls" if names & _ANSWERS and "bind_tools" not in names else "may call"


def _is_librarys(function: Any) -> bool:
    root = (getattr(function, "__module__", None) or "").partition(".")[0]
    return root in _LIBRARIES or root in sys.stdlib_module_names - {"__main__"}


def _names(function: Any) -> set[str]:
    """Return every name and attribute that a function's code, inner functions included, uses."""
    codes = [function.__code__] if hasattr(function, "__code__") else []
    for code in codes:
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    return {name for code in codes for name in code.co_names}


def _given(function: Any) -> list[Any]:
    """Return the values of a function's defaults."""
    named = getattr(function, "__kwdefaults__", None) or {}
    return [*(getattr(function, "__defaults__", None) or ()), *named.values()]


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yield values, and what lists and mappings among them contain."""
    for value in values:
        if isinstance(value, Mapping):
            yield from value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            yield from value
        else:
            yield value


def _add(known: list[Any], value: Any) -> None:
    if not any(one is value for one in known):
        known.append(value)
