"""One tool call on its way through the stages: the facts every stage needs, gathered once."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.core.audit import Subject
from adapter.core.invoke import Invocation
from adapter.core.journal import Identity
from adapter.core.spec import ToolSpec
from adapter.core.types import CallContext, JsonObject, ToolCall

__all__ = ["Work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A validated, identified call.

    Attributes:
        arguments: Canonical arguments from the model, before any edit.
    """

    spec: ToolSpec
    call: ToolCall
    ctx: CallContext
    identity: Identity
    subject: Subject
    arguments: JsonObject
    invocation: Invocation
