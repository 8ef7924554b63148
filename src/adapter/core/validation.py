"""Strict validation of arguments, and admission of a whole batch of calls at once.

Nothing is coerced: text is not a number, True is not 1, an argument the tool does not declare is
refused. Messages name the argument and the fault, never a value or an injected argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from adapter.core.canonical import SAFE_INTEGER, checked_json
from adapter.core.errors import ModelVisibleError, ToolArgsInvalid, UnknownTool
from adapter.core.spec import Registry
from adapter.core.types import JsonObject, ToolCall

__all__ = ["Admission", "Batch", "PydanticSchema", "admit", "ghosts"]

_SKIPPED = (
    "Not executed: another tool call in this message was invalid, so none of them ran. "
    "Correct that call and send this one again."
)


class PydanticSchema:
    """An ArgumentSchema over a pydantic model."""

    def __init__(self, model: type[BaseModel], json_schema: JsonObject | None = None) -> None:
        """Take the model.

        Args:
            model: Model of the arguments the tool's caller fills in.
            json_schema: The schema shown to the model, if it differs from the model's own.
        """
        self._model = self.model = model
        self.json_schema = _portable(json_schema or model.model_json_schema())
        self._open = bool(model.model_config.get("extra") == "allow") or any(
            "properties" in part and part.get("additionalProperties") is True
            for part in self.json_schema.get("$defs", {}).values()
        )
        self._names = tuple(model.model_fields)

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments as they will run: validated strictly, static defaults filled in.

        Raises:
            ToolArgsInvalid: Names each fault.
        """
        body = checked_json(arguments)
        try:
            made = self._model.model_validate_json(
                body, strict=True, extra=None if self._open else "forbid"
            )
        except ValidationError as error:
            raise ToolArgsInvalid(self._explain(error)) from None
        dumped = made.model_dump(mode="json")
        fields = self._model.model_fields
        # A default made anew on every run would give the call another digest on every run.
        return {
            name: value
            for name, value in dumped.items()
            if name not in fields
            or name in made.model_fields_set
            or fields[name].default_factory is None
        }

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments that are no JSON, validated strictly as Python values.

        Raises:
            ToolArgsInvalid: Names each fault.
        """
        try:
            made = self._model.model_validate(
                dict(arguments), strict=True, extra=None if self._open else "forbid"
            )
        except ValidationError as error:
            raise ToolArgsInvalid(self._explain(error)) from None
        return dict(made)

    def _explain(self, error: ValidationError) -> str:
        faults = []
        for item in error.errors(include_url=False, include_input=False, include_context=False):
            where = ".".join(str(part) for part in item["loc"]) or "arguments"
            if item["type"] == "extra_forbidden":
                faults.append(f"{where}: unknown argument")
            else:
                faults.append(f"{where}: {item['msg']}")
        accepted = ", ".join(self._names) or "none"
        return f"Invalid arguments: {'; '.join(faults[:10])}. Accepted arguments: {accepted}."


def _portable(schema: Any) -> Any:
    """Return a schema with canonical numbers: a bound may be an integer beyond JSON's safe ones."""
    if isinstance(schema, dict):
        return {name: _portable(part) for name, part in schema.items()}
    if isinstance(schema, list):
        return [_portable(part) for part in schema]
    if type(schema) is int and abs(schema) > SAFE_INTEGER:
        try:
            return float(schema)
        except OverflowError:
            return str(schema)
    return schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The calls of one AI message that have no result yet.

    Attributes:
        calls: In the order the model wrote them; ids may repeat, which is a fault.
        unparsable: Id and name of calls whose arguments were no JSON object.
    """

    calls: tuple[ToolCall, ...]
    unparsable: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Whether a batch may go on: with any fault, no call of it runs.

    Attributes:
        faults: Error per distinct call id, for every call of the batch; empty when admitted.
        arguments: Canonical arguments per call id, when admitted.
        culprits: Ids of the calls that are at fault themselves.
    """

    faults: Mapping[str, ModelVisibleError] = field(default_factory=dict)
    arguments: Mapping[str, JsonObject] = field(default_factory=dict)
    culprits: frozenset[str] = frozenset()

    @property
    def admitted(self) -> bool:
        """Whether the calls may go on to their own stages."""
        return not self.faults


def ghosts(arguments: JsonObject, schema: JsonObject) -> list[str]:
    """Return the names of arguments that a tool does not declare, in the order they came.

    Args:
        arguments: As the model wrote them.
        schema: JSON schema of the tool's arguments; one that takes any further ones has no ghosts.
    """
    if schema.get("additionalProperties") not in (None, False):
        return []
    return [name for name in arguments if name not in schema.get("properties", {})]


def admit(
    batch: Batch,
    registry: Registry,
    *,
    strip: bool = False,
    unnamed: Collection[str] = (),
) -> Admission:
    """Check a whole batch against the registry: a pure function of the batch.

    Args:
        batch: The calls of one AI message.
        registry: Every tool there is.
        strip: Leave out top-level arguments a tool does not declare, instead of refusing them.
        unnamed: Tools that are not offered, so that no message names them.

    Returns:
        Canonical arguments for all, or one error for each distinct call id.
    """
    bad: dict[str, ModelVisibleError] = {}
    good: dict[str, JsonObject] = {}
    for call_id, name in batch.unparsable:
        bad[call_id] = ToolArgsInvalid(
            f"The arguments of {_shown(name)} were not a JSON object; send them again."
        )
    times = Counter(call.id for call in batch.calls)
    times.update(call_id for call_id, _ in batch.unparsable)
    for call in batch.calls:
        if times[call.id] > 1:
            bad[call.id] = ToolArgsInvalid(
                "Two tool calls in one message have the same id; give each call its own id."
            )
            continue
        try:
            good[call.id] = _arguments(call, registry, strip=strip, unnamed=unnamed)
        except ModelVisibleError as error:
            bad[call.id] = error
    if not bad:
        return Admission(arguments=good)
    skipped = ToolArgsInvalid(_SKIPPED)
    faults = {call_id: bad.get(call_id, skipped) for call_id in times}
    return Admission(faults=faults, culprits=frozenset(bad))


def _arguments(
    call: ToolCall, registry: Registry, *, strip: bool, unnamed: Collection[str]
) -> JsonObject:
    if registry.get(call.name) is None:
        offered = ", ".join(name for name in registry.names if name not in unnamed) or "none"
        msg = f"There is no tool named {_shown(call.name)}. Tools are: {offered}."
        raise UnknownTool(msg)
    if not isinstance(call.arguments, dict):
        msg = "The arguments must be one JSON object."
        raise ToolArgsInvalid(msg)
    schema = registry.schemas[call.name]
    arguments = call.arguments
    if strip:
        checked_json(arguments)  # also what is left out is part of the call's key
        extra = set(ghosts(arguments, schema.json_schema))
        arguments = {name: value for name, value in arguments.items() if name not in extra}
    return schema.validate(arguments)


def _shown(name: object) -> str:
    """Quote an invented name without letting it flood or break a message."""
    text = str(name)
    return repr(text if len(text) <= 64 else text[:61] + "...")
