"""What is counted: a charge, the names of counters, and what is said when one is spent.

A counter is named by what the server knows (thread, turn, authenticated user), never by an id a
client supplies.
"""

from __future__ import annotations

from dataclasses import dataclass

from adapter.core.errors import BudgetExceeded, ModelVisibleError, RateLimited
from adapter.core.rates import Rate
from adapter.core.types import CallContext

__all__ = ["Charge", "counter", "exceeded", "rated", "window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """An amount to add to one counter, if its limit allows.

    Attributes:
        scope: Name of the counter, e.g. ``turn:<thread>:<turn>:tool_calls``.
        amount: What to add.
        limit: Highest value the counter may reach; None counts without a limit.
        window: Seconds of a sliding window: what was added longer ago does not count. Needs a
            limit and a mark.
        mark: Names what is charged to a window: charged again, it costs nothing.
        raisable: The limit is higher by what the counter ``raise:<scope>`` says.
    """

    scope: str
    amount: int = 1
    limit: int | None = None
    window: float | None = None
    mark: str = ""
    raisable: bool = False


def counter(ctx: CallContext, span: str, what: str) -> str:
    """Return the name of a span's counter: ``turn``, ``thread`` or ``user``."""
    if span == "turn":
        return f"turn:{_named(ctx.thread_id)}:{_named(ctx.place.turn_id)}:{what}"
    if span == "thread":
        return f"thread:{_named(ctx.thread_id)}:{what}"
    return f"{_owner(ctx)}:{what}"


def _owner(ctx: CallContext) -> str:
    """Name the user, or where nobody is known the thread."""
    if ctx.user is None:
        return f"user-of:{_named(ctx.thread_id)}"
    return f"user:{_named(ctx.user)}"


def _named(name: str) -> str:
    """Escape a name: one that holds the separator must not name another's counter."""
    return name.replace("%", "%25").replace(":", "%3A")


def rated(rate: Rate | str | None, ctx: CallContext, what: str, mark: str) -> list[Charge]:
    """Return the charge of a user's rate, if there is one."""
    parsed = Rate.parse(rate)
    return [] if parsed is None else [window(f"rate:{_owner(ctx)}:{what}_calls", parsed, mark)]


def window(scope: str, rate: Rate, mark: str) -> Charge:
    """Return the charge of one token of a rate."""
    return Charge(scope=scope, limit=rate.limit, window=rate.seconds, mark=mark)


def exceeded(scope: str) -> ModelVisibleError:
    """Return the error for a spent counter, in words the model can act on."""
    kind = scope.partition(":")[0]
    tool = scope.rpartition(":tool:")[2] if ":tool:" in scope else ""
    if kind == "turn" and ":refusals:" in scope:
        msg = (
            "Not executed: people refused this same call too often to be asked again. Do not "
            "repeat it; answer with what is known, or ask the user."
        )
        return BudgetExceeded(msg)
    if kind == "rate":
        what = f"calls of {tool}" if tool else scope.rpartition(":")[2].replace("_", " ")
        msg = f"Not executed: there were too many {what} within a short time. Try again later."
        return RateLimited(msg)
    if tool:
        what = f"calls of {tool} allowed here are"
    else:
        last = scope.rpartition(":")[2]
        name = "budget of cost" if last == "cost" else last.replace("_", " ")
        span = kind if kind in ("turn", "thread") else "user"
        what = f"{name} of this {span} {'is' if last == 'cost' else 'are'}"
    msg = f"Not executed: the {what} used up. Answer with what is known, or ask the user to go on."
    return BudgetExceeded(msg)
