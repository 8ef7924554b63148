"""Tools, states and an executor for flows; every effect is counted outside the flow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, Field

from adapter import (
    ApprovalDecision,
    ApprovalRule,
    DeferredApproval,
    Effects,
    Executor,
    FunctionTool,
    KeyRing,
    Registry,
    ToolSpec,
)
from adapter.core.validation import PydanticSchema
from adapter.flow import Flow, FlowResult, Map, Merge
from adapter.stores import MemoryStore

KEY = b"a secret of a test, 32 bytes long"
YES = ApprovalDecision(approved=True)
NO = ApprovalDecision(approved=False, reason="too dear")


def edit(**fields: Any) -> ApprovalDecision:
    return ApprovalDecision(approved=True, edited_args=fields)


class Order(BaseModel):
    items: list[dict[str, Any]] = Field(default_factory=list)
    rates: Annotated[list[float], Merge.append] = Field(default_factory=list)
    log: Annotated[list[str], Merge.append] = Field(default_factory=list)
    total: Annotated[int, Merge.sum] = 0
    receipt: str = ""
    note: str = ""


class Item(BaseModel):
    item: str


class Amount(BaseModel):
    amount: int


@dataclass
class Kit:
    """An executor over tools whose runs are counted.

    Attributes:
        ran: Name and argument of every run of a tool.
        fail: Errors that a tool's next runs raise.
    """

    store: Any = field(default_factory=MemoryStore)
    keys: KeyRing = field(default_factory=lambda: KeyRing.from_secret(KEY))
    ran: list[tuple[str, Any]] = field(default_factory=list)
    fail: dict[str, list[Exception]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port = DeferredApproval(self.store, self.keys)
        self.executor = self.make()

    def make(self, **options: Any) -> Executor:
        rule = ApprovalRule(name="money", reason="it moves money")
        read, effect = Effects(read_only=True), Effects()
        specs = [
            ToolSpec(name="rate", effects=read, approval=None),
            ToolSpec(name="note", effects=effect, approval=None),
            ToolSpec(name="pay", effects=Effects(destructive=True), approval=rule),
        ]
        item, amount = PydanticSchema(Item), PydanticSchema(Amount)
        schemas = {"rate": item, "note": item, "pay": amount}
        tools = {
            "rate": FunctionTool(self.rate),
            "note": FunctionTool(self.note),
            "pay": FunctionTool(self.pay),
        }
        registry = Registry(specs, schemas, tools)
        options = {"store": self.store, "approval": self.port} | options
        return Executor(registry, **options)

    def count(self, tool: str) -> int:
        return sum(name == tool for name, _ in self.ran)

    async def rate(self, item: str) -> float:
        self._ran("rate", item)
        return float(len(item))

    async def note(self, item: str) -> str:
        self._ran("note", item)
        return f"noted {item}"

    async def pay(self, amount: int) -> str:
        self._ran("pay", amount)
        return f"paid {amount}"

    def _ran(self, tool: str, what: Any) -> None:
        self.ran.append((tool, what))
        if self.fail.get(tool):
            raise self.fail[tool].pop(0)

    async def run(self, flow: Flow, state: Any = None, **options: Any) -> FlowResult:
        return await flow.run(state, **({"executor": self.executor} | options))

    async def decided(
        self, flow: Flow, paused: FlowResult, decision: ApprovalDecision = YES, **options: Any
    ) -> FlowResult:
        """Answer the first question of a pause and go on."""
        return await self.run(flow, checkpoint=paused.checkpoint, decision=decision, **options)


def items(*names: str) -> dict[str, Any]:
    return {"items": [{"item": name} for name in names]}


def place(state: Order) -> dict[str, Any]:
    return {"receipt": f"placed with {len(state.rates)} rates"}


def order() -> Flow:
    """The flow of the guide."""
    return (
        Flow("order", state=Order)
        .node("rate", Map("items", tool="rate", into="rates"))
        .node("place", place, pause=lambda state: {"rates": state.rates})
        .edge("rate", "place")
        .end("place")
    )


def logs(name: str) -> Any:
    """A node that writes its name."""
    return lambda _state: {"log": name}


def counted(*names: str) -> Iterator[str]:
    return iter(names)
