"""What a turn, a thread, a user and a tool may use up, expressed as charges on counters.

This room only sets limits; the store adds, compares and refuses in one transaction, so that no
resume, fork or second process can reset a count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from functools import cache
from typing import Any, Literal

from adapter.core.counters import Charge, counter, exceeded, rated, window
from adapter.core.errors import ConfigurationError
from adapter.core.limits import check_whole, said_size
from adapter.core.prices import MOST, Prices, PriceTable, decimal_of, micro_dollars
from adapter.core.rates import Rate
from adapter.core.spec import Limits, ToolSpec
from adapter.core.types import CallContext
from adapter.core.usage import Usage

__all__ = ["Budgets", "OnExceeded", "exceeded"]

OnExceeded = Literal["refuse", "end", "ask"]
_WHAT = ("model_calls", "tool_calls", "tokens", "cost")
_SPANS = ("turn", "thread", "user")
_REMEMBERED = 64
_PER = {span: f"per_{span}" for span in _SPANS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Limits of model calls that are made, tool calls that start, tokens, dollars and rates.

    Refused, rejected and replayed tool calls cost nothing; a retried one costs one call. Counts
    are exact. Tokens and cost are reserved before a model call and settled to its real usage, so
    they may be exceeded by the calls in flight: a call may begin while anything is left.

    Attributes:
        model_calls_per_turn: Model calls of one user turn.
        model_calls_per_thread: Of one thread; None has no limit, as for all below.
        model_calls_per_user: Of one authenticated user; without authentication, of the thread.
        tool_calls_per_turn: Tool calls of one user turn; per thread and user likewise.
        tokens_per_turn: Tokens in and out; per thread and user likewise.
        cost_per_turn: Dollars as a Decimal or text, kept in whole micro-dollars; per thread and
            user likewise. Needs ``prices``.
        refusals_per_turn: How often in one user turn people may say no to the same call (one tool,
            one set of arguments): then nobody is asked about it again. None asks for ever.
        tool_rate: Rate of tool calls of one user (without authentication: of the thread), a
            Rate or a text such as ``10/minute``.
        model_rate: Rate of model calls, likewise.
        reserve_tokens: Reserved for a model call whose model names no ``max_tokens``.
        on_exceeded: ``refuse``: each further call is refused, and the model may go on while model
            calls last. ``end``: the turn ends. ``ask``: a person is asked for a raise.
        prices: Prices of models, or a mapping that PriceTable takes.
        context_limits: Key of the run's context for a limit above, by the limit's name, such as
            ``{"tool_calls_per_turn": "max_calls"}``. What the caller sets there can only lower the
            limit.
    """

    model_calls_per_turn: int = 10
    model_calls_per_thread: int | None = None
    model_calls_per_user: int | None = None
    tool_calls_per_turn: int = 20
    tool_calls_per_thread: int | None = None
    tool_calls_per_user: int | None = None
    tokens_per_turn: int | None = None
    tokens_per_thread: int | None = None
    tokens_per_user: int | None = None
    cost_per_turn: Decimal | str | int | None = None
    cost_per_thread: Decimal | str | int | None = None
    cost_per_user: Decimal | str | int | None = None
    refusals_per_turn: int | None = 5
    tool_rate: Rate | str | None = None
    model_rate: Rate | str | None = None
    reserve_tokens: int = 1024
    on_exceeded: OnExceeded = "end"
    prices: Prices | Mapping[str, Any] | None = None
    context_limits: Mapping[str, str] = field(default_factory=dict)
    _set: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _made: dict[tuple[Any, ...], tuple[Limits, tuple[Charge, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Refuse a budget nothing fits in, or no counter holds; read rates and dollars strictly."""
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name.startswith("cost_per") and value is not None:
                value = decimal_of(value, f"Budgets.{one.name}")
                object.__setattr__(self, one.name, value)
                if micro_dollars(value) < 1:
                    msg = f"Budgets.{one.name} must be more than 0 dollars."
                    raise ConfigurationError(msg)
            elif "_per_" in one.name or one.name == "reserve_tokens":
                check_whole(one.name, value)
        for name, key in self.context_limits.items():
            if "_per_" not in name or getattr(self, name, None) is None or not key:
                msg = (
                    f"Budgets.context_limits has {name!r}: {key!r}: it names a limit that is set "
                    "here, and the key of the run's context that may lower it."
                )
                raise ConfigurationError(msg)
        for name in ("tool_rate", "model_rate"):
            object.__setattr__(self, name, Rate.parse(getattr(self, name)))
        if self.on_exceeded not in ("refuse", "end", "ask"):
            msg = f"Budgets.on_exceeded is 'refuse', 'end' or 'ask', not {self.on_exceeded!r}."
            raise ConfigurationError(msg)
        if isinstance(self.prices, Mapping):
            object.__setattr__(self, "prices", PriceTable(self.prices))
        # Asked for at every call: the spans that have a limit.
        limited = {
            what: tuple(span for span in _SPANS if getattr(self, _field(what, span)) is not None)
            for what in _WHAT
        }
        object.__setattr__(self, "_set", limited)

    @property
    def asks(self) -> bool:
        """Whether a person is asked for a raise when a budget is spent."""
        return self.on_exceeded == "ask"

    @property
    def metered(self) -> bool:
        """Whether tokens or cost have a budget."""
        return bool(self._set["tokens"] or self._set["cost"])

    def limit(self, what: str, span: str, ctx: CallContext | None = None) -> int | None:
        """Return a budget's size in its own unit (calls, tokens, micro-dollars); None for none.

        Args:
            what: ``model_calls``, ``tool_calls``, ``tokens`` or ``cost``.
            span: ``turn``, ``thread`` or ``user``.
            ctx: Where, if what the run's caller set counts.

        Raises:
            ConfigurationError: The run's context has no such size where a limit reads it.
        """
        name = _field(what, span)
        size = getattr(self, name)
        if size is None:
            return None
        made: int | None = micro_dollars(size) if isinstance(size, Decimal) else size
        key = None if ctx is None else self.context_limits.get(name)
        if ctx is None or key is None or made is None or ctx.context.get(key) is None:
            return made
        return min(made, said_size(ctx.context[key], key, dollars=what == "cost"))

    def named(self, ctx: CallContext) -> dict[str, tuple[str, int]]:
        """Return name and size of every budget that holds here, by its counter's scope."""
        return {
            counter(ctx, span, what): (f"{what}_per_{span}", size)
            for what in _WHAT
            for span in self._spans(ctx, what)
            if (size := self.limit(what, span, ctx)) is not None
        }

    def model_call(self, ctx: CallContext, mark: str = "") -> tuple[Charge, ...]:
        """Charges of one model call, without its tokens.

        Args:
            ctx: Where.
            mark: Names this model call in the windows of rates.
        """
        return (*self._counts(ctx, "model_calls"), *rated(self.model_rate, ctx, "model", mark))

    def tool_call(self, ctx: CallContext, spec: ToolSpec, mark: str = "") -> tuple[Charge, ...]:
        """Charges of one tool call that starts.

        Args:
            ctx: Where.
            spec: The tool.
            mark: The call key: one token of a rate per call, whatever becomes of it.
        """
        counts = self._tool_counts(ctx, spec)
        rate = Rate.parse(spec.limits.rate)
        if rate is None and self.tool_rate is None:
            return counts
        own = () if rate is None else (window(f"rate:tool:{spec.name}", rate, mark),)
        return (*counts, *rated(self.tool_rate, ctx, "tool", mark), *own)

    def refusals(self, ctx: CallContext, call: str) -> tuple[Charge, ...]:
        """Return the charge of a person's no to a call; the call may be asked about while it fits.

        Args:
            ctx: Where; without turns and their messages nothing is counted.
            call: Names the call by its tool and arguments.
        """
        limit = self.limit("refusals", "turn", ctx)
        if limit is None or ctx.place.turnless or not ctx.place.turn_id:
            return ()
        return (Charge(scope=counter(ctx, "turn", f"refusals:{call}"), limit=limit),)

    def _tool_counts(self, ctx: CallContext, spec: ToolSpec) -> tuple[Charge, ...]:
        limits, place = spec.limits, ctx.place
        # the calls of one message ask one after the other
        where = (place.thread_id, place.turn_id, place.turnless, ctx.user, spec.name)
        known = self._made.get(where)
        if known is not None and known[0] is limits:
            return known[1]
        total = self.thread_total(ctx)
        # counted with or without a limit: it is shown
        limit = self.limit("tool_calls", "thread", ctx)
        charges = [Charge(scope=total, limit=limit, raisable=self.asks)]
        charges += [one for one in self._counts(ctx, "tool_calls") if one.scope != total]
        for span in _SPANS[1:] if place.turnless else _SPANS:
            size = getattr(limits, _PER[span])
            if size is not None:
                scope = counter(ctx, span, f"tool:{spec.name}")
                charges.append(Charge(scope=scope, limit=min(size, MOST)))
        counts = tuple(charges)
        if not self.context_limits:  # those differ from run to run
            if len(self._made) >= _REMEMBERED:
                self._made.clear()
            self._made[where] = (limits, counts)
        return counts

    def reserve(self, ctx: CallContext, model: str, tokens: int) -> tuple[Charge, ...]:
        """Return what to hold back for a model call: the call fits while anything is left.

        Args:
            ctx: Where.
            model: The model's name.
            tokens: Most tokens it may answer.

        Raises:
            ConfigurationError: There is a budget of cost and no price for this model.
        """
        charges = []
        for what, amount in self._amounts(model, Usage(output=tokens)).items():
            for span in _SPANS:
                size = self.limit(what, span, ctx)
                if size is not None:
                    held = max(amount, 1)
                    scope = counter(ctx, span, what)
                    limit = size + held - 1
                    charges.append(
                        Charge(scope=scope, amount=held, limit=limit, raisable=self.asks)
                    )
        return tuple(charges)

    def used(self, ctx: CallContext, model: str, usage: Usage) -> tuple[Charge, ...]:
        """Return charges of what a model call really used; they have no limit."""
        return tuple(
            Charge(scope=counter(ctx, span, what), amount=amount)
            for what, amount in self._amounts(model, usage).items()
            for span in _SPANS
            if self.limit(what, span) is not None
        )

    def knows(self, model: str) -> bool:
        """Tell whether this model has a price."""
        return self._cost(model, Usage()) is not None

    def thread_total(self, ctx: CallContext) -> str:
        """Counter of all tool calls of a thread, also for display."""
        return counter(ctx, "thread", "tool_calls")

    def _counts(self, ctx: CallContext, what: str) -> list[Charge]:
        return [
            Charge(scope=counter(ctx, span, what), limit=size, raisable=self.asks)
            for span in self._spans(ctx, what)
            if (size := self.limit(what, span, ctx)) is not None
        ]

    def _spans(self, ctx: CallContext, what: str) -> tuple[str, ...]:
        spans = self._set[what]
        return tuple(span for span in spans if span != "turn") if ctx.place.turnless else spans

    def _amounts(self, model: str, usage: Usage) -> dict[str, int]:
        # What no counter holds spends every budget there can be.
        amounts = {"tokens": min(usage.tokens, MOST)}
        if any(self.limit("cost", span) for span in _SPANS):
            cost = self._cost(model, usage)
            if cost is None:
                msg = (
                    f"There is a budget of cost and no price for the model {model or '(no name)'}: "
                    "name a price file that has it in ADAPTER_PRICES (or ADAPTER_PRICES=genai), "
                    "or remove the budget."
                )
                raise ConfigurationError(msg)
            amounts["cost"] = min(cost, MOST)
        return amounts

    def _cost(self, model: str, usage: Usage) -> int | None:
        prices = self.prices
        if prices is None or isinstance(prices, Mapping):
            return None
        return prices.cost(model, usage)


@cache
def _field(what: str, span: str) -> str:
    return f"{what}_per_{span}"
