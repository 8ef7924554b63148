"""What flows under test work on: one state with every merge rule, and tools that are counted.

A world is one run's own: its tools note each time they run outside any result, and what fails
first and works later fails by the world's count.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

from pydantic import BaseModel, Field
from tests.support.room import Text, free, gated, tool_of

from adapter import ApprovalRule, Condition, Effects, Merge, Registry, ToolError, ToolSpec
from adapter.langgraph import registry_of

READ = Effects(read_only=True)


def longest(current: str | None, writes: list[str]) -> str:
    """A rule of one's own: the longest text, the first of equals."""
    return max([current or "", *writes], key=len)


class State(BaseModel):
    """Fields by the rule they are merged with; ``n`` and what follows declare none."""

    log: Annotated[list[str], Merge.append] = Field(default_factory=list)
    rates: Annotated[list[Any], Merge.append] = Field(default_factory=list)
    final: Annotated[str, Merge.last] = ""
    tags: Annotated[list[str], Merge.union] = Field(default_factory=list)
    kinds: Annotated[set[str], Merge.union] = Field(default_factory=set)
    table: Annotated[dict[str, Any], Merge.union] = Field(default_factory=dict)
    total: Annotated[float, Merge.sum] = 0
    top: Annotated[float, Merge.max] = 0
    low: Annotated[float, Merge.min] = 100
    long: Annotated[str, Merge.custom(longest)] = ""
    n: int = 0
    text: str = "a"
    words: list[str] = Field(default_factory=list)
    items: list[dict[str, Any]] = Field(default_factory=list)
    receipt: Any = None


class Amount(BaseModel):
    """Arguments of lend."""

    amount: int


class World:
    """The tools of one run.

    Attributes:
        ran: Name and argument of each time a tool's body ran.
        left: How often something failed.
        executor: Of the process that runs now.
    """

    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []
        self.left: Counter[str] = Counter()
        self.executor: Any = None

    def stumbles(self, what: str, times: int = 1) -> None:
        """Fail so often, all in all, and then no more."""
        self.left[what] += 1
        if self.left[what] <= times:
            raise ValueError(f"{what} stumbled")

    def registry(self) -> Registry:
        """Every tool, with its rules."""
        made = [self._tool(spec, schema, run) for spec, schema, run in self._tools()]
        return registry_of([tool for tool, _ in made], [spec for _, spec in made])

    def _tool(self, spec: ToolSpec, schema: type[BaseModel], run: Any) -> tuple[Any, ToolSpec]:
        (argument,) = schema.model_fields

        async def counted(**given: Any) -> Any:
            self.ran.append((spec.name, given[argument]))
            made = run(given[argument])
            return await made if asyncio.iscoroutine(made) else made

        return tool_of(counted, spec.name, schema), spec

    def _tools(self) -> list[tuple[ToolSpec, type[BaseModel], Any]]:
        def boom(text: str) -> Any:
            raise RuntimeError(f"boom {text}")

        def sorry(text: str) -> Any:
            raise ToolError(f"sorry, no {text}")

        async def stuck(text: str) -> Any:
            await asyncio.Event().wait()

        def picky(text: str) -> Any:
            return boom(text) if text == "bad" else text.upper()

        above = ApprovalRule(
            name="large",
            reason="It is much.",
            when=Condition(argument="amount", op="gt", value=10),
        )
        return [
            (free("rate", READ), Text, lambda text: float(len(text))),
            (free("spell", READ), Text, lambda text: list(text)),
            (free("count", READ), Text, lambda text: {text: len(text)}),
            (free("shout", READ), Text, lambda text: text.upper()),
            (free("picky", READ), Text, picky),
            (free("boom", READ), Text, boom),
            (free("sorry", READ), Text, sorry),
            (free("stuck", READ, timeout=0.05), Text, stuck),
            (free("note"), Text, lambda text: f"noted {text}"),
            (free("once", once_per_run=True), Text, lambda text: f"once {text}"),
            (gated("pay"), Text, lambda text: f"paid {text}"),
            (gated("settle", once_per_run=True), Text, lambda text: f"settled {text}"),
            (gated("break"), Text, boom),
            (gated("lend", approval=above), Amount, lambda amount: amount),
        ]
