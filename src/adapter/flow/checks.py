"""Everything that can be seen to be wrong with a flow before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from adapter.core.batches import checked_concurrency
from adapter.core.errors import ToolUsageError
from adapter.core.spec import Registry
from adapter.flow.kinds import END, Call, Join, Map, Node, Route, Step
from adapter.flow.shape import Shape

__all__ = ["faults", "tool_faults"]

_RESERVED = (
    *("__start__", END, "__error__", "__input__", "__interrupt__", "__no_writes__", "__resume__"),
)
_SEPARATORS = "/:|>"


def faults(flow: Shape) -> list[str]:
    """Return every fault of a flow, in words."""
    found = [*flow.said, *_names(flow), *_fields(flow)]
    for node in flow.nodes.values():
        found += _node(flow, node)
    unknown = [*_unknown(flow)]
    found += unknown
    if not flow.nodes:
        return [*found, "there is no node"]
    found += _ways(flow)
    found += _cycles(flow)
    found += _conflicts(flow)
    return list(dict.fromkeys(found))


def tool_faults(flow: Shape, registry: Registry) -> list[str]:
    """Return a fault for each node whose tool the registry lacks, or that cannot call it."""
    found = []
    for node in flow.nodes.values():
        work = node.work
        if not isinstance(work, Call | Map) or not isinstance(work.tool, str):
            continue
        if registry.get(work.tool) is None:
            found.append(
                f"node {node.name!r} calls the tool {work.tool!r}, which the registry does not "
                f"have. Tools are: {', '.join(registry.names) or 'none'}"
            )
        elif isinstance(work, Call):
            found += _lacking(flow, node.name, work, registry)
    return found


def _lacking(flow: Shape, node: str, work: Call, registry: Registry) -> Iterator[str]:
    if work.arguments is not None and not isinstance(work.arguments, Mapping):
        return
    given = flow.fields if work.arguments is None else work.arguments
    needed = registry.schemas[work.tool].json_schema.get("required", ())
    missing = ", ".join(name for name in needed if name not in given)
    if missing and work.arguments is None:
        yield (
            f"node {node!r}: the tool {work.tool!r} needs {missing}, and the state has no such "
            f"field. Say what it gets: Call({work.tool!r}, arguments=lambda state: {{…}})"
        )
    elif missing:
        yield f"node {node!r}: the tool {work.tool!r} needs {missing}, which arguments= lacks"


def _names(flow: Shape) -> Iterator[str]:
    if not isinstance(flow.name, str) or not flow.name or set(flow.name) & set(_SEPARATORS):
        yield f"the flow's name {flow.name!r} must be text without {' '.join(_SEPARATORS)}"
    for name in flow.nodes:
        if name in _RESERVED:
            yield f"node {name!r} has a reserved name"
        elif name.startswith("aa_"):
            yield f"node {name!r} has a reserved name: names beginning with aa_ are the adapter's"
        elif not name or set(name) & set(_SEPARATORS):
            yield f"node {name!r} needs a name without {' '.join(_SEPARATORS)}"


def _fields(flow: Shape) -> Iterator[str]:
    for name, field in flow.fields.items():
        if name.startswith("aa_"):
            yield f"field {name!r} has a reserved name: names beginning with aa_ are the adapter's"
        yield from field.faults


def _node(flow: Shape, node: Node) -> Iterator[str]:
    work, where = node.work, f"node {node.name!r}"
    if node.timeout is not None and not _seconds(node.timeout):
        yield f"{where}: timeout must be positive seconds, or None"
    for what, hooks in (("before", node.before), ("after", node.after)):
        if not all(callable(hook) for hook in hooks):
            yield f"{where}: {what} takes functions of the state"
    if node.pause is not None and not callable(node.pause):
        yield f"{where}: pause takes a function of the state that returns what a reviewer reads"
    function = work.function if isinstance(work, Step | Join) else None
    if isinstance(work, Step) and not callable(function):
        yield f"{where}: it is a function, a Call, a Map or a Join, not {function!r}"
    if isinstance(work, Join) and function is not None and not callable(function):
        yield f"{where}: Join takes a function of the state, or nothing"
    if isinstance(work, Call | Map):
        yield from _calling(flow, where, work)


def _calling(flow: Shape, where: str, work: Call | Map) -> Iterator[str]:
    if not isinstance(work.tool, str):
        yield f"{where}: a tool is called by its name, not by a {type(work.tool).__name__}"
    given, functions = (
        work.arguments,
        "a function" if isinstance(work, Map) else "a mapping, a function",
    )
    if (
        given is not None
        and not callable(given)
        and (isinstance(work, Map) or not isinstance(given, Mapping))
    ):
        yield f"{where}: arguments= is {functions} or None, not a {type(given).__name__}"
    if work.into is not None and not (isinstance(work.into, str) and work.into in flow.fields):
        yield f"{where}: into={work.into!r} names no field. {flow.fields.offered}"
    if work.on_tool_failure not in ("message", "raise"):
        yield f"{where}: on_tool_failure is 'message' or 'raise', not {work.on_tool_failure!r}"
    if isinstance(work, Map):
        if isinstance(work.over, str) and work.over not in flow.fields:
            yield f"{where}: Map over {work.over!r} names no field. {flow.fields.offered}"
        elif not isinstance(work.over, str) and not callable(work.over):
            yield f"{where}: Map is over a field's name or a function, not {work.over!r}"
        try:
            checked_concurrency(work.concurrency)
        except ToolUsageError as error:
            yield f"{where}: {error.message}"


def _unknown(flow: Shape) -> Iterator[str]:
    known = flow.nodes
    offered = f"Nodes are: {', '.join(known) or 'none'}"
    for name in flow.starts:
        if name not in known:
            yield f"start({name!r}) names an unknown node. {offered}"
    for name in sorted(flow.ends):
        if name not in known:
            yield f"end({name!r}) names an unknown node. {offered}"
    for source, to in flow.edges:
        if source not in known:
            yield f"an edge begins at the unknown node {source!r}. {offered}"
        if isinstance(to, str):
            if to not in known and to != END:
                yield f"the edge from {source!r} leads to the unknown node {to!r}. {offered}"
        else:
            yield from _route(source, to, known, offered)


def _route(source: str, route: Route, known: Mapping[str, Node], offered: str) -> Iterator[str]:
    where = f"the Route from {source!r}"
    if not callable(route.choose):
        yield f"{where} needs a function of the state that returns a name"
    if not route.to:
        yield f"{where} has no targets: to=() names every node it may choose"
    for what, name in (*(("to", one) for one in route.to), ("otherwise", route.otherwise)):
        if not isinstance(name, str) and (what, name) != ("otherwise", None):
            yield f"{where}: {what}= names nodes as text, not {name!r}"
    for name in route.targets:
        if name not in known and name != END:
            yield f"{where} leads to the unknown node {name!r}. {offered}"
    caps = route.caps if isinstance(route.caps, Mapping) else {}
    for name in caps:
        if name not in route.targets:
            yield f"{where} has a cap for {name!r}, which is none of its targets"
    numbers = list(caps.values()) if isinstance(route.caps, Mapping) else [route.caps]
    if any(not _whole(cap) for cap in numbers if cap is not None):
        yield f"{where}: a cap is a whole number, 0 or more"


def _seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _whole(cap: object) -> bool:
    return isinstance(cap, int) and not isinstance(cap, bool) and cap >= 0


def _out(flow: Shape, name: str) -> set[str]:
    """Return every node that may follow."""
    found = set(flow.static(name))
    for route in flow.routes(name):
        found |= set(route.targets)
    return found & flow.nodes.keys()


def _ways(flow: Shape) -> Iterator[str]:
    reached = _reached({name: _out(flow, name) for name in flow.nodes}, flow.starts)
    for name in flow.nodes:
        if name not in reached:
            yield f"node {name!r} is unreachable from {', '.join(flow.starts) or 'no start'}"
    ending = {name for name in flow.nodes if name in flow.ends or _may_end(flow, name)}
    if not ending:
        yield "there is no end: name one with .end(node), or a Route to END"
    elif not ending & reached:
        yield "no end is reachable"
    for name in flow.nodes:
        if not _out(flow, name) and name not in ending:
            yield f"node {name!r} is a dead end: it has no edge and is not named by .end(…)"


def _may_end(flow: Shape, name: str) -> bool:
    return any(END in route.targets for route in flow.routes(name))


def _reached(out: Mapping[str, Iterable[str]], starts: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    waiting = [name for name in starts if name in out]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(out[name])
    return seen


def _cycles(flow: Shape) -> Iterator[str]:
    """Find the cycles that are left when every capped choice is taken away."""
    out: dict[str, set[str]] = {}
    for name in flow.nodes:
        free = set(flow.static(name))
        for route in flow.routes(name):
            free |= {to for to in route.targets if route.cap(to) is None}
        out[name] = free & flow.nodes.keys()
    reach = {name: _reached(out, out[name]) for name in out}
    told: set[str] = set()
    for name in out:
        if name in told or name not in reach[name]:
            continue
        ring = [other for other in out if other in reach[name] and name in reach[other]]
        told |= set(ring)
        yield (
            f"the cycle of {', '.join(ring)} has no cap: give a Route in it caps=…, else it may "
            "never end"
        )


def _conflicts(flow: Shape) -> Iterator[str]:
    """Find Calls and Maps that write one undeclared field in one superstep."""
    writes = {
        node.name: node.work.into
        for node in flow.nodes.values()
        if isinstance(node.work, Call | Map)
        and isinstance(node.work.into, str)
        and node.work.into in flow.fields
    }
    for one, other in sorted(_together(flow)):
        field = writes.get(one)
        if field is not None and field == writes.get(other) and not flow.fields[field].declared:
            yield (
                f"merge conflict: the nodes {one!r} and {other!r} may write the field {field!r} in "
                f"one superstep. Declare its rule, e.g. {field}: Annotated[…, Merge.append]"
            )


def _together(flow: Shape) -> set[tuple[str, str]]:
    """Return the pairs of nodes that may run in one superstep, as far as the edges tell.

    Targets of one Route count as alternatives.
    """
    starts = [name for name in flow.starts if name in flow.nodes]
    waiting = [(one, other) for one, other in product(starts, starts) if one < other]
    for name in flow.nodes:
        waiting += _forks(flow, name)
    seen: set[tuple[str, str]] = set()
    while waiting:
        one, other = sorted(waiting.pop())
        if one == other or (one, other) in seen:
            continue
        seen.add((one, other))
        joins = (flow.nodes[one].is_join, flow.nodes[other].is_join)
        # A join waits while the other node goes on.
        first: Sequence[str] = [one] if joins == (True, False) else sorted(_out(flow, one))
        second: Sequence[str] = [other] if joins == (False, True) else sorted(_out(flow, other))
        waiting += product(first, second)
    return {
        (one, other) for one, other in seen if flow.nodes[one].is_join == flow.nodes[other].is_join
    }


def _forks(flow: Shape, name: str) -> list[tuple[str, str]]:
    groups = [(to,) for to in flow.static(name)] + [route.targets for route in flow.routes(name)]
    found = []
    for n, group in enumerate(groups):
        for later in groups[n + 1 :]:
            found += list(product(group, later))
    return [pair for pair in found if all(to in flow.nodes for to in pair)]
