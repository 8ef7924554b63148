"""What a flow is declared with: kinds of nodes, routes, and the name of the end.

Declarations only. What is wrong with one is said by ``Flow.validate``, together with all else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from adapter.core.spec import Retry

__all__ = ["END", "Call", "Hook", "Join", "Map", "Node", "OnToolFailure", "Route", "Step"]

END = "__end__"
"""Where a route leads that ends the flow; the same text as LangGraph's own."""

OnToolFailure = Literal["message", "raise"]

Hook = Callable[..., Any]
"""Called with the state, and the FlowContext where it takes one; sync or async."""


@dataclass(frozen=True, slots=True)
class Step:
    """A node that is a function of the state, and of the FlowContext where it takes one."""

    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A node that calls one tool.

    Attributes:
        tool: Its name.
        arguments: A mapping, or a function of the state that returns one, sync or async; None
            takes the state's fields that the tool has arguments for.
        into: Field the result is written to; None keeps it nowhere.
        on_tool_failure: ``raise`` what goes wrong, or write ``{"error": {"kind", "message"}}``.
    """

    tool: str
    arguments: Callable[[Any], Any] | Mapping[str, Any] | None = None
    into: str | None = None
    on_tool_failure: OnToolFailure = "raise"


@dataclass(frozen=True, slots=True)
class Map:
    """A node that calls one tool for each item of a list.

    Attributes:
        over: Field that holds the items, or a function of the state that returns them, sync or
            async.
        tool: Its name.
        into: Field the results are written to, in the order of the items; None keeps them nowhere.
        arguments: Function of an item that returns the arguments; None takes the item, a mapping.
        concurrency: How many calls run at once; by default 256. Calls that a person must confirm
            run one at a time, after the others.
        on_tool_failure: ``raise`` the first error in order, once the others have ended; or write
            ``{"error": {"kind", "message"}}`` in the item's place.
    """

    over: str | Callable[[Any], Any]
    tool: str = field(kw_only=True)
    into: str | None = field(default=None, kw_only=True)
    arguments: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    concurrency: int | None = field(default=None, kw_only=True)
    on_tool_failure: OnToolFailure = field(default="raise", kw_only=True)


@dataclass(frozen=True, slots=True)
class Join:
    """A node that waits until no other node is active, as LangGraph's ``defer=True``.

    Attributes:
        function: As of any node; None only waits.
    """

    function: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A conditional edge.

    Attributes:
        choose: Function of the state (the node's input and its own writes) that returns a node's
            name, several, or END; sync or async.
        to: Every name it may return.
        caps: How often each target may be chosen in one run: a number for all of ``to``, or one
            for each. A cycle needs a cap.
        otherwise: Where to go instead of a target past its cap; None raises FlowLoopExceeded.
    """

    choose: Callable[[Any], Any]
    to: Sequence[str] = field(kw_only=True)
    caps: int | Mapping[str, int] | None = field(default=None, kw_only=True)
    otherwise: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Take one target as it is written."""
        several = isinstance(self.to, list | tuple | set | frozenset)
        to = tuple(self.to) if several else (self.to,)
        object.__setattr__(self, "to", to)

    @property
    def targets(self) -> tuple[str, ...]:
        """Every place this edge may lead to."""
        named = [name for name in (*self.to, self.otherwise) if isinstance(name, str)]
        return tuple(dict.fromkeys(named))

    def cap(self, target: str) -> int | None:
        """Return how often a target may be chosen; None for always."""
        if isinstance(self.caps, Mapping):
            return self.caps.get(target)
        return self.caps if target in self.to and target != END else None


_ONCE = Retry()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node as it was declared.

    Attributes:
        work: What it does.
        pause: Function of the state that returns what a reviewer reads; None asks nobody.
        timeout: Seconds for each attempt; None for no limit.
        retries: Attempts, and the time between them.
        before: Run before the first attempt.
        after: Run after the last one, with the state and the node's own writes.
    """

    name: str
    work: Step | Call | Map | Join
    pause: Callable[[Any], Any] | None = None
    timeout: float | None = None
    retries: Retry = _ONCE
    before: tuple[Hook, ...] = ()
    after: tuple[Hook, ...] = ()

    @property
    def is_join(self) -> bool:
        """Whether it waits until nothing else is active."""
        return isinstance(self.work, Join)

    @property
    def gated(self) -> bool:
        """Whether a person decides before it runs."""
        return self.pause is not None
