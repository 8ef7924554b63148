"""What happens around each model call: history repaired, budget charged, batch admitted.

Runs inside wrap_model_call, outside of which no step is added to the graph. Calls are never run
here and never approved here: that happens where each call runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command

from adapter.core.audit import Subject
from adapter.core.budgets import exceeded
from adapter.core.errors import ConfigurationError, ModelVisibleError
from adapter.core.executor import Executor
from adapter.core.store import StoredEvent, Turn
from adapter.core.types import CallContext
from adapter.core.validation import Admission, Batch
from adapter.langgraph import history, results
from adapter.langgraph.admissions import Admissions
from adapter.langgraph.mending import Mender
from adapter.langgraph.metering import Handler, Meter
from adapter.langgraph.scope import front_end
from adapter.langgraph.spending import Spending, closing
from adapter.langgraph.surroundings import surroundings

__all__ = ["ModelTurn"]

_SHOWN = ("decision", "reviewer", "reason", "error", "code")
_DETAILS = frozenset(_SHOWN)


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One model call under governance."""

    executor: Executor
    admissions: Admissions

    async def call(self, request: ModelRequest[Any], handler: Handler) -> Any:
        """Repair, charge, call the model, admit what it proposes.

        Returns:
            The response, with error messages for calls that will not run and the state update
            for clients.
        """
        with front_end():
            return await self._call(request, handler)

    async def _call(self, request: ModelRequest[Any], handler: Handler) -> Any:
        self._offered(request.tools)
        messages: list[BaseMessage] = list(request.messages)
        ctx = surroundings(request.runtime, history.turn_of(messages))
        mended = await Mender(self.executor).mended(messages, ctx)
        if mended is not None:
            messages = mended
            request = request.override(messages=cast("Any", messages))
        made: list[BaseMessage] = []
        response: ModelResponse[Any] | None = None
        spending, meter = Spending(self.executor), Meter(self.executor)
        refused = await spending.earlier(ctx, messages)
        while True:
            held = meter.held(request, ctx)
            turn = await spending.charged(ctx, held, refused)
            if turn.exceeded is not None:
                made.append(AIMessage(closing(turn.exceeded)))
                break
            response, settled = await meter.call(request, handler, ctx, held)
            added = await self._admitted(response.result, ctx, {**turn.used, **settled})
            made.extend(added)
            newest = history.last_ai(added)[1]
            if newest is None or newest.tool_calls or not newest.invalid_tool_calls:
                break
            # Only unreadable calls: LangGraph would end here, so the model is asked again now.
            messages = [*messages, *added]
            request = request.override(messages=cast("Any", messages))
        result: list[BaseMessage] = made
        if mended is not None:
            result = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *request_history(request, made), *made]
        structured = None if response is None else response.structured_response
        return ExtendedModelResponse(
            model_response=ModelResponse(result=result, structured_response=structured),
            command=Command(update=self._shown(ctx, turn)),
        )

    def _offered(self, tools: Sequence[Any]) -> None:
        unknown = sorted(
            tool.name
            for tool in tools
            if isinstance(tool, BaseTool) and self.executor.registry.get(tool.name) is None
        )
        if unknown:
            msg = (
                f"These tools of the agent have no ToolSpec: {', '.join(unknown)}. Give the "
                "registry one for each (in the template: src/agent/policies.py)."
            )
            raise ConfigurationError(msg)

    def _shown(self, ctx: CallContext, turn: Turn) -> dict[str, Any]:
        total = turn.used.get(self.executor.budgets.thread_total(ctx), 0)
        shown = {
            "audit_log": [_entry(event) for event in turn.recent],
            "total_tool_calls": total,
            "turn_id": ctx.place.turn_id,
        }
        if turn.head is not None:
            # Kept where whoever writes the store's database may not reach: `adapter audit verify`.
            head = turn.head
            shown["audit_head"] = {
                "thread_id": head.thread_id,
                "seq": head.seq,
                "hash": head.hash,
            }
        return shown

    async def _admitted(
        self, result: Sequence[BaseMessage], ctx: CallContext, used: Mapping[str, int]
    ) -> list[BaseMessage]:
        """Return the model's messages, followed by an error for each call that will not run."""
        made = list(result)
        index, message = history.last_ai(made)
        if message is None or not (message.tool_calls or message.invalid_tool_calls):
            return made
        answered = history.answered_ids(made, index)
        if not message.id:
            message = message.model_copy(update={"id": f"ai-{self.executor.journal.ids()}"})
        batch = history.batch_of(message, answered)
        made[index] = message = history.with_ids(message)
        if not batch.calls and not batch.unparsable:
            return made
        ctx = replace(ctx, metadata={"message_id": message.id or ""})
        self._proposed(batch, ctx, message.id or "")
        faults = dict(self._verdict(batch, message, answered).faults)
        ended = "" if faults else Spending(self.executor).last(ctx, used)
        if ended:
            spent = exceeded(ended)
            faults = {call.id: spent for call in batch.calls}
        if not faults:
            return made
        made[index] = history.checkpointable(message)
        names = {call.id: call.name for call in batch.calls} | dict(batch.unparsable)
        await self.executor.refuse(faults, names, ctx)
        made.extend(_errors(faults, names))
        if ended:
            made.append(AIMessage(closing(ended)))
        return made

    def _verdict(self, batch: Batch, message: AIMessage, answered: set[str]) -> Admission:
        """Admit the batch as proposed; once ids were mended, no later verdict is the same."""
        ids = [call.id for call in batch.calls] + [call_id for call_id, _ in batch.unparsable]
        if len(set(ids)) != len(ids):
            return self.executor.admit(batch)
        return self.admissions.of(message, answered)

    def _proposed(self, batch: Any, ctx: CallContext, message_id: str) -> None:
        registry = self.executor.registry
        events = [
            self.executor.audit.event(
                "proposed",
                ctx,
                Subject(
                    tool=call.name, call_id=call.id, key=message_id, spec=registry.get(call.name)
                ),
                part=f"{call.id}:{number}",
                arguments=call.arguments if isinstance(call.arguments, dict) else {},
            )
            for number, call in enumerate(batch.calls)
        ]
        events += [
            self.executor.audit.event(
                "proposed", ctx, Subject(tool=name, call_id=call_id, key=message_id), part=call_id
            )
            for call_id, name in batch.unparsable
        ]
        # Whatever a call does first in the store is committed after this.
        self.executor.store.post(events)


def request_history(request: ModelRequest[Any], made: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the mended history without what this model call itself added."""
    own = {id(message) for message in made}
    return [message for message in request.messages if id(message) not in own]


def _errors(faults: dict[str, ModelVisibleError], names: dict[str, str]) -> list[ToolMessage]:
    return [
        results.error_message(error, call_id, names.get(call_id, ""))
        for call_id, error in faults.items()
    ]


def _entry(event: StoredEvent) -> dict[str, Any]:
    body = orjson.loads(event.line)["body"]
    data = body["data"]
    entry = {
        "seq": event.seq,
        "kind": body["kind"],
        "tool": body["tool"],
        "call_id": body["call_id"],
        "at": body["at"],
    }
    if not _DETAILS.isdisjoint(data):
        entry.update((name, data[name]) for name in _SHOWN if name in data)
    return entry
