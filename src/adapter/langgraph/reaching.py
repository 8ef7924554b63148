"""What the code of a node or a tool holds: graphs, tool nodes, and tools that it may call itself.

Read from the functions' own names, captured values and source; nothing is run. It may find a
thing that is never used, so what it finds is tried, or said, and not judged here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any, Literal

from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from adapter.core.executor import Executor
from adapter.langgraph.bodies import BODIES, CALLS, Body
from adapter.langgraph.sources import (
    as_function,
    cells,
    extend,
    flat,
    globals_of,
    is_librarys,
    names_of,
    root_of,
)

__all__ = ["Held", "held_by"]

_ANSWERS = frozenset({"tool_calls", "ToolMessage"})
_MODEL_HOOKS = frozenset({"wrap_model_call", "awrap_model_call"})
_INSTALLED = ("/site-packages/", "/dist-packages/")
_DEPTH = 6  # of functions that call each other
_MOST = 500  # functions read for one node
_PARTS = (
    *("func", "afunc", "steps", "steps__", "bound", "mapper"),  # of the libraries' runnables
    *("_node", "work", "function", "arguments", "before", "after", "pause"),  # of our flows
)

Use = Literal["calls", "may call"]


@dataclass(slots=True)
class Held:
    """What was found.

    Attributes:
        tools: Tools by name, with what the code does with them.
        governs: Whether it runs calls through an executor.
    """

    graphs: list[Pregel[Any, Any, Any, Any]] = field(default_factory=list)
    nodes: list[ToolNode] = field(default_factory=list)
    tools: dict[str, Use] = field(default_factory=dict)
    governs: bool = False


def held_by(code: Any) -> Held:
    """Return what the functions of a node's runnable, or of a tool, hold.

    Args:
        code: A runnable, a tool or a function; a list of several.
    """
    reader = _Reader()
    for function, given in _functions(code):
        reader.begin(function, given)
    return reader.found


Given = Mapping[str, list[Any]]


def _functions(code: Any) -> Iterator[tuple[Any, Given]]:
    """Yield the functions behind LangChain's and LangGraph's wrappings, with known arguments."""
    if isinstance(code, list | tuple):
        for one in code:
            yield from _functions(one)
    elif isinstance(code, dict):
        yield from _functions(list(code.values()))
    elif isinstance(code, functools.partial):
        yield from _partial(code)
        yield from _functions([*code.args, *code.keywords.values()])
    elif isinstance(code, FunctionType | MethodType):
        yield code, {}
    elif isinstance(code, BaseTool):
        own = [getattr(code, name, None) for name in (*BODIES, "_run", "_arun")]
        yield from _functions(own)
    elif code is not None and not isinstance(code, ToolNode | Pregel | type):
        call = as_function(code)
        if call is not None:
            yield call, {}
        yield from _functions(getattr(code, "__wrapped__", None))
        yield from _functions([getattr(code, name, None) for name in _PARTS])


def _partial(code: functools.partial[Any]) -> Iterator[tuple[Any, Given]]:
    """Yield the function of a partial with the arguments that it has."""
    function = as_function(code.func)
    if function is None:
        yield from _functions(code.func)
        return
    inner: Any = getattr(function, "__func__", function)
    skipped = 1 if isinstance(function, MethodType) else 0
    places = inner.__code__.co_varnames[skipped : inner.__code__.co_argcount]
    bound = dict(zip(places, code.args, strict=False)) | code.keywords
    yield function, {name: [value] for name, value in bound.items()}


class _Reader:
    """One reading of a node: each function once for each set of known arguments."""

    def __init__(self) -> None:
        self.found = Held()
        self._done: dict[Any, list[Any]] = {}
        self._kept: list[Any] = []  # so that the ids in ``_done`` stay theirs
        self._depth = 0
        self._roots: set[str] = set()
        self._shown: list[BaseTool] = []  # to middleware, as ``request.tools``

    def begin(self, function: Any, given: Given) -> None:
        """Read a function of the node itself, wherever it was installed."""
        inner = getattr(function, "__func__", function)
        if isinstance(inner, FunctionType):
            self._roots.add(root_of(inner))
        self.read(function, given)

    def read(self, function: Any, given: Given) -> list[Any]:
        """Read a function and all that it uses; returns what it may return, as far as known."""
        inner = getattr(function, "__func__", function)
        owner = getattr(function, "__self__", None)
        if not isinstance(inner, FunctionType):
            for one, known in _functions(inner):
                self.read(one, known)
            return []
        key = (inner, id(owner), *((name, *map(id, given[name])) for name in sorted(given)))
        if key in self._done:
            return self._done[key]
        if self._depth > _DEPTH or len(self._done) > _MOST or self._is_foreign(inner, given):
            return []
        self._done[key] = []
        self._kept.append((owner, given))
        self._depth += 1
        if is_librarys(inner):
            self._library(inner)
        else:
            self._done[key] = self._user(function, inner, owner, given)
        self._depth -= 1
        return self._done[key]

    def _is_foreign(self, function: FunctionType, given: Given) -> bool:
        """Tell whether it is other people's code that was given no tool."""
        path = function.__code__.co_filename.replace("\\", "/")
        if root_of(function) in self._roots or not any(part in path for part in _INSTALLED):
            return False
        return not any(isinstance(one, BaseTool) for some in given.values() for one in flat(some))

    def _library(self, function: FunctionType) -> None:
        """Read the user's functions that a library's has captured, and nothing of its own."""
        if function.__globals__.get("__name__") == "adapter.langgraph.oneuse":
            self.found.governs = True
        values = list(cells(function).values())
        self._shown += [one for one in flat(values) if isinstance(one, BaseTool)]
        for value in values:
            if callable(value) and not isinstance(value, BaseTool | Pregel | ToolNode):
                for one, known in _functions(value):
                    self.begin(one, known)

    def _user(self, function: Any, inner: FunctionType, owner: Any, given: Given) -> list[Any]:
        code = inner.__code__
        known = dict(given)
        if isinstance(function, MethodType) and code.co_argcount:
            known[code.co_varnames[0]] = [owner]
            if inner.__name__ in _MODEL_HOOKS and code.co_argcount > 1:
                request = SimpleNamespace(tools=self._shown)
                self._kept.append(request)
                known.setdefault(code.co_varnames[1], [request])
        for name, value in _defaults(inner).items():
            known.setdefault(name, [value])
        body = Body(inner, known, self.read)
        for tool in body.calls:
            self.found.tools[tool.name] = "calls"
        names = names_of(inner)
        values = [*globals_of(inner), *cells(inner).values(), *body.named]
        values += [value for some in known.values() for value in some]
        values += getattr(owner, "__dict__", {}).values()
        use = _use(body.unknown, names)
        for value in flat(values):
            if not self._note(value, use) and isinstance(
                value, FunctionType | MethodType | functools.partial
            ):
                for one, bound in _functions(value):
                    self.read(one, bound)
        return body.returns

    def _note(self, value: Any, use: Use | None) -> bool:
        """Note a graph, a tool node or a tool; returns whether it was one, or a method of one."""
        owner = value.__self__ if isinstance(value, MethodType) else value
        if isinstance(owner, ToolNode):
            extend(self.found.nodes, [owner])
        elif isinstance(owner, Pregel):
            extend(self.found.graphs, [owner])
        elif isinstance(owner, Executor):
            self.found.governs = True
        elif isinstance(owner, BaseTool):
            if isinstance(value, MethodType):
                use = "calls" if value.__name__ in CALLS else None
            if use is not None and self.found.tools.get(owner.name) != "calls":
                self.found.tools[owner.name] = use
        else:
            return False
        return True


def _use(unknown: set[str], names: set[str]) -> Use | None:
    """Tell what code does with a tool that it holds, where the call itself could not be followed.

    Args:
        unknown: The methods of a tool that it uses of it knows not what.
        names: All that it names.
    """
    if not unknown and "bind_tools" not in names:
        return None
    # It reads tool calls or writes their results, and does not only show tools to a model.
    return "calls" if names & _ANSWERS and "bind_tools" not in names else "may call"


def _defaults(function: FunctionType) -> dict[str, Any]:
    """Return the defaults of a function's arguments."""
    plain = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    last = names[len(names) - len(plain) :]
    return dict(zip(last, plain, strict=False)) | (function.__kwdefaults__ or {})
