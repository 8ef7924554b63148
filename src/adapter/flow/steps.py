"""Which nodes run next: a pure function that both runners share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from adapter.flow.kinds import END, Node

__all__ = ["Position", "advance", "begin", "pair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a run stands between two supersteps.

    Attributes:
        active: Names of the nodes of the next superstep, sorted; none when the flow is over.
        waiting: Names of the joins that wait until no other node is active, sorted.
    """

    active: tuple[str, ...]
    waiting: tuple[str, ...] = ()


def begin(nodes: Mapping[str, Node], starts: Iterable[str]) -> Position:
    """Return where a run starts."""
    return _next(nodes, set(starts), set())


def advance(
    nodes: Mapping[str, Node], position: Position, targets: Mapping[str, Sequence[str]]
) -> Position:
    """Return where a run stands after a superstep.

    Args:
        nodes: The flow's.
        position: Before it.
        targets: Where each node of the superstep leads; END leads nowhere.
    """
    chosen = {name for found in targets.values() for name in found if name != END}
    return _next(nodes, chosen, set(position.waiting))


def _next(nodes: Mapping[str, Node], chosen: set[str], waiting: set[str]) -> Position:
    waiting |= {name for name in chosen if nodes[name].is_join}
    ordinary = {name for name in chosen if not nodes[name].is_join}
    if ordinary:
        return Position(active=tuple(sorted(ordinary)), waiting=tuple(sorted(waiting)))
    return Position(active=tuple(sorted(waiting)))


def pair(source: str, target: str) -> str:
    """Return the key under which the choices of a route are counted."""
    return f"{source}->{target}"
