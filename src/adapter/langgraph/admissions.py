"""Admitting the calls of a message once, although each of them asks.

Remembers what was admitted, not that it was: other middleware and clients change messages, so a
verdict counts only for exactly the calls it was given for.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from typing import Any

from langchain_core.messages import AIMessage

from adapter.core.executor import Executor
from adapter.core.validation import Admission
from adapter.langgraph import history

__all__ = ["Admissions"]

_REMEMBERED = 256
"""Messages remembered."""


class Admissions:
    """Verdicts on the newest messages of one executor."""

    def __init__(self, executor: Executor) -> None:
        """Take the executor whose registry admits."""
        self._executor = executor
        self._known: OrderedDict[str, tuple[str | bytes, Admission]] = OrderedDict()
        self._asks: OrderedDict[str, tuple[Admission, bool]] = OrderedDict()

    def of(self, message: AIMessage, answered: set[str]) -> Admission:
        """Return the verdict on the calls of a message that have no result yet."""
        asked = _written(
            (
                message.tool_calls,
                message.invalid_tool_calls,
                sorted(answered),
            )
        )
        key = message.id or ""
        known = self._known.get(key)
        if known is not None and known[0] == asked:
            return known[1]
        admission = self._executor.admit(history.batch_of(message, answered))
        self._known[key] = (asked, admission)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return admission

    def asks(self, message: AIMessage, answered: set[str]) -> bool:
        """Tell whether a person must decide about a call of a message that has no result yet."""
        admission, key = self.of(message, answered), message.id or ""
        known = self._asks.get(key)
        if known is not None and known[0] is admission:
            return known[1]
        calls = history.batch_of(message, answered).calls
        found = any(self._executor.confirms(call, admission) for call in calls)
        self._asks[key] = (admission, found)
        while len(self._asks) > _REMEMBERED:
            self._asks.popitem(last=False)
        return found


def _written(asked: Any) -> str | bytes:
    """Write calls out: 1, 1.0 and True are equal, and other middleware changes messages in place.

    Marshal tells types apart as ``repr`` does, in a sixth of its time, and takes plain values only.
    """
    try:
        return marshal.dumps(asked, 0)
    except ValueError:
        return repr(asked)
