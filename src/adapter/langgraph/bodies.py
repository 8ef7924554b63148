"""What the source of one function does with the tools it names; nothing is run.

Expressions are followed as far as they name a known value: a global, a captured value, a given
argument, an attribute or an item of one, a loop over them. A list made in the function counts as
each thing it contains, so a call may be found of a tool that stands beside the one called.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import resolve_name
from types import FunctionType, MethodType
from typing import Any

from langchain_core.tools import BaseTool

from adapter.langgraph.sources import (
    Function,
    as_function,
    attribute,
    cells,
    extend,
    flat,
    item,
    names_of,
    parameters,
    trees,
)

__all__ = ["BODIES", "CALLS", "Body"]

BODIES = frozenset({"func", "coroutine"})
CALLS = frozenset({"invoke", "ainvoke", "run", "arun", "_run", "_arun", "batch", "abatch"})
_STREAMS = frozenset({"stream", "astream", "batch_as_completed", "abatch_as_completed"})
_RUNNERS = frozenset({"ToolNode", "create_agent", "create_react_agent"})
_GATES = frozenset({"wrap_tool_call", "awrap_tool_call", "middleware", None})
_ITEMS = frozenset(
    {
        *("get", "values", "items", "pop", "popitem", "copy", "setdefault"),
        *("bind", "with_config", "with_retry", "with_fallbacks", "with_listeners"),
    }
)
_SAME = (
    *(iter, next, list, tuple, set, frozenset, dict, sorted, reversed, enumerate, zip),
    *(filter, map, max, min),
)
_PARTS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Starred: ("value",),
    ast.Await: ("value",),
    ast.NamedExpr: ("value",),
    ast.IfExp: ("body", "orelse"),
    ast.BoolOp: ("values",),
    ast.BinOp: ("left", "right"),
    ast.List: ("elts",),
    ast.Tuple: ("elts",),
    ast.Set: ("elts",),
    ast.Dict: ("values",),
    ast.ListComp: ("elt",),
    ast.SetComp: ("elt",),
    ast.GeneratorExp: ("elt",),
    ast.DictComp: ("value",),
}
_PASSES = 3  # for names that are bound after they are used, as in a loop

Values = list[Any]
Follow = Callable[[Any, Mapping[str, Values]], Values]
Binding = tuple[ast.AST | str, Values]


class Body:
    """One function, read with some of its arguments known.

    Attributes:
        calls: The tools that it calls.
        named: The values of the names and attributes in it, as far as known.
        unknown: Names of a tool's methods that it uses of what could not be followed.
        returns: What it may return, as far as known.
    """

    def __init__(self, function: FunctionType, given: Mapping[str, Values], follow: Follow) -> None:
        """Read it; ``follow`` reads a function that it uses, and says what that returns."""
        self.calls: Values = []
        self.named: Values = []
        self.unknown: set[str] = set()
        self.returns: Values = []
        self._given = given
        self._follow = follow
        self._captured = cells(function)
        self._globals = function.__globals__
        self._bound: dict[str, Values] = {}
        self._memo: dict[ast.AST, Values] = {}
        found = list(trees(function.__code__))
        for tree in found:
            self._read(tree)
        if not found:  # there is no source: what uses which method is not known
            self.unknown = names_of(function) & (CALLS | BODIES)

    def _read(self, tree: Function) -> None:
        inside = tree.body if isinstance(tree.body, list) else [tree.body]
        nodes = [node for part in inside for node in ast.walk(part)]
        inner: dict[str, Function] = {
            n.name: n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self._bound = {}
        for _ in range(_PASSES):
            self._memo = {}
            made: dict[str, Values] = {name: [] for name in parameters(tree)}
            for name, values in self._given.items():
                made[name] = list(values)
            for node in nodes:
                for target, values in (*self._binds(node), *self._passes(node, inner)):
                    for name in _targets(target):
                        extend(made.setdefault(name, []), values)
            self._bound = made
        self._memo = {}
        results = [node.value for node in nodes if isinstance(node, ast.Return)]
        for result in [tree.body] if isinstance(tree, ast.Lambda) else results:
            extend(self.returns, self._value(result))
        for node in nodes:
            if isinstance(node, ast.Call):
                self._called(node)
            elif isinstance(node, ast.Name | ast.Attribute):
                self._used(node)

    def _binds(self, node: ast.AST) -> Iterator[Binding]:
        """Yield what a statement or expression gives to which names."""
        if isinstance(node, ast.Assign):
            yield from ((target, self._value(node.value)) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            yield node.target, self._value(node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield node.target, list(flat(self._value(node.iter)))
        elif isinstance(node, ast.Import):
            for name in node.names:
                said = name.name if name.asname else name.name.partition(".")[0]
                yield name.asname or said, _loaded(said)
        elif isinstance(node, ast.ImportFrom):
            yield from ((n.asname or n.name, self._imported(node, n.name)) for n in node.names)

    def _passes(self, node: ast.AST, inner: Mapping[str, Function]) -> Iterator[Binding]:
        """Yield what a call gives to the arguments of functions inside this one."""
        if not isinstance(node, ast.Call):
            return
        if isinstance(node.func, ast.Name) and node.func.id in inner:
            places = parameters(inner[node.func.id])
            yield from zip(places, map(self._value, node.args), strict=False)
            yield from ((k.arg, self._value(k.value)) for k in node.keywords if k.arg)
        for one in node.args:
            if isinstance(one, ast.Lambda):
                others = list(flat(self._all(part for part in node.args if part is not one)))
                yield from ((name, others) for name in parameters(one))

    def _imported(self, node: ast.ImportFrom, name: str) -> Values:
        package = self._globals.get("__package__") or ""
        try:
            module = resolve_name("." * node.level + (node.module or ""), package)
        except ImportError:
            return []
        found = [one for home in _loaded(module) for one in attribute(home, name)]
        return found or _loaded(f"{module}.{name}")

    def _called(self, node: ast.Call) -> None:
        """Note a tool that is called, or given to what will call it."""
        called = self._value(node.func)
        extend(self.calls, _tools(called))
        names = {one.__name__ for one in called if isinstance(one, FunctionType | type)}
        if names & _RUNNERS and not _GATES & {one.arg for one in node.keywords}:
            given = [*node.args, *(one.value for one in node.keywords)]
            extend(self.calls, _tools(flat(self._all(given))))
        if getattr in called and node.args and _tools(self._value(node.args[0])):
            self.unknown.add("invoke")
        self._value(node)

    def _used(self, node: ast.Name | ast.Attribute) -> None:
        """Note a tool whose method is used, and read a function that is."""
        if isinstance(node, ast.Attribute) and node.attr in CALLS | BODIES | _STREAMS:
            owners = self._value(node.value)
            extend(self.calls, _tools(owners))
            if not owners and node.attr not in _STREAMS:
                self.unknown.add(node.attr)
        extend(self.named, self._value(node))
        for one in self._value(node):
            function = as_function(one)
            if function is not None:
                self._follow(function, {})

    def _value(self, node: ast.AST | None) -> Values:
        """Return what an expression may be; nothing where that is not known."""
        if node is None:
            return []
        if node not in self._memo:
            self._memo[node] = self._found(node)
        return self._memo[node]

    def _found(self, node: ast.AST) -> Values:
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Attribute):
            return [v for one in self._value(node.value) for v in attribute(one, node.attr)]
        if isinstance(node, ast.Subscript):
            return [v for one in self._value(node.value) for v in item(one, node.slice)]
        if isinstance(node, ast.Call):
            return self._result(node)
        made: Values = []
        for name in _PARTS.get(type(node), ()):
            part = getattr(node, name)
            extend(made, self._all(part if isinstance(part, list) else [part]))
        return made

    def _named(self, name: str) -> Values:
        for names in (self._bound, self._captured, self._globals):
            if name in names:
                found = names[name]
                return found if names is self._bound else _known(found)
        return _known(getattr(builtins, name, None))

    def _all(self, parts: Iterable[ast.AST]) -> Values:
        return [found for part in parts for found in self._value(part)]

    def _result(self, node: ast.Call) -> Values:
        """Return what a call may return: items of what is known, or what a user's function says."""
        called = self._value(node.func)
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in _ITEMS
            and not any(map(as_function, called))
        ):
            return list(flat(self._value(node.func.value)))
        made: Values = []
        for one in called:
            function = as_function(one)
            if any(one is same for same in _SAME):
                extend(made, flat(self._all(node.args)))
            elif function is not None:
                extend(made, self._follow(function, self._arguments(function, node)))
        return made

    def _arguments(self, function: Any, node: ast.Call) -> dict[str, Values]:
        code = getattr(function, "__func__", function).__code__
        skipped = 1 if isinstance(function, MethodType) else 0
        places = code.co_varnames[skipped : code.co_argcount]
        given = dict(zip(places, map(self._value, node.args), strict=False))
        given |= {k.arg: self._value(k.value) for k in node.keywords if k.arg}
        return {name: values for name, values in given.items() if values}


def _tools(values: Iterable[Any]) -> list[BaseTool]:
    return [one for one in values if isinstance(one, BaseTool)]


def _known(value: Any) -> Values:
    return [] if value is None else [value]


def _loaded(name: str) -> Values:
    """Return a module; one that is not loaded yet is not loaded for this."""
    return _known(sys.modules.get(name))


def _targets(target: ast.AST | str) -> list[str]:
    if isinstance(target, str):
        return [target]
    if isinstance(target, ast.Tuple | ast.List):
        return [name for part in target.elts for name in _targets(part)]
    if isinstance(target, ast.Starred | ast.Subscript):
        return _targets(target.value)
    return [target.id] if isinstance(target, ast.Name) else []
