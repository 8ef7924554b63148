"""What a turn, a thread and a tool may use up, expressed as charges on counters in the store.

This room only names counters and limits; the store adds, compares and refuses in one transaction,
so that no resume, fork or second process can reset a count.
"""

from __future__ import annotations

from dataclasses import dataclass

from adapter.core.errors import BudgetExceeded, ConfigurationError
from adapter.core.spec import ToolSpec
from adapter.core.store import Charge
from adapter.core.types import Place

__all__ = ["Budgets", "exceeded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Limits of one turn: model calls asked for, and tool calls that start.

    Refused, rejected and replayed calls cost nothing.
    """

    model_calls_per_turn: int = 10
    tool_calls_per_turn: int = 20

    def __post_init__(self) -> None:
        """Refuse a budget nothing fits in."""
        if self.model_calls_per_turn < 1 or self.tool_calls_per_turn < 1:
            msg = "Budgets per turn must be at least 1."
            raise ConfigurationError(msg)

    def model_call(self, place: Place) -> tuple[Charge, ...]:
        """Charges of one model call."""
        scope = _turn(place, "model_calls")
        return (Charge(scope=scope, limit=self.model_calls_per_turn),)

    def tool_call(self, place: Place, spec: ToolSpec) -> tuple[Charge, ...]:
        """Charges of one tool call that starts."""
        charges = [
            Charge(scope=self.thread_total(place)),
            Charge(scope=self.turn_tools(place), limit=self.tool_calls_per_turn),
        ]
        limits = spec.limits
        if limits.per_turn is not None:
            scope = _turn(place, f"tool:{spec.name}")
            charges.append(Charge(scope=scope, limit=limits.per_turn))
        if limits.per_thread is not None:
            scope = f"thread:{place.thread_id}:tool:{spec.name}"
            charges.append(Charge(scope=scope, limit=limits.per_thread))
        return tuple(charges)

    def turn_tools(self, place: Place) -> str:
        """Counter of the tool calls of a turn."""
        return _turn(place, "tool_calls")

    def thread_total(self, place: Place) -> str:
        """Counter of all tool calls of a thread, for display."""
        return f"thread:{place.thread_id}:tool_calls"


def _turn(place: Place, what: str) -> str:
    return f"turn:{place.thread_id}:{place.turn_id}:{what}"


def exceeded(scope: str) -> BudgetExceeded:
    """Return the error for a spent counter, in words the model can act on."""
    if scope.endswith(":model_calls"):
        what = "model calls of this turn are"
    elif ":tool:" in scope:
        what = f"calls of {scope.rpartition(':tool:')[2]} allowed here are"
    else:
        what = "tool calls of this turn are"
    msg = f"Not executed: the {what} used up. Answer with what is known, or ask the user to go on."
    return BudgetExceeded(msg)
