"""The shape of a flow: what was declared, before anything is checked or run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

from pydantic import BaseModel, PydanticUndefinedAnnotation, RootModel

from adapter.core.canonical import digest
from adapter.core.errors import FlowCompileError
from adapter.core.spec import Retry
from adapter.core.types import JsonObject
from adapter.flow.fields import Fields
from adapter.flow.kinds import END, Call, Hook, Join, Map, Node, Route, Step
from adapter.flow.wire import jsonable

__all__ = ["Shape"]


class Shape:
    """Nodes and edges over a state. Each method returns the flow, so declarations chain.

    Mistakes are collected, and said all at once by ``Flow.validate``.

    Attributes:
        name: Part of call keys and checkpoints; keep it.
        state: The model of the state.
        fields: The state's fields with their merge rules.
    """

    def __init__(self, name: str, *, state: type[BaseModel]) -> None:
        """Begin a flow.

        Args:
            name: Text without ``/`` and ``:``.
            state: A pydantic model. A field is ``Annotated[T, Merge.append]`` and so on where
                several nodes of one superstep may write it; without a rule the last write counts.

        Raises:
            FlowCompileError: The state is no pydantic model, or not fully defined.
        """
        plain = isinstance(state, type) and issubclass(state, BaseModel)
        if not plain or issubclass(state, RootModel):
            msg = f"Flow {name!r}: state= takes a pydantic model class with fields, not {state!r}."
            raise FlowCompileError(msg)
        try:
            state.model_rebuild()
        except PydanticUndefinedAnnotation as error:
            msg = (
                f"Flow {name!r}: the state {state.__name__} names the type {error.name}, which is "
                "not defined yet. Declare the flow after it."
            )
            raise FlowCompileError(msg) from error
        self.name = name
        self.state = state
        self.fields = Fields(state)
        self._nodes: dict[str, Node] = {}
        self._edges: list[tuple[str, str | Route]] = []
        self._starts: tuple[str, ...] | None = None
        self._ends: list[str] = []
        self._said: list[str] = []

    def node(
        self,
        name: str,
        work: Callable[..., Any] | Call | Map | Join,
        *,
        pause: Callable[[Any], Any] | None = None,
        timeout: float | None = None,
        retries: Retry | int = 0,
        before: Hook | Sequence[Hook] = (),
        after: Hook | Sequence[Hook] = (),
    ) -> Self:
        """Add a node.

        Args:
            name: Its name, unique in the flow.
            work: A Call, a Map, a Join, or a function of the state (and of the FlowContext where
                it takes a second argument), sync or async, that returns None, a dict of fields,
                or a model of the state.
            pause: A gate: a person decides before the node runs, and reads what this function of
                the state returns.
            timeout: Seconds for each attempt.
            retries: Further attempts after one that failed, or a Retry. Finished calls are not
                made again.
            before: Awaited or called with the state before the first attempt.
            after: The same after the last one, with the node's own writes in the state.
        """
        name = (self._named(f"node({name!r})", name) or [repr(name)])[0]
        if name in self._nodes:
            self._said.append(f"node {name!r} is declared twice")
        self._changed()
        self._nodes[name] = Node(
            name=name,
            work=work if isinstance(work, Call | Map | Join) else Step(work),
            pause=pause,
            timeout=timeout,
            retries=self._retry(name, retries),
            before=_hooks(before),
            after=_hooks(after),
        )
        return self

    def _retry(self, name: str, retries: Retry | int) -> Retry:
        if isinstance(retries, Retry):
            return retries
        if type(retries) is int and retries >= 0:
            return Retry(max_attempts=retries + 1)
        self._said.append(
            f"node {name!r}: retries is a whole number, 0 or more, or a Retry, not {retries!r}"
        )
        return Retry()

    def _named(self, where: str, *names: Any) -> list[str]:
        """Return names of nodes as text; what is none is said once, and taken for what it means."""
        found = []
        for name in names:
            if isinstance(name, str):
                found.append(name)
                continue
            self._said.append(f"{where}: a node's name is text, not a {type(name).__name__}")
            if isinstance(name, list | tuple):
                found += [one for one in name if isinstance(one, str)]
            elif isinstance(name, int | float):
                found.append(repr(name))
        return found

    def edge(self, source: str, *targets: str | Route) -> Self:
        """Add edges from a node.

        Args:
            source: Where they begin.
            targets: A node's name, for an edge that is always taken (several run at the same
                time); a Route, for one that chooses.
        """
        if not targets:
            self._said.append(f"edge({source!r}) leads nowhere; name a node or give a Route")
        self._changed()
        for begins in self._named(f"edge({source!r}, …)", source):
            for target in targets:
                if isinstance(target, Route):
                    self._edges.append((begins, target))
                else:
                    named = self._named(f"edge({begins!r}, {target!r})", target)
                    self._edges += [(begins, name) for name in named]
        return self

    def start(self, *names: str) -> Self:
        """Say where the flow begins; else it begins at the node declared first."""
        self._changed()
        self._starts = (*(self._starts or ()), *self._named("start(…)", *names))
        return self

    def end(self, *names: str) -> Self:
        """Say which nodes the flow may end at."""
        self._changed()
        self._ends += self._named("end(…)", *names)
        return self

    def _changed(self) -> None:
        self.__dict__.pop("digest", None)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Every node, in the order of declaration."""
        return MappingProxyType(self._nodes)

    @property
    def starts(self) -> tuple[str, ...]:
        """Where it begins."""
        return tuple(self._nodes)[:1] if self._starts is None else self._starts

    @property
    def ends(self) -> frozenset[str]:
        """Where it may end."""
        sources = {source for source, target in self._edges if target == END}
        return frozenset(self._ends) | sources

    @property
    def edges(self) -> Sequence[tuple[str, str | Route]]:
        """Every edge, in the order of declaration."""
        return tuple(self._edges)

    @property
    def said(self) -> Sequence[str]:
        """Mistakes noted while it was declared."""
        return tuple(self._said)

    def static(self, name: str) -> tuple[str, ...]:
        """Return where a node always leads."""
        found = (to for source, to in self._edges if source == name and isinstance(to, str))
        return tuple(dict.fromkeys(to for to in found if to != END))

    def routes(self, name: str) -> tuple[Route, ...]:
        """Return a node's conditional edges."""
        return tuple(to for source, to in self._edges if source == name and not isinstance(to, str))

    @cached_property
    def edit_schema(self) -> JsonObject:
        """JSON schema of a reviewer's edit: some of the fields."""
        schema = self.state.model_json_schema(by_alias=False)
        kept = {name: part for name, part in schema.items() if name != "required"}
        return {**kept, "additionalProperties": False}

    @cached_property
    def digest(self) -> str:
        """Digest of the flow's shape; a checkpoint belongs to exactly one.

        Functions and types of fields are not in it: values are validated whenever they are read.
        """
        shape = {
            "name": self.name,
            "fields": {name: field.rule.name for name, field in self.fields.items()},
            "nodes": {name: [*_work(node.work), node.gated] for name, node in self._nodes.items()},
            "starts": list(self.starts),
            "static": {name: list(self.static(name)) for name in self._nodes},
            "routes": {
                name: [
                    [[[to, route.cap(to)] for to in route.targets], route.otherwise]
                    for route in self.routes(name)
                ]
                for name in self._nodes
            },
        }
        return digest("flow/v2", shape)


# Python names these in its own errors, and what people write is Flow.
for _declares in (Shape.__init__, Shape.node, Shape.edge, Shape.start, Shape.end):
    _declares.__qualname__ = f"Flow.{_declares.__name__}"


def _hooks(given: Hook | Sequence[Hook]) -> tuple[Hook, ...]:
    if callable(given) or not isinstance(given, Iterable):
        return (given,)
    return tuple(given)


def _work(work: Step | Call | Map | Join) -> list[str]:
    """Return what a digest says of a node's work; of functions only that there is one."""
    said = [type(work).__name__]
    if isinstance(work, Call | Map):
        said += [repr(work.tool), repr(work.into), _fixed(work.arguments)]
    if isinstance(work, Map):
        said.append(_fixed(work.over))
    return said


def _fixed(value: Any) -> str:
    if callable(value):
        return "a function"
    try:
        return json.dumps(jsonable(value), sort_keys=True)
    except ValueError:
        return type(value).__name__
