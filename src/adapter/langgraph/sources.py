"""Functions and values looked at without running anything: source, captured names, attributes."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import linecache
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from types import (
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from langchain_core.tools import BaseTool

__all__ = [
    "Function",
    "as_function",
    "attribute",
    "cells",
    "extend",
    "flat",
    "globals_of",
    "is_librarys",
    "item",
    "names_of",
    "parameters",
    "root_of",
    "trees",
]

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_LIBRARIES = frozenset(
    {"adapter", "langchain", "langchain_core", "langgraph", "langsmith", "pydantic"}
)
_MOST = 256  # items of one container that are looked at


def root_of(function: FunctionType) -> str:
    """Return the package of a function."""
    # Of its globals: ``functools.wraps`` gives a wrapper the name of the module that it wraps.
    return str(function.__globals__.get("__name__") or "").partition(".")[0]


def is_librarys(function: FunctionType) -> bool:
    """Tell whether a function is none of the user's."""
    root = root_of(function)
    return root in _LIBRARIES or root in sys.stdlib_module_names - {"__main__"}


def as_function(value: Any) -> FunctionType | MethodType | None:
    """Return the user's function that calling a value runs, if it is one."""
    if isinstance(value, BaseTool | type):
        return None
    if not isinstance(value, FunctionType | MethodType):
        call = inspect.getattr_static(type(value), "__call__", None)
        if not isinstance(call, FunctionType):
            return None
        value = MethodType(call, value)
    inner = getattr(value, "__func__", value)
    return value if isinstance(inner, FunctionType) and not is_librarys(inner) else None


def attribute(owner: Any, name: str) -> list[Any]:
    """Return an attribute without running a property: a list of one, or of none."""
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, staticmethod):
        found = found.__func__
    elif isinstance(found, classmethod):
        found = MethodType(found.__func__, owner if isinstance(owner, type) else type(owner))
    elif isinstance(found, MemberDescriptorType):
        found = getattr(owner, name, None)
    elif isinstance(found, FunctionType) and not isinstance(owner, type | ModuleType):
        found = found if name in getattr(owner, "__dict__", {}) else MethodType(found, owner)
    return [] if found is None else [found]


def item(owner: Any, key: ast.AST) -> list[Any]:
    """Return the item that a constant names; all items for any other key."""
    if isinstance(key, ast.Constant) and isinstance(owner, dict):
        return [owner[key.value]] if key.value in owner else []
    if isinstance(key, ast.Constant) and isinstance(owner, list | tuple):
        at = key.value
        return [owner[at]] if isinstance(at, int) and at < len(owner) else []
    return list(flat([owner]))


def cells(function: FunctionType) -> dict[str, Any]:
    """Return what a function captured."""
    found: dict[str, Any] = {}
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return found


def _codes(function: FunctionType) -> list[CodeType]:
    codes = [function.__code__]
    for code in codes:
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    return codes


def names_of(function: FunctionType) -> set[str]:
    """Return every name and attribute that a function's code, inner functions included, uses."""
    return {name for code in _codes(function) for name in code.co_names}


def globals_of(function: FunctionType) -> list[Any]:
    """Return the globals that a function uses, inner functions included."""
    known = function.__globals__
    used = {
        one.argval
        for code in _codes(function)
        for one in dis.get_instructions(code)
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return [known[name] for name in used if name in known]


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yield values, and what lists and mappings among them contain, in their place."""
    for value in values:
        if isinstance(value, dict | MappingProxyType):
            yield from islice(list(value.values()), _MOST)
        elif isinstance(value, list | tuple | set | frozenset | deque):
            yield from islice(list(value), _MOST)
        else:
            yield value


def extend(known: list[Any], more: Iterable[Any]) -> None:
    """Add the values that a list does not have."""
    for value in more:
        if not any(one is value for one in known):
            known.append(value)


def parameters(tree: Function) -> list[str]:
    """Return the names of a function's arguments."""
    found = tree.args
    return [one.arg for one in (*found.posonlyargs, *found.args, *found.kwonlyargs)]


def trees(code: CodeType) -> Iterator[Function]:
    """Yield the source of a function, where there is one."""
    places = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    starts = {(line, column) for line, _, column, _ in code.co_positions()}
    text = "".join(linecache.getlines(code.co_filename))
    for node in _file(text).get(code.co_firstlineno, []):
        if isinstance(node, ast.Lambda):
            found = (node.body.lineno, node.body.col_offset) in starts
        else:
            found = node.name == code.co_name
        if found and parameters(node) == places:
            yield node


@functools.lru_cache(64)
def _file(text: str) -> dict[int, list[Function]]:
    """Return the functions of a file by their first lines."""
    found: dict[int, list[Function]] = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found.setdefault(first, []).append(node)
        elif isinstance(node, ast.Lambda):
            found.setdefault(node.lineno, []).append(node)
    return found
